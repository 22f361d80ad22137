from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from loom_core.errors import ConfigError
from loom_core.llm.hosted.providers import override_spec
from loom_core.llm.vendors import CUSTOM, QWEN, VENDORS, ModelRule, ProviderSpec


def test_values_are_read_from_json():
    spec = override_spec(
        CUSTOM,
        {
            "name": "天工",
            "reasoning_fields": ["thoughts"],
            "tool_choices": ["auto"],
            "efforts": {"off": {"think": False}, "high": {"think": True}},
            "replay_filler": None,
            "models": [{"pattern": "small-*", "changes": {"images": False, "tool_choices": []}}],
        },
    )
    assert (spec.name, spec.reasoning_fields, spec.tool_choices) == (
        "天工",
        ("thoughts",),
        frozenset({"auto"}),
    )
    assert spec.efforts["off"] == {"think": False}
    assert spec.for_model("small-1").images is False
    assert spec.for_model("small-1").tool_choices == frozenset()
    assert spec.for_model("large").images is True


@pytest.mark.parametrize("misplaced", ["sk-live-1234567890", "d41d8cd98f00b204e9800998ecf8427e", "密钥"])
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated(misplaced: str):
    with pytest.raises(ConfigError, match=r"spec\.key_variable is not the name") as caught:
        override_spec(CUSTOM, {"key_variable": misplaced})
    assert misplaced not in str(caught.value)
    assert override_spec(CUSTOM, {"key_variable": "MY_KEY"}).key_variable == "MY_KEY"
    assert override_spec(CUSTOM, {"key_variable": ""}).key_variable == ""


def test_a_change_holds_for_models_that_have_a_rule_of_their_own():
    spec = override_spec(QWEN, {"efforts": {}, "json_mode": "prompt"})
    for model in ("qwen3.6-plus", "qwq-32b", "qwen3.8-max"):
        assert spec.for_model(model).efforts == {}
    assert spec.for_model("qwq-32b").stream_only == QWEN.for_model("qwq-32b").stream_only


@pytest.mark.parametrize("spec", VENDORS.values(), ids=lambda spec: spec.name)
def test_nothing_changed_is_the_same_vendor(spec: ProviderSpec):
    assert override_spec(spec, {}) == spec


@pytest.mark.parametrize("spec", VENDORS.values(), ids=lambda spec: spec.name)
def test_a_row_of_ours_can_be_written_as_a_change(spec: ProviderSpec):
    row = {field.name: getattr(spec, field.name) for field in fields(ProviderSpec)}
    assert override_spec(CUSTOM, row) == spec


@pytest.mark.parametrize("spec", VENDORS.values(), ids=lambda spec: spec.name)
def test_rules_of_vendors_change_attributes_that_there_are(spec: ProviderSpec):
    for rule in spec.models:
        assert isinstance(rule, ModelRule)
        override_spec(spec, rule.changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"json_mod": "tool"}, "spec.json_mod: there is no such attribute. Did you mean 'json_mode'?"),
        ({"xyz": 1}, "spec.xyz: there is no such attribute. There are: auth_style, base_url, "),
        ({"json_mode": "yaml"}, "spec.json_mode: Input should be 'json_schema'"),
        ({"tool_choices": "auto"}, "spec.tool_choices: Input should be a valid frozenset"),
        ({"efforts": {"huge": {}}}, "spec.efforts: Input should be"),
        ({"models": [{"pattern": "a*"}]}, "spec.models: Field required"),
        ({"models": [{"pattern": "a*", "changes": {"image": True}}]},
         "spec.models[0].changes.image: there is no such attribute. Did you mean 'images'?"),
        ({"models": [{"pattern": "a*", "changes": {"models": []}}]},
         "spec.models[0].changes.models: a rule cannot contain rules."),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_named(changes: dict[str, Any], match: str):
    with pytest.raises(ConfigError) as caught:
        override_spec(CUSTOM, changes)
    assert match in str(caught.value)
