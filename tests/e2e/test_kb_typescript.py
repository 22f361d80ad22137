"""Both generations of the TypeScript SDK as clients, over stdio and over HTTP (they need Node 20)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="npm is a shell script there"),
    pytest.mark.skipif(
        not (shutil.which("node") and shutil.which("npm")), reason="Node.js with npm is not installed"
    ),
]

SOURCES = Path(__file__).parent / "typescript"
WORK = Path(__file__).parents[2] / ".ci" / "work" / "typescript"


@pytest.fixture(scope="module")
def driver():
    """The script beside the packages it needs, which are installed once for every version of the list."""
    WORK.mkdir(parents=True, exist_ok=True)
    wanted = (SOURCES / "package.json").read_text(encoding="utf-8")
    installed = WORK / "installed.json"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        (WORK / "package.json").write_text(wanted, encoding="utf-8")
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        installed.write_text(wanted, encoding="utf-8")
    return shutil.copy(SOURCES / "drive.mjs", WORK)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_typescript_client_lists_adds_asks_and_is_refused(generation, transport, driver, home, request):
    server = [sys.executable, "-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
    target = [request.getfixturevalue("http_url")] if transport == "http" else server
    done = subprocess.run(
        ["node", driver, generation, transport, *target],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["server"] == "loom-kb"
    assert seen.get("version", "2026-07-28") == "2026-07-28"
    assert seen["tools"] == ["query", "fetch", "sources", "add", "remove", "job", "graph"]
    assert seen["added"] == "done"
    assert seen["text"].startswith("[1] 青岛港 (text:")
    assert "李明" in seen["passages"][0]["text"]
    assert seen["refused"] is True
