from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import ServerError
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.mcp_client.connections.lifecycle import ReconnectPolicy
from loom_core.observability.families import MCP_SERVER_UP
from loom_core.observability.log_fields import current_fields, logging_with
from loom_core.observability.metrics import process_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="ends children by POSIX signals"),
]


def said(result) -> str:
    return result.content[0].text


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Reached:
    """A progress function: `happened` is set once the server reports something."""

    def __init__(self) -> None:
        self.happened = anyio.Event()

    async def __call__(self, done: float, total: float | None, message: str) -> None:
        self.happened.set()


async def test_what_a_connection_logs_names_no_one_who_has_had_it_opened(raw, caplog):
    said = []

    class Listening(logging.Handler):
        def emit(self, record):
            said.append((record.getMessage(), dict(current_fields())))

    caplog.set_level(logging.DEBUG, "loom_core.mcp_client")
    heard = Listening()
    logging.getLogger("loom_core.mcp_client").addHandler(heard)
    try:
        with logging_with({"caller": "爱丽丝", "request_id": "2"}):
            connection = ServerConnection(raw())
            async with anyio.create_task_group() as tasks:
                await tasks.start(connection.run)
                await connection.ready(20)
                await connection.close()
    finally:
        logging.getLogger("loom_core.mcp_client").removeHandler(heard)
    upkeep = [fields for line, fields in said if line.startswith("raw is ")]
    assert upkeep == [{}, {}, {}], said


async def test_a_server_is_connected_asked_and_closed_and_each_state_is_told(connected, raw):
    seen = []
    connection = ServerConnection(raw(), on_change=lambda change: seen.append((change, connection.state)))
    assert (connection.name, connection.state, connection.failure) == ("raw", "configured", "")
    async with anyio.create_task_group() as tasks:
        await tasks.start(connection.run)
        await connection.ready(20)
        assert connection.failure == ""
        listing = await connection.list_tools()
        assert (listing.tools[0].name, listing.tools[-1].name) == ("ask", "最后"), "all pages"
        assert (listing.ttl_ms, listing.scope) == (None, None)
        assert json.loads(said(await connection.call_tool("echo", {"文": "你好"}))) == {"文": "你好"}
        assert await connection.list_resources() == await connection.list_prompts() == []
        await connection.close()
    assert seen == [("state", "connecting"), ("state", "ready"), ("state", "closed")]
    assert connection.facts is not None
    assert (connection.facts.name, connection.facts.version, connection.facts.modern) == ("raw", "1", False)
    assert connection.facts.instructions == "请先用 echo。"


async def test_whether_a_server_is_connected_can_be_seen_in_the_metrics(raw):
    def up():
        told = process_metrics.registry.samples(MCP_SERVER_UP)
        return {name: value for (name,), value in told.items()}.get("raw")

    seen = []
    connection = ServerConnection(raw(), on_change=lambda _: seen.append(up()))
    assert up() is None, "no caller has asked for it yet"
    async with anyio.create_task_group() as tasks:
        await tasks.start(connection.run)
        await connection.ready(20)
        await connection.close()
    assert seen == [0, 1, None]


@pytest.mark.parametrize(
    ("how", "revision"),
    [
        ("", "2025-11-25"),
        ("ignores-discover", "2025-11-25"),
        ("ends-at-discover", "2025-11-25"),
        ("late", "2026-07-28"),
    ],
)
async def test_servers_of_every_age_are_connected_to_without_a_long_wait(connected, raw, how, revision):
    async with connected(raw(how, start_seconds=4)) as connection:
        await connection.ready(4)
        assert connection.facts.protocol_version == revision
        assert connection.facts.seconds < 3


async def test_a_server_that_is_too_old_for_its_entry_is_refused(connected, raw):
    async with connected(raw(era="modern")) as connection:
        with pytest.raises(ServerError, match="speaks 2025-11-25 only") as caught:
            await connection.ready(20)
    assert caught.value.failure == "refused"


async def test_a_slow_call_delays_no_other(connected, raw):
    async with connected(raw()) as connection, anyio.create_task_group() as tasks:
        reached = Reached()

        async def wait():
            await connection.call_tool("wait", {}, progress=reached)

        tasks.start_soon(wait)
        await reached.happened.wait()
        for number in range(20):
            assert said(await connection.call_tool("echo", {"n": number})) == json.dumps({"n": number})
        tasks.cancel_scope.cancel()


async def test_the_server_is_told_of_a_call_that_is_cancelled_and_of_one_that_is_late(connected, raw):
    async with connected(raw()) as connection:
        reached = Reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: connection.call_tool("wait", {}, progress=reached))
            await reached.happened.wait()
            tasks.cancel_scope.cancel()
        assert len(json.loads(said(await connection.call_tool("cancelled", {})))) == 1
        with pytest.raises(
            ServerError, match=r"did not answer `wait` within 0\.3 s\. It is not known"
        ) as caught:
            await connection.call_tool("wait", {}, seconds=0.3)
        assert caught.value.failure == "timeout"
        assert len(json.loads(said(await connection.call_tool("cancelled", {})))) == 2
        assert connection.state == "ready"


@pytest.mark.hostile("MCP servers")
async def test_a_server_that_ends_at_once_is_told_with_its_last_words_and_no_secret(connected, raw):
    entry = raw("exits", expanded=(SecretStr("sk-very-secret"),))
    async with connected(entry) as connection:
        with pytest.raises(ServerError, match="exit code 1; it said: 线路 no such database") as caught:
            await connection.ready(20)
        assert connection.state == "failed"
        assert "[secret]" in connection.failure
    assert (caught.value.failure, caught.value.server) == ("start", "raw")
    assert "sk-very-secret" not in f"{caught.value!r} {caught.value}"


async def test_a_server_that_hangs_at_start_costs_its_deadline_and_says_what_it_wrote(connected, raw):
    async with connected(raw("hangs", start_seconds=0.7)) as connection:
        with pytest.raises(ServerError, match=r"within 0\.7 s") as caught:
            await connection.ready()
    assert "Welcome to the server!" in str(caught.value)
    assert "connecting to 数据库" in str(caught.value)


async def test_a_program_that_is_no_server_and_says_something_else_is_told_with_advice(connected, raw):
    async with connected(raw().model_copy(update={"command": "cat", "args": ()})) as connection:
        with pytest.raises(ServerError, match="Method not found") as caught:
            await connection.ready()
    assert "in a terminal" in caught.value.advice


async def test_closing_does_not_wait_for_a_server_that_hangs(connected, raw):
    async with connected(raw("hangs", start_seconds=60)) as connection:
        with pytest.raises(ServerError, match=r"not connected after 0\.5 s"):
            await connection.ready(0.5)
        with anyio.fail_after(30):
            await connection.close()
    assert connection.state == "closed"


async def test_a_program_or_folder_that_is_not_there_is_named(connected, raw, tmp_path):
    entry = raw().model_copy(update={"command": "no-such-程序"})
    async with connected(entry) as connection:
        with pytest.raises(ServerError, match="there is no program 'no-such-程序'") as caught:
            await connection.ready(20)
    assert "PATH" in caught.value.advice
    async with connected(raw().model_copy(update={"cwd": tmp_path / "nowhere"})) as connection:
        with pytest.raises(ServerError, match="cannot be started"):
            await connection.ready(20)


async def test_a_call_during_which_the_server_dies_is_not_repeated_and_the_server_is_started_again(
    connected, raw
):
    changes = []
    async with connected(raw(), on_change=changes.append) as connection:
        with pytest.raises(
            ServerError, match=r"signal 9; it said: dying of 老了\. It is not known whether `die`"
        ) as caught:
            await connection.call_tool("die", {"why": "老了"})
        assert caught.value.failure == "interrupted"
        assert said(await connection.call_tool("echo", {})) == "{}"
        assert connection.state == "ready"
    assert {"tools", "resources", "prompts"} <= set(changes), "what it offers may be different now"


async def test_what_may_be_repeated_is_once_a_server_died(connected, raw, tmp_path):
    arguments = {"file": str(tmp_path / "died")}
    async with connected(raw()) as connection:
        result = await connection.call_tool("die_once", arguments, repeatable=True)
        assert said(result) == "alive"
        with pytest.raises(ServerError, match="dying of nothing"):
            await connection.call_tool("die", {}, repeatable=True)


async def test_concurrent_calls_end_too_when_one_kills_the_server(connected, raw):
    async with connected(raw()) as connection:
        reached, failures = Reached(), []

        async def wait():
            with pytest.raises(ServerError) as caught:
                await connection.call_tool("wait", {}, progress=reached)
            failures.append(caught.value.failure)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await reached.happened.wait()
            with pytest.raises(ServerError):
                await connection.call_tool("die", {})
        assert failures == ["interrupted"]


async def test_a_server_that_does_not_come_back_is_given_up_and_tried_again_on_demand(
    connected, raw, tmp_path
):
    script = tmp_path / "server.py"
    source = await anyio.Path(raw().args[1]).read_text(encoding="utf-8")
    script.write_text(source, encoding="utf-8")
    entry = raw().model_copy(update={"args": ("-S", str(script))})
    backoff = ReconnectPolicy(attempts=2, base=0.0)
    async with connected(entry, backoff=backoff) as connection:
        await connection.ready(20)
        script.unlink()
        with pytest.raises(ServerError):
            await connection.call_tool("die", {})
        with pytest.raises(ServerError, match="exit code 2"):
            await connection.call_tool("echo", {})
        assert connection.state == "failed"
        with pytest.raises(ServerError, match="exit code 2"):
            await connection.ready(20)
        script.write_text(source, encoding="utf-8")
        assert said(await connection.call_tool("echo", {})) == "{}"


async def test_what_is_no_message_is_passed_over(connected, raw):
    async with connected(raw()) as connection:
        assert said(await connection.call_tool("garbage", {})) == "after the garbage"


@pytest.mark.hostile("MCP servers")
async def test_what_no_text_can_hold_costs_its_character_only(connected, raw):
    async with connected(raw()) as connection:
        assert said(await connection.call_tool("half", {})) == "\ufffd|\\ud83d|😀|\ufffd"
        assert said(await connection.call_tool("echo", {"text": ["\ud83d 😀"]})) == '{"text": ["? 😀"]}'


@pytest.mark.hostile("MCP servers")
async def test_a_flood_of_notifications_reaches_who_listens_at_their_own_pace(connected, raw):
    steps, changes = [], []

    async def slow(done: float, total: float | None, message: str) -> None:
        steps.append(done)
        await anyio.sleep(0.05)

    async with connected(raw(), on_change=changes.append) as connection:
        assert said(await connection.call_tool("flood", {"count": 2000}, progress=slow)) == "flooded"
        assert said(await connection.call_tool("echo", {})) == "{}"
    assert changes.count("tools") == 2000
    assert len(steps) < 500
    assert steps == sorted(steps)


@pytest.mark.hostile("MCP servers")
async def test_an_answer_that_is_too_large_is_refused_and_the_connection_stays(connected, raw):
    async with connected(raw()) as connection, anyio.create_task_group() as tasks:
        reached = Reached()
        tasks.start_soon(lambda: connection.call_tool("wait", {}, progress=reached))
        await reached.happened.wait()
        with pytest.raises(ServerError, match="more than 32 MiB") as caught:
            await connection.call_tool("big", {"size": 50_000_000})
        assert caught.value.failure == "too_large"
        assert len(said(await connection.call_tool("big", {"size": 3_000_000}))) == 3_000_000
        assert connection.state == "ready"
        tasks.cancel_scope.cancel()


@pytest.mark.hostile("MCP servers")
async def test_whatever_a_child_has_started_ends_with_it(connected, raw):
    async with connected(raw()) as connection:
        family = json.loads(said(await connection.call_tool("spawn", {})))
        assert all(map(alive, family))
    with anyio.fail_after(30):
        while any(map(alive, family)):  # noqa: ASYNC110 - no event tells of their end
            await anyio.sleep(0.01)


async def test_a_child_that_ends_is_missed_though_another_holds_its_output_open(connected, raw):
    async with connected(raw()) as connection:
        with pytest.raises(ServerError, match="ended with exit code 5"):
            await connection.call_tool("leave", {}, seconds=20)


@pytest.mark.slow
async def test_a_child_that_does_not_want_to_end_is_killed(connected, raw):
    async with connected(raw()) as connection:
        await connection.list_tools()
        pid = int(said(await connection.call_tool("stubborn", {})))
        with anyio.fail_after(30):
            await connection.close()
    assert not alive(pid)


async def test_the_child_ends_when_the_owner_is_cancelled(raw):
    connection = ServerConnection(raw())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        pid = json.loads(said(await connection.call_tool("spawn", {})))[0]
        tasks.cancel_scope.cancel()
    assert not alive(pid)
    assert connection.state == "closed"


async def test_a_call_that_runs_when_the_connection_is_closed_is_told_so(connected, raw):
    async with connected(raw()) as connection:
        reached, failures = Reached(), []

        async def wait():
            with pytest.raises(ServerError, match="It is not known whether `wait`") as caught:
                await connection.call_tool("wait", {}, progress=reached)
            failures.append(caught.value.failure)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await reached.happened.wait()
            await connection.close()
        assert failures == ["closed"]


async def test_who_asks_a_closed_connection_is_told(connected, raw):
    async with connected(raw()) as connection:
        await connection.ready(20)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.close)
            tasks.start_soon(connection.close)
        with pytest.raises(ServerError, match="was closed") as caught:
            await connection.call_tool("echo", {})
        assert caught.value.failure == "closed"
    never = ServerConnection(raw())
    await never.close()
    assert never.state == "closed"


@pytest.mark.parametrize(
    ("tool", "failure", "code", "words"),
    [
        ("wrong", "unreadable", None, "violated the protocol: content: Input should be a valid list"),
        ("broken", "unreadable", None, "answered with something that is not an MCP message"),
        ("nothing", "refused", -32602, "error -32602: Unknown tool: nothing."),
    ],
)
async def test_an_answer_that_is_an_error_or_none_is_told_as_what_it_is(
    connected, raw, tool, failure, code, words
):
    async with connected(raw()) as connection:
        with pytest.raises(ServerError) as caught:
            await connection.call_tool(tool, {})
        assert (caught.value.failure, caught.value.code) == (failure, code)
        assert words in caught.value.message
        assert connection.state == "ready"


@pytest.mark.hostile("MCP servers")
async def test_a_child_gets_few_variables_and_knows_how_deep_it_is(connected, raw, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-ours")
    monkeypatch.setenv("LOOM_DEPTH", "1")
    async with connected(raw(env={"MODE": "测试"})) as connection:
        environment = json.loads(said(await connection.call_tool("environment", {})))
        meta = json.loads(said(await connection.call_tool("meta", {}, depth=2)))
    assert environment["MODE"] == "测试"
    assert environment["LOOM_DEPTH"] == "2"
    assert "OPENAI_API_KEY" not in environment
    assert os.environ["PATH"] == environment["PATH"]
    assert meta["loom/depth"] == 3


async def test_no_one_is_called_below_the_greatest_depth(connected, raw):
    async with connected(raw()) as connection:
        with pytest.raises(ServerError, match="3 programs are above") as caught:
            await connection.call_tool("echo", {}, depth=3)
    assert caught.value.failure == "loop"
