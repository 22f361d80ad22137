"""The extension `io.modelcontextprotocol/tasks` (SEP-2663): calls that continue as tasks.

A tool opts in at its registration, and decides in its function when it continues as a task:

    async def build(ctx: ToolContext) -> ToolReply[Built]:
        plan = await agreed_plan(ctx)                  # may still ask and refuse: the call is open
        if not await become_task(ctx, "building"):     # the client knows no tasks
            return handle_of(start(plan))              # a handle for a tool that reports the progress
        return await built(plan)                       # the task's result

The function asks, reports progress and fails in the same way before and afterwards.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any, Literal, cast

import mcp_types as types
from mcp.server.extension import Extension, MethodBinding, compose_tool_call_handler
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.task_board import Task, TaskBoard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from datetime import datetime

    from mcp.server import Server, ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.extension import RequestHandler

__all__ = ["TASKS", "TaskSupport", "TasksExtension", "become_task", "with_tasks"]

TASKS = "io.modelcontextprotocol/tasks"

TaskSupport = Literal["none", "optional", "required"]
"""Whether a tool may answer with a task; `required`: a client that knows no tasks is refused with -32021."""


async def become_task(
    ctx: ToolContext, message: str = "", *, on_cancel: Callable[[], Awaitable[None]] | None = None
) -> bool:
    """Answer the call with a task now, and continue its work in the background.

    Args:
        ctx: the call.
        message: status message for people.
        on_cancel: cancels work that would continue without this function; it runs when the client has
            cancelled the task and the function has been stopped, but not when the server ends.

    Returns:
        Whether it is a task now. If not, the client still waits for the answer: it knows no tasks, the tool
        has not opted in, or there are too many tasks.
    """
    return ctx.task is not None and ctx.task.become_task(message, on_cancel)


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class TasksExtension(Extension):
    """Tasks extension: serve `tasks/get`, `tasks/update` and `tasks/cancel`, for calls of some tools.

    The tasks are on the `TaskBoard` that the server's lifespan has opened.
    """

    identifier = TASKS

    def __init__(self, protocol: Server[Any]) -> None:
        """Prepare the extension; the server declares it once a tool opts in.

        Args:
            protocol: the SDK's server, whose lifespan is `with_tasks`.
        """
        self._protocol = protocol
        self._support: dict[str, TaskSupport] = {}

    def allow(self, tool: str, support: TaskSupport) -> None:
        """Set whether a tool may answer with a task."""
        if support == "none":
            return
        if not self._support:
            self._install()
        self._support[tool] = support

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods for clients of 2026-07-28; for others they are unknown."""
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [
            MethodBinding("tasks/get", _TaskParams, self._on_get, modern),
            MethodBinding("tasks/update", _UpdateParams, self._on_update, modern),
            MethodBinding("tasks/cancel", _TaskParams, self._on_cancel, modern),
        ]

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Serve a call, which may become a task if the tool and the client agree to that."""
        support = self._support.get(params.name)
        if support is None:
            return await call_next(ctx)
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        call = ToolContext.of(ctx)
        if support == "required":
            call.require(TASKS)
        if not (modern and call.can(TASKS)):
            return await call_next(ctx)
        board = _board(ctx)
        answer = await board.serve(ctx, lambda: call_next(ctx))
        return {**_task_payload(board, answer), "resultType": "task"} if isinstance(answer, Task) else answer

    def _install(self) -> None:
        """Install the extension's handlers, as the SDK's high-level server does."""
        for binding in self.methods():
            self._protocol.add_request_handler(
                binding.method, binding.params_type, _require_revision(binding)
            )
        calls = self._protocol.get_request_handler("tools/call")
        if calls is None:
            raise TypeError("a server with tasks serves tools")
        handler = compose_tool_call_handler([self], calls.handler)
        self._protocol.add_request_handler("tools/call", types.CallToolRequestParams, handler)
        listening = self._protocol.get_request_handler("subscriptions/listen")
        if listening is not None:
            self._protocol.add_request_handler(
                "subscriptions/listen", listening.params_type, _require_extension(listening.handler)
            )
        self._protocol.extensions[self.identifier] = self.settings()

    async def _on_get(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> dict[str, Any]:
        board, task = _find_task(ctx, params)
        told = _task_payload(board, task)
        if task.status == "completed":
            told["result"] = _wire(task.result)
        elif task.error is not None:
            told["error"] = _wire(task.error)
        elif task.status == "input_required":
            told["inputRequests"] = {key: _wire(request) for key, request in task.requests.items()}
        return told

    async def _on_update(self, ctx: ServerRequestContext[Any, Any], params: _UpdateParams) -> dict[str, Any]:
        _, task = _find_task(ctx, params)
        for key, response in params.input_responses.items():
            task.answer(key, response)
        return {}

    async def _on_cancel(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> dict[str, Any]:
        board, task = _find_task(ctx, params)
        board.cancel(task)
        return {}


@asynccontextmanager
async def with_tasks(lifespan: AbstractAsyncContextManager[object]) -> AsyncGenerator[TaskBoard]:
    """Wrap a server's lifespan with a `TaskBoard`; tasks end before the lifespan does."""
    async with lifespan, TaskBoard() as board:
        yield board


def _require_revision(binding: MethodBinding) -> RequestHandler:
    """Wrap a handler: the method is unknown to clients of other protocol versions."""

    async def handle(ctx: ServerRequestContext[Any, Any], params: BaseModel) -> HandlerResult:
        if binding.protocol_versions is not None and ctx.protocol_version not in binding.protocol_versions:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", data=binding.method)
        return await binding.handler(ctx, params)

    return handle


def _require_extension(listen: RequestHandler) -> RequestHandler:
    """Wrap the handler of `subscriptions/listen`: refuse tasks if the client lacks the extension.

    Notifications about tasks are not sent: the acknowledgement omits them, and clients poll `tasks/get`.
    """

    async def handle(ctx: ServerRequestContext[Any, Any], params: BaseModel) -> HandlerResult:
        match ctx.params:
            case {"notifications": {"taskIds": _}}:
                ToolContext.of(ctx).require(TASKS)
            case _:
                pass
        return await listen(ctx, params)

    return handle


def _find_task(ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> tuple[TaskBoard, Task]:
    """Find the task of a request.

    Raises:
        MCPError: the header for load balancers names another task (-32020), the client has not
            declared the extension (-32021), or the caller has no such task (-32602).
    """
    if ctx.request is not None:
        named = decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER))
        if named != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, f"The header {MCP_NAME_HEADER} does not name the taskId.")
    ToolContext.of(ctx).require(TASKS)
    board = _board(ctx)
    task = board.get(params.task_id)
    if task is None:
        raise MCPError(
            types.INVALID_PARAMS, "There is no such task: it has been forgotten, or the id is wrong."
        )
    return board, task


def _board(ctx: ServerRequestContext[Any, Any]) -> TaskBoard:
    board: object = ctx.lifespan_context
    if not isinstance(board, TaskBoard):
        raise TypeError("a server with tasks opens a TaskBoard as its lifespan")
    return board


def _task_payload(board: TaskBoard, task: Task) -> dict[str, Any]:
    told: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": _time(task.created),
        "lastUpdatedAt": _time(task.updated),
        "ttlMs": board.ttl_ms(task),
        "pollIntervalMs": board.poll_ms,
    }
    return {**told, "statusMessage": task.message} if task.message else told


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _wire(value: HandlerResult) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cast("dict[str, Any]", value)
