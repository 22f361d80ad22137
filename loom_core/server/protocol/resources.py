"""Resources: content by URI, and their lists."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.uri_template import UriTemplate
from mcp_types import BlobResourceContents, ReadResourceResult, Resource, ResourceLink, TextResourceContents
from mcp_types import ResourceTemplate as TemplateDefinition

from loom_core.errors import NotFoundError
from loom_core.json_repair import well_formed
from loom_core.server.calls.context import ToolContext, bind_call_context, parameters
from loom_core.server.protocol.errors import protocol_error

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

__all__ = [
    "ListFunction",
    "ReadFunction",
    "ResourceContent",
    "ResourceEntry",
    "ResourcePage",
    "Resources",
    "ServedResource",
    "resource_uri",
]


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """Content of a resource: text, or bytes of the given media type, and its `_meta`, if it has any."""

    data: str | bytes = field(repr=False)
    mime_type: str = "text/plain"
    meta: dict[str, Any] | None = None

    def contents(self, uri: str) -> TextResourceContents | BlobResourceContents:
        """Convert it to the protocol's form: text as it is, bytes in base64."""
        uri = well_formed(uri)
        if isinstance(self.data, bytes):
            blob = base64.b64encode(self.data).decode()
            return BlobResourceContents(uri=uri, blob=blob, mime_type=self.mime_type, _meta=self.meta)
        return TextResourceContents(
            uri=uri, text=well_formed(self.data), mime_type=self.mime_type, _meta=self.meta
        )


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """An entry of a list of resources; in an answer or a message, a link to a resource.

    Attributes:
        uri: its URI.
        name: short name for programs.
        title: name for people, or empty.
        description: one sentence, or empty.
        mime_type: media type of the content, or empty.
        size: bytes of the content, or None if unknown without reading.
    """

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None

    def definition(self) -> Resource:
        """Convert the entry to the protocol's form in a list."""
        return Resource(**self._fields())

    def link(self) -> ResourceLink:
        """Convert the entry to a link in an answer."""
        return ResourceLink(**self._fields())

    def _fields(self) -> dict[str, Any]:
        return {
            "uri": well_formed(self.uri),
            "name": well_formed(self.name),
            "title": well_formed(self.title) or None,
            "description": well_formed(self.description) or None,
            "mime_type": self.mime_type or None,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A part of a list of resources, and the cursor of the next part if there is one."""

    entries: Sequence[ResourceEntry]
    next_cursor: str | None = None


ReadFunction = Callable[..., Awaitable[ResourceContent]]
"""An `async def` whose parameters are the variables of its template, all of them strings.

It may also have one of type `ToolContext`.
"""

ListFunction = Callable[..., Awaitable[ResourcePage]]
"""Takes the cursor of a page, or None for the first; raises `InvalidInputError` for an unknown one.

It may also have a parameter of type `ToolContext`.
"""


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One resource, or a family of them under a URI template (RFC 6570), such as `loom://{kb}/{id}`.

    Attributes:
        uri: the URI, or the template.
        entry: entry of a single resource in the list; None for a template, and for an unlisted resource.
        definition: definition of a template in the list of templates; None for a single resource.
        variables: variables of the template; empty for a single resource.
    """

    uri: str
    entry: ResourceEntry | None
    definition: TemplateDefinition | None
    variables: tuple[str, ...]
    _template: UriTemplate
    _read: Callable[..., Awaitable[ResourceContent]]
    _ttl_ms: int

    @classmethod
    def of(
        cls,
        uri: str,
        function: ReadFunction,
        *,
        name: str,
        title: str,
        description: str,
        mime_type: str,
        ttl_seconds: float,
        listed: bool,
    ) -> ServedResource:
        """Create a resource or a template from a function; parameters as in `LoomServer.resource`.

        Raises:
            ValueError: the template is invalid, the function's parameters are not its variables, or the TTL
                is negative.
        """
        template = UriTemplate.parse(uri)
        wanted = [name for name, hint in parameters(function).items() if hint is not ToolContext]
        if sorted(wanted) != sorted(template.variable_names):
            raise ValueError(f"resource {uri!r}: {wanted} are not the variables of the template")
        if not inspect.iscoroutinefunction(function):
            raise ValueError(
                f"resource {uri!r}: the function must be async; blocking work belongs in a thread"
            )
        if ttl_seconds < 0:
            raise ValueError(f"resource {uri!r}: it cannot stay fresh for {ttl_seconds} s")
        entry = definition = None
        if template.variable_names:
            definition = TemplateDefinition(
                uri_template=uri,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type or None,
            )
        elif listed:
            entry = ResourceEntry(uri, name, title, description, mime_type)
        return cls(
            uri,
            entry,
            definition,
            tuple(template.variable_names),
            template,
            bind_call_context(function),
            round(ttl_seconds * 1000),
        )

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """Return the values of the variables, or None if the URI is another resource's."""
        return self._template.match(uri)

    async def read(self, uri: str, variables: Mapping[str, Any], context: ToolContext) -> ReadResourceResult:
        """Read the content of a matching URI.

        Raises:
            Exception: whatever the function raises.
        """
        content = await self._read(context, **variables)
        return ReadResourceResult(contents=[content.contents(uri)], ttl_ms=self._ttl_ms)


def resource_uri(uri_template: str, **variables: str) -> str:
    """Build the URI of one resource of a template: `resource_uri("loom://{kb}/{id}", kb="产品", id="a/b")`.

    Values are percent-encoded; the read function gets them back unchanged.
    """
    return UriTemplate.parse(uri_template).expand(
        {name: well_formed(value) for name, value in variables.items()}
    )


_SHOWN = 200  # characters of an address in messages


class Resources:
    """Resources of a server, which declares the capability once one is registered."""

    def __init__(self, protocol: Server[object]) -> None:
        """Start without resources.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._protocol = protocol
        self._served: dict[str, ServedResource] = {}
        self._list = bind_call_context(_nothing)

    def add(self, resource: ServedResource) -> None:
        """Register a resource or template; they are matched in this order.

        Raises:
            ValueError: its URI or template is registered already.
        """
        if resource.uri in self._served:
            raise ValueError(f"resource {resource.uri!r} is registered already")
        self._served[resource.uri] = resource
        self._claim()

    def list_by(self, function: ListFunction) -> None:
        """Set the function that lists further resources, after the registered ones."""
        self._list = bind_call_context(function)
        self._claim()

    def variables(self, uri: str) -> tuple[str, ...]:
        """Return the variables of a template, as it was registered.

        Raises:
            NotFoundError: there is no such template.
        """
        resource = self._served.get(uri)
        if resource is None or not resource.variables:
            raise NotFoundError(f"There is no resource template {uri!r}.")
        return resource.variables

    def _claim(self) -> None:
        paginated = types.PaginatedRequestParams
        add = self._protocol.add_request_handler
        add("resources/list", paginated, self._on_list)
        add("resources/templates/list", paginated, self._on_templates)
        add("resources/read", types.ReadResourceRequestParams, self._on_read)

    async def _on_list(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams
    ) -> types.ListResourcesResult:
        try:
            page = await self._list(ToolContext.of(ctx), params.cursor)
        except Exception as error:
            raise protocol_error(error, "the list of resources") from error
        entries = [resource.entry for resource in self._served.values() if resource.entry]
        shown = page.entries if params.cursor is not None else [*entries, *page.entries]
        return types.ListResourcesResult(
            resources=[entry.definition() for entry in shown], next_cursor=page.next_cursor
        )

    async def _on_templates(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        definitions = [resource.definition for resource in self._served.values() if resource.definition]
        return types.ListResourceTemplatesResult(resource_templates=definitions)

    async def _on_read(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        shown = params.uri[:_SHOWN]
        try:
            for resource in self._served.values():
                variables = resource.match(params.uri)
                if variables is not None:
                    return await resource.read(params.uri, variables, ToolContext.of(ctx))
            raise NotFoundError(f"There is no resource {shown!r}.")
        except Exception as error:
            raise protocol_error(error, f"resource {shown!r}", uri=params.uri) from error


async def _nothing(_cursor: str | None) -> ResourcePage:
    return ResourcePage(())
