"""Calls that become tasks, through the SDK's client."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.task_board import TaskBoard, TaskLimits
from loom_core.server.calls.tasks import TASKS, become_task
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply
from tests.fixtures.kitchen import Said
from tests.fixtures.task_client import ACK, KNOWS_TASKS, Tasks, answer, cancel, connected, get, until
from tests.unit.server.conftest import text


class ListenParams(types.RequestParams):
    notifications: dict[str, Any]


class Listen(types.Request[ListenParams, Literal["subscriptions/listen"]]):
    method: Literal["subscriptions/listen"] = "subscriptions/listen"


async def fail_when_asked(_context, _params):
    raise AssertionError("the client is not asked")


async def test_a_call_becomes_a_task_that_tells_how_far_it_is_and_what_has_come_of_it(kitchen):
    async with connected(kitchen.server.protocol) as (client, start):
        task_id = await start("cook", dish="饺子")
        await kitchen.begun.wait()
        task = await get(client, task_id)
        assert (task.result_type, task.status, task.status_message) == ("complete", "working", "饺子 在锅里")
        assert (task.result, task.error, task.input_requests) == (None, None, None)
        assert task.ttl_ms >= 30 * 60 * 1000
        assert task.poll_interval_ms == 1000
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task.created_at)
        kitchen.go_on.set()
        task = await until(client, task_id, "completed")
        assert task.result["structuredContent"] == {"said": "饺子 as a task"}
        assert await cancel(client, task_id) == await cancel(client, task_id)
        assert (await get(client, task_id)).status == "completed"
    assert kitchen.called_off == []


async def test_a_client_that_waits_for_tasks_gets_the_result_like_any_other(kitchen):
    kitchen.go_on.set()
    async with Client(kitchen.server.protocol, extensions=[Tasks(wait=True)]) as client:
        assert text(await client.call_tool("cook", {"dish": "soup"})) == "soup as a task"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_knows_no_tasks_waits_for_the_answer(kitchen, mode):
    kitchen.go_on.set()
    messages = []

    async def on_progress(_value, _total, message):
        messages.append(message)

    async with Client(kitchen.server.protocol, mode=mode) as client:
        result = await client.call_tool("cook", {"dish": "soup"}, progress_callback=on_progress)
        assert text(result) == "soup as a call"
    assert messages[0] == "washing for soup"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_that_is_a_task_always_refuses_clients_that_know_none(kitchen, mode):
    async with Client(kitchen.server.protocol, mode=mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("bake", {})
    assert caught.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_tool_that_has_not_opted_in_is_never_a_task(kitchen):
    async with Client(kitchen.server.protocol, extensions=KNOWS_TASKS) as client:
        assert text(await client.call_tool("taste", {})) == "a task: False"


async def test_a_server_without_such_tools_does_not_have_the_extension(sample, kitchen):
    async with Client(sample.protocol, extensions=KNOWS_TASKS) as client:
        assert not client.server_capabilities.extensions
        with pytest.raises(MCPError) as caught:
            await get(client, "some")
        assert caught.value.code == types.METHOD_NOT_FOUND
    async with Client(kitchen.server.protocol) as client:
        assert client.server_capabilities.extensions == {TASKS: {}}


async def test_clients_of_the_handshake_era_do_not_hear_of_it(kitchen):
    async with Client(kitchen.server.protocol, mode="legacy") as client:
        assert not client.server_capabilities.extensions
        with pytest.raises(MCPError) as caught:
            await get(client, "some")
    assert caught.value.code == types.METHOD_NOT_FOUND


async def test_only_clients_that_have_declared_the_extension_may_ask_for_tasks(kitchen):
    async with Client(kitchen.server.protocol) as client:
        for request in (get, answer, cancel):
            with pytest.raises(MCPError) as caught:
                await request(client, "some")
            assert caught.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    async with Client(kitchen.server.protocol, extensions=KNOWS_TASKS) as client:
        for request in (get, answer, cancel):
            with pytest.raises(MCPError, match="There is no such task") as caught:
                await request(client, "some")
            assert caught.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize(
    ("extensions", "code"), [([], types.MISSING_REQUIRED_CLIENT_CAPABILITY), (KNOWS_TASKS, 0)]
)
async def test_who_knows_no_tasks_cannot_listen_to_them(kitchen, extensions, code):
    params = ListenParams(notifications={"taskIds": ["some"], "toolsListChanged": True})
    codes = []

    async def listen(client):
        with anyio.move_on_after(5 if code else 0.1):
            try:
                await client.session.send_request(Listen(params=params), ACK)
            except MCPError as error:
                codes.append(error.code)

    async with Client(kitchen.server.protocol, extensions=extensions) as client:
        await listen(client)
    assert codes == ([code] if code else [])


async def test_a_task_asks_its_client_and_never_uses_a_key_again(kitchen):
    async with connected(kitchen.server.protocol, elicitation_callback=fail_when_asked) as (client, start):
        task_id = await start("chat")
        task = await until(client, task_id, "input_required")
        assert list(task.input_requests) == ["name"]
        assert task.input_requests["name"]["params"]["message"] == "Your name? 你叫什么？"
        await answer(client, task_id, other={"ignored": True})
        with pytest.raises(MCPError, match=r"inputResponses\.name is not an answer") as caught:
            await answer(client, task_id, name={"roots": []})
        assert caught.value.code == types.INVALID_PARAMS
        assert (await get(client, task_id)).status == "input_required"
        acknowledged = await answer(client, task_id, name={"action": "accept", "content": {"name": "李明"}})
        assert acknowledged["resultType"] == "complete"
        assert "taskId" not in acknowledged
        await answer(client, task_id, name={"action": "accept", "content": {"name": "too late"}})
        task = await until(client, task_id, "completed")
    assert task.result["structuredContent"] == {"said": "李明, timed_out"}


async def test_a_task_whose_client_cannot_ask_goes_on_without(kitchen):
    async with connected(kitchen.server.protocol) as (client, start):
        task = await until(client, await start("chat"), "completed")
    assert task.result["structuredContent"] == {"said": "unavailable, unavailable"}


async def test_what_is_asked_before_it_is_a_task_is_asked_in_the_call(kitchen):
    async def name(_context, _params):
        return types.ElicitResult(action="accept", content={"name": "李明"})

    async with connected(kitchen.server.protocol, elicitation_callback=name) as (client, start):
        task = await until(client, await start("ask_first"), "completed")
    assert task.result["structuredContent"] == {"said": "李明"}


async def test_a_cancelled_task_is_stopped_and_its_work_called_off(kitchen):
    async with connected(kitchen.server.protocol) as (client, start):
        task_id = await start("cook", dish="soup")
        await kitchen.begun.wait()
        assert (await cancel(client, task_id))["resultType"] == "complete"
        task = await until(client, task_id, "cancelled")
    assert task.result is None
    assert task.status_message == "cancelled by the client"
    assert kitchen.called_off == [True]


async def test_a_server_that_ends_stops_its_tasks_but_calls_nothing_off(kitchen):
    with anyio.fail_after(10):
        async with connected(kitchen.server.protocol) as (_, start):
            await start("cook", dish="soup")
            await kitchen.begun.wait()
    assert kitchen.stopped.is_set()
    assert kitchen.called_off == []


async def test_a_call_that_is_given_up_before_it_is_a_task_is_stopped(kitchen):
    with anyio.fail_after(10):
        async with Client(kitchen.server.protocol, extensions=[Tasks()]) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "dawdle", {})
                await kitchen.begun.wait()
                calls.cancel_scope.cancel()
            await kitchen.stopped.wait()


async def test_what_fails_before_it_is_a_task_is_the_answer_of_the_call(kitchen):
    async with Client(kitchen.server.protocol, extensions=[Tasks()]) as client:
        result = await client.call_tool("burn", {"how": "early"})
        assert (result.is_error, text(result)) == (True, "No.")
        assert (await client.call_tool("burn", {})).is_error


@pytest.mark.parametrize(
    ("how", "expected"), [("expected", "There is no 锅."), ("bug", "Internal error in tool `burn`.")]
)
async def test_a_tool_that_fails_completes_its_task_with_an_error(kitchen, how, expected):
    async with connected(kitchen.server.protocol) as (client, start):
        task = await until(client, await start("burn", how=how), "completed")
    assert task.result["isError"] is True
    assert task.result["content"][0]["text"].startswith(expected)
    assert task.error is None


async def test_only_an_error_of_the_protocol_fails_a_task(kitchen):
    async with connected(kitchen.server.protocol) as (client, start):
        task = await until(client, await start("burn", how="protocol"), "failed")
    assert task.error == {"code": types.INTERNAL_ERROR, "message": "The stove broke."}
    assert task.status_message == "The stove broke."
    assert task.result is None


async def test_a_handler_that_breaks_fails_its_task_and_no_other(caplog):
    server = LoomServer("broken", version="1", title="Broken")

    async def broken(ctx, _params):
        call = ToolContext.of(ctx)
        await become_task(call)
        raise RuntimeError("a secret detail")

    server.protocol.add_request_handler("tools/call", types.CallToolRequestParams, broken)

    async def work() -> ToolReply[Said]:
        """Never runs."""
        raise AssertionError

    server.tool(
        title="Work", read_only=True, destructive=False, idempotent=True, open_world=False, task="optional"
    )(work)
    async with connected(server.protocol) as (client, start):
        for _ in range(2):
            task = await until(client, await start("work"), "failed")
            assert task.error == {"code": types.INTERNAL_ERROR, "message": "Internal error"}
    assert "a secret detail" in caplog.text


async def test_what_cannot_be_called_off_is_logged_and_the_task_is_cancelled(kitchen, caplog):
    kitchen.called_off = None
    async with connected(kitchen.server.protocol) as (client, start):
        task_id = await start("cook", dish="soup")
        await kitchen.begun.wait()
        await cancel(client, task_id)
        await until(client, task_id, "cancelled")
    assert "the work behind a cancelled task goes on" in caplog.text


def limit(server, **limits):
    server.protocol.lifespan = lambda _: TaskBoard(TaskLimits(**limits))


async def test_a_finished_task_is_forgotten_after_a_while(kitchen):
    limit(kitchen.server, keep=timedelta(seconds=-1))
    async with connected(kitchen.server.protocol) as (client, start):
        task_id = await start("cook", dish="soup")
        assert (await get(client, task_id)).status == "working"
        kitchen.go_on.set()
        with pytest.raises(MCPError, match="There is no such task"):
            await until(client, task_id, "never")


@pytest.mark.parametrize("limits", [{"per_caller": 2}, {"in_all": 2}])
async def test_finished_tasks_leave_room_for_others_and_the_oldest_go_first(kitchen, limits):
    limit(kitchen.server, **limits)
    kitchen.go_on.set()
    async with connected(kitchen.server.protocol) as (client, start):
        dishes = []
        for dish in ("soup", "fish", "rice", "cake"):
            dishes.append(await start("cook", dish=dish))
            await until(client, dishes[-1], "completed")
        with pytest.raises(MCPError, match="There is no such task"):
            await get(client, dishes[0])
        assert [(await get(client, task_id)).status for task_id in dishes[1:]] == ["completed"] * 3


@pytest.mark.parametrize("limits", [{"per_caller": 1}, {"in_all": 1}])
async def test_a_call_that_would_be_one_task_too_many_stays_a_call(kitchen, limits):
    limit(kitchen.server, **limits)
    async with connected(kitchen.server.protocol, elicitation_callback=fail_when_asked) as (client, start):
        await start("chat")  # it waits for an answer
        kitchen.go_on.set()
        assert text(await client.call_tool("cook", {"dish": "fish"})) == "fish as a call"
