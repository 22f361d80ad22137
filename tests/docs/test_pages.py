"""The pages hang together: links lead somewhere, the index leads to every page, little is left untested."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from tests.docs import snippets

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(
    path
    for path in (
        *_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md"), *_ROOT.glob("servers/*/README.md"),
        *(_ROOT / "examples").rglob("*.md"), _ROOT / "benchmarks" / "RESULTS.md",
    )
)  # fmt: skip
_MOST_SKIPPED = 8
_RUN = {"sh", "console", "python"}
_READ = {"json", "jsonc", "toml", "yaml", "ini", "nginx", "caddy"}
_SHOWN = {"", "mermaid", "text", "py"}  # `py`: generated from a program that a test runs
_FENCED = re.compile(r"^ *(```+).*?^ *\1", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"`([\w./-]+\.py)`")
_HISTORY = {"CHANGELOG.md", "RESULTS.md"}
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


def _prose(path: Path) -> str:
    """The text of a page without its blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", _FENCED.sub("", path.read_text(encoding="utf-8")))


def _links(path: Path) -> list[str]:
    return [link for link in _LINK.findall(_prose(path)) if not re.match(r"[a-z]+:", link)]


@cache
def _anchors(path: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+?)\s*$", _FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    found: set[str] = set()
    for heading in headings:
        kept = [
            letter for letter in heading.lower()
            if letter in " -_" or unicodedata.category(letter)[0] in "LN"
        ]  # fmt: skip
        anchor = base = "".join(kept).replace(" ", "-")
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{base}-{number}"
        found.add(anchor)
    return found


@cache
def _modules() -> set[str]:
    """Every end of the path of a module here: `check.py`, `schemas/check.py` …"""
    folders = ("loom_core", "servers", "tests", "tools", "benchmarks", "examples")
    paths = [path.relative_to(_ROOT).parts for folder in folders for path in (_ROOT / folder).rglob("*.py")]
    paths += [(path.name,) for path in _ROOT.glob("*.py")]
    return {"/".join(parts[start:]) for parts in paths for start in range(len(parts))}


@pytest.mark.parametrize("path", [path for path in _PAGES if path.name not in _HISTORY], ids=_name)
def test_every_module_that_a_page_names_is_there(path: Path):
    named = set(_MODULE.findall(path.read_text(encoding="utf-8")))
    assert sorted(named - _modules()) == []


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in _links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), f"{link}: {_name(target)} has no such heading"


def test_every_page_is_found_from_the_index() -> None:
    found: set[Path] = set()
    waiting = [_ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in _links(page)]
        waiting += [each for each in targets if each.suffix == ".md" and each.exists()]
    assert [_name(page) for page in (_ROOT / "docs").rglob("*.md") if page not in found] == []


def test_the_index_names_every_page_of_the_reference() -> None:
    named = set(_links(_ROOT / "docs" / "README.md"))
    assert {f"reference/{page.name}" for page in (_ROOT / "docs" / "reference").glob("*.md")} <= named


def test_every_block_says_what_it_is_and_few_are_not_run() -> None:
    blocks = [block for page in snippets.pages() for block in snippets.snippets(page)]
    assert {block.language for block in blocks} <= _RUN | _READ | _SHOWN
    skipped = [f"{block}: {block.skipped}" for block in blocks if block.skipped]
    assert len(skipped) <= _MOST_SKIPPED, "\n".join(skipped)
    run = [block for block in blocks if block.language in _RUN and not block.skipped]
    assert len(run) > 10 * len(skipped)


def test_a_comment_that_is_not_understood_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    block = "```sh\ntrue\n```\n"
    page.write_text(f"<!-- test: skip because no such machine exists -->\n{block}\n{block}", encoding="utf-8")
    assert [each.skipped for each in snippets.snippets("page.md")] == ["no such machine exists", ""]
    assert [each.line for each in snippets.snippets("page.md")] == [3, 7]
    for said in ("skip", "skip because", "skip because no"):
        page.write_text(f"<!-- test: {said} -->\n{block}", encoding="utf-8")
        with pytest.raises(ValueError, match="skip because REASON"):
            snippets.snippets("page.md")
