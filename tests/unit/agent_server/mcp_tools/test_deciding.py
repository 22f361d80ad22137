"""What a run waits for, decided and answered by `agent_decide`."""

from __future__ import annotations

import pytest

from tests.unit.agent_server.conftest import NOTE

pytestmark = pytest.mark.slow


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
    assert "no one approved it in time" in done["output"]


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
