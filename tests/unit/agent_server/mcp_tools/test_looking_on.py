"""Views of runs besides their answers: events, past runs, resources, prompts, progress."""

from __future__ import annotations

import json

import pytest
from mcp.shared.exceptions import MCPError

from tests.unit.agent_server.conftest import NOTE

pytestmark = pytest.mark.slow


async def test_events_come_in_pages_without_a_gap(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="What time is it?")
        seen, after, more = [], 0, True
        while more:
            page = await call(client, "agent_events", run_id=run["run_id"], after_seq=after, limit=5)
            seen += [event["seq"] for event in page["events"]]
            after, more = page["last_seq"], page["more"]
        nothing = await call(client, "agent_events", run_id=run["run_id"], after_seq=after)
    assert seen == list(range(1, run["last_seq"] + 1))
    assert nothing["events"] == []
    assert nothing["last_seq"] == after


async def test_past_runs_are_found_by_words_and_by_status(connect, call):
    async with connect() as client:
        noted = await call(client, "agent_run", goal=NOTE)
        await call(client, "agent_run", goal="What time is it?")
        found = await call(client, "agent_runs", query="青岛")
        waiting = await call(client, "agent_runs", status=["input_required"])
        nothing = await client.call_tool("agent_runs", {"query": "lighthouse"})
    assert [run["run_id"] for run in found["runs"]] == [noted["run_id"]]
    assert [run["pending"] for run in waiting["runs"]] == [1]
    assert nothing.structured_content == {"runs": []}
    assert "agent_run starts one" in nothing.content[0].text


async def test_a_limit_counts_the_runs_that_fit(connect, call):
    async with connect() as client:
        noted = await call(client, "agent_run", goal="记一条笔记：灯塔旁边的小屋，还有许多别的东西")
        for _ in range(3):
            latest = await call(client, "agent_run", goal="灯塔")
        status, session = ["input_required"], noted["session_id"]
        by_status = await call(client, "agent_runs", query="灯塔", status=status, limit=1)
        by_session = await call(client, "agent_runs", query="灯塔", session_id=session, limit=1)
        best = await call(client, "agent_runs", query="灯塔", limit=1)
    assert [run["run_id"] for run in by_status["runs"]] == [noted["run_id"]]
    assert [run["run_id"] for run in by_session["runs"]] == [noted["run_id"]]
    assert [run["run_id"] for run in best["runs"]] == [latest["run_id"]]


async def test_progress_tells_people_what_happens(connect):
    lines = []

    async def told(_value, _total, message):
        lines.append(message)

    async with connect() as client:
        await client.call_tool("agent_run", {"goal": "等待 0.6"}, progress_callback=told)
    assert 2 <= len(lines) <= 8, "at most four a second"
    steps = ("demonstration 正在思考", "正在使用 wait", "waiting")
    assert lines[0].startswith(steps), "which of them depends on how fast the machine is"
    assert lines[-1] == "完成"


async def test_resources_show_runs_events_and_tools(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        listed = await client.list_resources()
        address = f"loom://runs/{run['run_id']}"
        assert [str(each.uri) for each in listed.resources] == ["loom://tools", address]
        assert listed.resources[1].title == NOTE
        shown = (await client.read_resource(address)).contents[0]
        assert '"status": "input_required"' in shown.text
        lines = (await client.read_resource(f"{address}/events")).contents[0].text.splitlines()
        assert '"type": "request_start"' in lines[0]
        tools = (await client.read_resource("loom://tools")).contents[0].text
        assert '"model": "mock/demonstration"' in tools
        for nothing in ("loom://runs/run_none", f"{address}/blobs/1", f"{address}/blobs/x"):
            with pytest.raises(MCPError, match=r"no run|no blob"):
                await client.read_resource(nothing)


async def test_a_large_output_is_read_by_its_address(connect, call, home):
    text = "".join(f"第{number}行：灯塔\n" for number in range(5000))
    (home / "long.txt").write_text(text, encoding="utf-8")
    async with connect(root=home) as client:
        run = await call(client, "agent_run", goal='use read_file {"path": "long.txt", "lines": 5000}')
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
        (blob,) = [event["payload"]["blob"] for event in events["events"] if event["type"] == "tool_result"]
        assert blob == f"loom://runs/{run['run_id']}/blobs/1"
        whole = (await client.read_resource(blob)).contents[0]
    assert whole.mime_type.startswith("text/plain")
    assert "第4999行：灯塔" in whole.text
    assert "第4999行：灯塔" not in run["output"]


async def test_prompts_offer_a_run_and_show_how_runs_stand(connect, call):
    async with connect() as client:
        begin = await client.get_prompt("run", {"goal": "比较三个报价", "profile": "demonstration"})
        assert "agent_run" in begin.messages[0].content.text
        assert "比较三个报价" in begin.messages[0].content.text
        run = await call(client, "agent_run", goal=NOTE)
        every = await client.get_prompt("status", {})
        assert run["run_id"] in every.messages[0].content.text
        one = await client.get_prompt("status", {"run_id": run["run_id"]})
        assert "keep_note" in one.messages[0].content.text


async def test_a_long_goal_is_cut_in_answers_and_whole_in_the_resource(connect, call):
    goal = "把港口的每一座灯塔都查一遍。" * 2000
    async with connect() as client:
        run = await call(client, "agent_run", goal=goal)
        again = await call(client, "agent_wait", run_id=run["run_id"])
        resource = await client.read_resource(f"loom://runs/{run['run_id']}")
    assert run["status"] == "completed"
    assert run["goal"] == again["goal"] == f"{goal[:120]} …"
    assert json.loads(resource.contents[0].text)["goal"] == goal
