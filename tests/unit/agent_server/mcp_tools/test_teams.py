"""Profiles that use other profiles: sub-agents as tools, and compositions, as a client runs them."""

from __future__ import annotations

import json
from contextlib import aclosing

import anyio
import pytest

from loom_core.runs.run import PARENT_RUN

pytestmark = pytest.mark.slow

NONE = {"mcp": {"servers": []}, "knowledge": []}
A = {"description": "Knows orders.", **NONE}
B = {"description": "退款", **NONE}


@pytest.fixture
def teams(home):
    """Writes profiles around the members `a` and `b`, which the demonstration drives."""

    def write(**profiles):
        path = home / "agent.json"
        members = {"a": {"model": "mock", **A}, "b": {"model": "mock", **B}}
        path.write_text(json.dumps({"profiles": {**profiles, **members}}, ensure_ascii=False), "utf-8")

    return write


async def steps(client, call, run):
    """The calls of a run: the tool, and its goal."""
    events = (await call(client, "agent_events", run_id=run["run_id"]))["events"]
    begun = [event["payload"]["calls"] for event in events if event["type"] == "tool_calls_start"]
    return [[(each["tool"], each["arguments"]["goal"]) for each in calls] for calls in begun]


async def test_a_profile_calls_others_as_tools(connect, call, teams):
    teams(desk={"model": "mock", "agents": ["a", "b"], **NONE})
    goal = 'use a {"goal": "wait 0"} and use b {"goal": "等待 0"}'
    async with connect() as client:
        found = await call(client, "tool_search", query="退款", profile="desk")
        assert "b" in [tool["name"] for tool in found["tools"]]
        run = await call(client, "agent_run", goal=goal)
        listed = (await call(client, "agent_runs"))["runs"]
    assert run["status"] == "completed"
    assert run["output"].count("Waited 0 s.") == 2
    assert run["usage"]["tool_calls"] == 4, "calls of the members count"
    assert {each["profile"] for each in listed} == {"desk", "a", "b"}


@pytest.mark.parametrize(
    ("profile", "rounds", "answer"),
    [
        ({"chain": ["a", "b"]}, [["a"], ["b"]], "The tools say: 20"),
        ({"parallel": ["a", "b"]}, [["a", "b"]], "## a\n\nThe tools say: Waited"),
        ({"workflow": {"a": [], "b": [], "c": ["a", "b"]}}, [["a", "b"], ["c"]], "The tools say: 20"),
        (
            {"router": {"routes": {"a": {"when": "退款"}, "b": {"when": "wait"}}}},
            [["b"]],
            "The tools say: Waited",
        ),
        ({"model": "mock", "router": {"routes": {"b": {}, "a": {}}}}, [["a"]], "The tools say: Waited"),
    ],
)
async def test_a_composition_calls_its_members_in_their_order(connect, call, teams, profile, rounds, answer):
    teams(main=profile, c={"model": "mock", **A})
    goal = "wait 0 for a"
    async with connect() as client:
        run = await call(client, "agent_run", goal=goal)
        called = await steps(client, call, run)
    assert run["status"] == "completed", run["problem"]
    assert [[tool for tool, _ in each] for each in called] == rounds
    assert all(given == goal for _, given in called[0])
    assert all("Waited 0 s." in given for each in called[1:] for _, given in each)
    assert run["output"].startswith(answer)


async def test_the_member_that_gets_the_conversation_answers_in_the_next_run_too(connect, call, teams):
    script = {"provider": "mock", "options": {"responses": ["Which order?", "退款已办理。"]}}
    teams(office={"handoff": {"members": ["a", "orders"]}}, orders={"model": script, **A})
    async with connect() as client:
        run = await call(client, "agent_run", goal='use handoff_to_orders {"note": "a refund"}')
        again = await call(client, "agent_reply", session_id=run["session_id"], message="订单 42")
        called = await steps(client, call, run)
        text = (await client.call_tool("agent_wait", {"run_id": again["run_id"]})).content[0].text
    assert (run["output"], run["answered_by"]) == ("Which order?", "orders")
    assert [tool for each in called for tool, _ in each] == ["a", "orders"]
    assert (again["output"], again["answered_by"]) == ("退款已办理。", "orders")
    assert "回答者：orders" in text


async def test_a_later_run_of_the_session_has_its_own_steps(connect, call, teams):
    teams(main={"chain": ["a"]})
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0")
        again = await call(client, "agent_reply", session_id=run["session_id"], message="等待 0")
    assert run["output"].startswith("The tools say: Waited")
    assert again["output"].startswith("工具的结果：Waited")


async def test_a_message_during_a_run_goes_to_the_next_step(connect, call, teams):
    teams(main={"chain": ["a", "b"]})
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0.3", wait_seconds=0)
        await call(client, "agent_reply", session_id=run["session_id"], message="use clock")
        called = await steps(client, call, run)
    assert called[0] == [("a", "wait 0.3")]
    assert called[1][0][1].endswith("\n\nuse clock")


async def test_the_call_of_a_member_is_approved_through_the_outer_run(connect, call, teams):
    teams(main={"chain": ["inner"]}, inner={"parallel": ["a", "b"]})
    async with connect() as client:
        run = await call(client, "agent_run", goal="write it down")
        while run["status"] == "input_required":
            assert {each["tool"] for each in run["pending"]} <= {"inner/a/keep_note", "inner/b/keep_note"}
            decisions = [{"id": each["id"], "action": "approve"} for each in run["pending"]]
            run = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert run["status"] == "completed"
    assert run["output"].count('"kept":"write it down"') == 2


async def test_a_failed_step_fails_the_run_and_is_called_again_when_it_is_resumed(connect, call, teams):
    teams(main={"chain": ["a", "weak"]}, weak={"model": "mock", **A, "budget": {"iterations": 1}})
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0")
        assert run["status"] == "failed"
        assert "The step 'weak' failed: The agent `weak` did not reach the goal" in run["problem"]
        await call(client, "agent_control", run_id=run["run_id"], action="resume")
        again = await call(client, "agent_wait", run_id=run["run_id"], after_seq=run["last_seq"])
        assert again["status"] == "failed"
        called = await steps(client, call, run)
    assert [[tool for tool, _ in each] for each in called] == [["a"], ["weak"], ["weak"]]


@pytest.mark.parametrize(
    "inner",
    [
        {"chain": ["a", "rate"]},
        {"workflow": {"rate": ["a"], "a": []}},
        {"router": {"routes": {"rate": {"when": "wait"}, "a": {}}, "default": "a"}},
    ],
)
async def test_the_member_whose_output_is_the_answer_answers_by_the_schema(
    connect, call, refused, teams, inner
):
    script = {"provider": "mock", "options": {"responses": ["很好", '{"stars": 5}']}}
    teams(
        main={"chain": ["inner"]},
        inner=inner,
        both={"parallel": ["a", "b"]},
        outer={"chain": ["a", "both"]},
        rate={"model": script, **A},
    )
    schema = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0", output_schema=schema)
        said = await refused(client, "agent_run", goal="x", profile="outer", output_schema=schema)
    assert (run["status"], run["structured"]) == ("completed", {"stars": 5})
    assert "the texts of several members, which fit no schema" in said
    assert "Leave `output_schema` out" in said


async def test_the_outer_budget_bounds_the_members(connect, call, teams):
    teams(main={"chain": ["a", "b"], "budget": {"tool_calls": 2}})
    async with connect() as client:
        run = await call(client, "agent_run", goal="wait 0")
    assert run["status"] == "failed"
    assert "The step 'b' cannot be called." in run["problem"]


async def test_a_member_goes_on_where_it_was_after_a_restart(running, teams):
    teams(main={"chain": ["a", "b"]})
    async with running() as service:
        run = await service.start("wait 0.5")
        with anyio.fail_after(30):
            async with aclosing(service.journal().follow(run.id)) as events:
                await anext(event async for event in events if event.type == "tool_progress")
        members = [each for each in await service.runs() if each.request.profile == "a"]
    async with running() as service:
        await service.adopt(run.id)
        with anyio.fail_after(30):
            done = await service.wait_until_idle(run.id, after=run.last_seq, seconds=30)
        assert done.status == "completed"
        first, *others = [each for each in await service.runs() if each.request.profile == "a"]
        assert (first.id, others) == (members[0].id, [])
        assert first.request.metadata[PARENT_RUN] == run.id
