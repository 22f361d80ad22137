"""The first five minutes, as README.md and docs/tutorial.md have them, in a home directory that is empty.

The commands are read from the pages and run as they stand; only what installs packages is done already (the
stage `readme` of .ci/run does that, too, from nothing).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs import shell, snippets
from tests.docs.programs import Programs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the pages are for a POSIX shell")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "programs").mkdir()
    with closing(Programs(tmp_path / "programs")) as programs:
        yield programs.folder


@pytest.fixture
def empty_home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_the_tutorial_from_an_empty_home_to_a_client(empty_home: Path, programs: Path) -> None:
    blocks = snippets.snippets("docs/tutorial.md", "sh", "console")
    assert len(blocks) >= 6
    for block in blocks:
        assert not block.skipped, "the first five minutes leave nothing out"
        shell.run_snippet(block, empty_home, programs)
    assert (empty_home / ".loom" / "kb" / "default" / "record.db").is_file()


def test_the_readme_from_its_first_line_to_its_last(empty_home: Path, programs: Path) -> None:
    english, chinese = (snippets.snippets(page, "sh") for page in ("README.md", "README.zh.md"))
    assert english[0].text.startswith("pip install uv && uv run")
    said: dict[str, str] = {}
    for block in [*english, *chinese]:
        assert not block.skipped, "the first page leaves nothing out"
        if block.text not in said:  # what both have in the same words is run once
            code, told = shell.run(block.text, empty_home, programs)
            assert code == 0, f"{block}: {told}"
            said[block.text] = told

    demo, *_ = said.values()
    assert re.search(r"^12 documents, \d+ passages, \d+ entities", demo, re.MULTILINE)
    assert demo.count("found because:") == 6
    assert '"mcpServers"' in demo
    for page, answer, folder in (
        (english, "Anna Berg approved the budget", "loom-notes"),
        (chinese, "预算由安娜于三月三日批准", "织机笔记"),
    ):
        own, agent, installing = (said[page[at].text] for at in (1, 2, 4))
        assert answer in own.partition("[1]")[2].partition("[2]")[0]
        assert "Ada Lovelace" not in own, "what the demo has is no answer about one's own"
        assert re.search(r"clock.*\d{4}-\d\d-\d\dT\d\d:\d\d", agent, re.DOTALL)
        assert str(empty_home / folder) in installing
