from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.tools.arguments import ToolArguments

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "路径": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
        "ids": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "mode": {"enum": ["r", "w"]},
        "ratio": {"type": "number"},
        "note": {"type": ["string", "object"]},
    },
    "required": ["路径"],
    "additionalProperties": False,
}
_ARGUMENTS = ToolArguments("files:读取", _SCHEMA)


def _refusal(given: object) -> str:
    with pytest.raises(InvalidInputError) as caught:
        _ARGUMENTS.validate(given)
    return str(caught.value)


@pytest.mark.parametrize("nothing", [None, {}, "", "{}"])
def test_null_for_all_arguments_is_none_at_all(nothing: object) -> None:
    assert ToolArguments("files:list", {"type": "object"}).validate(nothing) == {}


def test_right_arguments_pass_unchanged() -> None:
    given = {"路径": "a", "limit": 3, "options": {"deep": True}, "ids": None, "ratio": 2, "note": "{}"}

    assert _ARGUMENTS.validate(given) == given


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"options": '{"deep": true}'}, {"options": {"deep": True}}),
        ({"ids": "[1, 2]"}, {"ids": [1, 2]}),
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": "5.0"}, {"limit": 5.0}),
        ({"ratio": "0.5"}, {"ratio": 0.5}),
        ({"options": {"deep": "true"}}, {"options": {"deep": True}}),
        ({"limit": None, "mode": None}, None),
        ({"limit": None}, {}),
    ],
)
def test_what_is_nearly_right_is_repaired_once(
    written: dict[str, Any], meant: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"路径": "a", **written}
    if meant is None:
        assert "`mode` must be one of" in _refusal(given)
        return
    with caplog.at_level(logging.INFO, logger="loom_core.tools.arguments"):
        assert _ARGUMENTS.validate(given) == {"路径": "a", **meant}

    assert "arguments of files:读取 were repaired" in caplog.text
    assert given == {"路径": "a", **written}


def test_all_arguments_written_as_text_are_read() -> None:
    assert _ARGUMENTS.validate('{"路径": "甲"}') == {"路径": "甲"}


def test_what_is_repaired_is_checked_again() -> None:
    assert "`options.deep` is required" in _refusal({"路径": "a", "options": '{"deap": 1}'})


def test_a_text_is_not_read_twice() -> None:
    assert "`options` must be an object" in _refusal({"路径": "a", "options": '"{\\"deep\\": true}"'})


@pytest.mark.parametrize("text", ["x", "2.5", "NaN", "Infinity", "1e999", "true", '"5"', "[" * 100_000])
def test_a_text_that_is_no_such_value_stays_wrong(text: str) -> None:
    assert "`limit` must be an integer, got" in _refusal({"路径": "a", "limit": text})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "`路径` is required"),
        ({"路径": 3}, "`路径` must be a string, got 3 (a number)"),
        ({"路径": None}, "`路径` is required"),
        ({"路径": "a", "lmit": 3}, "`lmit` is not an argument, did you mean `limit`"),
        ({"路径": "a", "mode": "rw"}, '`mode` must be one of "r", "w", got "rw" (a string)'),
        ({"路径": "a", "ids": [1, "x"]}, '`ids[1]` must be an integer, got "x" (a string)'),
        ({"路径": "a", "limit": 0}, "`limit`: 0 is less than the minimum of 1"),
        ({"路径": "a", "note": 3}, "`note` must be a string or object, got 3 (a number)"),
        ([1], "an object is expected, got [1] (an array)"),
    ],
)
def test_an_error_says_where_what_and_what_was_received(given: object, reason: str) -> None:
    assert reason in _refusal(given)


def test_an_error_lists_the_arguments() -> None:
    assert _refusal({}).endswith("Valid arguments: 路径 (required), limit, options, ids, mode, ratio, note.")


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(_refusal({"路径": "a", "limit": "很" * 10_000})) < 400


def test_several_errors_are_told_together() -> None:
    told = _refusal({"limit": "x", "ratio": []})

    assert "`路径` is required" in told
    assert "`limit` must be" in told
    assert "`ratio` must be" in told


@pytest.mark.slow
@pytest.mark.hostile("MCP requests")
@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from([*_SCHEMA["properties"], "other"]), inner), max_leaves=10))  # fmt: skip
def test_whatever_is_given_is_taken_or_refused_with_a_reason(given_value: object) -> None:
    try:
        checked = _ARGUMENTS.validate(given_value)
    except InvalidInputError as error:
        told = str(error)
    else:
        _ARGUMENTS.check(checked)
        told = ""
    assert "Invalid arguments" in told or not told
