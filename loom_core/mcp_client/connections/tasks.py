"""Client side of the extension `io.modelcontextprotocol/tasks` (SEP-2663): calls that have become tasks.

The server decides: it answers a call of a client that declares the extension with its result or with a task.

Imported at first use only: it loads the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from mcp.client import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp import Client

__all__ = [
    "TaskCreated",
    "TaskState",
    "TasksExtension",
    "answer_requests",
    "cancel_task",
    "get_task",
    "task_of",
    "update_task",
]


class TaskCreated(types.Result):
    """Result of a call that has become a task."""

    result_type: Literal["task"]
    task_id: str


class TaskState(types.Result):
    """State of a task.

    Attributes:
        task_id: its id.
        status: its status.
        status_message: status message for people; may be empty.
        last_updated_at: time of the latest change, as the server writes it.
        poll_interval_ms: interval at which the server wants to be polled, in milliseconds; None for any.
        result: result of the call, once it is completed.
        error: error of the call, if it failed.
        input_requests: requests to the client that the task waits for, by keys that are never used again.
    """

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str = ""
    last_updated_at: str = ""
    poll_interval_ms: float | None = None
    result: types.CallToolResult | None = None
    error: types.ErrorData | None = None
    input_requests: types.InputRequests | None = None


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: types.InputResponses


class _GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class _UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class _CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class _CreatedResult(types.CallToolResult):
    """Result in place of that of a call that has become a task; see `task_of`."""

    created: TaskCreated


class TasksExtension(ClientExtension):
    """Declaration of the extension; `Client.call_tool` then returns also results that have a `task_of`."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the claim of calls that have become tasks."""
        return [ResultClaim(result_type="task", model=TaskCreated, resolve=_hand_over)]


async def _hand_over(created: TaskCreated, _context: ClaimContext) -> types.CallToolResult:
    return _CreatedResult(content=[], created=created)


def task_of(result: types.CallToolResult) -> str:
    """Return the id of the task that a call has become; empty if `result` is its result."""
    return result.created.task_id if isinstance(result, _CreatedResult) else ""


async def get_task(client: Client, task_id: str) -> TaskState:
    """Return the state of a task.

    Raises:
        MCPError: the server does not know the task.
    """
    return await client.session.send_request(_GetTask(params=_TaskParams(task_id=task_id)), TaskState)


async def answer_requests(client: Client, requests: types.InputRequests) -> types.InputResponses:
    """Answer the requests of a task by the client's callbacks.

    Raises:
        MCPError: a callback refuses.
    """
    responses: types.InputResponses = {}
    for key, request in requests.items():
        context = ClientRequestContext(session=client.session, request_id=key)
        response = await client.session.dispatch_input_request(context, request)
        if isinstance(response, types.ErrorData):
            raise MCPError.from_error_data(response)
        responses[key] = response
    return responses


async def update_task(client: Client, task_id: str, responses: types.InputResponses) -> None:
    """Send responses to requests of a task.

    Raises:
        MCPError: the server does not know the task, or refuses the responses.
    """
    params = _UpdateParams(task_id=task_id, input_responses=responses)
    await client.session.send_request(_UpdateTask(params=params), types.Result)


async def cancel_task(client: Client, task_id: str) -> None:
    """Cancel a task; one that has ended stays as it is.

    Raises:
        MCPError: the server does not know the task.
    """
    await client.session.send_request(_CancelTask(params=_TaskParams(task_id=task_id)), types.Result)
