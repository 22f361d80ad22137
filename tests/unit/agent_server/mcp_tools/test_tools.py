"""The tools as a client calls them, with the demonstration as model."""

from __future__ import annotations

import anyio
import pytest

from loom_core.runs.commands import Reply

pytestmark = pytest.mark.slow


async def test_a_run_that_ends_in_time_is_answered_at_once(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="What time is it?")
    assert run["status"] == "completed"
    assert run["output"].startswith("The tools say: 20")
    assert run["profile"] == "demonstration"
    assert run["usage"]["iterations"] == 2
    assert run["usage"]["tool_calls"] == 1
    assert run["run_id"].startswith("run_")
    assert run["next"].endswith(f"call agent_reply with session_id {run['session_id']}.")


async def test_the_text_says_what_the_data_say_in_the_language_of_the_goal(connect):
    async with connect() as client:
        result = await client.call_tool("agent_run", {"goal": "现在几点？"})
    text, run = result.content[0].text, result.structured_content
    assert text.startswith(f"运行 {run['run_id']}（会话 {run['session_id']}）：已完成\n\n工具的结果：20")
    assert text.endswith(f"下一步：{run['next']}")


async def test_a_long_run_gives_a_handle_and_is_waited_for(connect, call):
    async with connect() as client:
        begun = await call(client, "agent_run", goal="wait 0.5", wait_seconds=0)
        assert begun["status"] == "working"
        assert "agent_wait" in begun["next"]
        done = await call(client, "agent_wait", run_id=begun["run_id"], after_seq=begun["last_seq"])
    assert done["status"] == "completed"
    assert "Waited 0.5 s." in done["output"]
    assert done["last_seq"] > begun["last_seq"]


async def test_waiting_ends_with_its_time_though_the_run_goes_on(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 30", wait_seconds=0.2)
        assert run["status"] == "working"
        again = await call(client, "agent_wait", run_id=run["run_id"], wait_seconds=0.1)
        assert again["status"] == "working"
        aborted = await call(client, "agent_control", run_id=run["run_id"], action="abort", reason="够了")
    assert aborted["status"] == "aborted"
    assert "够了" in aborted["problem"]
    assert "resume" in aborted["next"]


async def test_a_paused_run_begins_nothing_new_until_it_is_resumed(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0.4", wait_seconds=0)
        paused = await call(client, "agent_control", run_id=run["run_id"], action="pause")
        assert paused["status"] == "paused"
        assert "resume" in paused["next"]
        still = await call(client, "agent_wait", run_id=run["run_id"], wait_seconds=5)
        assert still["status"] == "paused"
        await call(client, "agent_control", run_id=run["run_id"], action="resume")
        done = await call(client, "agent_wait", run_id=run["run_id"])
    assert done["status"] == "completed"


async def test_a_run_that_is_resumed_elsewhere_is_said_to_go_on(connect, call):
    async with connect() as client, connect() as other:
        run = await call(client, "agent_run", goal="wait 0.8", wait_seconds=0.2)
        await call(client, "agent_control", run_id=run["run_id"], action="abort")
        resumed = await call(other, "agent_control", run_id=run["run_id"], action="resume")
        assert resumed["status"] == "working"
        assert "agent_wait" in resumed["next"]
        done = await call(other, "agent_wait", run_id=run["run_id"])
    assert done["status"] == "completed"


async def test_of_two_replies_at_once_one_begins_the_run_and_the_other_reaches_it(running):
    async with running() as service:
        first = await service.start("What is there?")
        session = first.request.session_id
        await service.wait_until_idle(first.id, seconds=20)
        runs = []

        async def reply(text):
            runs.append(await service.reply(session, Reply(text=text)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reply, "note that")
            tasks.start_soon(reply, "记一条：灯塔")
        assert runs[0].id == runs[1].id != first.id
        assert len(await service.runs(session_id=session)) == 2


async def test_a_reply_reaches_a_run_that_goes_on(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0.4", wait_seconds=0)
        done = await call(client, "agent_reply", session_id=run["session_id"], message="现在几点？")
        assert done["run_id"] == run["run_id"]
        assert done["status"] == "completed"
        assert "工具的结果：20" in done["output"]


async def test_a_reply_to_a_run_that_has_ended_begins_the_next_one_of_its_session(connect, call):
    async with connect() as client:
        first = await call(client, "agent_run", goal="What time is it?")
        second = await call(client, "agent_reply", session_id=first["session_id"], message="And now?")
        assert second["run_id"] != first["run_id"]
        assert second["session_id"] == first["session_id"]
        listed = await call(client, "agent_runs", session_id=first["session_id"])
    assert [run["run_id"] for run in listed["runs"]] == [second["run_id"], first["run_id"]]


async def test_the_same_key_gets_the_same_run(connect, call, refused):
    async with connect() as client:
        first = await call(client, "agent_run", goal="What time is it?", idempotency_key="k")
        again = await call(client, "agent_run", goal="What time is it?", idempotency_key="k")
        other = await refused(client, "agent_run", goal="Something else", idempotency_key="k")
    assert again["run_id"] == first["run_id"]
    assert "used for another goal" in other


async def test_a_caller_may_grant_less_than_the_profile_and_never_more(connect, call, configure):
    configure(default={"budget": {"iterations": 5, "tool_calls": 1}})
    async with connect() as client:
        run = await call(
            client,
            "agent_run",
            goal="use clock and use clock",
            budget={"iterations": 900, "tool_calls": 7, "seconds": 30},
        )
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
        results = [event["payload"] for event in events["events"] if event["type"] == "tool_result"]
        assert sorted(each["status"] for each in results) == ["denied", "success"]
        short = await call(client, "agent_run", goal="wait 30", budget={"seconds": 0.2})
    assert short["status"] == "failed"
    assert "0.2 s" in short["problem"]


async def test_only_allowed_tools_are_called(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="use clock", allowed_tools=["wait_*"])
    assert "There is no tool 'clock'" in run["output"]


async def test_the_final_answer_fits_the_schema_that_is_asked_for(connect, call, configure):
    script = {"provider": "mock", "options": {"responses": ["no JSON", '{"port": "青岛"}']}}
    configure(default={"model": script})
    schema = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
    async with connect() as client:
        run = await call(client, "agent_run", goal="Which port?", output_schema=schema)
    assert run["structured"] == {"port": "青岛"}
    assert run["usage"]["iterations"] == 2


async def test_the_agents_tools_are_found_by_what_they_do_with_what_becomes_of_a_call(connect, call, home):
    (home / "说明.txt").write_text("灯塔", encoding="utf-8")
    async with connect(root=home) as client:
        every = await call(client, "tool_search", limit=50)
        found = await call(client, "tool_search", query="keep a note", limit=1)
        files = await call(client, "tool_search", query="read file", limit=1)
    permissions = {tool["name"]: tool["permission"] for tool in every["tools"]}
    assert permissions["clock"] == permissions["read_file"] == "allow"
    assert permissions["keep_note"] == "ask"
    assert "write_file" not in permissions
    assert every["total"] == len(every["tools"])
    assert found["tools"][0]["name"] == "keep_note"
    assert files["tools"][0]["arguments"]["required"] == ["path"]


@pytest.mark.hostile("paths and links")
async def test_files_below_the_root_are_read_and_no_others(connect, call, home, tmp_path):
    (home / "说明.txt").write_text("灯塔在青岛。", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("sesame", encoding="utf-8")
    async with connect(root=home) as client:
        read = await call(client, "agent_run", goal='使用 read_file {"path": "说明.txt"}')
        outside = await call(client, "agent_run", goal='use read_file {"path": "../secret.txt"}')
    assert "灯塔在青岛。" in read["output"]
    assert "sesame" not in outside["output"]


async def test_a_rule_of_the_profile_forbids_and_allows(connect, call, configure):
    rules = [{"action": "allow", "tool": "keep_note"}, {"action": "deny", "tool": "clock", "reason": "停"}]
    configure(default={"permissions": rules})
    async with connect() as client:
        run = await call(client, "agent_run", goal='use keep_note {"text": "a"} and use clock')
    assert run["status"] == "completed"
    assert '"kept":"a"' in run["output"]
    assert "停" in run["output"]


async def test_the_first_vendor_with_a_key_is_taken_and_one_without_is_named(running, monkeypatch, configure):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    async with running(provider="") as service:
        assert (await service.agent()).model.startswith("deepseek/")


async def test_a_client_that_goes_leaves_its_run_going(connect, call, running, settings):
    async with connect() as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "agent_run", {"goal": "wait 2"})
            with anyio.fail_after(20):
                while not (runs := (await call(client, "agent_runs"))["runs"]):
                    pass
            group.cancel_scope.cancel()
        (run,) = runs
        assert run["status"] == "working"
        done = await call(client, "agent_wait", run_id=run["run_id"])
    assert done["status"] == "completed"


async def test_a_run_that_a_process_leaves_is_gone_on_with_by_the_next(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0.5", wait_seconds=0)
    async with connect() as client:
        done = await call(client, "agent_wait", run_id=run["run_id"])
        assert done["status"] == "completed"
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
    types = [event["type"] for event in events["events"]]
    assert types.count("request_start") == 1
    assert types[-1] == "agent_finish"
