"""Base of SDK clients and of their response readers, common to both formats."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, LLMError, capitalise
from loom_core.installation import how_to_install
from loom_core.llm.json_body import encode_body
from loom_core.llm.transport.protocol import interrupted_error
from loom_core.sdk_environment import custom_headers
from loom_core.sdk_errors import NoAnswerError, model_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    import httpx2

    from loom_core.errors import ModelFailure
    from loom_core.llm.interface import ChatRequest, LLMResponse, StreamChunk
    from loom_core.llm.transport.protocol import Connection
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["MAX_COUNT", "MAX_LENGTH", "SdkClient", "WireReader", "drain_events", "iter_events"]

_CONNECT_SECONDS = 10.0
_LEAVE_SECONDS = 5.0


class _Sdk(Protocol):
    async def close(self) -> None: ...


class _Stream(Protocol):
    @property
    def response(self) -> httpx2.Response: ...
    async def close(self) -> None: ...


_S = TypeVar("_S", bound=_Sdk)
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Step:
    """A step of a request; closing the connections cancels it."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    left: anyio.Event = field(default_factory=anyio.Event)


class SdkClient(ABC, Generic[_S]):
    """Base of the wire clients that use a vendor's SDK: connections, sending, and errors.

    The SDK sends requests: addresses, keys, errors. Its request and response models are not used: they know
    only its vendor's fields, and cost more time per token than all the rest.
    """

    package: ClassVar[str]
    """Name of the SDK, of the extra that installs it, and of its vendor's provider."""

    def __init__(self, connection: Connection, *, max_length: int = 8 * 2**20) -> None:
        """Set up the client without connecting.

        Args:
            connection: the connection settings.
            max_length: maximum characters of a stream, or bytes of a complete response; maximum bytes of an
                event.
        """
        self._connection = connection
        self._max_length = max_length
        self._client: _S | None = None
        self._steps: list[_Step] = []

    @abstractmethod
    def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """See `WireClient.stream`."""

    @abstractmethod
    def _new_client(self, timeout: httpx2.Timeout) -> _S:
        """Create the SDK's client, with its retries turned off."""

    @abstractmethod
    async def _open(self, client: _S, content: bytes) -> _Stream:
        """Send a request, and wait for the response headers."""

    @abstractmethod
    def _sdk_error(self) -> type[Exception]:
        """Return the base class of the SDK's errors."""

    async def aclose(self) -> None:
        """Close connections; the next request opens new ones. A given HTTP client stays open.

        Requests being sent are cancelled first: nothing would close a connection that opens afterwards.
        """
        with anyio.move_on_after(_LEAVE_SECONDS):
            while self._steps:
                self._steps[0].scope.cancel()
                await self._steps[0].left.wait()
        client, self._client = self._client, None
        if client is not None and self._connection.http_client is None:
            await client.close()

    async def _collect_stream(self, request: ChatRequest) -> LLMResponse:
        """Return the complete response of a model that only streams."""
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                if chunk.response is not None:
                    return chunk.response
        raise AssertionError("a stream ends with its response")

    async def _whole(self, response: httpx2.Response, unreadable: Callable[[str], LLMError]) -> object:
        """Return the JSON value of a response without streaming."""
        body = bytearray()
        async for block in response.aiter_bytes():
            body += block
            if len(body) > self._max_length:
                raise unreadable(f"it has more than {self._max_length} bytes")
        return json.loads(body)

    @asynccontextmanager
    async def _post(self, body: Mapping[str, Any]) -> AsyncGenerator[httpx2.Response]:
        """Send a request; convert errors, also those while the response is read, to `LLMError`."""
        content = encode_body(body)
        client = await self._run_until_closed(self._sdk())
        import httpx2

        stream: _Stream | None = None
        try:
            stream = await self._run_until_closed(self._open(client, content))
            yield stream.response
        except (self._sdk_error(), httpx2.HTTPError, httpx2.InvalidURL, NoAnswerError) as error:
            raise self._to_llm_error(error) from None
        except (ValueError, RecursionError) as error:  # unreadable JSON, headers that cannot be sent
            raise self._to_llm_error(error) from None
        finally:
            if stream is not None:
                await stream.close()

    async def _run_until_closed(self, doing: Awaitable[_T]) -> _T:
        """Await a step of a request, unless the connections are closed.

        Raises:
            LLMError: with failure `interrupted`: they were closed.
        """
        step = _Step()
        self._steps.append(step)
        try:
            with step.scope:
                return await doing
        finally:
            self._steps.remove(step)
            step.left.set()
        raise interrupted_error(self._connection.spec, self._connection.model)

    def _to_llm_error(self, error: Exception) -> LLMError:
        spec = self._connection.spec
        return model_error(
            error,
            title=spec.title,
            provider=spec.name,
            model=self._connection.model,
            key_variable=spec.key_variable,
        )

    async def _sdk(self) -> _S:
        if self._client is None:
            # It takes seconds the first time: do not block the loop.
            await to_thread.run_sync(self._load_sdk, abandon_on_cancel=True)
        if self._client is None:  # another task may have created it in the meantime
            import httpx2

            seconds = self._connection.timeout
            self._client = self._new_client(
                httpx2.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds)),
            )
        return self._client

    def _load_sdk(self) -> None:
        try:
            import_module(self.package)
        except ImportError:
            raise ConfigError(
                f"To ask models of {self._connection.spec.title}, Loom needs the package `{self.package}`.",
                advice=how_to_install(f"loom-mcp-core[{self.package}]"),
            ) from None

    def _headers(self) -> dict[str, str]:
        """Return the headers added to the SDK's; configured ones replace the usual ones."""
        own = {**self._connection.spec.headers, **self._connection.headers}
        names = set(map(str.casefold, own))
        usual = self._usual_headers().items()
        return {**{name: value for name, value in usual if name.casefold() not in names}, **own}

    def _usual_headers(self) -> dict[str, str]:
        """Return the header with the key, in the vendor's form."""
        key = self._connection.api_key
        if key is None:
            return {}
        if self._connection.spec.auth_style == "x-api-key":
            return {"x-api-key": key.get_secret_value()}
        return {"Authorization": f"Bearer {key.get_secret_value()}"}

    def _headers_to_drop(self, *names: str) -> list[str]:
        """Return headers that the SDK would add, and that this vendor must not get.

        Args:
            names: such headers. For another vendor than the SDK's, headers from the environment are added;
                configured headers are excluded.
        """
        unwanted = [*names]
        if self._connection.spec.name != self.package:
            unwanted += custom_headers(self.package)
        own = set(map(str.casefold, self._headers()))
        return [name for name in unwanted if name.casefold() not in own]


_LAST_SECONDS = 0.1


def iter_events(response: httpx2.Response, *, max_size: int) -> AsyncIterator[httpx2.ServerSentEvent]:
    """Iterate over the events of a stream.

    Args:
        response: the HTTP response. Its content type may be wrong or missing: everything but an HTML page is
            read as events.
        max_size: maximum bytes of an event.

    Raises:
        httpx2.HTTPError: during iteration: the connection broke, or there is no event stream.
    """
    import httpx2

    if "html" not in response.headers.get("content-type", ""):
        response.headers["content-type"] = "text/event-stream"
    return aiter(httpx2.EventSource(response, max_event_size=max_size))


async def drain_events(events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """Read the rest of a stream, so that the connection can be reused.

    This takes an instant. If it takes longer, or fails, the connection is closed.
    """
    import httpx2

    with anyio.move_on_after(_LAST_SECONDS):
        try:
            async for _ in events:
                pass
        except httpx2.HTTPError:
            pass


MAX_LENGTH = 8 * 2**20
"""Maximum length of a response in characters."""

MAX_COUNT = 2**53
"""Limit of a reported number of tokens: more is no count, and too large for prices."""


class WireReader:
    """Reads one response; a subclass knows the format.

    Args:
        spec: the vendor.
        model: the model.
        output_tool: the tool whose arguments are the text of the response, or empty.
        max_length: maximum length of the response in characters.
    """

    def __init__(
        self, spec: ProviderSpec, *, model: str, output_tool: str = "", max_length: int = MAX_LENGTH
    ) -> None:
        self._spec = spec
        self._asked = model
        self._output_tool = output_tool
        self._max_length = max_length
        self._length: int = 0
        self._model = ""
        self._finish = ""

    def unreadable(self, why: str) -> LLMError:
        """Return the error of an unreadable response."""
        return self._error("unreadable", "sent an unreadable response of", f"Why: {why}.")

    def _broken_off(self) -> LLMError:
        return self._error("connection", "sent an incomplete response of", "The stream ended early.")

    def _too_long(self) -> LLMError:
        return self.unreadable(f"it has more than {self._max_length} characters")

    def _error(self, failure: ModelFailure, did: str, why: str) -> LLMError:
        return LLMError(
            f"{capitalise(self._spec.title)} {did} {self._asked}. {why}",
            advice="Try again, or use another model.",
            failure=failure,
            provider=self._spec.name,
        )
