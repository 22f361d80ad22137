"""What a token is bound to: flows, and variables that no call can change."""

from __future__ import annotations

from dataclasses import replace

from loom_core.server.auth.caller import Caller, use_caller

GREETS = {"flow_id": "greet", "trigger_patterns": ["问好"], "description": "问好", "as_tool": True}
STEPS = [{"stepId": "sure", "confirm": "{$context.tenantId}/{$context.employeeId}?"}]
ADA = Caller("ada", frozenset({"read", "write"}), id="token:ada", context={"tenantId": "甲"})


async def test_what_a_token_is_bound_to_wins_over_what_a_call_says(running, write):
    write({**GREETS, "steps": STEPS})
    said = {"tenantId": "乙", "employeeId": "E1"}
    async with running() as service:
        with use_caller(ADA):
            reply = await service.chat("问好", context=said)
            assert "甲/E1?" in reply.text
            run = await service.start("greet", {}, context=said)
            run = await service.changed(run.id, seconds=5)
            assert run.pending[0].reason == "甲/E1?"
        with use_caller(replace(ADA, id="token:bob", context={})):
            assert "乙/E1?" in (await service.chat("问好", context=said)).text


async def test_a_token_is_told_only_of_tools_that_it_has(running, write):
    reads = {"flow_id": "look", "endpoint": "GET https://api.example/x", "description": "d", "as_tool": True}
    changes = {**reads, "flow_id": "pay", "endpoint": "POST https://api.example/x"}
    write(reads, changes)
    async with running() as service:
        with use_caller(ADA):
            assert [flow.tool for flow in (await service.listed()).flows] == ["look", "pay"]
        with use_caller(replace(ADA, scopes=frozenset({"read"}))):
            assert [flow.tool for flow in (await service.listed()).flows] == ["look", ""]
