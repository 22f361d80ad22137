"""The glossary: each term once, with its Chinese name, a meaning, and a place that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in _PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| term |")
]
_LINKING = ("docs/README.md", "docs/zh/README.md", "docs/explanation/architecture.md", "CONTRIBUTING.md")


def test_each_term_is_there_once_with_a_chinese_name_and_a_meaning() -> None:
    assert len(_ROWS) >= 60
    assert all(len(row) == 4 and row[2].endswith(".") for row in _ROWS)
    assert all(re.search(r"[\u4e00-\u9fff]", chinese) for _, chinese, _, _ in _ROWS)
    terms = [term.casefold() for term, *_ in _ROWS]
    assert sorted(set(terms)) == sorted(terms)


@pytest.mark.parametrize(("term", "where"), [(row[0], row[3]) for row in _ROWS], ids=lambda value: str(value))
def test_the_place_of_a_term_exists(term: str, where: str) -> None:
    paths = re.findall(r"`([^`]+)`", where)
    assert paths, f"“{term}” has no place"
    assert [path for path in paths if not (_ROOT / path).exists()] == []


@pytest.mark.parametrize("page", _LINKING)
def test_the_pages_that_introduce_loom_link_to_the_glossary(page: str) -> None:
    assert re.search(r"\]\([^)]*glossary\.md\)", (_ROOT / page).read_text(encoding="utf-8"))
