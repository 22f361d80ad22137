"""Fixtures for the tests of what is written for users."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from loom_kb.cli import run

from tests.docs import shell, snippets
from tests.docs.programs import Programs

_ROOT = Path(__file__).parents[2]
_DOCUMENTS = {
    "notes/budget.md": "# Budget\n\nThe budget of 2026 was approved by Anna Berg on 3 March.\n",
    "notes/harbour.md": "# Port Aster\n\nThe master of Port Aster is Ada Lovelace.\n",
    "笔记/预算.md": "# 预算\n\n预算由安娜批准。\n",
    "文档/织机.md": "# 织机\n\n织机是织布的机器。\n",
    ".config/Claude/claude_desktop_config.json": '{"mcpServers": {"files": {"command": "files-server"}}}',
    "projects/manual.md": "# Manual\n\nOil the loom once a week.\n",
}
_PDF = _ROOT / "tests" / "fixtures" / "documents" / "harbour.pdf"
_UTTERANCE = {"message": "我想请三天假", "expect": {"action": "flow", "flow": "leave_request"}}
_QUESTION = {"question": "Who approved the budget of 2026?", "documents": ["budget.md"]}
_CASE = {"goal": "What time is it?", "expect": {"tools": ["clock"]}}
_AGENT = {"profiles": {"default": {"model": "mock"}}}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for `PATH` with whatever commands on the pages begin with."""
    with closing(Programs(tmp_path_factory.mktemp("programs"))) as programs:
        yield programs.folder


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with documents, and a knowledge base of some of them."""
    home = tmp_path_factory.mktemp("used") / "home"
    for name, text in _DOCUMENTS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    for base in ("default", "demo", "notes"):
        options = ["--kb", base, "--home", str(home / ".loom"), "--embedder", "hashing"]
        assert run(["add", str(home / "notes"), *options]) == 0
    (home / ".loom" / "agent.json").write_text(json.dumps(_AGENT), encoding="utf-8")
    (home / "utterances.jsonl").write_text(json.dumps(_UTTERANCE), encoding="utf-8")
    (home / "questions.jsonl").write_text(json.dumps(_QUESTION), encoding="utf-8")
    (home / "cases.jsonl").write_text(json.dumps(_CASE), encoding="utf-8")
    (home / "examples").symlink_to(_ROOT / "examples")
    for name in ("projects/manual.pdf", "手册.pdf"):
        shutil.copy(_PDF, home / name)
    return home


@pytest.fixture(scope="module")
def done() -> set[str]:
    """Steps that an earlier page has run."""
    return set()


@pytest.fixture
def run_page(used_home: Path, programs: Path, done: set[str], tmp_path: Path) -> Callable[[str], None]:
    """Runs the commands of a page in a home of its own: `run_page("docs/flow.md")`."""

    def run_commands(page: str) -> None:
        home = tmp_path / "home"
        shutil.copytree(used_home, home, symlinks=True)
        for snippet in snippets.snippets(page, "sh", "console", "jsonc"):
            if snippet.skipped or snippet.text in done:
                continue
            if snippet.language == "jsonc":
                if '"flows":' in snippet.text:  # what the commands below it are about
                    (home / ".loom" / "flow.json").write_text(snippet.text, encoding="utf-8")
                continue
            shell.run_snippet(snippet, home, programs)
            done.add(snippet.text)

    return run_commands
