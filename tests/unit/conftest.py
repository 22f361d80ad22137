"""Fixtures of server tests: a home, calls of tools, an environment without keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcp import Client


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the machine's user is found."""
    from loom_core.llm.vendors import VENDORS

    for row in VENDORS.values():
        if row.key_variable:
            monkeypatch.delenv(row.key_variable, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Loom's home of one test."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def call() -> Callable[..., Any]:
    """Calls a tool: the data of its answer, which must be no error."""

    async def make(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    return make


@pytest.fixture
def refused() -> Callable[..., Any]:
    """Calls a tool that refuses: what it says."""

    async def make(client: Client, tool: str, /, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        return result.content[0].text

    return make
