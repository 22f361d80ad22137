"""Both generations of the TypeScript SDK as clients of servers, over stdio and HTTP: with Node 20.

Both servers see each generation, and both transports; each generation has each transport, at one of them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import node as nodejs

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "typescript"
VERSIONS = {"v1": None, "v2": "2026-07-28", "v2-legacy": "2025-11-25"}  # the first generation does not tell


@pytest.fixture(scope="module")
def driver() -> list[str]:
    """The script next to the packages it needs, and what runs it."""
    program, folder = nodejs.node(least=(20, 0)), nodejs.installed(SOURCES)
    shutil.copy(SOURCES / "connect.mjs", folder)
    return [program, shutil.copy(SOURCES / "drive.mjs", folder)]


@pytest.fixture(scope="module")
def seen_by(driver: list[str]) -> Callable[..., dict[str, Any]]:
    """Drives a client of a generation, and gives what it saw of a server."""

    return lambda generation, transport, target: nodejs.drive([*driver, generation, transport, *target])


@pytest.mark.parametrize(
    ("generation", "transport"),
    [("v1", "stdio"), ("v2", "http"), ("v2-legacy", "stdio")],
)
def test_a_typescript_client_lists_adds_asks_and_is_refused(generation, transport, seen_by, home, request):
    server = [sys.executable, "-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
    target = [request.getfixturevalue("http_url")] if transport == "http" else server
    seen = seen_by(generation, transport, target)
    assert seen["server"] == "loom-kb"
    assert seen.get("version") == VERSIONS[generation]
    assert seen["tools"] == ["query", "fetch", "sources", "add", "remove", "job", "job_cancel", "graph"]
    assert seen["added"] == "done"
    assert seen["text"].startswith("[1] 青岛港 (text:")
    assert "李明" in seen["passages"][0]["text"]
    assert seen["resource"] == "青岛港"
    assert "李明" in seen["read"]
    assert seen["progress"] == sorted(set(seen["progress"]))
    assert seen["refused"] is True


@pytest.mark.parametrize(
    ("generation", "transport"),
    [("v1", "http"), ("v2", "stdio"), ("v2-legacy", "http")],
)
def test_a_typescript_client_asks_and_reads_from_the_query_server(
    generation, transport, seen_by, loom_query, stand_in, request
):
    target = [request.getfixturevalue("query_url")] if transport == "http" else stand_in(loom_query)
    seen = seen_by(generation, transport, target)
    assert seen["server"] == "loom-query-server"
    assert seen.get("version") == VERSIONS[generation]
    assert seen["tools"] == ["query", "fetch", "sources", "ask"]
    assert seen["text"].startswith("[1] 青岛港 (note:青岛")
    assert seen["passages"][0]["id"].startswith("港口:")
    assert "李明" in seen["passages"][0]["text"]
    assert "李明" in seen["read"]
    assert seen["progress"] in ([1], [])  # the second generation drops what comes together with the answer
    assert seen["refused"] is True
