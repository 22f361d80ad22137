from __future__ import annotations

from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest, OutputSchema, ToolSpec
from loom_core.llm.transport.parameters import SupportedParameters, map_parameters
from loom_core.llm.vendors import ProviderSpec

_SCHEMA = {"type": "object", "properties": {"名": {"type": "string"}}, "required": ["名"]}
_OUTPUT = OutputSchema("entities", _SCHEMA, "what the text names")
_PLAIN: dict[str, Any] = {"name": "x", "title": "X", "efforts": {"off": {}, "high": {"e": 1}}}


def _granted(spec: dict[str, Any] | None = None, **options: Any) -> SupportedParameters:
    return map_parameters(ChatRequest(messages=(), **options), ProviderSpec(**_PLAIN, **(spec or {})))


def test_an_effort_becomes_the_nearest_that_is_known():
    assert (_granted(effort="low").effort, _granted(effort="low").thinking) == ("high", True)
    assert (_granted(effort="max").effort, _granted(effort="off").thinking) == ("high", False)
    assert (_granted().effort, _granted().thinking) == (None, False)


def test_a_vendor_may_take_one_effort_only_where_there_are_tools():
    spec = {"tool_effort": "off", "thinks": True}
    assert _granted(spec, effort="high", tools=(ToolSpec("t"),)).effort == "off"
    assert _granted(spec, effort="high").effort == "high"


@pytest.mark.parametrize(
    ("rule", "cool", "thinking"),
    [("always", 0.5, 0.5), ("never", None, None), ("without_thinking", 0.5, None)],
)
def test_a_temperature_is_sent_where_it_is_taken(rule: str, cool: float | None, thinking: float | None):
    assert _granted({"temperature": rule}, temperature=0.5).temperature == cool
    assert _granted({"temperature": rule}, temperature=0.5, effort="high").temperature == thinking


@pytest.mark.parametrize(
    ("allowed", "names", "wish", "got"),
    [
        ("auto none required named", "a b", "required", "required"),
        ("auto none required named", "a b", "b", "b"),
        ("auto none required named", "a b", "none", "none"),
        ("auto", "a b", "none", "none"),
        ("auto none required", "a b", "b", "auto"),
        ("auto none required", "a", "a", "required"),
        ("auto none named", "a", "required", "a"),
        ("auto none named", "a b", "required", "auto"),
        ("auto none", "a", "a", "auto"),
        ("auto none", "", "required", "required"),
    ],
)
def test_a_choice_of_tools_becomes_the_nearest_that_is_taken(allowed: str, names: str, wish: str, got: str):
    tools = tuple(map(ToolSpec, names.split()))
    spec = {"tool_choices": frozenset(allowed.split())}
    assert _granted(spec, tools=tools, tool_choice=wish).tool_choice == got


def test_other_choices_may_be_taken_while_the_model_thinks():
    spec = {"tool_choices_thinking": frozenset({"auto"})}
    tools = (ToolSpec("a"), ToolSpec("b"))
    assert _granted(spec, tools=tools, tool_choice="a").tool_choice == "a"
    assert _granted(spec, tools=tools, tool_choice="a", effort="high").tool_choice == "auto"


def test_a_tool_that_is_not_there_cannot_be_chosen():
    with pytest.raises(InvalidInputError, match="'查询' is not among"):
        _granted(tools=(ToolSpec("a"),), tool_choice="查询")


def test_the_form_of_an_answer_is_asked_for_by_the_vendors_mode():
    assert _granted({"json_mode": "json_schema"}).json_mode is None
    by_schema = _granted({"json_mode": "json_schema"}, output=_OUTPUT)
    assert (by_schema.json_mode, by_schema.instructions, by_schema.output_tool) == ("json_schema", "", "")
    told = _granted(
        {"json_mode": "json_schema", "json_mode_thinking": "prompt"}, output=_OUTPUT, effort="max"
    )
    assert told.json_mode == "prompt"
    assert "JSON object (what the text names) that fits" in told.instructions
    assert '"名"' in told.instructions
    assert "JSON object that fits" in _granted(output=OutputSchema("x", _SCHEMA)).instructions


def test_an_answer_by_tool_is_forced_where_it_can_be_and_else_asked_for():
    forced = _granted({"json_mode": "tool"}, output=_OUTPUT)
    assert (forced.output_tool, forced.tool_choice, forced.instructions) == ("entities", "entities", "")
    asked = _granted({"json_mode": "tool", "tool_choices": frozenset({"auto"})}, output=_OUTPUT)
    assert asked.tool_choice == "auto"
    assert asked.instructions == "Give your answer by calling the tool `entities`."


def test_the_tool_of_an_answer_has_a_name_of_its_own():
    spec = {"json_mode": "tool"}
    assert _granted(spec, output=_OUTPUT, tools=(ToolSpec("entities"),)).output_tool == "entities_"
    assert _granted(spec, output=OutputSchema("实体", _SCHEMA)).output_tool == "__"
    assert (
        _granted(spec, output=OutputSchema("", _SCHEMA), tools=(ToolSpec("answer"),)).output_tool == "answer_"
    )
    assert len(_granted(spec, output=OutputSchema("x" * 99, _SCHEMA)).output_tool) == 63
