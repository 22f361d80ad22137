"""The tools of a server: which there are, and the protocol's requests about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from loom_core.server.tool import Tool

__all__ = ["Tools"]


class Tools:
    """What models can call, in the order of registration."""

    def __init__(self, protocol: Server[object]) -> None:
        """Start without any.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._tools: dict[str, Tool] = {}
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

    def get(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            InvalidInputError: there is none.
        """
        if name not in self._tools:
            names = [tool.name for tool in self._usable()]
            raise InvalidInputError(
                f"There is no tool `{name}`{closest(name, names)}.", advice=f"Tools: {', '.join(names)}."
            )
        return self._tools[name]

    def scope(self, name: str) -> Scope | None:
        """What a caller needs to use a tool, or None if there is no such tool."""
        tool = self._tools.get(name)
        return None if tool is None else tool.scope

    def _usable(self) -> list[Tool]:
        """What the current caller may use."""
        caller = current_caller()
        return [tool for tool in self._tools.values() if caller.may(tool.scope)]

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        """What the transport checks the headers against that repeat arguments."""
        tool = self._tools.get(name)
        return None if tool is None else tool.arguments.schema

    async def _on_list(
        self, ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams
    ) -> types.ListToolsResult:
        context = ToolContext.of(ctx)
        tools = self._usable()
        definitions = [await tool.definition(context) for tool in tools]
        if any(tool.worded for tool in tools):
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
