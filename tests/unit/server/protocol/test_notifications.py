from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import (
    INVALID_PARAMS,
    EmptyResult,
    InitializedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.notifications import ChangeNotifier
from loom_core.server.protocol.resources import ResourceContent
from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_settings import HttpSettings


class Messages:
    """Notifications that a client received, and a way to wait for them."""

    def __init__(self):
        self.seen = []
        self._arrived = anyio.Event()

    async def __call__(self, message):
        self.seen.append((message.method, getattr(message.params, "uri", None)))
        self._arrived.set()

    async def wait(self, count):
        with anyio.fail_after(30):
            while len(self.seen) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        return self.seen


def updated(uri):
    return ("notifications/resources/updated", uri)


@pytest.fixture
def server():
    server = LoomServer("s", version="1", title="S", resource_updates=True)

    @server.resource("loom://{id}", name="document", title="Document", description="A document.")
    async def document(id: str) -> ResourceContent:  # noqa: A002 - the template's variable
        return ResourceContent(id)

    return server


def legacy(server, messages):
    return Client(server.protocol, mode="legacy", message_handler=messages)


async def subscribe(client, uri):
    await client.session.send_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult)


async def unsubscribe(client, uri):
    await client.session.send_request(
        UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri)), EmptyResult
    )


async def test_a_legacy_client_is_told_of_the_resources_that_it_subscribed_to(server):
    messages = Messages()
    async with legacy(server, messages) as client:
        assert client.server_capabilities.resources.subscribe
        await subscribe(client, "loom://灯塔")
        await server.resource_updated("loom://other")
        await server.resource_updated("loom://灯塔")
        assert await messages.wait(1) == [updated("loom://灯塔")]


async def test_after_unsubscribing_a_legacy_client_is_told_nothing_more(server):
    messages = Messages()
    async with legacy(server, messages) as client:
        await subscribe(client, "loom://a")
        await subscribe(client, "loom://b")
        await unsubscribe(client, "loom://a")
        await unsubscribe(client, "loom://never")
        await server.resource_updated("loom://a")
        await server.resource_updated("loom://b")
        assert await messages.wait(1) == [updated("loom://b")]


async def test_a_subscription_is_that_of_one_connection_and_ends_with_it(server):
    first, second = Messages(), Messages()
    async with legacy(server, first) as watching:
        await subscribe(watching, "loom://a")
        async with legacy(server, second) as other:
            await subscribe(other, "loom://b")
            await server.resource_updated("loom://a")
            assert await first.wait(1) == [updated("loom://a")]
        await server.resource_updated("loom://b")
        await server.resources_changed()
        assert await first.wait(2) == [updated("loom://a"), ("notifications/resources/list_changed", None)]
    assert second.seen == []


async def test_modern_clients_are_told_by_the_stream_that_they_open(server):
    async with (
        Client(server.protocol) as client,
        client.listen(resource_subscriptions=["loom://灯塔"], prompts_list_changed=True) as events,
    ):
        await server.resource_updated("loom://other")
        await server.resource_updated("loom://灯塔")
        await server.prompts_changed()
        with anyio.fail_after(30):
            seen = {type(await anext(events)).__name__ for _ in range(2)}

    assert seen == {"ResourceUpdated", "PromptsListChanged"}


async def test_the_same_news_is_told_once_to_a_client_that_is_behind(server):
    messages = Messages()
    async with legacy(server, messages) as client:
        await subscribe(client, "loom://a")
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(server.resource_updated, "loom://a")
                tasks.start_soon(server.prompts_changed)
        await server.tools_changed()
        with anyio.fail_after(30):
            while ("notifications/tools/list_changed", None) not in messages.seen:
                await messages.wait(len(messages.seen) + 1)

    assert set(messages.seen) == {
        updated("loom://a"),
        ("notifications/prompts/list_changed", None),
        ("notifications/tools/list_changed", None),
    }
    assert len(messages.seen) < 20


@pytest.mark.slow
async def test_one_connection_cannot_watch_without_end(server):
    async with legacy(server, Messages()) as client:
        for number in range(1000):
            await subscribe(client, f"loom://{number}")
        await subscribe(client, "loom://0")
        with pytest.raises(MCPError, match="watches 1000 resources already") as refused:
            await subscribe(client, "loom://1000")
        await unsubscribe(client, "loom://0")
        await subscribe(client, "loom://1000")

    assert refused.value.error.code == INVALID_PARAMS


async def test_nothing_of_a_client_stays_behind(server):
    changes = ChangeNotifier(server.protocol)
    changes.watch_resources()
    async with AsyncExitStack() as clients:
        for number in range(5):
            client = await clients.enter_async_context(legacy(server, Messages()))
            await subscribe(client, f"loom://{number}")
        assert changes.clients == 5
    assert changes.clients == 0


async def test_a_client_that_says_twice_that_it_is_ready_is_told_everything_once(server):
    messages = Messages()
    async with legacy(server, messages) as client:
        await client.session.send_notification(InitializedNotification())
        await client.list_resources()
        await server.tools_changed()
        await server.resources_changed()
        assert await messages.wait(2) == [
            ("notifications/tools/list_changed", None),
            ("notifications/resources/list_changed", None),
        ]


async def test_a_server_that_tells_nothing_of_single_resources_lets_no_one_subscribe_to_them():
    server = LoomServer("s", version="1", title="S")

    @server.resource("loom://{id}", name="document", title="Document", description="A document.")
    async def document(id: str) -> ResourceContent:  # noqa: A002 - the template's variable
        return ResourceContent(id)

    async with legacy(server, Messages()) as client:
        assert not client.server_capabilities.resources.subscribe
        with pytest.raises(MCPError, match="Method not found"):
            await subscribe(client, "loom://a")


async def test_over_http_too_each_client_is_told_of_its_own(server):
    first, second, ready, url = Messages(), Messages(), anyio.Event(), []

    def on_ready(at):
        url.append(at)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_http(server, HttpSettings(port=0), on_ready=on_ready))
        with anyio.fail_after(10):
            await ready.wait()
        async with (
            Client(url[0], mode="legacy", message_handler=first) as one,
            Client(url[0], mode="legacy", message_handler=second) as other,
        ):
            await subscribe(one, "loom://灯塔")
            await subscribe(other, "loom://b")
            with anyio.fail_after(10):  # the stream that carries them is opened in the background
                while not (first.seen and second.seen):
                    await server.resource_updated("loom://灯塔")
                    await server.resource_updated("loom://b")
                    await one.list_resources()
        tasks.cancel_scope.cancel()

    assert set(first.seen) == {updated("loom://灯塔")}
    assert set(second.seen) == {updated("loom://b")}
