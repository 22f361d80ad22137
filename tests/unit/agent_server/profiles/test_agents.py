"""Tools of other MCP servers: started at the first run, asked about, and never ourselves for ever."""

from __future__ import annotations

import json
import sys

import anyio
import pytest
from loom_agent.service import AgentService
from mcp_types import ElicitResult

from loom_core.errors import ConfigError, SourceError
from loom_core.runs.commands import ApprovalDecision
from loom_core.server.auth.caller import SCOPES, Caller, use_caller

pytestmark = pytest.mark.slow

_SERVER = '''
import anyio
from typing import Annotated
from pydantic import BaseModel
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("notes")

class Name(BaseModel):
    name: str

@server.tool()
def double(number: int) -> int:
    """Double a number."""
    return 2 * number

@server.tool()
async def greet(ctx: Context) -> str:
    """Greet the user by the name that they give."""
    answer = await ctx.elicit("你叫什么名字？", Name)
    return f"你好，{answer.data.name}" if answer.action == "accept" else f"({answer.action})"

server.run()
'''


@pytest.fixture
def servers(home, tmp_path):
    """Writes `mcp.json` with a server of two tools, and others."""
    program = tmp_path / "notes.py"
    program.write_text(_SERVER, encoding="utf-8")

    def write(**others):
        notes = {"command": sys.executable, "args": [str(program)], "loom": {"era": "legacy"}}
        text = json.dumps({"mcpServers": {"notes": notes, **others}}, ensure_ascii=False)
        (home / "mcp.json").write_text(text, encoding="utf-8")

    return write


async def ready(service, profile=""):
    """The names of an agent's tools, once those of the server `notes` are there."""
    with anyio.fail_after(30):
        while True:
            made = await service.agent(profile)
            names = {tool.name for tool in made.toolbox.tools()}
            if "notes:double" in names:
                return names
            await anyio.sleep(0.05)


async def once_ready(client):
    """Returns when the tools of the server `notes` can be found."""
    with anyio.fail_after(30):
        while True:
            found = await client.call_tool("tool_search", {"query": "double a number", "limit": 1})
            (tool,) = found.structured_content["tools"]
            if tool["name"] == "notes:double":
                return tool


async def test_tools_of_servers_are_called_once_approved_and_ask_through_the_run(connect, call, servers):
    servers()
    async with connect() as client:
        assert (await once_ready(client))["permission"] == "ask"
        goal = 'use notes__double {"number": 21} and use notes__greet'
        run = await call(client, "agent_run", goal=goal)
        assert [each["tool"] for each in run["pending"]] == ["notes:double", "notes:greet"]
        assert "not been approved yet" in run["pending"][0]["reason"]
        decisions = [{"id": each["id"], "action": "approve"} for each in run["pending"]]
        asked = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
        (question,) = asked["pending"]
        assert (question["kind"], question["reason"]) == ("question", "notes: 你叫什么名字？")
        answer = [{"id": question["id"], "action": "answer", "content": {"name": "李明"}}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=answer)
        assert done["status"] == "completed"
        assert "42" in done["output"]
        assert "你好，李明" in done["output"]


async def test_what_a_person_has_approved_a_rule_may_let_run_from_then_on(connect, call, servers, configure):
    servers()
    configure(default={"permissions": [{"action": "allow", "tool": "notes:double"}]})
    goal = 'use notes__double {"number": 21}'
    async with connect() as client:
        await once_ready(client)
        run = await call(client, "agent_run", goal=goal)
        assert run["status"] == "input_required", "nobody has looked at the tool yet"
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
        again = await call(client, "agent_run", goal=goal)
    assert again["status"] == "completed"
    assert "42" in again["output"]


async def test_an_approval_right_after_a_restart_is_kept(connect, call, servers, configure, home):
    servers()
    configure(default={"permissions": [{"action": "allow", "tool": "notes:double"}]})
    goal = 'use notes__double {"number": 21}'
    async with connect() as client:
        await once_ready(client)
        run = await call(client, "agent_run", goal=goal)
        assert run["status"] == "input_required"
    async with connect() as client:  # its server has not been started yet
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        decided = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
        done = await call(client, "agent_wait", run_id=decided["run_id"], wait_seconds=40)
        assert "42" in done["output"]
    async with connect() as client:
        await once_ready(client)
        again = await call(client, "agent_run", goal=goal)
    assert (again["status"], "42" in again["output"]) == ("completed", True)


async def test_an_approval_that_the_client_asks_for_is_kept(connect, call, servers, configure):
    servers()
    configure(default={"permissions": [{"action": "allow", "tool": "notes:double"}]})
    asked = []

    async def approve(_context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    for _ in range(2):  # of two processes, one after the other
        async with connect(elicitation_callback=approve) as client:
            await once_ready(client)
            run = await call(client, "agent_run", goal='use notes__double {"number": 21}')
            assert (run["status"], "42" in run["output"]) == ("completed", True)
    assert len(asked) == 1


async def test_a_decision_on_the_command_line_is_kept_though_no_process_drives_the_run(
    running, servers, configure, settings
):
    servers()
    configure(default={"permissions": [{"action": "allow", "tool": "notes:double"}]})
    goal = 'use notes__double {"number": 21}'
    async with running(sees_all=True) as service:
        await ready(service)
        run = await service.start(goal)
        while run.status != "input_required":
            run = await service.changed(run.id, after=run.last_seq, seconds=30)
    async with AgentService(settings(), adopts=False, sees_all=True) as service:
        service.load()
        run = await service.run(run.id)
        await service.decide(run, ApprovalDecision(id=run.pending[0].id, action="approve"))
    async with running() as service:
        await ready(service)
        made = await service.agent()
        double = made.toolbox.find("notes:double")
        assert made.permissions.decide(double, {"number": 1}).action == "allow"


async def test_who_decides_of_their_own_run_only_approves_for_nobody_else(running, servers, configure):
    servers()
    configure(default={"permissions": [{"action": "allow", "tool": "notes:double"}]})
    goal = 'use notes__double {"number": 21} and use notes__double {"number": 4}'
    async with running(over_http=True) as service:
        await ready(service)
        for _ in range(2):
            with use_caller(Caller("customer", SCOPES, id="token:customer")):
                run = await service.start(goal)
                while run.status != "input_required":
                    run = await service.changed(run.id, after=run.last_seq, seconds=30)
                told = await service.decide(run, ApprovalDecision(id=run.pending[0].id, action="approve"))
                while run.status != "completed":
                    run = await service.changed(told.id, after=run.last_seq, seconds=30)
                assert "42" in run.output


async def test_a_profile_has_the_servers_that_it_names(running, servers, configure):
    servers(other={"command": "loom-no-such-program"})
    configure(default={"mcp": {"servers": []}}, notes={"mcp": {"servers": ["notes"]}})
    async with running() as service:
        assert not any(tool.name.startswith("notes:") for tool in (await service.agent()).toolbox.tools())
        assert {"notes:double", "notes:greet"} <= await ready(service, "notes")


async def test_a_server_that_has_to_be_there_and_is_not_fails_the_start(running, servers, configure):
    servers(away={"command": "loom-no-such-program", "loom": {"required": True}})
    configure(default={}, named={"mcp": {"servers": ["noone"]}}, fine={"mcp": {"servers": ["notes"]}})
    async with running() as service:
        with pytest.raises(SourceError, match="away"):
            await service.start("What time is it?")
        with pytest.raises(ConfigError, match="noone, which the profile names"):
            await service.start("What time is it?", profile="named")
        run = await service.start("What time is it?", profile="fine")
        assert (await service.changed(run.id, seconds=30)).status == "completed"


async def test_a_server_that_is_not_needed_and_fails_spoils_nothing(connect, call, servers):
    servers(away={"command": "loom-no-such-program"})
    async with connect() as client:
        run = await call(client, "agent_run", goal="What time is it?")
        assert run["status"] == "completed"
        found = await call(client, "tool_search", query="clock")
    assert any("loom-no-such-program" in note for note in found["notes"])
