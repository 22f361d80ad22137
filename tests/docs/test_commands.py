"""Every command of Loom that is named on a page, in a block or in a sentence, exists with its options."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SERVERS = {
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
}
_EVERY = [
    *_ROOT.glob("*.md"),
    *(_ROOT / "docs").rglob("*.md"),
    *_ROOT.glob("servers/*/README.md"),
]
_COMMAND = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:uvx |uv run [^#]*?--package \S+ )?(loom-[a-z-]+)(?= |$)(.*)"
)


@cache
def _parsers(program: str) -> tuple[ArgumentParser, dict[str, ArgumentParser]]:
    parser: ArgumentParser = import_module(f"{_SERVERS[program]}.cli").SERVER.parser()
    return parser, dict(import_module("tools.command_reference").commands(parser))


def _named_commands(text: str) -> Iterator[list[str]]:
    """The words of every command of ours that stands in a page: in a block or in a sentence."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S))
    for line in (*"\n".join(blocks).splitlines(), *spans):
        if (found := _COMMAND.match(line)) and found[1] in _SERVERS:
            yield [found[1], *found[2].partition("  ")[0].partition(" # ")[0].partition(" -- ")[0].split()]


def test_no_page_has_the_vectors_of_a_readers_own_knowledge_base_made_by_another_model() -> None:
    """Who types a page as it stands would lose them: another model is tried on a copy."""
    rebuilds = [
        words
        for page in (_ROOT / "docs" / "howto").glob("*.md")
        for _, *words in _named_commands(page.read_text(encoding="utf-8"))
        if words[:1] == ["rebuild"] and "--embedder" in words[:-1]
    ]
    assert len(rebuilds) == 2
    assert all("trial" in words for words in rebuilds)
    assert rebuilds[-1][-1] == "e5-small", "the way back is told"


@pytest.mark.parametrize("page", sorted(_EVERY), ids=lambda path: path.relative_to(_ROOT).as_posix())
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    for program, *words in _named_commands(page.read_text(encoding="utf-8")):
        parser, commands = _parsers(program)
        verb = next((word for word in words if not word.startswith("-")), "")
        shown = " ".join([program, *words])
        if words and not words[0].startswith("-") and re.fullmatch(r"[a-z]+", verb):
            assert verb in commands, f"{shown}: there is no such command"
        below = [each for name, each in commands.items() if name == verb or name.startswith(f"{verb} ")]
        known = {
            option
            for each in (parser, *(below or [commands["serve"]]))
            for action in each._actions
            for option in action.option_strings
        }
        asked = {found[0] for word in words if (found := re.match(r"--[a-z-]+", word.strip("[]")))}
        assert asked <= known, f"{shown}: there is no {asked - known}"
