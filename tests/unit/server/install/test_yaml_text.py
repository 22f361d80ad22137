from __future__ import annotations

import pytest
import yaml

from loom_core.errors import UnreadableTextError
from loom_core.server.install.text_format import UneditableTextError
from loom_core.server.install.yaml_text import YamlText

_YAML = YamlText()
_ENTRY = {
    "cmd": "C:\\工具\\loom-kb.exe",
    "args": ["serve", "# no: comment", "'\"\t"],
    "envs": {},
    "yes": True,
}

_TEXTS = [
    "a: 1\nservers:\n  other:\n    cmd: x # no\n    text: >-\n      folded\n      # text\n\n# z\nz: 2\n",
    "servers:\n    other:\n        list:\n        - 1\n        - {a: [b,\n          c]}\n    # 下\n    c:\n",
    "servers:\n  other: {cmd: x}\n...\n",
    "servers:\n  other:\n\n\nz: |\n  text\n",
    "---\n# 设置\nservers:\n  'quoted: name':\n    cmd: \"x\"\n",
]  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("text", _TEXTS)
def test_an_entry_comes_and_goes_and_nothing_else_moves(text: str, newline: str) -> None:
    text = text.replace("\n", newline)
    before = yaml.safe_load(text)
    added = _YAML.put(text, "servers", "loom", _ENTRY)
    assert yaml.safe_load(added) == {**before, "servers": {**before["servers"], "loom": _ENTRY}}
    assert added.count("\n") == added.count(newline)
    changed = _YAML.put(added, "servers", "loom", {"cmd": "y"})
    assert yaml.safe_load(changed)["servers"]["loom"] == {"cmd": "y"}
    assert _YAML.drop(changed, "servers", "loom") == text


@pytest.mark.parametrize("empty", ["", " {}", " null", " ~"])
@pytest.mark.parametrize("comment", ["", "  # mine"])
@pytest.mark.parametrize("after", ["", "\nz: 2\n"])
def test_an_empty_section_is_filled_and_emptied(empty: str, comment: str, after: str) -> None:
    added = _YAML.put(f"servers:{empty}{comment}{after}", "servers", "loom", _ENTRY)
    assert yaml.safe_load(added)["servers"] == {"loom": _ENTRY}
    assert comment in added
    dropped = _YAML.drop(added, "servers", "loom")
    # The section goes with its last entry, unless there is something else in it.
    assert dropped == (f"servers: {{}}{comment}\n" if comment else "") + after[1:]


def test_a_section_is_added_below_all_else() -> None:
    assert _YAML.put("# 设置\na: 1", "servers", "loom", {"cmd": "x"}) == (
        '# 设置\na: 1\nservers:\n  loom:\n    cmd: "x"\n'
    )


def test_names_that_would_mean_something_else_are_quoted() -> None:
    snippet = _YAML.snippet("servers", "on", {"a b": {"n": 1}, "名": []})
    assert yaml.safe_load(snippet) == {"servers": {"on": {"a b": {"n": 1}, "名": []}}}


@pytest.mark.parametrize(
    "text",
    [
        "{servers: {loom: {}}}",
        "servers: {loom: {}}",
        "servers:\n  a: 1\nservers:\n  loom: {}\n",
        "servers: &a\n  loom: *a\n",
    ],
)
def test_what_is_written_too_unusually_is_refused(text: str) -> None:
    with pytest.raises(UneditableTextError):
        _YAML.put(text, "servers", "loom", _ENTRY)
    with pytest.raises(UneditableTextError):
        _YAML.drop(text, "servers", "loom")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: [1\n", (3, 1)),
        ("a: 1\n---\nb: 1\n", (2, 1)),
        ("a: \x07\n", (1, 4)),
        ("- 1\n", (1, 1)),
        ("when: 2026-13-01\n", (1, 1)),
    ],
)
def test_what_is_broken_is_told_with_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(UnreadableTextError) as caught:
        _YAML.read(text)
    assert (caught.value.line, caught.value.column) == place
