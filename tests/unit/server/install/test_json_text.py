from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import UnreadableTextError
from loom_core.server.install.json_text import JsonText
from loom_core.server.install.text_format import UneditableTextError

_STRICT = JsonText(comments=False)
_LENIENT = JsonText(comments=True)
_ENTRY = {"command": "/opt/loom-kb", "args": ["serve", "文档"]}

_KEYS = st.text(max_size=4)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_DOCUMENTS = st.builds(
    lambda others, servers: {**others, **({} if servers is None else {"servers": servers})},
    st.dictionaries(_KEYS, _VALUES, max_size=3),
    st.none() | st.dictionaries(_KEYS.filter(lambda key: key != "loom"), _VALUES, max_size=3),
)
_FILLINGS = st.sampled_from(["", " ", "\n  ", "\r\n\t", '// a } comment " here\n', '/* { " , */', "/**/"])


@st.composite
def _written(draw: st.DrawFn, value: Any) -> str:
    """A value as someone may have written it, with comments and trailing commas."""

    def fill() -> str:
        return draw(_FILLINGS)

    def ending(parts: list[str]) -> str:
        return fill() + ("," + fill() if parts and draw(st.booleans()) else "")

    if isinstance(value, dict):
        parts = [
            f"{fill()}{json.dumps(key)}{fill()}:{fill()}{draw(_written(inner))}"
            for key, inner in value.items()
        ]
        return "{" + f"{fill()},".join(parts) + ending(parts) + "}"
    if isinstance(value, list):
        parts = [fill() + draw(_written(inner)) for inner in value]
        return "[" + f"{fill()},".join(parts) + ending(parts) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def _expected(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "servers": {**document.get("servers", {}), "loom": _ENTRY}}


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data(), document=_DOCUMENTS)
def test_whatever_a_file_says_stays_when_an_entry_comes_and_goes(
    data: st.DataObject, document: dict[str, Any]
) -> None:
    filling = data.draw(_FILLINGS)
    text = filling + data.draw(_written(document)) + data.draw(_FILLINGS)
    assert _LENIENT.read(text) == document
    added = _LENIENT.put(text, "servers", "loom", _ENTRY)
    assert _LENIENT.read(added) == _expected(document)
    changed = _LENIENT.put(added, "servers", "loom", {"command": "other"})
    assert _LENIENT.read(changed)["servers"]["loom"] == {"command": "other"}
    for comment in ("a } comment", '{ " ,'):
        assert changed.count(comment) == text.count(comment)
    removed = _LENIENT.drop(changed, "servers", "loom")
    says = _LENIENT.read(removed)
    assert {**says, "servers": says.get("servers", {})} == {
        **document,
        "servers": document.get("servers", {}),
    }


@settings(max_examples=60)
@given(
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    document=_DOCUMENTS.filter(lambda document: document.get("servers") != {}),
)
def test_files_as_programs_write_them_are_the_same_again_when_the_entry_has_gone(
    indent: int | str | None, newline: str, document: dict[str, Any]
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False).replace("\n", newline)
    added = _STRICT.put(text, "servers", "loom", _ENTRY)
    assert json.loads(added) == _expected(document)
    if newline in text:
        assert added.count("\n") == added.count(newline)
        assert added.count("\r") == (added.count("\n") if newline == "\r\n" else 0)
    assert _STRICT.drop(added, "servers", "loom") == text


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("[]", (1, 1), "braces"),
        ('{"a": 1} x', (1, 10), "nothing more"),
        ('{"a": 1,\n  b: 2}', (2, 3), "double quotes"),
        ('{"a" 1}', (1, 6), "colon"),
        ('{"a": }', (1, 7), "expecting value"),
        ('{"a": "\\x"}', (1, 8), "escape"),
        ('{"a": /* never ends', (1, 7), "the comment does not end"),
        ('{"a": [1, 2', (1, 12), "ends too early"),
        ('{"a": ' + "[" * 300, (1, 207), "nested too deeply"),
        ('{"a": -Infinity}', (1, 7), "-Infinity is not a JSON number"),
        ("{'a': 1}", (1, 2), "double quotes"),
    ],
)
def test_what_is_broken_is_told_with_its_place(text: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(UnreadableTextError, match=reason) as caught:
        _LENIENT.read(text)
    assert (caught.value.line, caught.value.column) == place


def test_a_file_with_comments_only_gets_an_object_below_them() -> None:
    assert _LENIENT.put("// 我的设置\n", "servers", "loom", {}) == (
        '// 我的设置\n{\n  "servers": {\n    "loom": {}\n  }\n}\n'
    )


def test_a_section_that_is_null_becomes_an_object() -> None:
    assert _STRICT.read(_STRICT.put('{"servers": null}', "servers", "loom", _ENTRY)) == {
        "servers": {"loom": _ENTRY}
    }


def test_a_section_that_is_no_object_is_refused() -> None:
    with pytest.raises(UneditableTextError):
        _STRICT.put('{"servers": []}', "servers", "loom", _ENTRY)


def test_an_entry_that_is_not_there_cannot_be_dropped() -> None:
    for text in ("", "{}", '{"servers": {}}'):
        with pytest.raises(UneditableTextError):
            _STRICT.drop(text, "servers", "loom")


def test_an_entry_between_others_leaves_their_lines_alone() -> None:
    above, entry, below = (
        '{"servers": {\n  "a": {}, // one\n',
        '  "loom": {\n  }, ',
        '// mine\n  "b": {}\n}}\n',
    )
    assert _LENIENT.drop(above + entry + below, "servers", "loom") == f"{above}  {below}"
