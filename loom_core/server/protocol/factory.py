"""`LoomServer`: an MCP server with validated tools, resources and prompts.

It builds on the SDK's low-level server, whose handlers return whole results. So definitions can be computed
for each list, invalid arguments get advice, lists have pages and errors keep their messages, without use of
private APIs. Both protocol eras are served by the same handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server import CacheHint, NotificationOptions, Server
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import ToolAnnotations

from loom_core.observability.families import BUILD_INFO
from loom_core.observability.metrics import process_metrics
from loom_core.paths import audit_path
from loom_core.server.calls.request_state import SealedState, StateKeys, state_keys
from loom_core.server.calls.tasks import TasksExtension, TaskSupport, with_tasks
from loom_core.server.middleware.audit import AuditMiddleware
from loom_core.server.middleware.authorization import AuthorizationMiddleware
from loom_core.server.middleware.tracing import LogContextMiddleware, RequestTraceMiddleware
from loom_core.server.protocol.completions import CompleteFunction, Completions
from loom_core.server.protocol.handshake import FIXED_TTL_MS
from loom_core.server.protocol.negotiation import serve_stream
from loom_core.server.protocol.notifications import ChangeNotifier
from loom_core.server.protocol.prompts import Prompt, PromptFunction, Prompts
from loom_core.server.protocol.resources import ListFunction, ReadFunction, Resources, ServedResource
from loom_core.server.protocol.tools import (
    DESCRIPTION_BYTES,
    LiveTools,
    ServedTool,
    ToolFunction,
    Tools,
    WordingFunction,
)
from loom_core.tools.auditing.audit import AuditLog

if TYPE_CHECKING:
    from pathlib import Path

    from mcp.server.models import InitializationOptions
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    from loom_core.observability.metrics import LoomMetrics
    from loom_core.server.auth.caller import Scope
    from loom_core.server.protocol.handshake import Introduction
    from loom_core.server.protocol.tools import SchemaTool
    from loom_core.server.protocol.webhook import Webhook

__all__ = ["LoomServer"]

ToolFunctionT = TypeVar("ToolFunctionT", bound=ToolFunction)
ReadFunctionT = TypeVar("ReadFunctionT", bound=ReadFunction)
ListFunctionT = TypeVar("ListFunctionT", bound=ListFunction)
PromptFunctionT = TypeVar("PromptFunctionT", bound=PromptFunction)
CompleteFunctionT = TypeVar("CompleteFunctionT", bound=CompleteFunction)

# A hint in a result takes precedence.
_FIXED = CacheHint(ttl_ms=FIXED_TTL_MS)


class _ProtocolServer(Server[object]):
    """The SDK's low-level server, with two changes.

    It declares list changes to clients of the handshake era, too, which the SDK's transports do not. And on a
    stream a client may probe before it chooses an era, see `negotiation`.
    """

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(
            notification_options or every, experimental_capabilities, extensions
        )

    async def run(
        self,
        read_stream: ReadStream[SessionMessage | Exception],
        write_stream: WriteStream[SessionMessage],
        initialization_options: InitializationOptions,
        raise_exceptions: bool = False,
    ) -> None:
        async with self.lifespan(self) as state:
            await serve_stream(
                self,
                read_stream,
                write_stream,
                lifespan_state=state,
                options=initialization_options,
                raise_exceptions=raise_exceptions,
            )


class LoomServer:
    """A named set of tools, resources and prompts, ready to be served over any transport.

    Attributes:
        protocol: the SDK's server, for transports and in-memory clients (`mcp.Client`).
        metrics: metrics of the server.
        audit: audit log of calls that may change something; None for none.
        state_keys: returns the keys that several processes of this server share; none if it has none.
        webhooks: what other systems may post to it over HTTP, outside of MCP.
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
        state_keys: StateKeys | None = None,
        resource_updates: bool = False,
        metrics: LoomMetrics | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """Describe the server.

        Args:
            name: name for programs, such as `loom-kb`.
            version: version of the server, not of the protocol.
            title: name for people.
            instructions: how its tools work together, for the model; at most 2 KB in UTF-8.
            website_url: URL of its documentation.
            lifespan: opened before the first request, and closed after the last one at every orderly end: end
                of input, SIGTERM, SIGINT, death of the parent.
            state_keys: returns the keys that several processes of this server share, see `request_state`; by
                default, only the process that requested input can read the response.
            resource_updates: whether it notifies of changes of single resources (`resource_updated`); only
                then can clients subscribe to them.
            metrics: metrics of the server; by default those of this process.
            audit: audit log of calls that may change something, and of refused HTTP requests.

        Raises:
            ValueError: the instructions are longer than hosts show.
        """
        size = len(instructions.encode())
        if size > DESCRIPTION_BYTES:
            raise ValueError(f"the instructions have {size} bytes, hosts cut them at {DESCRIPTION_BYTES}")
        self.protocol: Server[object] = _ProtocolServer(
            name,
            version=version,
            title=title,
            instructions=instructions or None,
            website_url=website_url,
            lifespan=lambda _: with_tasks(lifespan()),
            cache_hints={
                "server/discover": _FIXED,
                "tools/list": _FIXED,
                "prompts/list": _FIXED,
                "resources/templates/list": _FIXED,
            },
        )
        self.audit = audit
        self.webhooks: list[Webhook] = []
        self.metrics = process_metrics if metrics is None else metrics
        self.metrics.watch(BUILD_INFO, lambda: [((name, version), 1.0)])
        self._tools = Tools(self.protocol)
        self.protocol.middleware.append(RequestTraceMiddleware(self._is_offered, self._is_method))
        self.protocol.middleware.append(AuthorizationMiddleware(self.tool_scope, self.metrics))
        self.protocol.middleware.append(LogContextMiddleware(lambda name: self.tool_scope(name) is not None))
        self.protocol.middleware.append(AuditMiddleware(audit, self.tool_scope))
        self.state_keys: StateKeys = state_keys or tuple
        self.protocol.middleware.append(SealedState(name, state_keys))
        self._tasks = TasksExtension(self.protocol)
        self._changes = ChangeNotifier(self.protocol)
        if resource_updates:
            self._changes.watch_resources()
        self._resources = Resources(self.protocol)
        self._prompts = Prompts(self.protocol)
        self._completions = Completions(self.protocol, self._prompts, self._resources)

    @classmethod
    def from_introduction(
        cls,
        introduction: Introduction,
        *,
        home: Path,
        lifespan: Callable[[], AbstractAsyncContextManager[object]],
    ) -> LoomServer:
        """Create a server from its introduction, with its state keys and audit log in Loom's folder.

        Args:
            introduction: the introduction, which the handshake uses, too.
            home: Loom's folder.
            lifespan: as for `LoomServer`.
        """
        return cls(
            introduction.name,
            version=introduction.version,
            title=introduction.title,
            instructions=introduction.instructions,
            lifespan=lifespan,
            state_keys=partial(state_keys, home),
            audit=AuditLog(audit_path(home), server=introduction.name),
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
        keywords: Mapping[str, Any] | None = None,
        hidden: Collection[str] = (),
        meta: dict[str, Any] | None = None,
        task: TaskSupport = "none",
    ) -> Callable[[ToolFunctionT], ToolFunctionT]:
        """Register an async function as a tool; `tools/list` shows tools in the order of registration.

        Its parameters become the arguments (describe them with `Annotated[..., Field(description=...)]`), a
        parameter of type `ToolContext` receives the call, and `-> ToolReply[Model]` gives the output schema.
        Clients of 2026-07-28 repeat an argument that is a text, an integer or a boolean as the header
        `Mcp-Param-Region`, for proxies, if it has `Field(json_schema_extra={"x-mcp-header": "Region"})`. A
        call in which the two differ is refused.

        Args:
            title: name for people.
            read_only: it changes nothing.
            destructive: it may remove or overwrite something; meaningless when read only.
            idempotent: calling it again with the same arguments changes nothing more.
            open_world: it reaches beyond what the user gave to this server, the web for example.
            name: name for models, `[a-z][a-z0-9_]{0,39}`; the function's own if empty.
            description: what it does, when to use it, what it returns; at most 2 KB; the docstring if empty.
            wording: called at each `tools/list` for a dynamic description.
            keywords: JSON Schema keywords for the arguments that a signature cannot express, such as `allOf`
                or `$defs`; calls are validated against them.
            hidden: names of optional arguments that its schema omits, as they cannot work on this server.
                They are accepted, so that the function can say why.
            meta: the definition's `_meta`.
            task: whether it may continue as a task, see `tasks.become_task`.

        Raises:
            ValueError: an argument is invalid, or the name is taken.
        """
        annotations = ToolAnnotations(
            read_only_hint=read_only,
            destructive_hint=destructive,
            idempotent_hint=idempotent,
            open_world_hint=open_world,
        )

        def register(function: ToolFunctionT) -> ToolFunctionT:
            tool = ServedTool.of(
                function,
                name=name or function.__name__,
                title=title,
                description=description,
                annotations=annotations,
                wording=wording,
                keywords=keywords,
                hidden=hidden,
                meta=meta,
            )
            self._tools.add(tool)
            self._tasks.allow(tool.name, task)
            return function

        return register

    def live_tools(self, live: LiveTools, *, task: TaskSupport = "none") -> LiveTools:
        """Register a function that returns dynamic tools; `tools/list` shows them last.

        It is called often and must not wait. Notify clients of a change by `tools_changed`.

        Args:
            live: returns the tools that the current caller may see; those with the name of a registered tool
                are not offered.
            task: whether they may continue as tasks, see `tasks.become_task`.
        """

        def current() -> Sequence[SchemaTool]:
            tools = live()
            for tool in tools:
                self._tasks.allow(tool.name, task)
            return tools

        self._tools.add_live(current)
        return live

    def resource(
        self,
        uri: str,
        *,
        name: str,
        title: str,
        description: str,
        mime_type: str = "",
        ttl_seconds: float = 0.0,
        listed: bool = True,
    ) -> Callable[[ReadFunctionT], ReadFunctionT]:
        """Register an async function that reads a resource, or all of a template such as `loom://{kb}/{id}`.

        Its parameters are the template's variables, percent-decoded; it may also have one of type
        `ToolContext`. It raises `NotFoundError` for what does not exist. Resources and templates are tried in
        the order of registration. `resources/list` shows resources, `resources/templates/list` templates.

        Args:
            uri: the address, or the template.
            name: short name for programs.
            title: name for people.
            description: description of the content.
            mime_type: media type of the content, if it is always the same.
            ttl_seconds: how long a client may cache the content.
            listed: whether `resources/list` shows it; not needed if only a tool's `_meta` refers to it.

        Raises:
            ValueError: the template is not valid, or its variables are not the function's parameters, or it
                is registered already.
        """

        def register(function: ReadFunctionT) -> ReadFunctionT:
            resource = ServedResource.of(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                ttl_seconds=ttl_seconds,
                listed=listed,
            )
            self._resources.add(resource)
            return function

        return register

    def resource_list(self, function: ListFunctionT) -> ListFunctionT:
        """Register the function that answers `resources/list`, page by page."""
        self._resources.list_by(function)
        return function

    def prompt(
        self, *, title: str, name: str = "", description: str = ""
    ) -> Callable[[PromptFunctionT], PromptFunctionT]:
        """Register an async function that returns the messages of a prompt, which hosts offer as a command.

        Its parameters become the arguments, all of them `str`, described with `Annotated[str, Field(...)]`;
        those with a default may be left out. A parameter of type `ToolContext` receives the call.

        Args:
            title: name for people.
            name: name for programs, `[a-z][a-z0-9_]{0,39}`; the function's own if empty.
            description: what it is for; the docstring if empty.

        Raises:
            ValueError: an argument is invalid, or the name is taken.
        """

        def register(function: PromptFunctionT) -> PromptFunctionT:
            self._prompts.add(
                Prompt.of(function, name=name or function.__name__, title=title, description=description)
            )
            return function

        return register

    def completion(
        self, argument: str, *, prompt: str = "", resource: str = ""
    ) -> Callable[[CompleteFunctionT], CompleteFunctionT]:
        """Register an async function that completes the value of an argument.

        It takes the typed text and the other arguments so far, and returns matching values, best first; see
        `CompleteFunction`.

        Args:
            argument: name of the prompt's argument, or of the template's variable.
            prompt: name of a registered prompt.
            resource: or a registered resource template.

        Raises:
            ValueError: there is no such argument, or it has a completer already.
        """

        def register(function: CompleteFunctionT) -> CompleteFunctionT:
            self._completions.add(function, argument, prompt=prompt, resource=resource)
            return function

        return register

    def tool_scope(self, name: str) -> Scope | None:
        """Return the scope a caller needs to use a tool, or None if there is no such tool."""
        return self._tools.scope(name)

    def answer_schemas(self) -> dict[str, Mapping[str, Any]]:
        """Return the output schemas of the static tools by name, with descriptions, for reference pages."""
        return self._tools.answer_schemas()

    def _is_offered(self, method: str, name: str) -> bool:
        return name in self._prompts if method == "prompts/get" else self.tool_scope(name) is not None

    def _is_method(self, method: str) -> bool:
        known = self.protocol.get_request_handler(method) or self.protocol.get_notification_handler(method)
        return known is not None

    async def tools_changed(self) -> None:
        """Notify subscribed clients that `tools/list` has changed."""
        await self._changes.notify(ToolsListChanged())

    async def resources_changed(self) -> None:
        """Notify subscribed clients that `resources/list` has changed."""
        await self._changes.notify(ResourcesListChanged())

    async def prompts_changed(self) -> None:
        """Notify subscribed clients that `prompts/list` has changed."""
        await self._changes.notify(PromptsListChanged())

    async def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribe to a resource that it has changed."""
        await self._changes.notify(ResourceUpdated(uri=uri))

    def end_subscriptions(self) -> None:
        """Finish every open `subscriptions/listen` stream; a transport calls it when it shuts down."""
        self._changes.close()
