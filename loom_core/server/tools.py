"""The tools of a server: which there are, and the protocol's requests about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError

from loom_core.errors import InvalidInputError
from loom_core.server.caller import current_caller
from loom_core.server.client_input import input_required
from loom_core.server.context import ToolContext
from loom_core.server.failure import told
from loom_core.tools.depth import called_with
from loom_core.tools.function_arguments import closest

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

    from loom_core.server.caller import Scope
    from loom_core.server.schema_tool import SchemaTool
    from loom_core.server.tool import Tool

__all__ = ["LiveTools", "Tools"]

LiveTools: TypeAlias = "Callable[[], Sequence[SchemaTool]]"
"""Gives tools that come and go, those of the current caller."""


class Tools:
    """What models can call, in the order of registration."""

    def __init__(self, protocol: Server[object]) -> None:
        """Start without any.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._tools: dict[str, Tool] = {}
        self._live: LiveTools | None = None
        protocol.get_tool_input_schema = self._input_schema
        protocol.add_request_handler("tools/list", types.PaginatedRequestParams, self._on_list)
        protocol.add_request_handler("tools/call", types.CallToolRequestParams, self._on_call)

    def add(self, tool: Tool) -> None:
        """Offer one more.

        Raises:
            ValueError: its name is taken.
        """
        if tool.name in self._tools:
            raise ValueError(f"tool {tool.name!r} is registered already")
        self._tools[tool.name] = tool

    def add_live(self, live: LiveTools) -> None:
        """Offer behind the others what a function says is there at the time of asking, to who asks."""
        self._live = live

    def get(self, name: str) -> Tool | SchemaTool:
        """The tool of that name.

        Raises:
            InvalidInputError: there is none.
        """
        tool = self._find(name)
        if tool is None:
            names = [tool.name for tool in self._usable()]
            raise InvalidInputError(
                f"There is no tool `{name}`{closest(name, names)}.", advice=f"Tools: {', '.join(names)}."
            )
        return tool

    def scope(self, name: str) -> Scope | None:
        """What a caller needs to use a tool, or None if there is no such tool."""
        tool = self._find(name)
        return None if tool is None else tool.scope

    def _find(self, name: str) -> Tool | SchemaTool | None:
        """The tool of that name; of two, the one that is always there."""
        return self._tools.get(name) or next((tool for tool in self._others() if tool.name == name), None)

    def _others(self) -> Sequence[SchemaTool]:
        return self._live() if self._live is not None else ()

    def _usable(self) -> list[Tool | SchemaTool]:
        """What the current caller may use."""
        caller = current_caller()
        live = [tool for tool in self._others() if tool.name not in self._tools]
        return [tool for tool in (*self._tools.values(), *live) if caller.may(tool.scope)]

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        """What the transport checks the headers against that repeat arguments."""
        tool = self._find(name)
        return None if tool is None else dict(tool.input_schema)

    async def _on_list(
        self, ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams
    ) -> types.ListToolsResult:
        context = ToolContext.of(ctx)
        tools = self._usable()
        definitions = [await tool.definition(context) for tool in tools]
        if self._live is not None or any(tool.worded for tool in tools):
            return types.ListToolsResult(tools=definitions, ttl_ms=0)
        return types.ListToolsResult(tools=definitions)

    async def _on_call(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            with called_with(ctx.meta):
                return await self.get(params.name).call(params.arguments or {}, ToolContext.of(ctx))
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost handler of a tool call
            if needed := input_required(error):
                return needed
            text = told(error, f"tool `{params.name}`")
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
