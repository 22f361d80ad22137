"""Runs the commands that stand on pages, as a reader would type them.

Loom's programs are those of this environment, however a page starts them (programs.py).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.snippets import Snippet

_PASSED_ON = ("LANG", "LC_ALL", "TMPDIR")
_SECONDS = 120


def run_snippet(snippet: Snippet, home: Path, programs: Path) -> None:
    """Run a block in a home directory; all its commands have to end well.

    In a `console` block, lines that begin with `$ ` are commands, and what they say has to hold the lines
    below them; `…` stands for anything.
    """
    if snippet.language != "console":
        code, said = run(f"set -x\n{_quiet_background(snippet.text)}", home, programs)
        assert code == 0, f"{snippet}: exit code {code}\n{said}"
        return
    for part in re.split(r"^\$ ", snippet.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        code, said = run(command, home, programs)
        assert code == 0, f"{snippet}: {command}: exit code {code}\n{said}"
        pattern = re.escape(shown.strip()).replace("…", ".*")
        assert re.search(pattern, said, re.DOTALL), f"{snippet}: {command} says:\n{said}"


def run(text: str, home: Path, programs: Path) -> tuple[int, str]:
    """Run commands in a shell that ends with the first that fails; gives its code and all that they said."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=home, env=_environment(home, programs), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=_SECONDS)
        return process.returncode, said
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _environment(home: Path, programs: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    path = os.pathsep.join([str(programs), os.defpath])
    return {
        **kept,
        "HOME": str(home),
        "PATH": path,
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


def _quiet_background(text: str) -> str:
    """Silence background jobs: otherwise the shell's output would not end with the shell."""
    return re.sub(r"&$", ">/dev/null 2>&1 &", text, flags=re.MULTILINE)
