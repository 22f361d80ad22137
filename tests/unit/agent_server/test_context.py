"""Data that callers pass with a goal, as a profile defines them."""

from __future__ import annotations

import json

import pytest
from loom_agent.profiles.context_config import ContextConfig, fill_placeholders
from loom_agent.profiles.profile_config import ProfileConfig

from loom_core.errors import InvalidInputError
from loom_core.server.auth.caller import SCOPES, Caller, use_caller

_SHOP = {
    "system_prompt": "You help {$context.name}.",
    "context": {
        "properties": {"customer": {"type": "string", "pattern": "^C-[0-9]+$"}, "name": {"type": "string"}},
        "required": ["customer"],
        "inject": {"keep_*": {"text": "customer"}},
    },
    "permissions": [{"action": "allow", "tool": "keep_note"}],
}
_GOAL = "use keep_note {}"


async def _ended(service, run):
    return await service.wait_until_idle(run.id, after=run.last_seq, seconds=20)


@pytest.mark.slow
async def test_data_go_to_the_tool_and_on_to_later_runs_of_the_session(configure, connect, call):
    configure(shop=_SHOP, other={})
    async with connect() as client:
        asked = {"goal": _GOAL, "profile": "shop"}
        run = await call(client, "agent_run", **asked, context={"customer": "C-17", "name": "小王"})
        assert '"kept":"C-17"' in run["output"]
        again = await call(client, "agent_reply", session_id=run["session_id"], message=_GOAL)
        assert '"kept":"C-17"' in again["output"]
        next_one = await call(
            client, "agent_run", **asked, session_id=run["session_id"], context={"customer": "C-2"}
        )
        assert '"kept":"C-2"' in next_one["output"]
        (listed,) = (await client.read_resource("loom://tools")).contents
    profiles = json.loads(listed.text)["profiles"]
    assert profiles["shop"]["context"]["required"] == ["customer"]
    assert "context" not in profiles["other"]


@pytest.mark.slow
async def test_data_of_a_composition_go_to_its_members(configure, running):
    desk = {"router": {"routes": {"shop": {"when": "."}}}, "context": {"properties": {"customer": {}}}}
    configure(shop=_SHOP, desk=desk)
    async with running() as service:
        run = await _ended(service, await service.start(_GOAL, profile="desk", context={"customer": "C-17"}))
    assert '"kept":"C-17"' in run.output


@pytest.mark.slow
async def test_data_that_do_not_fit_are_refused_and_those_of_a_token_are_fixed(configure, running):
    configure(shop=_SHOP, other={})
    async with running() as service:
        for context, why in (
            (None, "'customer' is a required property"),
            ({"customer": "17"}, "pattern"),
            ({"customer": "C-1", "color": "red"}, "color"),
        ):
            with pytest.raises(InvalidInputError, match=why):
                await service.start(_GOAL, profile="shop", context=context)
        with pytest.raises(InvalidInputError, match="'other' takes no `context`"):
            await service.start(_GOAL, profile="other", context={"customer": "C-1"})
        token = Caller("web", SCOPES, None, "token:1", {"customer": "C-5", "region": "eu"})
        with use_caller(token):
            run = await service.start(_GOAL, profile="shop", context={"customer": "C-17"})
            assert '"kept":"C-5"' in (await _ended(service, run)).output


def test_placeholders_are_filled():
    assert fill_placeholders("{$context.a}, {$context.b}; {$context.c} {x}", {"a": "甲", "b": [1]}) == (
        "甲, [1];  {x}"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"required": ["age"]}, "`required` names 'age'"),
        ({"inject": {"*": {"id": "unknown"}}}, "`inject` names 'unknown'"),
        ({"inject": {"re:(": {"id": "customer"}}}, "not a usable regular expression"),
        ({"properties": {"customer": {"type": "strong"}}}, "strong"),
    ],
)
def test_a_context_that_cannot_work_is_refused_when_it_is_read(changes, why):
    with pytest.raises(ValueError, match=why):
        ContextConfig.model_validate({"properties": {"customer": {"type": "string"}}, **changes})


def test_a_placeholder_of_unknown_data_is_refused_when_it_is_read():
    with pytest.raises(ValueError, match="`system_prompt` names 'nome'"):
        ProfileConfig.model_validate({**_SHOP, "system_prompt": "{$context.nome}"})
