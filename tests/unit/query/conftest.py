"""A home with a configuration, and servers and services on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loom_query.app import build
from loom_query.service import QueryService
from loom_query.settings import Settings
from mcp import Client

HARBOUR = {
    "kind": "documents",
    "description": "Notes about harbours.",
    "hints": ["harbours", "ships"],
    "documents": [
        {
            "text": "# Port Aster\n\nThe harbour master of Port Aster is Ada Brown."
            "\n\n## Fees\n\nBoats pay nine crowns.",
            "title": "Harbour book",
            "uri": "https://harbour.example/aster",
        },
        {"text": "# Mooring\n\nShips moor at the east quay.", "uri": "https://harbour.example/mooring"},
    ],
}
PORTS = {
    "kind": "documents",
    "description": "港口资料",
    "documents": [{"text": "# 青岛港\n\n青岛港的港长是李明。", "uri": "https://港口.example/青岛"}],
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Loom's home of one test."""
    return tmp_path / "home"


@pytest.fixture
def harbour() -> dict[str, Any]:
    """A source of English texts."""
    return HARBOUR


@pytest.fixture
def ports() -> dict[str, Any]:
    """A source of Chinese texts."""
    return PORTS


@pytest.fixture
def configure(home: Path) -> Callable[..., Path]:
    """Writes `query.json`: sources by name, and other settings."""

    def write(sources: dict[str, Any] | None = None, **settings: Any) -> Path:
        home.mkdir(exist_ok=True)
        path = home / "query.json"
        content = {**({} if sources is None else {"sources": sources}), **settings}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
        return path

    return write


@pytest.fixture
def settings(home: Path) -> Callable[..., Settings]:
    """Makes the settings of a run on the home."""

    def make(**more: Any) -> Settings:
        return Settings(home, home / "query.json", **{"version": "1", **more})

    return make


@pytest.fixture
def running(settings: Callable[..., Settings]) -> Callable[[], AbstractAsyncContextManager[QueryService]]:
    """Opens a service on the home: `async with running() as service`."""

    @asynccontextmanager
    async def run() -> AsyncGenerator[QueryService]:
        service = QueryService(settings(), upkeep=False)
        service.sources.load()
        async with service:
            yield service

    return run


@pytest.fixture
def connected(settings: Callable[..., Settings]) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Connects a client to a server on the home, in memory."""

    @asynccontextmanager
    async def connect(*, profile: str = "full", **options: Any) -> AsyncGenerator[Client]:
        async with Client(build(settings(profile=profile)).protocol, **options) as client:
            yield client

    return connect
