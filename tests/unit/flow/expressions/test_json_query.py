from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.expressions import query
from loom_core.flow.expressions.json_query import check_query

_BODY = {"数据": [{"id": 1, "名": "年假"}, {"id": 2, "名": "病假"}], "a": {"b": [3]}}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.数据[*].id", [1, 2]),
        ("$['数据'][1]['名']", ["病假"]),
        ("$['\\u6570\\u636e'][0].id", [1]),
        ("$.数据[?@.id > 1].名", ["病假"]),
        ("$.数据[?search(@.名, '^年')].id", [1]),
        ("$.数据[?match(@.名, '.假')].id", [1, 2]),
        ("$.数据[?match(@.名, '年')].id", []),
        ("$.数据[?search(@.id, '1')]", []),
        ("$.数据[?search(@.名, '(')]", []),
        ("$.数据[?length(@.名) == 2].id", [1, 2]),
        ("$..b[0]", [3]),
        ("$.nothing", []),
        ("$", [_BODY]),
    ],
)
def test_a_query_finds_what_rfc_9535_says(path: str, found: list[object]) -> None:
    assert query(path, _BODY) == found


def test_a_text_is_not_read_as_json() -> None:
    assert query("$", '{"a": 1}') == ['{"a": 1}']
    assert query("$.a", '{"a": 1}') == []
    assert query("$", None) == [None]
    assert query("$[0]", 5) == []


def test_a_limit_ends_the_search() -> None:
    assert query("$[*]", list(range(100)), limit=2) == [0, 1]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "$[",
        "$ ",
        "$.a | $.b",
        "^",
        "$.~",
        "$[?foo(@)]",
        "$[?@.a",
        "$[?_.x]",
        "$..a..b..c",
        "$" + ".a" * 600,
    ],
)
def test_what_is_no_query_is_refused(path: str) -> None:
    with pytest.raises(UnreadableTextError):
        check_query(path)


def test_expressions_in_queries_take_linear_time() -> None:
    began = time.process_time()
    assert query("$[?match(@, '(a+)+')]", ["a" * 5000 + "!"]) == []
    assert time.process_time() - began < 1


@pytest.mark.hostile("expressions and configurations")
@given(
    st.lists(
        st.sampled_from(
            ["$", ".", "..", "[", "]", "?", "@", "'", "a", "天", "*", "0", ":", "==", "(", ")", "\\"]
        )
    ).map("".join)
    | st.text()
)
def test_any_text_is_a_query_or_a_config_error(path: str) -> None:
    try:
        found = query(path, _BODY)
    except ConfigError:
        return
    assert isinstance(found, list)
