from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.expressions.values import MISSING
from loom_core.flow.understanding.slots import typed


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("３", {"type": "integer"}, 3),
        ("三天", {"type": "integer"}, 3),
        ("3.0", {"type": "integer"}, 3),
        ("半", {"type": "integer"}, MISSING),
        ("半", {"type": "number"}, 0.5),
        ("一点五", {"type": "number"}, 1.5),
        ("很多", {"type": "integer"}, MISSING),
        ("是的。", {"type": "boolean"}, True),
        ("No", {"type": "boolean"}, False),
        ("也许", {"type": "boolean"}, MISSING),
        (" 感冒 ", {"type": "string"}, "感冒"),
        ("感冒", {}, "感冒"),
        ("感冒", True, "感冒"),
        ("   ", {"type": "string"}, MISSING),
        ("2026年11月3日", {"type": "string", "format": "date"}, "2026-11-03"),
        ("２０２６/1/3", {"type": "string", "format": "date"}, "2026-01-03"),
        ("2026年13月3日", {"type": "string", "format": "date"}, "2026年13月3日"),
        ("明天", {"type": "string", "format": "date"}, "明天"),
        ("ＡＮＮＵＡＬ", {"enum": ["sick", "Annual"]}, "Annual"),
        ("事假", {"enum": ["病假", "事假"]}, "事假"),
        ("三", {"enum": [1, 3]}, 3),
        ("好", {"enum": [False, True]}, True),
        ("婚假", {"enum": ["病假", None]}, MISSING),
        ("三", {"type": ["null", "integer"]}, 3),
        ("不知道", {"type": ["integer", "string"]}, "不知道"),
        ("三", {"type": "array"}, MISSING),
        ("三", {"type": []}, "三"),
    ],
)
def test_what_is_said_becomes_a_value_of_the_type_that_is_wanted(
    text: str, schema: object, value: object
) -> None:
    found = typed(text, schema)  # type: ignore[arg-type]
    assert found == value
    assert type(found) is type(value)


@given(st.text(max_size=30), st.sampled_from(["integer", "number", "boolean", "string"]))
def test_any_text_is_of_the_type_or_nothing(text: str, kind: str) -> None:
    found = typed(text, {"type": kind})
    allowed = {"integer": int, "number": int | float, "boolean": bool, "string": str}[kind]
    assert found is MISSING or isinstance(found, allowed)
