from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from loom_kb.app import build
from loom_kb.settings import Settings
from mcp import Client

pytestmark = pytest.mark.slow

TOOLS, RESOURCES = "notifications/tools/list_changed", "notifications/resources/list_changed"


class News:
    """Notifications that a client received."""

    def __init__(self):
        self._methods = []
        self._arrived = anyio.Event()

    async def __call__(self, message):
        self._methods.append(message.method)
        self._arrived.set()

    async def has(self, *methods):
        """Wait until it was told all of these, and forget what it was told."""
        with anyio.fail_after(20):
            while not set(methods) <= set(self._methods):
                self._arrived = anyio.Event()
                await self._arrived.wait()
        told, self._methods = self._methods, []
        return told


@pytest.fixture
def connect(tmp_path):
    """Connects a client to a server of its own; all of them have one home."""

    @asynccontextmanager
    async def connected(news=None):
        server = build(Settings(home=tmp_path, embedder="hashing"))
        async with Client(server.protocol, mode="legacy", message_handler=news) as client:
            yield client

    return connected


async def add(client, text, **more):
    added = await client.call_tool("add", {"text": text, "source": "文档", **more})
    assert added.structured_content["documents"]


async def test_a_client_is_told_what_another_process_has_made_changed_and_removed(connect):
    news = News()
    async with connect(news), connect() as other:
        await add(other, "青岛港在山东。", uri="note:港")
        await news.has(TOOLS, RESOURCES)
        await add(other, "青岛港在山东省。", uri="note:港")
        assert TOOLS not in await news.has(RESOURCES)
        await other.call_tool("remove", {"ids": ["note:港"]})
        await news.has(RESOURCES)


async def test_new_filters_are_told_as_they_stand_in_the_description_of_a_tool(connect):
    news = News()
    async with connect(news) as client:
        await add(client, "one")
        await news.has(TOOLS, RESOURCES)
        await add(client, "two", tags=["draft"])
        await news.has(TOOLS, RESOURCES)


async def test_nothing_is_opened_while_nothing_happens(connect, tmp_path):
    async with connect() as first:
        await add(first, "one")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    news = News()
    async with connect(news), connect():
        with pytest.raises(TimeoutError), anyio.fail_after(3):
            await news.has(RESOURCES)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
