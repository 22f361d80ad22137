"""`LoomServer`: an MCP server whose tools and resources keep the house rules.

It stands on the SDK's low-level server, whose handlers return whole results: that is what lets definitions
be worded at the time of asking, arguments be refused with advice, lists have pages and errors keep their
own words, without touching anything private. Both protocol eras are served from the same handlers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.server.arguments import closest
from loom_core.server.context import ToolContext
from loom_core.server.failure import protocol_error, told
from loom_core.server.resource import ListFunction, ReadFunction, ResourcePage, ResourceTemplate
from loom_core.server.tool import DESCRIPTION_BYTES, Tool, ToolFunction, WordingFunction

if TYPE_CHECKING:
    from mcp.server.models import InitializationOptions

__all__ = ["LoomServer"]

ToolFunctionT = TypeVar("ToolFunctionT", bound=ToolFunction)
ReadFunctionT = TypeVar("ReadFunctionT", bound=ReadFunction)
ListFunctionT = TypeVar("ListFunctionT", bound=ListFunction)

_Context = ServerRequestContext[Any, Any]


class _ProtocolServer(Server[object]):
    """Tells clients of the handshake era, too, that lists change; the SDK's transports do not ask for it."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changes = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changes, experimental_capabilities, extensions)


class LoomServer:
    """A named set of tools and resources, ready to be served over any transport.

    Attributes:
        protocol: the SDK's server: what a transport runs and what an in-memory `mcp.Client` connects to.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str,
        instructions: str = "",
        website_url: str | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        """Describe the server.

        Args:
            name: what programs call it, such as `loom-kb`.
            version: its own version, not the protocol's.
            title: what people call it.
            instructions: how its tools work together, for the model; at most 2 KB in UTF-8.
            website_url: where it is documented.
            lifespan: opened before the first request and closed after the last one, in any case of an orderly
                end: end of input, SIGTERM, SIGINT, death of the parent.

        Raises:
            ValueError: the instructions are longer than hosts show.
        """
        size = len(instructions.encode())
        if size > DESCRIPTION_BYTES:
            raise ValueError(f"the instructions have {size} bytes, hosts cut them at {DESCRIPTION_BYTES}")
        self._tools: dict[str, Tool] = {}
        self._templates: list[ResourceTemplate] = []
        self._list_resources: ListFunction = _no_resources
        self._events = InMemorySubscriptionBus()
        self._subscriptions = ListenHandler(self._events)

        self.protocol: Server[object] = _ProtocolServer(
            name,
            version=version,
            title=title,
            instructions=instructions or None,
            website_url=website_url,
            lifespan=lambda _: lifespan(),
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_list_prompts=_no_prompts,
            on_get_prompt=_no_prompt,
            on_subscriptions_listen=self._subscriptions,
        )
        self.protocol.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._on_initialized
        )

    def tool(
        self,
        *,
        title: str,
        read_only: bool,
        destructive: bool,
        idempotent: bool,
        open_world: bool,
        name: str = "",
        description: str = "",
        wording: WordingFunction | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[ToolFunctionT], ToolFunctionT]:
        """Register an async function as a tool; `tools/list` shows tools in the order of registration.

        Its parameters become the arguments (describe them with `Annotated[..., Field(description=...)]`), a
        parameter of type `ToolContext` receives the call, and `-> ToolReply[Model]` gives the output schema.

        Args:
            title: name for people.
            read_only: it changes nothing.
            destructive: it may remove or overwrite something; meaningless when read only.
            idempotent: calling it again with the same arguments changes nothing more.
            open_world: it reaches beyond what the user gave to this server, the web for example.
            name: name for models, `[a-z][a-z0-9_]{0,39}`; the function's own if empty.
            description: what it does, when to use it, what it returns; at most 2 KB; the docstring if empty.
            wording: asked at each `tools/list` for a description that depends on what is there.
            meta: the definition's `_meta`.

        Raises:
            ValueError: any of this is not as it must be, or the name is taken.
        """
        annotations = types.ToolAnnotations(
            read_only_hint=read_only,
            destructive_hint=destructive,
            idempotent_hint=idempotent,
            open_world_hint=open_world,
        )

        def register(function: ToolFunctionT) -> ToolFunctionT:
            tool = Tool.of(
                function,
                name=name or function.__name__,
                title=title,
                description=description,
                annotations=annotations,
                wording=wording,
                meta=meta,
            )
            if tool.name in self._tools:
                raise ValueError(f"tool {tool.name!r} is registered already")
            self._tools[tool.name] = tool
            return function

        return register

    def resource(
        self, uri_template: str, *, name: str, title: str, description: str
    ) -> Callable[[ReadFunctionT], ReadFunctionT]:
        """Register an async function that reads the resources of a URI template such as `loom://{kb}/{id}`.

        Its parameters are the template's variables, percent-decoded. It raises `NotFoundError` for what does
        not exist. Templates are tried in the order of registration.

        Raises:
            ValueError: the template is not valid, or its variables are not the function's parameters.
        """

        def register(function: ReadFunctionT) -> ReadFunctionT:
            template = ResourceTemplate.of(
                uri_template, function, name=name, title=title, description=description
            )
            self._templates.append(template)
            self._serve_resources()
            return function

        return register

    def resource_list(self, function: ListFunctionT) -> ListFunctionT:
        """Register the function that answers `resources/list`, page by page."""
        self._list_resources = function
        self._serve_resources()
        return function

    async def tools_changed(self) -> None:
        """Tell every client that wants to know that `tools/list` would answer differently now."""
        await self._events.publish(ToolsListChanged())

    async def resources_changed(self) -> None:
        """Tell every client that wants to know that `resources/list` would answer differently now."""
        await self._events.publish(ResourcesListChanged())

    async def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it has changed (2026-07-28 clients only)."""
        await self._events.publish(ResourceUpdated(uri=uri))

    def end_subscriptions(self) -> None:
        """Finish every open `subscriptions/listen` stream; a transport calls it when it shuts down."""
        self._subscriptions.close()

    def _serve_resources(self) -> None:
        paginated = types.PaginatedRequestParams
        self.protocol.add_request_handler("resources/list", paginated, self._on_list_resources)
        self.protocol.add_request_handler("resources/templates/list", paginated, self._on_list_templates)
        self.protocol.add_request_handler(
            "resources/read", types.ReadResourceRequestParams, self._on_read_resource
        )

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.arguments.schema

    async def _on_list_tools(
        self, _ctx: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[await tool.definition() for tool in self._tools.values()])

    async def _on_call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            tool = self._tools.get(params.name)
            if tool is None:
                raise InvalidInputError(
                    f"There is no tool `{params.name}`{closest(params.name, self._tools)}.",
                    advice=f"Tools: {', '.join(self._tools)}.",
                )
            context = ToolContext(ctx.session, str(ctx.request_id), ctx.protocol_version)
            return await tool.call(params.arguments or {}, context)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost handler of a tool call
            text = told(error, f"tool `{params.name}`")
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)

    async def _on_list_resources(
        self, _ctx: _Context, params: types.PaginatedRequestParams
    ) -> types.ListResourcesResult:
        try:
            page = await self._list_resources(params.cursor)
        except Exception as error:
            raise protocol_error(error, "the list of resources") from error
        return types.ListResourcesResult(
            resources=[entry.definition() for entry in page.entries], next_cursor=page.next_cursor
        )

    async def _on_list_templates(
        self, _ctx: _Context, _params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        definitions = [template.definition for template in self._templates]
        return types.ListResourceTemplatesResult(resource_templates=definitions)

    async def _on_read_resource(
        self, _ctx: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            for template in self._templates:
                result = await template.read(params.uri)
                if result is not None:
                    return result
            raise NotFoundError(f"There is no resource {params.uri!r}.")
        except Exception as error:
            raise protocol_error(error, f"resource {params.uri!r}", uri=params.uri) from error

    async def _on_initialized(self, ctx: _Context, _params: types.NotificationParams) -> None:
        """Forward changes to a client for as long as its connection lives; only the handshake era sends this.

        The SDK runs a notification's handler in the connection's own task group and cancels it when the
        connection ends, so this needs no list of sessions and cannot leak one.
        """
        send, receive = anyio.create_memory_object_stream[ServerEvent](math.inf)
        unsubscribe = self._events.subscribe(send.send_nowait)
        try:
            with send, receive:
                async for event in receive:
                    if isinstance(event, ToolsListChanged):
                        await ctx.session.send_tool_list_changed()
                    elif isinstance(event, ResourcesListChanged):
                        await ctx.session.send_resource_list_changed()
        finally:
            unsubscribe()


async def _no_prompts(
    _ctx: _Context, _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    """An empty list rather than an unknown method: what the conformance suite asks of every server."""
    return types.ListPromptsResult(prompts=[])


async def _no_prompt(_ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    raise protocol_error(NotFoundError(f"There is no prompt {params.name!r}."), f"prompt {params.name!r}")


async def _no_resources(_cursor: str | None) -> ResourcePage:
    return ResourcePage(())
