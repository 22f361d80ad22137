"""Tasks that calls have become, and their runs: a task is cancelled, or its run goes on without it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import TypeAdapter

from loom_core.runs.commands import InputResponse
from loom_core.server.calls.tasks import TASKS

if TYPE_CHECKING:
    from tests.fixtures.local_server import Asked, LocalServer

pytestmark = pytest.mark.slow

_ANSWER = TypeAdapter(dict[str, Any])
_SOON = 1.0  # seconds that a call waits before it becomes a task


class _Created(types.Result):
    result_type: Literal["task"]
    task_id: str
    status_message: str


class _TaskParams(types.RequestParams):
    task_id: str


class _Get(types.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class _Cancel(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class Tasks(ClientExtension):
    """Keeps the ids of tasks and of their runs, and does not wait for them."""

    identifier = TASKS

    def __init__(self) -> None:
        self.created: list[tuple[str, str]] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=_Created, resolve=self._resolve)]

    async def _resolve(self, created: _Created, _ctx: ClaimContext) -> types.CallToolResult:
        self.created.append((created.task_id, created.status_message))
        return types.CallToolResult(content=[], is_error=True)  # so that no schema is looked at


@pytest.fixture
def api():
    """A server that takes requests and never answers; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def parcel(write, api):
    """A flow that asks for a number, and then an API that takes for ever."""
    schema = {"type": "object", "properties": {"number": {"type": "string", "title": "单号"}}}
    return write(
        {
            "flow_id": "parcel",
            "trigger_patterns": [r"查快递(?P<number>\d+)?"],
            "endpoint": "GET /parcel",
            "input_schema": {**schema, "required": ["number"]},
        },
        flow_url=api,
        net={"allow": ["127.0.0.1"]},
    )


@pytest.fixture
def cancelled(call):
    """Calls a tool, which becomes a task, and cancels that: its run."""

    async def make(
        client, tasks: Tasks, tool: str, *, cancelling: threading.Event | None = None, **arguments: Any
    ) -> dict[str, Any]:
        before = len(tasks.created)
        await client.call_tool(tool, {"wait_seconds": _SOON, **arguments})
        ((task, run_id),) = tasks.created[before:]
        params = _TaskParams(task_id=task)
        if cancelling is not None:
            cancelling.set()
        await client.session.send_request(_Cancel(params=params), _ANSWER)
        await _until(client, params, "cancelled")
        return await call(client, "flow_status", run_id=run_id)

    return make


@pytest.mark.usefixtures("parcel")
@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("flow_chat", {"message": "查快递88"}, "：任务已取消。"),
        ("flow_run", {"flow_id": "parcel", "inputs": {"number": "88"}}, ": The task was cancelled."),
    ],
)
async def test_the_run_that_a_call_has_begun_is_called_off_with_its_task(
    tool, arguments, reason, connect, call, cancelled
):
    tasks = Tasks()
    async with connect(extensions=[tasks]) as client:
        await call(client, "flow_list")  # from here on everything is open, and a call takes no time
        run = await cancelled(client, tasks, tool, **arguments)
    assert (run["status"], run["problem"].endswith(reason)) == ("aborted", True)


async def test_a_task_is_cancelled_when_its_run_has_ended(
    local_servers: Callable[..., LocalServer], write, connect, call, cancelled
):
    api, cancelling = local_servers(), threading.Event()
    url = _answers_after(cancelling, api, later=0.5)  # it changes something, and so may end by itself
    write({"flow_id": "parcel", "endpoint": f"POST {url}"}, net={"allow": ["127.0.0.1"]})
    tasks = Tasks()
    async with connect(extensions=[tasks]) as client:
        await call(client, "flow_list")
        run = await cancelled(client, tasks, "flow_run", flow_id="parcel", cancelling=cancelling)
    assert (run["status"], len(api.asked)) == ("aborted", 1)


@pytest.mark.usefixtures("parcel")
async def test_a_run_that_was_there_before_outlives_the_tasks_that_wait_for_it(connect, call, cancelled):
    tasks = Tasks()
    async with connect(extensions=[tasks]) as client:
        begun = await call(client, "flow_chat", message="查快递")
        assert begun["status"] == "input_required"
        session = begun["session_id"]
        run = await cancelled(client, tasks, "flow_chat", message="88", session_id=session)
        assert (run["run_id"], run["status"]) == (begun["run_id"], "working")
        run = await cancelled(client, tasks, "flow_status", run_id=run["run_id"])
        assert (run["run_id"], run["status"]) == (begun["run_id"], "working")
        off = await call(client, "flow_chat", message="算了", session_id=session)
    assert (off["run_id"], off["status"]) == (begun["run_id"], "aborted")


def _answers_after(event: threading.Event, api: LocalServer, *, later: float = 0.0) -> str:
    """Let an API answer some seconds after an event; its address."""
    url = api.answers("/late", b"{}", Content_Type="application/json")
    answer = api.routes["/late"]

    def late(asked: Asked, connection: socket.socket) -> None:
        event.wait(10)
        time.sleep(later)
        answer(asked, connection)

    api.routes["/late"] = late
    return url


async def _until(client: Any, params: _TaskParams, status: str) -> dict[str, Any]:
    with anyio.fail_after(10):
        while (told := await client.session.send_request(_Get(params=params), _ANSWER))["status"] != status:
            await anyio.lowlevel.checkpoint()
    return told


async def test_a_task_does_not_ask_for_what_was_answered_elsewhere(
    local_servers: Callable[..., LocalServer], write, connect, call, running
):
    is_task = threading.Event()
    url = _answers_after(is_task, local_servers())
    schema = {"type": "object", "properties": {"room": {"type": "string"}}}
    question = {"stepId": "ask", "ask": {"question": "哪个会议室？", "into": "room"}}
    steps = [{"stepId": "look", "operation": f"GET {url}"}, question]
    write({"flow_id": "book", "input_schema": schema, "steps": steps}, net={"allow": ["127.0.0.1"]})

    async def fail_when_asked(_context: Any, _params: Any) -> Any:
        raise AssertionError("a task is asked what it needs")

    tasks = Tasks()
    async with connect(extensions=[tasks], elicitation_callback=fail_when_asked) as client:
        await call(client, "flow_list")
        await client.call_tool("flow_run", {"flow_id": "book", "wait_seconds": _SOON})
        ((task, run_id),) = tasks.created
        is_task.set()
        params = _TaskParams(task_id=task)
        assert list((await _until(client, params, "input_required"))["inputRequests"]) == ["ask"]
        async with running() as other:
            run = await other.run(run_id)
            await other.decide(run, InputResponse(id="ask", action="accept", content={"room": "青岛"}))
            done = await _until(client, params, "completed")
    assert done["result"]["structuredContent"]["status"] == "completed"
