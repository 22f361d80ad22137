"""Resources: what can be read by URI, and lists of it."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from mcp.shared.uri_template import UriTemplate
from mcp_types import BlobResourceContents, ReadResourceResult, Resource, TextResourceContents
from mcp_types import ResourceTemplate as TemplateDefinition

from loom_core.server.wellformed import well_formed

__all__ = [
    "ListFunction",
    "ReadFunction",
    "ResourceContent",
    "ResourceEntry",
    "ResourcePage",
    "ResourceTemplate",
    "resource_uri",
]


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """What a resource holds: text, or bytes of the given media type."""

    data: str | bytes
    mime_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One line of a list of resources.

    Attributes:
        uri: what to read it by.
        name: short name for programs.
        title: name for people, or empty.
        description: one sentence, or empty.
        mime_type: media type of the content, or empty.
        size: bytes of the content, or None where it is not known without reading.
    """

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None

    def definition(self) -> Resource:
        """The entry in the protocol's terms."""
        return Resource(
            uri=well_formed(self.uri),
            name=well_formed(self.name),
            title=well_formed(self.title) or None,
            description=well_formed(self.description) or None,
            mime_type=self.mime_type or None,
            size=self.size,
        )


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A part of a list of resources, and the cursor of the next part if there is one."""

    entries: Sequence[ResourceEntry]
    next_cursor: str | None = None


ReadFunction = Callable[..., Awaitable[ResourceContent]]
"""An `async def` whose parameters are the variables of its template, all of them strings."""

ListFunction = Callable[[str | None], Awaitable[ResourcePage]]
"""Takes the cursor of the wanted page, or None for the first; raises InvalidInputError for a strange one."""


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """A family of resources under one URI template (RFC 6570), such as `loom://{kb}/{id}`."""

    definition: TemplateDefinition
    _template: UriTemplate
    _read: ReadFunction

    @classmethod
    def of(
        cls, uri_template: str, function: ReadFunction, *, name: str, title: str, description: str
    ) -> ResourceTemplate:
        """Make a template of a function.

        Raises:
            ValueError: the template is not valid, or the function's parameters are not its variables.
        """
        template = UriTemplate.parse(uri_template)
        parameters = list(inspect.signature(function).parameters)
        if sorted(parameters) != sorted(template.variable_names):
            raise ValueError(f"resource {uri_template!r}: {parameters} are not the variables of the template")
        definition = TemplateDefinition(
            uri_template=uri_template, name=name, title=title, description=description
        )
        return cls(definition, template, function)

    async def read(self, uri: str) -> ReadResourceResult | None:
        """The content behind a URI, or None if the URI is of another family.

        Raises:
            Exception: whatever the function raises.
        """
        variables = self._template.match(uri)
        if variables is None:
            return None
        content = await self._read(**variables)
        if isinstance(content.data, bytes):
            blob = base64.b64encode(content.data).decode()
            return ReadResourceResult(
                contents=[BlobResourceContents(uri=uri, blob=blob, mime_type=content.mime_type)]
            )
        return ReadResourceResult(
            contents=[
                TextResourceContents(uri=uri, text=well_formed(content.data), mime_type=content.mime_type)
            ]
        )


def resource_uri(uri_template: str, **variables: str) -> str:
    """The URI of one resource of a template: `resource_uri("loom://{kb}/{id}", kb="产品", id="a/b")`.

    Values are percent-encoded, so that they come back as they were in the function that reads.
    """
    return UriTemplate.parse(uri_template).expand(
        {name: well_formed(value) for name, value in variables.items()}
    )
