"""The commands on the pages of docs/ are run, each page's one after the other, in a home of its own.

There are documents in that home, and knowledge bases of them (conftest.py); shell.py runs the commands. What
several pages have in the same words is run once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_ELSEWHERE = {
    _ROOT / "docs" / "development.md",  # those of .ci/run, which runs them
    _ROOT / "docs" / "tutorial.md",  # in a home that is empty: tests/e2e/test_first_five_minutes.py
    *(_ROOT / "docs" / "zh").rglob("*.md"),  # have the blocks of the English pages: test_chinese_pages.py
}
_BLOCK = re.compile(r"^ *```(sh|console)$", re.MULTILINE)
_PAGES = sorted(
    path.relative_to(_ROOT).as_posix()
    for path in (_ROOT / "docs").rglob("*.md")
    if path not in _ELSEWHERE and _BLOCK.search(path.read_text(encoding="utf-8"))
)


@pytest.mark.skipif(sys.platform == "win32", reason="the pages are for a POSIX shell")
@pytest.mark.parametrize("page", _PAGES)
def test_the_commands_of_a_page_work(page: str, run_page: Callable[[str], None]) -> None:
    run_page(page)
