"""The MCP client of Vercel's AI SDK, which probes for a second before it falls back, against each server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import node as nodejs

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "typescript"
LAUNCHER = [sys.executable, str(Path(__file__).with_name("slow_launcher.py"))]
KB = ["query", "fetch", "sources", "add", "remove", "job", "job_cancel", "graph"]


@pytest.fixture(scope="module")
def seen_by() -> Callable[..., dict[str, Any]]:
    """Drives the client, and gives what it saw of a server."""
    program, folder = nodejs.node(least=(22, 0)), nodejs.installed(SOURCES)
    script = folder / "drive_ai_sdk.mjs"
    script.write_bytes((SOURCES / script.name).read_bytes())

    return lambda transport, target: nodejs.drive([program, str(script), transport, *target])


@pytest.mark.parametrize("start", ["slow", "http"])
def test_the_ai_sdk_lists_adds_asks_and_reads(start, seen_by, home, request):
    if start == "http":
        seen = seen_by("http", [request.getfixturevalue("http_url")])
    else:
        server = [sys.executable, "-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
        seen = seen_by("stdio", [*LAUNCHER, *server])
    assert seen["version"] == {"slow": "2025-11-25", "http": "2026-07-28"}[start]
    assert seen["tools"] == KB
    assert seen["text"].startswith("[1] 青岛港 (text:")
    assert "李明" in seen["fetched"]
    assert seen["refused"] is True


@pytest.mark.parametrize("module", ["loom_query", "loom_agent", "loom_flow"])
def test_the_ai_sdk_connects_to_a_server_that_is_slow_to_start(module, seen_by, home):
    server = [sys.executable, "-m", module, "serve", "--home", str(home)]
    assert seen_by("stdio", [*LAUNCHER, *server])["version"] == "2025-11-25"
