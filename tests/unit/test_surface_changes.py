from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tools.surface_changes import Change, changes

STRING = {"type": "string"}
SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Searches.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": STRING,
            "limit": {"type": "integer", "maximum": 50, "default": 5},
            "order": {"type": "string", "enum": ["best", "newest"]},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "outputSchema": {
        "type": "object",
        "properties": {"hits": {"type": "array", "items": STRING}, "total": {"type": "integer"}},
        "required": ["hits", "total"],
    },
    "annotations": {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
}
PROMPT = {"name": "ask", "arguments": [{"name": "topic", "required": True}, {"name": "style"}]}
OLD = {
    "tools": [SEARCH, {"name": "fetch", "inputSchema": {"type": "object"}}],
    "resourceTemplates": [{"uriTemplate": "loom://{source}/{id}", "name": "document"}],
    "prompts": [PROMPT],
}


@pytest.fixture
def new() -> dict[str, Any]:
    """The same surface, to be changed."""
    return deepcopy(OLD)


def test_what_is_the_same_has_not_changed(new):
    assert changes(OLD, new) == []


@pytest.mark.parametrize("key", ["tools", "resourceTemplates", "prompts"])
def test_what_is_gone_breaks_and_what_is_new_does_not(key, new):
    gone = new[key].pop()
    name = gone.get("uriTemplate") or gone["name"]
    (change,) = changes(OLD, new)
    assert (change.breaking, change.what) == (True, "gone")
    assert f"`{name}`" in change.where
    (change,) = changes(new, OLD)
    assert (change.breaking, change.what) == (False, "new")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("limit", None, "BREAKING: tool `search`, argument `limit`: gone"),
        ("limit.maximum", 20, "BREAKING: tool `search`, argument `limit`: maximum 20, was 50"),
        ("limit.maximum", 100, "compatible: tool `search`: INPUT.limit.maximum: 100, was 50"),
        ("limit.default", 10, "compatible: tool `search`: INPUT.limit.default: 10, was 5"),
        ("limit.type", "string", "BREAKING: tool `search`, argument `limit`: type 'string', was 'integer'"),
        (
            "order.enum",
            ["best"],
            "BREAKING: tool `search`, argument `order`: enum ['best'], was ['best', 'newest']",
        ),
        ("query.minLength", 1, "BREAKING: tool `search`, argument `query`: minLength 1, was not given"),
        ("tags", STRING, "compatible: tool `search`: INPUT.tags: {'type': 'string'}, was not given"),
    ],
)
def test_a_change_of_an_argument_breaks_if_a_call_of_before_would_be_refused(path, value, told, new):
    *parents, last = path.split(".")
    place = new["tools"][0]["inputSchema"]["properties"]
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    assert [str(change) for change in changes(OLD, new)] == [told.replace("INPUT", "inputSchema.properties")]


def test_an_argument_that_is_required_now_breaks(new):
    new["tools"][0]["inputSchema"]["required"].append("order")
    assert changes(OLD, new) == [Change(True, "tool `search`, argument `order`", "required now")]


def test_an_answer_may_say_more_but_not_less(new):
    answer = new["tools"][0]["outputSchema"]
    answer["properties"]["notes"] = STRING
    assert [change.breaking for change in changes(OLD, new)] == [False]
    answer["required"].remove("total")
    assert changes(OLD, new) == [Change(True, "tool `search`, answer `total`", "not always there any more")]
    del answer["properties"]["hits"]
    assert Change(True, "tool `search`, answer `hits`", "gone") in changes(OLD, new)
    del new["tools"][0]["outputSchema"]
    assert changes(OLD, new) == [Change(True, "tool `search`", "its answer is not described any more")]


@pytest.mark.parametrize(
    ("hint", "promise"),
    [("readOnlyHint", True), ("destructiveHint", False), ("idempotentHint", True), ("openWorldHint", False)],
)
def test_a_promise_that_is_taken_back_breaks_also_by_silence(hint, promise, new):
    said = f"it does not promise any more: {hint} {str(promise).lower()}"
    annotations = new["tools"][0]["annotations"]
    annotations[hint] = not promise
    assert changes(OLD, new) == [Change(True, "tool `search`", said)]
    assert [change.breaking for change in changes(new, OLD)] == [False]
    del annotations[hint]
    assert changes(OLD, new) == [Change(True, "tool `search`", said)]


def test_wording_and_order_are_told_but_break_nothing(new):
    new["tools"][0]["description"] = "查找。"
    new["tools"].reverse()
    assert [str(change) for change in changes(OLD, new)] == [
        "compatible: tool `search`: description: '查找。', was 'Searches.'",
        "compatible: tools: in another order: fetch, search",
    ]


def test_arguments_of_prompts_break_as_those_of_tools_do(new):
    new["prompts"][0]["arguments"] = [{"name": "topic", "required": True}, {"name": "tone", "required": True}]
    assert [str(change) for change in changes(OLD, new)] == [
        "BREAKING: prompt `ask`, argument `tone`: required now",
        "BREAKING: prompt `ask`, argument `style`: gone",
    ]
