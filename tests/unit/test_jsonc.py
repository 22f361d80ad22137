from __future__ import annotations

import pytest

from loom_core.errors import UnreadableTextError
from loom_core.jsonc import JsonNode, JsonReader

_TEXT = """{
  // 注释
  "servers": {
    "文件": {"args": ["a", {"b": [1, 2,],}]},
    "second": null,
  }
}
"""


def _read(text: str, *, depth: int = 9, unique: bool = True) -> JsonNode:
    root = JsonReader(depth=depth, unique=unique).read(text)
    assert root is not None
    return root


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ((), "{\n  //"),
        (("servers",), '"servers"'),
        (("servers", "文件"), '"文件"'),
        (("servers", "文件", "args", 1), '{"b"'),
        (("servers", "文件", "args", 1, "b", 1), "2,]"),
        (("servers", "文件", "nothing", 3), '"文件"'),
        (("servers", "文件", "args", 7), '"args"'),
        (("servers", "second", "deeper"), '"second"'),
    ],
)
def test_the_place_of_a_path_is_that_of_as_much_of_it_as_there_is(
    path: tuple[str | int, ...], begins: str
) -> None:
    assert _TEXT[_read(_TEXT).place(path) :].startswith(begins)


@pytest.mark.hostile("JSON and schemas")
def test_values_are_the_same_however_deep_the_reader_looks() -> None:
    expected = {"servers": {"文件": {"args": ["a", {"b": [1, 2]}]}, "second": None}}
    assert [_read(_TEXT, depth=depth).value for depth in range(9)] == [expected] * 9


def test_what_is_below_the_levels_that_are_looked_at_has_no_places() -> None:
    text = '{"a": {"b": {"c": [1]}}}'
    assert text[_read(text, depth=1).place(("a", "b")) :].startswith('"a"')
    assert text[_read(text, depth=2).place(("a", "b", "c")) :].startswith('"b"')


def test_a_name_that_stands_twice_is_refused_or_the_last_counts() -> None:
    text = '{"a": 1,\n "a": 2}'
    with pytest.raises(UnreadableTextError, match="2:2: the name 'a' is duplicated"):
        _read(text)
    root = _read(text, unique=False)
    assert root.value == {"a": 2}
    assert [member.node.value for member in root.members] == [1, 2]
    assert root.place(("a",)) == text.rindex('"a"')


def test_a_text_with_nothing_but_comments_holds_nothing() -> None:
    assert JsonReader().read("/* 空 */ // nothing\n") is None


@pytest.mark.parametrize("text", ['{"a": 1,}', '{"a": [1, ],}'])
def test_a_trailing_comma_is_known(text: str) -> None:
    assert _read(text).trailing_comma
    assert not _read(text.replace(",}", "}")).trailing_comma
