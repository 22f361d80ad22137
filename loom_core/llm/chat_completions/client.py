"""Client of the chat completions API, with OpenAI's SDK."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom_core.llm.chat_completions.body import chat_body
from loom_core.llm.chat_completions.reading import AnswerReader
from loom_core.llm.interface import StreamChunk
from loom_core.llm.transport.sdk_client import SdkClient, drain_events, iter_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from openai import AsyncOpenAI, AsyncStream

    from loom_core.llm.interface import ChatRequest, LLMResponse

__all__ = ["ChatCompletionsClient"]


class ChatCompletionsClient(SdkClient["AsyncOpenAI"]):
    """`WireClient` for vendors with the chat completions API."""

    package = "openai"

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """Return the complete response to a request.

        Raises:
            LLMError: there is no readable response.
            InvalidInputError: the vendor cannot take the request.
            ConfigError: the SDK is not installed.
        """
        if self._connection.spec.stream_only:
            return await self._collect_stream(request)
        body, reader = self._prepare(request, stream=False)
        async with self._post(body) as response:
            await self._read_whole(response, reader)
            return reader.response()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """Stream the response to a request; closing the iterator closes the connection.

        Raises:
            LLMError: there is no readable response.
            InvalidInputError: the vendor cannot take the request.
            ConfigError: the SDK is not installed.
        """
        body, reader = self._prepare(request, stream=True)
        async with self._post(body) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                # Some servers ignore `stream`, and some report errors this way.
                pieces = await self._read_whole(response, reader)
            else:
                events = iter_events(response, max_size=self._max_length)
                async for event in events:
                    if event.data.startswith("[DONE]"):
                        await drain_events(events)
                        break
                    if event.data:
                        for piece in reader.feed(json.loads(event.data)):
                            yield piece
                pieces = reader.flush()
            answer = reader.response()
        for piece in pieces:
            yield piece
        if not answer.usage.estimated:
            yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer)

    def _prepare(self, request: ChatRequest, *, stream: bool) -> tuple[dict[str, Any], AnswerReader]:
        spec, model = self._connection.spec, self._connection.model
        body, supported = chat_body(request, spec, model=model, stream=stream)
        reader = AnswerReader(
            spec, model=model, output_tool=supported.output_tool, max_length=self._max_length
        )
        return body, reader

    async def _read_whole(self, response: httpx2.Response, reader: AnswerReader) -> list[StreamChunk]:
        """Read a response without streaming, one JSON object."""
        return reader.feed(await self._whole(response, reader.unreadable)) + reader.flush()

    def _new_client(self, timeout: httpx2.Timeout) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        client = AsyncOpenAI(
            # Without a key, the SDK would take OpenAI's from the environment, whatever the vendor.
            api_key="unused",
            base_url=self._connection.base_url,
            timeout=timeout,
            max_retries=0,
            default_headers=self._headers(),
            http_client=self._connection.http_client,
        )
        if self._connection.spec.name != self.package:
            client.organization = client.project = None
        return client

    async def _open(self, client: AsyncOpenAI, content: bytes) -> AsyncStream[object]:
        from openai import AsyncStream, Omit

        return await client.post(
            "/chat/completions",
            content=content,
            cast_to=object,
            options={
                "headers": {name: Omit() for name in self._headers_to_drop("Authorization")},
                "security": {"bearer_auth": True},
            },
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _sdk_error(self) -> type[Exception]:
        from openai import OpenAIError

        return OpenAIError
