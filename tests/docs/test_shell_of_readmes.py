"""The commands of the servers' READMEs are run, each page's one after the other, in a home of its own.

Those of README.md are run in a home that is empty: tests/e2e/test_first_five_minutes.py.
There are documents in the home, and knowledge bases of them (conftest.py); shell.py runs the commands. What
several pages have in the same words is run once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(path.relative_to(_ROOT).as_posix() for path in _ROOT.glob("servers/*/README.md"))


@pytest.mark.skipif(sys.platform == "win32", reason="the pages are for a POSIX shell")
@pytest.mark.parametrize("page", _PAGES)
def test_the_commands_of_a_page_work(page: str, run_page: Callable[[str], None]) -> None:
    run_page(page)
