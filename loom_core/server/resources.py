"""The resources of a server: which there are, and the protocol's requests about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types

from loom_core.errors import NotFoundError
from loom_core.server.context import ToolContext, taking_context
from loom_core.server.failure import protocol_error
from loom_core.server.resource import ListFunction, ResourcePage, ServedResource

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

__all__ = ["Resources"]

_SHOWN = 200  # characters of an address in messages


class Resources:
    """What can be read from a server. It claims to have resources as soon as there are any."""

    def __init__(self, protocol: Server[object]) -> None:
        """Start without any.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._protocol = protocol
        self._served: dict[str, ServedResource] = {}
        self._list = taking_context(_nothing)

    def add(self, resource: ServedResource) -> None:
        """Serve one more; they are tried in this order.

        Raises:
            ValueError: its URI or template is served already.
        """
        if resource.uri in self._served:
            raise ValueError(f"resource {resource.uri!r} is registered already")
        self._served[resource.uri] = resource
        self._claim()

    def list_by(self, function: ListFunction) -> None:
        """List what this function knows, after the single resources that were added."""
        self._list = taking_context(function)
        self._claim()

    def variables(self, uri: str) -> tuple[str, ...]:
        """The variables of a template, as it was registered.

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
