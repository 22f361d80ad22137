"""Client of the Messages API, with Anthropic's SDK."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom_core.llm.anthropic_messages.body import messages_body
from loom_core.llm.anthropic_messages.reading import MessageReader
from loom_core.llm.interface import StreamChunk
from loom_core.llm.transport.sdk_client import SdkClient, drain_events, iter_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from anthropic import AsyncAnthropic, AsyncStream

    from loom_core.llm.interface import ChatRequest, LLMResponse

__all__ = ["AnthropicMessagesClient"]

_VERSION_OF_KEYS = "2023-06-01"
"""The API version that takes keys as `x-api-key`: later ones take bearer tokens."""


class AnthropicMessagesClient(SdkClient["AsyncAnthropic"]):
    """`WireClient` for Anthropic and for servers with the same API."""

    package = "anthropic"

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """Return the complete response to a request.

        Raises:
            LLMError: there is no readable response.
            InvalidInputError: the vendor cannot take the request.
            ConfigError: the SDK is not installed.
        """
        if self._connection.spec.stream_only:
            return await self._collect_stream(request)
        body, reader = self._prepare(request)
        async with self._post(body) as response:
            reader.feed_whole(await self._whole(response, reader.unreadable))
        return reader.response()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """Stream the response to a request; closing the iterator closes the connection.

        Raises:
            LLMError: there is no readable response.
            InvalidInputError: the vendor cannot take the request.
            ConfigError: the SDK is not installed.
        """
        body, reader = self._prepare(request)
        async with self._post({**body, "stream": True}) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                # Some servers do not stream, and some report errors this way.
                for chunk in reader.feed_whole(await self._whole(response, reader.unreadable)):
                    yield chunk
            else:
                events = iter_events(response, max_size=self._max_length)
                async for event in events:
                    if event.data and event.data != "[DONE]":
                        for chunk in reader.feed(json.loads(event.data)):
                            yield chunk
                    if reader.ended:
                        await drain_events(events)
                        break
        answer = reader.response()
        if not answer.usage.estimated:
            yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer)

    def _prepare(self, request: ChatRequest) -> tuple[dict[str, Any], MessageReader]:
        connection = self._connection
        body, supported = messages_body(request, connection.spec, model=connection.model)
        reader = MessageReader(
            connection.spec,
            model=connection.model,
            output_tool=supported.output_tool,
            max_length=self._max_length,
        )
        return body, reader

    def _new_client(self, timeout: httpx2.Timeout) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            # Without a key, the SDK would take one from the environment, whatever the vendor.
            api_key="unused",
            # The address of other vendors' APIs ends with /v1, which is part of the path here.
            base_url=self._connection.base_url.rstrip("/").removesuffix("/v1"),
            timeout=timeout,
            max_retries=0,
            default_headers=self._headers(),
            http_client=self._connection.http_client,
            # Loom makes the span, and the vendor need not know our traces.
            open_telemetry={"traces": False, "propagation": False},
        )

    async def _open(self, client: AsyncAnthropic, content: bytes) -> AsyncStream[object]:
        from anthropic import AsyncStream, Omit

        return await client.post(
            "/v1/messages",
            content=content,
            cast_to=object,
            options={"headers": {name: Omit() for name in self._headers_to_drop("Authorization")}},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _usual_headers(self) -> dict[str, str]:
        headers = super()._usual_headers()
        if self._connection.spec.auth_style == "x-api-key":
            headers["anthropic-version"] = _VERSION_OF_KEYS
        return headers

    def _sdk_error(self) -> type[Exception]:
        from anthropic import AnthropicError

        return AnthropicError
