from __future__ import annotations

import tomllib

import pytest

from loom_core.errors import UnreadableTextError
from loom_core.server.install.text_format import UneditableTextError
from loom_core.server.install.toml_text import TomlText

_TOML = TomlText()
_ENTRY = {"command": "C:\\工具\\loom-kb.exe", "args": ["serve", "--kb", '"产品"\x7f']}

_TRICKY = '''title = """
[servers.loom]
# no comment
"""
literal = \'\'\'
[servers.loom] "\'\'\'
[servers.other] # [servers.loom]
args = [
  "[servers.loom]", # ]
  [1, 2],
]
point = { x = 1, y = { z = "}" } }
[[projects]]
name = "a # b"
[servers.other."a.b"]
when = 1979-05-27T07:32:00Z
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_entry_comes_and_goes_and_nothing_else_moves(newline: str) -> None:
    text = _TRICKY.replace("\n", newline)
    added = _TOML.put(text, "servers", "loom", _ENTRY)
    assert added.startswith(text)
    assert tomllib.loads(added)["servers"]["loom"] == _ENTRY
    assert added.count("\n") == added.count(newline)
    assert _TOML.drop(added, "servers", "loom") == text


@pytest.mark.parametrize("before", ["", "# above\n[a]\nx = 1\n\n"])
@pytest.mark.parametrize("after", ["", "# below\n[b]\ny = 2 # 二\n"])
def test_a_table_is_replaced_and_dropped_where_it_stands(before: str, after: str) -> None:
    text = f'{before}[servers.loom]\ncommand = "old" # mine\n\n[servers.loom.env]\nA = "1"\n\n{after}'
    entry = {**_ENTRY, "env": {"A": "1"}}
    changed = _TOML.put(text, "servers", "loom", entry)
    assert tomllib.loads(changed)["servers"]["loom"] == entry
    assert changed.startswith(before)
    assert changed.endswith(f'\n\n[servers.loom.env]\nA = "1"\n\n{after}')
    dropped = _TOML.drop(changed, "servers", "loom")
    assert dropped == (before + after if after else before.rstrip() + "\n" if before else "")


def test_a_table_is_put_above_its_own_sub_table() -> None:
    text = '[servers.loom.env]\nA = "1"\n'
    changed = _TOML.put(text, "servers", "loom", {"command": "x", "env": {"A": "1"}})
    assert changed == f'[servers.loom]\ncommand = "x"\n{text}'


def test_a_file_without_a_last_line_end_gets_one() -> None:
    assert _TOML.put("x = 1", "servers", "loom", {}) == "x = 1\n\n[servers.loom]\n"


@pytest.mark.parametrize(
    "text",
    ['servers = { loom = { command = "x" } }\n', 'servers.loom.command = "x"\n', "[servers]\nloom = {}\n"],
)
def test_an_entry_without_a_header_is_refused(text: str) -> None:
    with pytest.raises(UneditableTextError):
        _TOML.put(text, "servers", "loom", _ENTRY)
    with pytest.raises(UneditableTextError):
        _TOML.drop(text, "servers", "loom")


def test_values_of_all_kinds_are_written() -> None:
    entry = {"b": True, "i": 5, "f": 1.5, "l": [[1], {"k": "v"}], "d": {"a b": {"c": False}}, "名": "名"}
    assert tomllib.loads(_TOML.snippet("servers", "a b", entry)) == {"servers": {"a b": entry}}


def test_a_value_that_is_not_written_is_refused() -> None:
    with pytest.raises(UneditableTextError, match="datetime"):
        _TOML.put("", "servers", "loom", tomllib.loads("t = 1979-05-27T07:32:00Z"))


def test_a_file_that_ends_too_early_is_told_with_its_end() -> None:
    with pytest.raises(UnreadableTextError) as caught:
        _TOML.read('x = 1\ny = """abc')
    assert (caught.value.line, caught.value.column) == (2, 11)


def test_a_name_with_a_line_end_of_unicode_is_on_one_line_of_toml() -> None:
    text = '["a\u2028b"]\nx = 1\n'
    assert _TOML.put(text, "servers", "loom", {}) == f"{text}\n[servers.loom]\n"
