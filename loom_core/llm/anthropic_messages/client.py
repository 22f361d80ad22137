"""Single requests in the messages format, by the SDK of Anthropic."""

from __future__ import annotations

import json
import os
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.llm.anthropic_messages.body import messages_body
from loom_core.llm.anthropic_messages.reading import MessageReader
from loom_core.llm.events import events_of, read_out
from loom_core.llm.interface import StreamChunk
from loom_core.sdk_errors import NoAnswerError, model_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import httpx2
    from anthropic import AsyncAnthropic, Omit

    from loom_core.errors import LLMError
    from loom_core.llm.interface import ChatRequest, LLMResponse
    from loom_core.llm.wire import Connection

__all__ = ["AnthropicMessagesClient"]

_CONNECT_SECONDS = 10.0
_PATH = "/v1/messages"


class AnthropicMessagesClient:
    """A `WireClient` for Anthropic, and for servers that speak the messages format as well.

    The SDK carries requests: addresses, keys, versions, errors. Its models are not used, neither of requests
    nor of answers: they know Anthropic's fields only, and cost more time for each token than all the rest.
    """

    def __init__(self, connection: Connection, *, max_length: int = 8 * 2**20) -> None:
        """Connect to nothing yet.

        Args:
            connection: where the model is, and how it is asked.
            max_length: letters that an answer may have, or bytes where it comes as a whole; bytes of an event
                of a stream.
        """
        self._connection = connection
        self._max_length = max_length
        self._client: AsyncAnthropic | None = None

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """The whole answer to a request.

        Raises:
            LLMError: there is none that can be read.
            InvalidInputError: the vendor cannot be asked this.
            ConfigError: the SDK is not installed.
        """
        if self._connection.spec.stream_only:
            return await self._collected(request)
        body, reader = self._prepared(request)
        async with self._posted(body) as response:
            reader.feed_whole(await self._whole(response, reader))
        return reader.response()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """The answer to a request, piece by piece; closing the iterator closes the connection.

        Raises:
            LLMError: there is none that can be read.
            InvalidInputError: the vendor cannot be asked this.
            ConfigError: the SDK is not installed.
        """
        body, reader = self._prepared(request)
        async with self._posted({**body, "stream": True}) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                # Some servers do not stream, and some tell of errors so.
                for chunk in reader.feed_whole(await self._whole(response, reader)):
                    yield chunk
            else:
                events = events_of(response, max_size=self._max_length)
                async for event in events:
                    if event.data and event.data != "[DONE]":
                        for chunk in reader.feed(json.loads(event.data)):
                            yield chunk
                    if reader.ended:
                        await read_out(events)
                        break
        answer = reader.response()
        if not answer.usage.estimated:
            yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer)

    async def aclose(self) -> None:
        """Close connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._connection.http_client is None:
            await client.close()

    async def _collected(self, request: ChatRequest) -> LLMResponse:
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                if chunk.response is not None:
                    return chunk.response
        raise AssertionError("a stream ends with its response")

    def _prepared(self, request: ChatRequest) -> tuple[dict[str, Any], MessageReader]:
        connection = self._connection
        body, wishes = messages_body(request, connection.spec, model=connection.model)
        reader = MessageReader(
            connection.spec,
            model=connection.model,
            output_tool=wishes.output_tool,
            max_length=self._max_length,
        )
        return body, reader

    async def _whole(self, response: httpx2.Response, reader: MessageReader) -> object:
        body = bytearray()
        async for block in response.aiter_bytes():
            body += block
            if len(body) > self._max_length:
                raise reader.unreadable(f"It has more than {self._max_length} bytes.")
        return json.loads(body)

    @asynccontextmanager
    async def _posted(self, body: Mapping[str, Any]) -> AsyncGenerator[httpx2.Response]:
        """Send a request; what goes wrong with it, or while its answer is read, becomes an `LLMError`."""
        client = await self._sdk()
        import httpx2
        from anthropic import AnthropicError, AsyncStream

        stream: AsyncStream[object] | None = None
        try:
            stream = await client.post(
                _PATH,
                body=body,
                cast_to=object,
                options={"headers": self._omitted()},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            yield stream.response
        except (AnthropicError, httpx2.HTTPError, httpx2.InvalidURL, NoAnswerError) as error:
            raise self._failed(error) from None
        except (ValueError, RecursionError) as error:  # JSON that cannot be read, headers that cannot be sent
            raise self._failed(error) from None
        finally:
            if stream is not None:
                await stream.close()

    def _failed(self, error: Exception) -> LLMError:
        spec = self._connection.spec
        return model_error(
            error,
            title=spec.title,
            provider=spec.name,
            model=self._connection.model,
            key_variable=spec.key_variable,
        )

    async def _sdk(self) -> AsyncAnthropic:
        if self._client is None:
            # Seconds of work, the first time: others go on meanwhile.
            await to_thread.run_sync(self._load_sdk)
        return self._client or self._new_client()

    def _load_sdk(self) -> None:
        try:
            import_module("anthropic")
        except ImportError:
            raise ConfigError(
                f"To ask models of {self._connection.spec.title}, Loom needs the package `anthropic`.",
                advice="Install it: pip install 'loom-mcp-core[anthropic]'",
            ) from None

    def _new_client(self) -> AsyncAnthropic:
        import httpx2
        from anthropic import AsyncAnthropic

        connection = self._connection
        key = connection.api_key
        self._client = AsyncAnthropic(
            # Without any, the SDK takes what it finds in the environment, whoever is asked.
            api_key="unused" if key is None else key.get_secret_value(),
            base_url=connection.base_url,
            timeout=httpx2.Timeout(connection.timeout, connect=min(_CONNECT_SECONDS, connection.timeout)),
            max_retries=0,
            default_headers=self._headers(),
            http_client=connection.http_client,
        )
        return self._client

    def _headers(self) -> dict[str, str]:
        return {**self._connection.spec.headers, **self._connection.headers}

    def _omitted(self) -> dict[str, Omit]:
        """Headers that the SDK would send by itself, and that are not for this vendor.

        That is a key where there is none, and what the environment has for Anthropic where another one is
        asked.
        """
        from anthropic import Omit

        names = ["Authorization"] if self._connection.api_key is None else []
        if self._connection.spec.name != "anthropic":
            lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
            names += [line.partition(":")[0].strip() for line in lines if ":" in line]
        own = set(map(str.casefold, self._headers()))
        return {name: Omit() for name in names if name.casefold() not in own}
