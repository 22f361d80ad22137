"""Connection to one MCP server: calls, lists and progress."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import anyio

from loom_core.errors import LoomError, ServerError, unwrap_group
from loom_core.json_repair import well_formed
from loom_core.mcp_client.callbacks import Callbacks
from loom_core.mcp_client.connections.client_features import ActiveCall, CallClock, ClientFeatures
from loom_core.mcp_client.connections.depth import Lineage
from loom_core.mcp_client.connections.errors import Fault, FaultError
from loom_core.mcp_client.connections.lifecycle import ReconnectPolicy
from loom_core.mcp_client.connections.sanitization import plain_line
from loom_core.mcp_client.connections.supervisor import Change, ConnectionSupervisor, State
from loom_core.observability.families import MCP_SERVER_UP
from loom_core.observability.metrics import process_metrics
from loom_core.observability.registry import WeakRegistry
from loom_core.tools.depth import DEPTH_META_KEY, current_depth

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from anyio.abc import TaskStatus
    from mcp import Client

    from loom_core.errors import ServerFailure
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.connections.lifecycle import OpenConnection, ServerFacts
    from loom_core.mcp_client.connections.tasks import TaskState
    from loom_core.observability.registry import Sample
    from loom_core.tools.interface import AskFunction, KeepTaskFunction, ProgressFunction

__all__ = ["Change", "LatestNotifier", "ServerConnection", "State", "ToolListing", "all_pages"]

_log = logging.getLogger(__name__)
_connections: WeakRegistry[ServerConnection] = WeakRegistry()

_LIST_SECONDS = 60.0
_ENDING_SECONDS = 5.0  # for a child that could not be opened to end: only then is its log complete
_CANCEL_SECONDS = 5.0  # for a server to acknowledge that a task is cancelled
_POLL_SECONDS = 1.0  # between two looks at a task, unless the server says otherwise
_LEAST_POLL, _MOST_POLL = 0.05, 30.0
_MESSAGE = 500  # characters of a task's own words
_OUTAGES: frozenset[ServerFailure] = frozenset({"start", "connection", "interrupted", "timeout", "busy"})

_ResultT = TypeVar("_ResultT")


class ServerConnection:
    """Connection to one server: an owner task opens, serves, reconnects and closes it.

    Requests may come from any task of the same event loop, concurrently: only the owner opens and closes. A
    request waits for a connection that is being opened; for a server that was given up, it triggers a new
    attempt.

    Attributes:
        config: the server.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        callbacks: Callbacks | None = None,
        on_change: Callable[[Change], None] | None = None,
        auth: Callable[[ServerConfig], httpx2.Auth | None] | None = None,
        lineage: Lineage | None = None,
        backoff: ReconnectPolicy | None = None,
    ) -> None:
        """Prepare a connection; nothing happens before `run`.

        Args:
            config: the server.
            callbacks: answer the server's own requests.
            on_change: called after a change; must neither wait nor raise.
            auth: creates the authentication of requests over HTTP, see `oauth.authentication.oauth_auth`;
                called once for each opening.
            lineage: chain of processes that started this program; by default from its environment.
            backoff: backoff policy for reconnecting to a lost server.
        """
        self.config = config
        self._answering = ClientFeatures(config, callbacks or Callbacks())
        self._lineage = Lineage.of_process() if lineage is None else lineage
        self._upkeep = ConnectionSupervisor(
            config,
            answering=self._answering,
            on_change=on_change or (lambda _change: None),
            auth=auth,
            lineage=self._lineage,
            backoff=backoff or ReconnectPolicy(),
        )
        _connections.add(self)

    @property
    def name(self) -> str:
        """Its id in the configuration."""
        return self.config.name

    @property
    def state(self) -> State:
        """Current state of the connection."""
        return self._upkeep.state

    @property
    def state_seconds(self) -> float:
        """Seconds since the latest change of state; 0 before `run`."""
        return self._upkeep.state_seconds

    @property
    def failure(self) -> str:
        """Reason why it is not ready, for messages; empty if it is ready or was never tried."""
        return self._upkeep.failure

    @property
    def facts(self) -> ServerFacts | None:
        """Facts that the server reported about itself at the last connection."""
        return self._upkeep.facts

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the owner task: start it once, in a task group. It ends after `close`, or cancelled."""
        await self._upkeep.run(task_status=task_status)

    async def ready(self, seconds: float | None = None) -> None:
        """Wait until the server is connected; one that was given up is tried again.

        Args:
            seconds: timeout; by default that of its start, and some time to find out why it fails.

        Raises:
            ServerError: it cannot be connected to, or not in time, or is closed.
        """
        limit = self.config.start_seconds + _ENDING_SECONDS if seconds is None else seconds
        with CallClock(limit) as clock:
            await self._upkeep.wait_until_open()
        if clock.late:
            raise self._upkeep.timeout_error(limit)

    async def list_tools(self) -> ToolListing:
        """List all tools, from all pages.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        pages = await self._list_all(lambda client, cursor: client.list_tools(cursor=cursor), "its tools")
        tools = [tool for page in pages for tool in page.tools]
        first = pages[0]
        said = first.model_fields_set
        return ToolListing(
            tools,
            ttl_ms=first.ttl_ms if "ttl_ms" in said else None,
            scope=first.cache_scope if "cache_scope" in said else None,
        )

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        seconds: float | None = None,
        repeatable: bool = False,
        progress: ProgressFunction | None = None,
        ask: AskFunction | None = None,
        depth: int = 0,
        keep_task: KeepTaskFunction | None = None,
    ) -> mcp_types.CallToolResult:
        """Call a tool. A failure that the tool itself reports is a result with `is_error`.

        If the server continues the call as a task, this waits for the task.

        Args:
            name: the server's name for it.
            arguments: as its schema wants them.
            seconds: timeout; by default `config.call_seconds`. Progress restarts it, up to ten times as long
                in all; it is paused while a person is asked. A task has no timeout unless this is given.
            repeatable: whether it may be called again if the connection breaks and it is not known whether
                it ran.
            progress: called with the progress; a slow callback misses steps.
            ask: answers questions during this call, instead of `callbacks.ask`. Elicitation is declared to
                the server only if `callbacks.ask` is given.
            depth: number of agents above this call, if more than `current_depth`.
            keep_task: records the id of the task before this waits for it. Then a cancelled call leaves the
                task to `wait_for_task` or `cancel_task`; without it, the task is cancelled.

        Raises:
            ServerError: see `ServerError.failure`. If it is cancelled, the server is notified.
        """
        try:
            meta: Any = {DEPTH_META_KEY: self._lineage.below(max(depth, current_depth()))}
        except FaultError as error:
            raise self._upkeep.to_error(error.fault) from None
        steps = LatestNotifier(progress)
        given = well_formed(dict(arguments))  # models write half surrogate pairs, which cannot be sent

        async def call(client: Client, clock: CallClock) -> mcp_types.CallToolResult:
            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                clock.restart()
                await steps.take(progress, total, message or "")

            return await client.call_tool(name, given, progress_callback=on_progress, meta=meta)

        limit = self.config.call_seconds if seconds is None else seconds
        result = await self._request(call, f"`{name}`", limit, repeatable=repeatable, ask=ask)
        if not (task_id := _task_of(result)):
            return result
        if keep_task is not None:
            await keep_task(task_id)
        try:
            return await self.wait_for_task(task_id, name, seconds=seconds, progress=progress, ask=ask)
        except anyio.get_cancelled_exc_class():
            if keep_task is None:
                with anyio.CancelScope(shield=True):
                    await self._cancel_quietly(task_id)
            raise

    async def wait_for_task(
        self,
        task_id: str,
        tool: str,
        *,
        seconds: float | None = None,
        progress: ProgressFunction | None = None,
        ask: AskFunction | None = None,
    ) -> mcp_types.CallToolResult:
        """Wait for a task, and return the result of its call.

        The server may be away meanwhile, for `config.call_seconds`.

        Args:
            task_id: the task.
            tool: the server's name of the tool, for messages.
            seconds: as for `call_tool`, where a change of the task is progress; by default no timeout.
            progress: called with the task's status messages.
            ask: as for `call_tool`.

        Raises:
            ServerError: the task has failed or was cancelled, the server does not know it, is away for too
                long, or asks for something that this client does not offer. After a timeout the task is
                cancelled.
        """
        limit = math.inf if seconds is None else seconds
        with CallClock(limit) as clock, self._answering.during(ActiveCall(clock, ask)):
            return await self._follow_task(task_id, f"`{tool}`", clock, LatestNotifier(progress))
        await self._cancel_quietly(task_id)
        late = f"did not finish the task of `{tool}` within {limit:g} s; it was cancelled"
        raise self._upkeep.to_error(Fault("timeout", late, "Ask for less."), f"`{tool}`", doubt=True)

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a task at the server; one that has ended stays as it is.

        Raises:
            ServerError: see `ServerError.failure`; the task may go on.
        """
        from loom_core.mcp_client.connections.tasks import cancel_task

        await self._request(
            lambda client, _clock: cancel_task(client, task_id),
            "the cancellation of a task",
            _CANCEL_SECONDS,
            repeatable=True,
        )

    async def list_resources(self) -> list[mcp_types.Resource]:
        """List all resources, from all pages; none if the server offers none.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        if not await self._offers("resources"):
            return []
        pages = await self._list_all(
            lambda client, cursor: client.list_resources(cursor=cursor), "its resources"
        )
        return [resource for page in pages for resource in page.resources]

    async def list_resource_templates(self) -> list[mcp_types.ResourceTemplate]:
        """List all resource templates, from all pages; none if the server offers none.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        if not await self._offers("resources"):
            return []
        pages = await self._list_all(
            lambda client, cursor: client.list_resource_templates(cursor=cursor), "its templates"
        )
        return [template for page in pages for template in page.resource_templates]

    async def read_resource(self, uri: str) -> mcp_types.ReadResourceResult:
        """Read a resource.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        return await self._request(
            lambda client, _clock: client.read_resource(uri),
            f"the resource {uri}",
            self.config.call_seconds,
            repeatable=True,
        )

    async def list_prompts(self) -> list[mcp_types.Prompt]:
        """List all prompts, from all pages; none if the server offers none.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        if not await self._offers("prompts"):
            return []
        pages = await self._list_all(lambda client, cursor: client.list_prompts(cursor=cursor), "its prompts")
        return [prompt for page in pages for prompt in page.prompts]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> mcp_types.GetPromptResult:
        """Get the messages of a prompt.

        Raises:
            ServerError: see `ServerError.failure`.
        """
        given = dict(arguments or {})
        return await self._request(
            lambda client, _clock: client.get_prompt(name, given),
            f"the prompt `{name}`",
            self.config.call_seconds,
            repeatable=True,
        )

    async def close(self) -> None:
        """Close it and wait until it is; may be called by any task, and again."""
        await self._upkeep.close()

    async def _follow_task(
        self, task_id: str, what: str, clock: CallClock, steps: LatestNotifier
    ) -> mcp_types.CallToolResult:
        """Poll a task until it has ended, and answer its requests."""
        last: tuple[str, str, str] | None = None
        told, answered = 0, frozenset[str]()
        while True:
            task = await self._get_task(task_id, what)
            if (now := (task.status, task.status_message, task.last_updated_at)) != last:
                clock.restart()
                if task.status_message and (last is None or task.status_message != last[1]):
                    told += 1
                    await steps.take(told, None, plain_line(task.status_message, most=_MESSAGE))
                last = now
            if task.status == "completed" and task.result is not None:
                return task.result
            if task.status not in {"working", "input_required"}:
                raise self._task_error(task, what)
            asked = {key: each for key, each in (task.input_requests or {}).items() if key not in answered}
            if asked:
                await self._answer_task(task_id, what, asked)
                answered |= asked.keys()
                continue
            await anyio.sleep(_poll_seconds(task))

    async def _get_task(self, task_id: str, what: str) -> TaskState:
        """Get the state of a task; a server that is away is asked again, for `call_seconds`."""
        from loom_core.mcp_client.connections.tasks import get_task

        most, began = self.config.call_seconds, anyio.current_time()
        while True:
            try:
                return await self._request(
                    lambda client, _clock: get_task(client, task_id), what, most, repeatable=True
                )
            except ServerError as error:
                away = error.failure in _OUTAGES and anyio.current_time() - began < most
                if not away:
                    raise self._lost_task(error, what) from error
            await anyio.sleep(_POLL_SECONDS)

    def _lost_task(self, error: ServerError, what: str) -> ServerError:
        """Return the error for a task whose outcome cannot be learned."""
        from mcp_types import INVALID_PARAMS

        message, failure = error.message, error.failure
        if error.code == INVALID_PARAMS:
            message, failure = f"Server {self.name!r} does not know the task of {what}.", "interrupted"
        advice = "" if failure == "interrupted" else error.advice
        return ServerError(
            f"{message} It is not known whether {what} was carried out.",
            advice=f"{advice} Find that out before you ask for it again.".lstrip(),
            server=self.name,
            failure=failure,
            code=error.code,
            status=error.status,
        )

    def _task_error(self, task: TaskState, what: str) -> ServerError:
        """Return the error for a task that has ended without a result."""
        if task.status == "cancelled":
            why = f" ({plain_line(task.status_message, most=_MESSAGE)})" if task.status_message else ""
            said = f"has cancelled the task of {what}{why}; a part of it may have been done"
            return self._upkeep.to_error(Fault("refused", said, "Find that out before you ask for it again."))
        if task.error is None:
            said = f"gives no outcome of the task of {what}"
            return self._upkeep.to_error(Fault("unreadable", said, "Update the server."))
        words = plain_line(task.error.message, most=_MESSAGE) or "no words"
        said = f"answers the task of {what} with error {task.error.code}: {words}"
        return self._upkeep.to_error(Fault("refused", said, code=task.error.code))

    async def _answer_task(self, task_id: str, what: str, requests: mcp_types.InputRequests) -> None:
        """Answer requests of a task by the callbacks; cancel a task whose request cannot be answered.

        A task that does not wait for them any more, such as one that has ended, gets no answers.
        """
        from mcp import MCPError

        from loom_core.mcp_client.connections.tasks import answer_requests, update_task

        link = await self._upkeep.wait_until_open()
        responses: mcp_types.InputResponses = {}
        try:
            async with anyio.create_task_group() as tasks:
                asking = tasks.cancel_scope
                tasks.start_soon(self._withdraw_requests, task_id, what, frozenset(requests), asking)
                responses = await answer_requests(link.client, requests)
                asking.cancel()
        except ExceptionGroup as group:
            error = unwrap_group(group)
            if not isinstance(error, MCPError):
                raise error from None
            await self._cancel_quietly(task_id)
            said = f"asks, for {what}, what this client does not answer ({error.message}); it was cancelled"
            raise self._upkeep.to_error(Fault("refused", said)) from None
        if not responses:
            return
        await self._request(
            lambda client, _clock: update_task(client, task_id, responses),
            f"the answers for {what}",
            self.config.call_seconds,
            repeatable=True,
        )

    async def _withdraw_requests(
        self, task_id: str, what: str, keys: frozenset[str], asking: anyio.CancelScope
    ) -> None:
        """Stop asking when the task does not wait for any of the requests any more, or is lost."""
        while True:
            try:
                task = await self._get_task(task_id, what)
            except ServerError:  # the next look at the task says the same
                break
            if not keys & (task.input_requests or {}).keys():
                break
            await anyio.sleep(_poll_seconds(task))
        asking.cancel()

    async def _cancel_quietly(self, task_id: str) -> None:
        try:
            await self.cancel_task(task_id)
        except LoomError as error:
            _log.warning("a task of %s may go on: %s", self.name, error)

    async def _list_all(self, page: Callable[[Client, str | None], Awaitable[Any]], what: str) -> list[Any]:
        """Fetch all pages of a list."""

        async def listed(client: Client, _clock: CallClock) -> list[Any]:
            return await all_pages(lambda cursor: page(client, cursor))

        return await self._request(listed, what, _LIST_SECONDS, repeatable=True)

    async def _offers(self, what: Literal["resources", "prompts"]) -> bool:
        await self.ready()
        return self.facts is not None and getattr(self.facts.capabilities, what) is not None

    async def _request(
        self,
        send: Callable[[Client, CallClock], Awaitable[_ResultT]],
        what: str,
        seconds: float,
        *,
        repeatable: bool,
        ask: AskFunction | None = None,
    ) -> _ResultT:
        """Send a request, and retry it once over a new connection if that is harmless."""
        link: OpenConnection | None = None
        with CallClock(seconds) as clock, self._answering.during(ActiveCall(clock, ask)):
            for last in (False, True):
                link = await self._upkeep.wait_until_open()
                try:
                    return await send(link.client, clock)
                except Exception as error:  # noqa: BLE001 - whatever a server provokes in the SDK is its failure
                    fault = await link.fault_of(error)
                if fault.lost:
                    link.mark_lost(fault)
                harmless = repeatable or fault.ran == "no"
                broken = fault.lost or fault.failure == "interrupted"
                if last or not broken or not harmless or self._upkeep.closing:
                    raise self._upkeep.to_error(fault, what, doubt=not harmless)
                _log.info("%s %s; %s is requested again", self.name, fault.what, what)
        if link is None:
            raise self._upkeep.timeout_error(seconds)
        late = f"did not answer {what} within {seconds:g} s"
        fault = Fault("timeout", late, "Ask for less, or give it longer with `timeout` in its entry.")
        raise self._upkeep.to_error(fault, what, doubt=not repeatable)


def _poll_seconds(task: TaskState) -> float:
    """Return the seconds until the next look at a task."""
    seconds = _POLL_SECONDS if task.poll_interval_ms is None else task.poll_interval_ms / 1000
    return min(max(seconds, _LEAST_POLL), _MOST_POLL)


def _task_of(result: mcp_types.CallToolResult) -> str:
    """See `tasks.task_of`; the module is loaded already if there is a connection."""
    from loom_core.mcp_client.connections.tasks import task_of

    return task_of(result)


def _up() -> list[Sample]:
    """Return whether the servers in use are connected; servers that were not started are left out."""
    wanted = [each for each in _connections.all() if each.state not in {"configured", "closed"}]
    return [((each.name,), float(each.state == "ready")) for each in wanted]


process_metrics.watch(MCP_SERVER_UP, _up)


_MAX_PAGES = 1000

PageT = TypeVar("PageT", bound="_Page")


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server.

    Attributes:
        tools: as the server defines them, in its order.
        ttl_ms: milliseconds that they may be cached; None if the server does not say.
        scope: whether a cached list may be shared with other users; None if the server does not say.
    """

    tools: list[mcp_types.Tool]
    ttl_ms: int | None = None
    scope: Literal["public", "private"] | None = None


async def all_pages(page: Callable[[str | None], Awaitable[PageT]]) -> list[PageT]:
    """Fetch all pages of a list.

    Args:
        page: fetches the page at a cursor; None for the first page.

    Raises:
        FaultError: the list has no end.
    """
    pages = [await page(None)]
    seen: set[str] = set()
    while (cursor := pages[-1].next_cursor) is not None:
        if cursor in seen or len(pages) >= _MAX_PAGES:
            raise FaultError(Fault("unreadable", "sends an endless list", "Update the server.", ran="no"))
        seen.add(cursor)
        pages.append(await page(cursor))
    return pages


class LatestNotifier:
    """Queue of progress messages, sent one after the other; only the latest waits.

    A server that reports without end thus costs the memory of one report, and the callback never runs twice
    at the same time.
    """

    def __init__(self, tell: ProgressFunction | None) -> None:
        """Report progress to a function, if there is one."""
        self._tell = tell
        self._next: tuple[float, float | None, str] | None = None
        self._telling = False

    async def take(self, done: float, total: float | None, message: str) -> None:
        """Send a step now, or after the current one."""
        if self._tell is None:
            return
        self._next = (done, total, message)
        if self._telling:
            return
        self._telling = True
        try:
            while (step := self._next) is not None:
                self._next = None
                await self._tell(*step)
        finally:
            self._telling = False
