"""What the tools refuse, and how it is said: with what to do, and in few words."""

from __future__ import annotations

import json

import pytest
from mcp.shared.exceptions import MCPError

from tests.unit.agent_server.conftest import NOTE


async def test_without_a_model_everything_is_listed_and_a_run_says_what_to_set(connect, refused):
    async with connect(provider="") as client:
        assert len((await client.list_tools()).tools) == 8
        text = await refused(client, "agent_run", goal="What time is it?")
    assert text.startswith("There is no language model")
    assert "DEEPSEEK_API_KEY" in text
    assert "--provider mock" in text


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("agent_run", {"goal": "  "}, "The goal is empty"),
        ("agent_run", {"goal": "x", "profile": "reserch"}, "There are: demonstration."),
        ("agent_run", {"goal": "x", "session_id": "ses_none"}, "There is no session"),
        ("agent_run", {"goal": "x", "wait_seconds": 46}, "wait_seconds"),
        ("agent_run", {"goal": "x", "output_schema": {"type": "array"}}, "does not describe an object"),
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
