"""Single requests in the chat-completions format, by the SDK of OpenAI."""

from __future__ import annotations

import json
import os
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import ConfigError, LLMError
from loom_core.llm.chat_completions.body import chat_body
from loom_core.llm.chat_completions.reading import AnswerReader
from loom_core.llm.events import events_of, read_out
from loom_core.llm.interface import StreamChunk
from loom_core.sdk_errors import NoAnswerError, model_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import httpx2
    from openai import AsyncOpenAI, Omit

    from loom_core.llm.interface import ChatRequest, LLMResponse
    from loom_core.llm.wire import Connection

__all__ = ["ChatCompletionsClient"]

_CONNECT_SECONDS = 10.0
_PATH = "/chat/completions"


class ChatCompletionsClient:
    """A `WireClient` for vendors that speak the chat-completions format.

    The SDK carries requests: addresses, keys, errors. Its models are not used, neither of requests nor of
    answers: they know OpenAI's fields only, and cost more time for each token than all the rest.
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
        self._client: AsyncOpenAI | None = None

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """The whole answer to a request.

        Raises:
            LLMError: there is none that can be read.
            InvalidInputError: the vendor cannot be asked this.
            ConfigError: the SDK is not installed.
        """
        if self._connection.spec.stream_only:
            return await self._collected(request)
        body, reader = self._prepared(request, stream=False)
        async with self._post(body) as response:
            await self._read_whole(response, reader)
            return reader.response()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """The answer to a request, piece by piece; closing the iterator closes the connection.

        Raises:
            LLMError: there is none that can be read.
            InvalidInputError: the vendor cannot be asked this.
            ConfigError: the SDK is not installed.
        """
        body, reader = self._prepared(request, stream=True)
        async with self._post(body) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                # Some servers ignore `stream`, and some tell of errors so.
                pieces = await self._read_whole(response, reader)
            else:
                events = events_of(response, max_size=self._max_length)
                async for event in events:
                    if event.data.startswith("[DONE]"):
                        await read_out(events)
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

    async def aclose(self) -> None:
        """Close connections; the next request opens new ones. A client that was given stays open."""
        client, self._client = self._client, None
        if client is not None and self._connection.http_client is None:
            await client.close()

    async def _collected(self, request: ChatRequest) -> LLMResponse:
        async with aclosing(self.stream(request)) as pieces:
            async for piece in pieces:
                if piece.response is not None:
                    return piece.response
        raise AssertionError("a stream ends with its response")

    def _prepared(self, request: ChatRequest, *, stream: bool) -> tuple[dict[str, Any], AnswerReader]:
        spec, model = self._connection.spec, self._connection.model
        body, wishes = chat_body(request, spec, model=model, stream=stream)
        reader = AnswerReader(spec, model=model, output_tool=wishes.output_tool, max_length=self._max_length)
        return body, reader

    async def _read_whole(self, response: httpx2.Response, reader: AnswerReader) -> list[StreamChunk]:
        """Read an answer that comes as one JSON object."""
        body = bytearray()
        async for block in response.aiter_bytes():
            body += block
            if len(body) > self._max_length:
                raise reader.unreadable(f"it has more than {self._max_length} bytes")
        return reader.feed(json.loads(body)) + reader.flush()

    @asynccontextmanager
    async def _post(self, body: Mapping[str, Any]) -> AsyncGenerator[httpx2.Response]:
        """Send a request; what goes wrong with it, or while its answer is read, becomes an `LLMError`."""
        client = await self._sdk()
        import httpx2
        from openai import AsyncStream, OpenAIError

        stream: AsyncStream[object] | None = None
        try:
            stream = await client.post(
                _PATH,
                body=body,
                cast_to=object,
                options={"headers": self._omitted(), "security": {"bearer_auth": True}},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            yield stream.response
        except (OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, NoAnswerError) as error:
            raise self._failed(error) from None
        except (ValueError, RecursionError) as error:  # of JSON that cannot be read
            raise self._failed(error) from None
        finally:
            if stream is not None:
                await stream.close()

    def _failed(self, error: Exception) -> LLMError:
        connection = self._connection
        return model_error(
            error,
            title=connection.spec.title,
            provider=connection.spec.name,
            model=connection.model,
            key_variable=connection.spec.key_variable,
        )

    async def _sdk(self) -> AsyncOpenAI:
        if self._client is None:
            # Seconds of work, the first time: others go on meanwhile.
            await to_thread.run_sync(self._load_sdk)
        return self._client or self._new_client()

    def _load_sdk(self) -> None:
        try:
            import_module("openai")
        except ImportError:
            raise ConfigError(
                f"To ask models of {self._connection.spec.title}, Loom needs the package `openai`.",
                advice="Install it: pip install 'loom-mcp-core[openai]'",
            ) from None

    def _new_client(self) -> AsyncOpenAI:
        import httpx2
        from openai import AsyncOpenAI

        connection = self._connection
        self._client = AsyncOpenAI(
            # Without any, the SDK takes the one of OpenAI from the environment, whoever is asked.
            api_key="unused",
            base_url=connection.base_url,
            timeout=httpx2.Timeout(connection.timeout, connect=min(_CONNECT_SECONDS, connection.timeout)),
            max_retries=0,
            default_headers=self._headers(),
            http_client=connection.http_client,
        )
        if connection.spec.name != "openai":
            self._client.organization = self._client.project = None
        return self._client

    def _headers(self) -> dict[str, str]:
        """Our own headers; who sets `Authorization` needs no key."""
        connection = self._connection
        headers = {**connection.spec.headers, **connection.headers}
        if connection.api_key is not None and "authorization" not in map(str.casefold, headers):
            headers["Authorization"] = f"Bearer {connection.api_key.get_secret_value()}"
        return headers

    def _omitted(self) -> dict[str, Omit]:
        """Headers that the SDK would send by itself, and that are not for this vendor.

        That is a key where there is none, and what the environment has for OpenAI where another one is asked.
        """
        from openai import Omit

        names = ["Authorization"]
        if self._connection.spec.name != "openai":
            lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
            names += [line.partition(":")[0].strip() for line in lines if ":" in line]
        own = set(map(str.casefold, self._headers()))
        return {name: Omit() for name in names if name.casefold() not in own}
