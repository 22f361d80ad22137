"""The READMEs in English and Chinese say the same: parts, servers, tools, commands, figures, links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ENGLISH, _CHINESE = ((_ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
_CLONE = re.compile(r"uv run --no-dev --package (\S+) (\S+)")


def _links(text: str) -> list[str]:
    """Targets of a page's links without anchors, Chinese pages by their English ones.

    Links from one README to the other are left out.
    """
    links = (link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text))
    return sorted(link.replace("docs/zh/", "docs/") for link in links if not link.startswith("README"))


def _servers(text: str) -> dict[str, list[str]]:
    """The rows of the table of servers: their names, and those of their tools."""
    rows = [
        re.findall(r"`([a-z_-]+)`", line) for line in text.splitlines() if re.match(r"\| \[?`loom-", line)
    ]
    return {row[0]: row[1:] for row in rows}


def _structure(text: str) -> list[str]:
    """What a page is made of: headings by their level, blocks, rows of tables, items of lists."""
    blocks = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^(#+ |§\w*|\|(?=[^-]).*|- )", blocks.sub(r"§\1", text), re.MULTILINE)
    return [f"row of {line.count(' | ')}" if line.startswith("|") else line for line in shown]


def test_both_have_the_same_parts_in_the_same_order() -> None:
    assert _structure(_CHINESE) == _structure(_ENGLISH)
    assert _structure(_ENGLISH).count("## ") >= 8


def test_both_lead_to_the_same_pages() -> None:
    assert _links(_CHINESE) == _links(_ENGLISH)
    assert {"docs/tutorial.md", "docs/README.md", "docs/howto/chinese.md"} <= set(_links(_ENGLISH))


def test_both_name_every_server_with_its_tools_and_how_to_try_it() -> None:
    folders = [path.parent for path in (_ROOT / "servers").glob("*/pyproject.toml")]
    packages = {tomllib.loads((path / "pyproject.toml").read_text())["project"]["name"] for path in folders}
    assert set(_servers(_ENGLISH)) == packages
    assert _servers(_CHINESE) == _servers(_ENGLISH)
    tried = _CLONE.findall(_ENGLISH)
    assert _CLONE.findall(_CHINESE) == tried
    assert {"loom-kb", "loom-agent-server"} == {package for package, _ in tried}
    assert all(package == command for package, command in tried)


def test_both_tell_the_same_figures() -> None:
    english, chinese = (re.findall(r"\*\*([\d.]+)\*\*", text) for text in (_ENGLISH, _CHINESE))
    assert english == chinese
    assert len(english) == 4
