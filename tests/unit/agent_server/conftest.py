"""A home with profiles, and servers and services on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loom_agent.app import build
from loom_agent.service import AgentService
from loom_agent.settings import Settings
from mcp import Client

NOTE = "请记一条笔记：明天去青岛"  # a goal whose call waits for a decision


@pytest.fixture(autouse=True)
def _no_keys(no_keys: None) -> None:
    """No key of the machine's user is found."""


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
def running(settings: Callable[..., Settings]) -> Callable[..., AbstractAsyncContextManager[AgentService]]:
    """A service on this home, which ends with the block."""

    @asynccontextmanager
    async def make(*, sees_all: bool = False, **changes: Any) -> AsyncGenerator[AgentService]:
        service = AgentService(settings(**changes), sees_all=sees_all)
        async with service:
            yield service

    return make
