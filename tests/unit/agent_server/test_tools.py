"""The tools as a client calls them, with the demonstration as model."""

from __future__ import annotations

import json

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from loom_core.runs.orders import Reply

NOTE = "请记一条笔记：明天去青岛"


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


async def test_a_call_that_changes_something_waits_for_the_users_decision(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        assert run["status"] == "input_required"
        (pending,) = run["pending"]
        assert (pending["tool"], pending["kind"]) == ("keep_note", "approval")
        assert pending["arguments"] == {"text": NOTE}
        assert "agent_decide" in run["next"]
        decisions = [{"id": pending["id"], "action": "approve"}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
        assert done["status"] == "completed"
        assert NOTE in done["output"]
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
    (decided,) = [event for event in events["events"] if event["type"] == "approval_decided"]
    said = {name: decided["payload"][name] for name in ("call_id", "action", "by")}
    assert said == {"call_id": pending["id"], "action": "approve", "by": "the user"}


async def test_a_tool_is_approved_for_all_of_a_run(connect, call):
    goal = 'use keep_note {"text": "甲"} and use keep_note {"text": "乙"}'
    async with connect() as client:
        run = await call(client, "agent_run", goal=goal)
        assert len(run["pending"]) == 2
        decisions = [{"id": run["pending"][0]["id"], "action": "approve", "scope": "run"}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert done["status"] == "completed"
    assert "乙" in done["output"]


async def test_a_refusal_reaches_the_agent_with_its_reason(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        decisions = [{"id": run["pending"][0]["id"], "action": "deny", "reason": "不要记"}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert done["status"] == "completed"
    assert "不要记" in done["output"]
    assert done["usage"]["tool_calls"] == 0


async def test_a_call_is_made_with_the_arguments_that_the_user_gives_it(connect, call, refused):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        change = {"id": run["pending"][0]["id"], "action": "edit"}
        text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=[change])
        assert "`arguments`" in text
        change["arguments"] = {"text": "后天去青岛"}
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=[change])
    assert "后天去青岛" in done["output"]


async def test_a_question_of_a_tool_is_answered(connect, call, refused):
    async with connect() as client:
        run = await call(client, "agent_run", goal="请问我的名字")
        (pending,) = run["pending"]
        assert pending["kind"] == "question"
        assert pending["answer_schema"]["required"] == ["answer"]
        answer = {"id": pending["id"], "action": "answer"}
        assert "`content`" in await refused(client, "agent_decide", run_id=run["run_id"], decisions=[answer])
        approve = {"id": pending["id"], "action": "approve"}
        text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=[approve])
        assert "is a question" in text
        answer["content"] = {"answer": "李明"}
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=[answer])
    assert "李明" in done["output"]


async def test_several_decisions_are_taken_together_or_not_at_all(connect, call, refused):
    goal = 'use keep_note {"text": "甲"} and use keep_note {"text": "乙"}'
    async with connect() as client:
        run = await call(client, "agent_run", goal=goal)
        first, second = (each["id"] for each in run["pending"])
        approve = {"id": first, "action": "approve"}
        for other, why in (
            ({"id": "bad", "action": "approve"}, "does not wait for 'bad'"),
            ({"id": second, "action": "edit"}, "no arguments"),
            ({"id": first, "action": "deny"}, "several decisions"),
        ):
            both = [approve, other]
            text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=both)
            assert text.startswith("None of the 2 decisions was taken.")
            assert why in text
            still = await call(client, "agent_wait", run_id=run["run_id"], wait_seconds=0)
            assert [each["id"] for each in still["pending"]] == [first, second]
        decisions = [{**approve, "scope": "run"}, {"id": second, "action": "deny"}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert '"kept":"甲"' in done["output"]
    assert '"kept":"乙"' not in done["output"], "an approval for the run does not go over a refusal"


async def test_what_a_tool_cannot_take_leaves_the_decision_open(connect, call, refused):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        edit = {"id": run["pending"][0]["id"], "action": "edit", "arguments": {"nope": 1}}
        text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=[edit])
        assert "`text` is required" in text
        still = await call(client, "agent_wait", run_id=run["run_id"], wait_seconds=0)
        assert still["pending"] == run["pending"]
        edit["arguments"] = {"text": "改过"}
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=[edit])
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
    assert '"kept":"改过"' in done["output"]
    asked = [each["payload"] for each in events["events"] if each["type"] == "approval_required"]
    assert [each["pending"]["arguments_schema"] for each in asked] == [{}]


async def test_an_answer_that_does_not_fit_the_question_leaves_it_open(connect, call, refused):
    async with connect() as client:
        run = await call(client, "agent_run", goal="请问我的名字")
        answer = {"id": run["pending"][0]["id"], "action": "answer", "content": {"answer": 5, "zz": 1}}
        text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=[answer])
        assert "`answer` must be a string, got 5 (a number)" in text
        still = await call(client, "agent_wait", run_id=run["run_id"], wait_seconds=0)
    assert still["pending"] == run["pending"]


async def test_a_question_may_be_declined(connect, call):
    async with connect() as client:
        run = await call(client, "agent_run", goal="ask me something")
        decision = {"id": run["pending"][0]["id"], "action": "deny"}
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=[decision])
    assert "(decline)" in done["output"]


async def test_who_does_not_answer_in_time_has_refused(connect, call, configure):
    configure(default={"approvals": {"deadline_seconds": 0.3}})
    async with connect() as client:
        run = await call(client, "agent_run", goal="note that")
        assert run["status"] == "input_required"
        done = await call(client, "agent_wait", run_id=run["run_id"], after_seq=run["last_seq"])
    assert done["status"] == "completed"
    assert "nobody approved it in time" in done["output"]


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
        await service.changed(first.id, seconds=20)
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


async def test_without_a_model_everything_is_listed_and_a_run_says_what_to_set(connect, refused):
    async with connect(provider="") as client:
        assert len((await client.list_tools()).tools) == 8
        text = await refused(client, "agent_run", goal="What time is it?")
    assert text.startswith("There is no language model")
    assert "DEEPSEEK_API_KEY" in text
    assert "--provider mock" in text


async def test_the_first_vendor_with_a_key_is_taken_and_one_without_is_named(running, monkeypatch, configure):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    async with running(provider="") as service:
        assert (await service.agent()).model.startswith("deepseek/")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("agent_run", {"goal": "  "}, "The goal is empty"),
        ("agent_run", {"goal": "x", "profile": "reserch"}, "There are: demonstration."),
        ("agent_run", {"goal": "x", "session_id": "ses_none"}, "There is no session"),
        ("agent_run", {"goal": "x", "wait_seconds": 46}, "wait_seconds"),
        ("agent_run", {"goal": "x", "output_schema": {"type": "array"}}, "no objects"),
        ("agent_run", {"goal": "x", "output_schema": {"$ref": "http://127.0.0.1:1/x"}}, "not in it"),
        ("agent_run", {"goal": "x", "allowed_tools": ["re:("]}, "regular expression"),
        ("agent_run", {"goal": "x", "budget": {"itertions": 3}}, "itertions"),
        ("agent_wait", {"run_id": "run_none"}, "There is no run"),
        ("agent_reply", {"session_id": "ses_none", "message": "x"}, "There is no session"),
        ("agent_decide", {"run_id": "run_none", "decisions": [{"id": "a", "action": "deny"}]}, "no run"),
        ("agent_control", {"run_id": "run_none", "action": "abort"}, "There is no run"),
        ("agent_events", {"run_id": "run_none"}, "There is no run"),
        ("tool_search", {"profile": "none"}, "There is no profile"),
    ],
)
async def test_what_cannot_be_done_is_said_with_what_to_do(connect, refused, tool, arguments, said):
    async with connect() as client:
        assert said in await refused(client, tool, **arguments)


async def test_orders_that_do_not_fit_are_refused(connect, call, refused):
    async with connect() as client:
        run = await call(client, "agent_run", goal="What time is it?")
        resumed = await refused(client, "agent_control", run_id=run["run_id"], action="resume")
        decided = await refused(
            client, "agent_decide", run_id=run["run_id"], decisions=[{"id": "call_1_1", "action": "approve"}]
        )
    assert "is completed" in resumed
    assert "has ended" in decided


async def test_progress_tells_people_what_happens(connect):
    lines = []

    async def told(_value, _total, message):
        lines.append(message)

    async with connect() as client:
        await client.call_tool("agent_run", {"goal": "等待 0.6"}, progress_callback=told)
    assert any(line.startswith("demonstration 正在思考") for line in lines), lines
    assert any("waiting" in line for line in lines), lines
    assert len(lines) <= 8, "at most four a second"


async def test_a_client_that_goes_leaves_its_run_going(connect, call, running, settings):
    async with connect() as client:
        with anyio.move_on_after(0.3):
            await client.call_tool("agent_run", {"goal": "wait 0.8"})
        (run,) = (await call(client, "agent_runs"))["runs"]
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


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("agent_run", {"goal": "x", "profile": "{long}"}),
        ("agent_run", {"goal": "x", "session_id": "{long}"}),
        ("agent_wait", {"run_id": "{long}"}),
        ("agent_reply", {"session_id": "{long}", "message": "x"}),
        ("agent_decide", {"run_id": "{long}", "decisions": [{"id": "a", "action": "deny"}]}),
        ("agent_decide", {"run_id": "{run}", "decisions": [{"id": "{long}", "action": "deny"}]}),
        ("agent_decide", {"run_id": "{run}", "decisions": [{"id": "{long}", "action": "edit"}]}),
        ("agent_control", {"run_id": "{long}", "action": "abort"}),
        ("agent_events", {"run_id": "{long}"}),
    ],
)
async def test_what_is_refused_is_not_said_again_in_all_its_length(connect, call, refused, tool, arguments):
    async with connect() as client:
        run = await call(client, "agent_run", goal=NOTE)
        filled = json.dumps(arguments).replace("{run}", run["run_id"])
        for long in ("x" * 100_000, "无" * 100_000):
            said = await refused(client, tool, **json.loads(filled.replace("{long}", long)))
            assert len(said) < 1000


async def test_numbers_that_no_run_can_have_are_refused_or_do_no_harm(connect, call, refused):
    async with connect() as client:
        most = {"tokens": 10**30, "tool_calls": 10**30, "cost": 1e308, "seconds": 1e308}
        run = await call(client, "agent_run", goal="几点了？", budget=most)
        assert run["status"] == "completed"
        for number in (2**32, 2**63, 10**30, -1):
            for tool in ("agent_events", "agent_wait"):
                assert "after_seq" in await refused(client, tool, run_id=run["run_id"], after_seq=number)
            for tool in ("agent_runs", "tool_search"):
                assert "limit" in await refused(client, tool, limit=number)
        last = await call(client, "agent_events", run_id=run["run_id"], after_seq=2**32 - 1)
        with pytest.raises(MCPError, match="no blob"):
            await client.read_resource(f"loom://runs/{run['run_id']}/blobs/{10**30}")
    assert last["events"] == []


async def test_reasons_are_given_in_the_language_of_the_goal(connect, call):
    async with connect() as client:
        for goal, may, end in (
            (NOTE, "它可能会更改某些内容。", "该运行已中止（操作者：用户）：不需要了"),
            ("write a note", "It may change something.", "The run was aborted by the user: 不需要了"),
        ):
            run = await call(client, "agent_run", goal=goal)
            assert run["pending"][0]["reason"] == may
            order = {"run_id": run["run_id"], "action": "abort", "reason": "不需要了"}
            assert (await call(client, "agent_control", **order))["problem"] == end
