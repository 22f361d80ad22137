"""The server that has everything that the official conformance suite looks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.fork_server import starts_quickly

_HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def fixtures_url() -> Iterator[str]:
    """Where the fixture server serves; it ends with the module, in good order."""
    command = [sys.executable, starts_quickly(_HERE / "server.py")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(30) == 0
