"""Commands whose standard streams are closed, as under some supervisors and with `<&-`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.commands import run_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes them")


def _run(closed: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_documents_are_added_with_closed_streams(closed: str, tmp_path: Path) -> None:
    note = tmp_path / "笔记.md"
    note.write_text("# 青岛港\n\n青岛港的港长是李明。\n", encoding="utf-8")
    home = ["--home", str(tmp_path / "home"), "--embedder", "hashing"]

    done = _run(closed, "loom_kb", "add", str(note), *home)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "青岛港" in run_command("loom_kb", "query", "港长", *home, check=True).stdout.decode()


@pytest.mark.parametrize("module", ["loom_kb", "loom_query", "loom_agent", "loom_flow"])
def test_a_server_over_stdio_says_that_its_input_is_closed(module: str, tmp_path: Path) -> None:
    done = _run("<&-", module, "serve", "--home", str(tmp_path))

    assert done.returncode == 1
    assert "Standard input or output is closed" in done.stderr
    assert "--http" in done.stderr
    assert "Traceback" not in done.stderr
