"""Profiles that use other profiles: what is refused, with its place."""

from __future__ import annotations

import json

import pytest
from loom_agent.profiles.agent_file import read_agent_file

from loom_core.errors import ConfigError

A = {"description": "Knows it."}
NAMED = {"description": "Pays.", "approvals": {"who": ["ops"], "via_tool": "off"}}
TWO = {"members": ["b", "c"]}
DEEP = {"a": {"agents": ["b"]}} | {one: {**A, "agents": [two]} for one, two in zip("bcd", "cde", strict=True)}


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        (
            {"a": {"agents": ["bb"]}, "b": A},
            ":1:32: there is no profile 'bb'. Did you mean 'b'? There are: a, b.",
        ),
        ({"a": {"agents": ["b"]}, "b": {}}, "'b' has no description, so no model knows when to call it."),
        ({"a": {"agents": ["b", "b"]}, "b": A}, ":1:37: 'b' is listed twice."),
        ({"a": {"chain": ["a"]}}, ":1:31: the profiles use each other in a cycle: a → a."),
        (
            {"a": {"agents": ["b"]}, "b": {**A, "router": {"routes": {"c": {}}}}, "c": {**A, "chain": ["b"]}},
            "in a cycle: b → c → b.",
        ),
        ({**DEEP, "e": A}, ":1:15: 4 levels of profiles are below this one; at most 3 are possible."),
        ({"a": {"chain": ["b"], "parallel": ["b"]}, "b": A}, "one composition: `chain` or `parallel`."),
        ({"a": {"chain": ["b"], "system_prompt": "x"}, "b": A}, "`system_prompt` has no effect in a profile"),
        ({"a": {"workflow": {"b": ["c"]}}, "b": A}, "there is no step 'c'."),
        ({"a": {"workflow": {"b": ["c"], "c": ["b"]}}, "b": A, "c": A}, "the steps wait for each other: "),
        ({"a": {"router": {"routes": {}}}}, "profiles.a.router.routes should have at least 1 item"),
        ({"a": {"router": {"routes": {"b": {"when": "("}}}}, "b": A}, "not a valid regular expression."),
        ({"a": {"router": {"routes": {"b": {}}, "default": "c"}}, "b": A}, "there is no route 'c'."),
        ({"a": {"router": {"routes": {"b": {}}}}, "b": {}}, "nothing can choose the route 'b'"),
        ({"a": {"handoff": {"members": ["b"]}}, "b": A}, "members should have at least 2 items"),
        ({"a": {"handoff": {"members": ["b", "b"]}}, "b": A}, "'b' is listed twice."),
        ({"a": {"handoff": {"members": ["b", "cc"]}}, "b": A, "c": A}, "there is no profile 'cc'."),
        ({"a": {"handoff": {**TWO, "handoffs": {"x": []}}}, "b": A, "c": A}, "there is no member 'x'."),
        ({"a": {"handoff": {**TWO, "handoffs": {"b": ["x"]}}}, "b": A, "c": A}, "there is no member 'x'."),
        (
            {"a": {"handoff": {**TWO, "handoffs": {"c": ["b"]}}}, "b": A, "c": A},
            "'c' never gets the conversation",
        ),
        ({"a": {"handoff": TWO}, "b": A, "c": {}}, "'c' has no description, so no model knows when to hand"),
        ({"a": {"handoff": TWO}, "b": A, "c": {**A, "chain": ["b"]}}, "'c' is a `chain`, which cannot hand"),
        ({"a": {"handoff": {**TWO, "max_handoffs": 0}}, "b": A, "c": A}, "greater than or equal to 1"),
        ({"a": {"chain": ["b"]}, "b": NAMED}, "'b' names who decides about its calls"),
        (
            {"a": {"chain": ["b"], "approvals": {"who": ["ops"]}}, "b": NAMED},
            "'b' takes no decisions from a tool, but this profile does.",
        ),
    ],
)
def test_a_team_that_cannot_work_is_refused_with_its_place(tmp_path, profiles, said):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"profiles": profiles}, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_agent_file(path)
    assert said in str(raised.value)
    assert "agent.json:1:" in str(raised.value)
    assert raised.value.advice


def test_a_model_takes_part_in_a_router_only_where_rules_do_not_suffice(tmp_path):
    path = tmp_path / "agent.json"
    routes = {"b": {"when": "x"}, "c": {}}
    profiles = {
        "rules": {"router": {"routes": routes, "default": "c"}},
        "model": {"router": {"routes": routes}},
        "chain": {"chain": ["b", "c", "b"]},
        "b": A,
        "c": A,
    }
    path.write_text(json.dumps({"profiles": profiles}), encoding="utf-8")
    file = read_agent_file(path)
    assert [name for name, profile in file.profiles.items() if profile.needs_model] == ["model", "b", "c"]
    assert file.list_team("chain") == ["chain", "b", "c"]
