"""A home with profiles, and servers and services on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loom_agent.app import build
from loom_agent.service import Service
from loom_agent.settings import Settings
from mcp import Client

from loom_core.llm.vendors import VENDORS


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the machine's user is found."""
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
def configure(home: Path) -> Callable[..., Path]:
    """Writes `agent.json`: profiles by name; `mock` drives those that name no model."""

    def write(**profiles: dict[str, Any]) -> Path:
        path = home / "agent.json"
        filled = {name: {"model": "mock", **profile} for name, profile in profiles.items()}
        path.write_text(json.dumps({"profiles": filled}, ensure_ascii=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def settings(home: Path) -> Callable[..., Settings]:
    """The settings of a process on this home, with the demonstration as model."""

    def make(**changes: Any) -> Settings:
        return Settings(**{"home": home, "config": home / "agent.json", "provider": "mock", **changes})

    return make


@pytest.fixture
def connect(settings: Callable[..., Settings]) -> Callable[..., Client]:
    """A client of a server on this home, over the in-memory transport."""

    def make(*, provider: str = "mock", over_http: bool = False, root: Path | None = None, **options: Any):
        made = settings(provider=provider, over_http=over_http, root=root)
        return Client(build(made).protocol, **options)

    return make


@pytest.fixture
def running(settings: Callable[..., Settings]) -> Callable[..., AbstractAsyncContextManager[Service]]:
    """A service on this home, which ends with the block."""

    @asynccontextmanager
    async def make(*, sees_all: bool = False, **changes: Any) -> AsyncGenerator[Service]:
        service = Service(settings(**changes), sees_all=sees_all)
        async with service:
            yield service

    return make


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
