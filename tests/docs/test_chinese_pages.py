"""Chinese pages have the blocks of their English originals, which other tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import snippets

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(
    path.relative_to(_ROOT).as_posix()
    for path in (_ROOT / "docs" / "zh").rglob("*.md")
    if path.name != "README.md"
)
_SECTIONS_LEFT_OUT = {"docs/zh/howto/clients.md": 1}  # the list of frameworks, to which the page links


def _commands(page: str) -> list[str]:
    """Blocks that are run, without their comments, which are translated."""
    blocks = snippets.snippets(page, "sh", "console", "python")
    return [re.sub(r"[ \t]{2,}#.*", "", block.text) for block in blocks]


def _headings(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```", "", (_ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"^#+ ", text, re.MULTILINE)


@pytest.mark.parametrize("page", _PAGES)
def test_a_page_has_the_sections_and_blocks_of_its_original(page: str) -> None:
    original = page.replace("docs/zh/", "docs/")
    assert _commands(page) == _commands(original)
    assert len(_headings(page)) == len(_headings(original)) - _SECTIONS_LEFT_OUT.get(page, 0)


def test_every_page_is_found_from_the_chinese_home() -> None:
    home = (_ROOT / "docs" / "zh" / "README.md").read_text(encoding="utf-8")
    assert all(f"]({page.removeprefix('docs/zh/')})" in home for page in _PAGES)
