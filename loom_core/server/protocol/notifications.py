"""Change notifications to subscribed clients, in the form of their protocol era.

Clients of 2026-07-28 open a stream with `subscriptions/listen` and choose its events; the SDK serves it.
Clients of the handshake era are notified of every changed list, and of their subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext
    from mcp.server.session import ServerSession

__all__ = ["ChangeNotifier"]

_MAX_WATCHED = 1000  # resources that one client may subscribe to


class ChangeNotifier:
    """Notifier of a server's changes, with its subscribers."""

    def __init__(self, protocol: Server[object]) -> None:
        """Register the handlers of subscription requests.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._clients: dict[int, _Client] = {}
        self._protocol = protocol
        protocol.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._streams
        )
        protocol.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._on_initialized
        )

    @property
    def clients(self) -> int:
        """Number of connected clients of the handshake era that are initialized."""
        return len(self._clients)

    def watch_resources(self) -> None:
        """Let clients of the handshake era subscribe to resources, if the server notifies of changes."""
        add = self._protocol.add_request_handler
        add("resources/subscribe", types.SubscribeRequestParams, self._on_subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._on_unsubscribe)

    async def notify(self, event: ServerEvent) -> None:
        """Notify all subscribed clients of an event."""
        await self._bus.publish(event)

    def close(self) -> None:
        """Finish every stream of `subscriptions/listen`."""
        self._streams.close()

    async def _on_initialized(
        self, ctx: ServerRequestContext[Any, Any], _params: types.NotificationParams
    ) -> None:
        """Forward changes to a client for as long as its connection lives; only the handshake era sends this.

        The SDK runs a notification's handler in the connection's own task group and cancels it when the
        connection ends, so nothing of the client stays behind.
        """
        introduction = ctx.session.client_params
        if introduction is None or id(introduction) in self._clients:
            return  # it is not initialized, or sends this a second time
        client = self._clients[id(introduction)] = _Client(introduction)
        unsubscribe = self._bus.subscribe(client.add)
        try:
            while True:
                await _send(ctx.session, await client.next())
        finally:
            unsubscribe()
            del self._clients[id(introduction)]

    async def _on_subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        watched = self._client(ctx).watched
        if len(watched) >= _MAX_WATCHED and params.uri not in watched:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"This connection watches {_MAX_WATCHED} resources already; unsubscribe from some.",
            )
        watched.add(params.uri)
        return types.EmptyResult()

    async def _on_unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._client(ctx).watched.discard(params.uri)
        return types.EmptyResult()

    def _client(self, ctx: ServerRequestContext[Any, Any]) -> _Client:
        client = self._clients.get(id(ctx.session.client_params))
        if client is None:
            raise MCPError(
                code=types.INVALID_REQUEST,
                message="Send `notifications/initialized` first: only then can changes be sent.",
            )
        return client


class _Client:
    """The subscriptions of one client, and the events not sent to it yet.

    An event has no data but its target, so each is queued once however often it happens: a client that does
    not read uses bounded memory.

    Each request has its own session, but the client's declaration at its connection is one object for all of
    them. It identifies the connection, and it is kept here so that no other object can
    take its place in memory.
    """

    def __init__(self, introduction: types.InitializeRequestParams) -> None:
        self.introduction = introduction
        self.watched: set[str] = set()
        self._news: dict[ServerEvent, None] = {}
        self._arrived = anyio.Event()

    def add(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated) and event.uri not in self.watched:
            return
        self._news[event] = None
        self._arrived.set()

    async def next(self) -> ServerEvent:
        while not self._news:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        event = next(iter(self._news))
        del self._news[event]
        return event


async def _send(session: ServerSession, event: ServerEvent) -> None:
    match event:
        case ToolsListChanged():
            await session.send_tool_list_changed()
        case PromptsListChanged():
            await session.send_prompt_list_changed()
        case ResourcesListChanged():
            await session.send_resource_list_changed()
        case ResourceUpdated(uri):
            await session.send_resource_updated(uri)
