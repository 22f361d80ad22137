"""The README in English and the one in Chinese say the same of servers, tools, commands and pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ENGLISH, _CHINESE = ((_ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
_CLONE = re.compile(r"uv run --no-dev --package (\S+) (\S+)")


def _pages(text: str) -> set[str]:
    return set(re.findall(r"\]\((docs/[a-z/-]+\.md)", text))


def _servers(text: str) -> dict[str, list[str]]:
    """The rows of the table of servers: their names, and those of their tools."""
    rows = [
        re.findall(r"`([a-z_-]+)`", line) for line in text.splitlines() if re.match(r"\| \[?`loom-", line)
    ]
    return {row[0]: row[1:] for row in rows}


def test_both_name_the_same_pages_and_these_are_there() -> None:
    assert _pages(_ENGLISH) == _pages(_CHINESE)
    assert all((_ROOT / page).is_file() for page in _pages(_ENGLISH))


def test_both_name_every_server_with_its_tools_and_how_to_try_it() -> None:
    folders = [path.parent for path in (_ROOT / "servers").glob("*/pyproject.toml")]
    packages = {tomllib.loads((path / "pyproject.toml").read_text())["project"]["name"] for path in folders}
    assert set(_servers(_ENGLISH)) == packages
    assert _servers(_CHINESE) == _servers(_ENGLISH)
    tried = _CLONE.findall(_ENGLISH)
    assert _CLONE.findall(_CHINESE) == tried
    assert {"loom-kb", "loom-agent-server"} == {package for package, _ in tried}
    assert all(package == command for package, command in tried)
