"""Both generations of the TypeScript SDK as clients, over stdio and over HTTP (they need Node 20)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "typescript"
VERSIONS = {"v1": None, "v2": "2026-07-28", "v2-legacy": "2025-11-25"}  # the first generation does not tell


@pytest.fixture(scope="module")
def driver(load: Callable[[Path], ModuleType]) -> list[str]:
    """The script beside the packages it needs, and what runs it."""
    nodejs = load(Path(__file__).parents[1] / "fixtures" / "node.py")
    program = nodejs.node(least=(20, 0))
    return [program, shutil.copy(SOURCES / "drive.mjs", nodejs.installed(SOURCES))]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("generation", VERSIONS)
def test_a_typescript_client_lists_adds_asks_and_is_refused(generation, transport, driver, home, request):
    server = [sys.executable, "-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
    target = [request.getfixturevalue("http_url")] if transport == "http" else server
    done = subprocess.run(
        [*driver, generation, transport, *target],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["server"] == "loom-kb"
    assert seen.get("version") == VERSIONS[generation]
    assert seen["tools"] == ["query", "fetch", "sources", "add", "remove", "job", "graph"]
    assert seen["added"] == "done"
    assert seen["text"].startswith("[1] 青岛港 (text:")
    assert "李明" in seen["passages"][0]["text"]
    assert seen["resource"] == "青岛港"
    assert "李明" in seen["read"]
    assert seen["progress"] == sorted(set(seen["progress"]))
    assert seen["refused"] is True
