"""The company of examples/flow_company, running on this machine, and servers of its flows."""

from __future__ import annotations

import asyncio
import json
import runpy
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from loom_flow.app import build
from loom_flow.service import FlowService
from loom_flow.settings import Settings
from mcp import Client

EXAMPLE = Path(__file__).parents[3] / "examples" / "flow_company"


@pytest.fixture(autouse=True)
def _no_keys(no_keys: None) -> None:
    """No key of the machine's user is found."""


@pytest.fixture
async def company() -> AsyncGenerator[Any]:
    """The business of the example, with `url`; what it did is in `done`."""
    business = runpy.run_path(str(EXAMPLE / "stub_api.py"))["Company"]()
    listener = socket.create_server(("127.0.0.1", 0))
    business.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(business.app(), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    with anyio.fail_after(30):
        while not server.started:
            await anyio.lowlevel.checkpoint()
    yield business
    server.should_exit = True
    await serving


@pytest.fixture
def write(home: Path) -> Callable[..., Path]:
    """Writes `flow.json`."""

    def write(*flows: dict[str, Any], **more: Any) -> Path:
        path = home / "flow.json"
        path.write_text(json.dumps({"flows": flows, **more}, ensure_ascii=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def company_file(home: Path, company: Any) -> Path:
    """The example's flow file, which asks the company of this test."""
    path = home / "flow.json"
    text = (EXAMPLE / "flow.json").read_text(encoding="utf-8")
    path.write_text(text.replace("http://127.0.0.1:8787", company.url), encoding="utf-8")
    return path


@pytest.fixture
def settings(home: Path) -> Callable[..., Settings]:
    """The settings of a process on this home."""

    def make(**changes: Any) -> Settings:
        return Settings(**{"home": home, "config": home / "flow.json", **changes})

    return make


@pytest.fixture
def connect(settings: Callable[..., Settings]) -> Callable[..., Client]:
    """A client of a server on this home, over the in-memory transport."""

    def make(*, provider: str = "", **options: Any) -> Client:
        return Client(build(settings(provider=provider)).protocol, **options)

    return make


@pytest.fixture
def running(settings: Callable[..., Settings]) -> Callable[..., AbstractAsyncContextManager[FlowService]]:
    """A service on this home, which ends with the block."""

    @asynccontextmanager
    async def make(*, sees_all: bool = False, **changes: Any) -> AsyncGenerator[FlowService]:
        service = FlowService(settings(**changes), sees_all=sees_all)
        async with service:
            yield service

    return make
