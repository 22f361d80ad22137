"""A real API on this machine, and executors of flows that ask it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loom_core.flow.config import parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import EndpointCaller
from loom_core.net.retry import RetryPolicy
from loom_core.runs.journal import Journal


@dataclass(slots=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    key: str


@dataclass(slots=True)
class Api:
    """Answers each path with what it is told; a list is gone through, its last one for ever."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    replies: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def counts(self) -> Counter[str]:
        """How often each path was asked."""
        return Counter(each.path for each in self.asked)

    def on(self, path: str, *replies: Any) -> None:
        """A number is a status, a function does it itself, all else is a response or JSON."""
        self.replies[path] = list(replies)

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        self.asked.append(
            Asked(
                request.method,
                request.url.path,
                dict(request.query_params),
                json.loads(body) if body else None,
                request.headers.get("idempotency-key", ""),
            )
        )
        waiting = self.replies.get(request.url.path, [{"ok": True}])
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if callable(reply) and not isinstance(reply, Response):
            reply = await reply(request)
        if isinstance(reply, Response):
            return reply
        if isinstance(reply, int):
            return JSONResponse({"msg": f"status {reply}"}, reply)
        return JSONResponse(reply)


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    listener = socket.create_server(("127.0.0.1", 0))
    stub = Api(listener.getsockname()[1])
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", stub.answer, methods=methods)])
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    serving = asyncio.create_task(server.serve([listener]))
    with anyio.fail_after(30):
        while not server.started:
            await anyio.lowlevel.checkpoint()
    try:
        yield stub
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
def journal() -> Journal:
    return Journal()


Make = Callable[..., Awaitable[FlowExecutor]]


@pytest.fixture
async def flows(api: Api, journal: Journal) -> AsyncGenerator[Callable[..., FlowExecutor]]:
    """Makes executors: `flows([{…}, …])`; what is named besides goes to it, or into the file."""
    callers: list[EndpointCaller] = []

    def make(
        flows: list[dict[str, Any]], *, file: dict[str, Any] | None = None, tools: Any = (), **more: Any
    ) -> FlowExecutor:
        written = {"flow_url": api.url, "net": {"allow": ["127.0.0.1"]}, "flows": flows, **(file or {})}
        loaded = parse_flow_file(json.dumps(written), tools=[each.name for each in tools])
        caller = EndpointCaller(loaded.file, retry=RetryPolicy(base=0.001, cap=0.001))
        callers.append(caller)
        return FlowExecutor(loaded, caller=caller, tools=tools, **{"journal": journal, **more})

    yield make
    for caller in callers:
        await caller.aclose()
    await journal.aclose()
