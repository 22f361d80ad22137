"""A model of a vendor: asked over the wire, with one way of dealing with everything that goes wrong."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self, Unpack

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from loom_core.errors import ConfigError, LLMError
from loom_core.keys import checked_key, find_key
from loom_core.llm.breaker import CircuitBreaker
from loom_core.llm.interface import ChatOptions, ChatRequest, LLMProvider, LLMResponse, StreamChunk
from loom_core.llm.limits import RateLimits
from loom_core.llm.metering import Meter
from loom_core.llm.prices import load_lists
from loom_core.llm.streamed import StreamedAnswer
from loom_core.llm.wire import Connection
from loom_core.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from types import TracebackType

    import httpx2
    from anyio.lowlevel import EventLoopToken
    from pydantic import SecretStr

    from loom_core.llm.interface import ToolSpec, Usage
    from loom_core.llm.limits import Place
    from loom_core.llm.messages import MessageLike
    from loom_core.llm.metering import Spent
    from loom_core.llm.prices import Prices
    from loom_core.llm.spec import ProviderSpec
    from loom_core.llm.wire import WireClient

__all__ = ["HostedProvider"]


class HostedProvider(LLMProvider):
    """A model of a vendor.

    Each attempt of a request waits for its place in the rate limits, is let through by the circuit breaker,
    and goes over the wire once; `RetryPolicy` says which failures are tried again, and when it is enough. A
    stream is tried again only until its first piece is handed on: what breaks later is `interrupted`. All
    waits end at `RetryPolicy.deadline`, counted from the call. What an answer took is in its usage, and
    summed in `spent`. It may be used in one event loop after the other, but not in two at once.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        *,
        model: str = "",
        api_key: str | SecretStr | None = None,
        base_url: str = "",
        timeout: float = 120.0,
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        limits: RateLimits | None = None,
        prices: Prices | None = None,
        http_client: httpx2.AsyncClient | None = None,
        wire: WireClient | None = None,
    ) -> None:
        """Say whom to ask, and how. Nothing is loaded or connected before the first request.

        Args:
            spec: the vendor.
            model: the model; by default the vendor's usual one.
            api_key: the key; by default what `spec.key_variable` names in the environment, at the first
                request; where the vendor answers nobody without one, also in the keyring.
            base_url: where the vendor's interface is; by default the vendor's usual address.
            timeout: seconds without a sign of life from the vendor, after which an attempt has failed.
            headers: headers for every request besides those of the spec.
            retry: when to try again; by default `RetryPolicy()`.
            breaker: when to leave the model alone; by default one of its own.
            limits: how fast to ask at most; by default there is no limit.
            prices: what the model costs; by default what `prices.list_price` says.
            http_client: what requests are made with; it is not closed here.
            wire: sends the requests in a protocol of your own; key, address, headers, timeout and HTTP client
                are its own business then. It is closed with the provider.

        Raises:
            ConfigError: there is no model or no address, or the key or a header cannot be one.
        """
        model = model or spec.model
        base_url = base_url or spec.base_url
        if not model:
            raise ConfigError(f"No model is chosen for {spec.title}.", advice="Set `model`.")
        self._spec = spec.for_model(model)
        self._model = model
        self._base_url = base_url
        self._retry = retry or RetryPolicy()
        self._breaker = breaker or CircuitBreaker()
        self._limits = limits or RateLimits()
        self._meter = Meter(self._spec, model=model, base_url=base_url, prices=prices)
        self._lists_prices = prices is None
        self._way = wire or Connection(
            spec=self._spec,
            model=model,
            base_url=base_url,
            api_key=None if api_key is None else checked_key(api_key, source="the argument `api_key`"),
            headers=dict(headers or {}),
            timeout=timeout,
            http_client=http_client,
        )
        self._wire: WireClient | None = None
        self._loop: EventLoopToken | None = None  # where the wire was made
        self._connecting = anyio.Lock()

    @property
    def name(self) -> str:
        """The vendor's name, such as `deepseek`."""
        return self._spec.name

    @property
    def model(self) -> str:
        """Which model it asks."""
        return self._model

    @property
    def spec(self) -> ProviderSpec:
        """The vendor, as it is for this model."""
        return self._spec

    @property
    def spent(self) -> Spent:
        """What all requests so far took."""
        return self._meter.spent

    def cost(self, usage: Usage) -> float | None:
        """US dollars for an answer that takes so much, or None where the price is not known."""
        return self._meter.cost(usage)

    def problem(self) -> str:
        """See `LLMProvider.problem`."""
        if not isinstance(self._way, Connection):
            return ""
        package = "anthropic" if self._spec.wire == "anthropic_messages" else "openai"
        if find_spec(package) is None:
            return f"the package {package} is missing: pip install {package}"
        try:
            _ = self._with_key(self._way)
        except LLMError as error:
            return f"{error.message} {error.advice}".rstrip(" .")
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, model={self.model!r}, base_url={self._base_url!r})"

    def estimate(self, messages: Sequence[MessageLike], *, tools: Sequence[ToolSpec] = ()) -> int:
        """About how many tokens a conversation has for this model, by what it reported of earlier ones.

        Raises:
            InvalidInputError: a message cannot be used.
        """
        return self._meter.estimate(ChatRequest.of(messages, {"tools": tools}))

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation; see `LLMProvider.chat`."""
        request = ChatRequest.of(messages, options)
        return await self._retry.run(
            lambda: self._complete(request), title=self._spec.title, provider=self.name
        )

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Answer a conversation piece by piece; see `LLMProvider.chat_stream`.

        There is one `usage` chunk, right before `done`. An answer that is left early, or breaks off, counts
        with an estimate of what came.
        """
        request = ChatRequest.of(messages, options)
        ends = anyio.current_time() + self._retry.deadline
        entered, answer, piece = await self._retry.run(
            lambda: self._begin(request), title=self._spec.title, provider=self.name
        )
        answer.ends = ends
        try:
            async with entered:
                while piece is not None:
                    yield piece
                    piece = await answer.read()
        except LLMError as error:
            raise error.retold(
                f"The answer of {self._spec.title} broke off. {error.message}", failure="interrupted"
            ) from error
        yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer.response)

    async def aclose(self) -> None:
        """Close connections. The provider may be used again: it looks for its key and connects anew."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        try:
            await wire.aclose()
        except RuntimeError:  # connections of an event loop that is over cannot be closed any more
            if self._loop == current_token():
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _complete(self, request: ChatRequest) -> LLMResponse:
        """One attempt at a whole answer."""
        wire = await self._connected()
        async with self._turn(request) as place:
            response = self._meter.measured(request, await wire.complete(request))
            place.tokens = response.usage.input_tokens + response.usage.output_tokens
            return response

    async def _begin(self, request: ChatRequest) -> tuple[AsyncExitStack, StreamedAnswer, StreamChunk | None]:
        """One attempt at the beginning of a stream: what to leave in the end, the answer, its first piece."""
        wire = await self._connected()
        async with AsyncExitStack() as entered:
            place = await entered.enter_async_context(self._turn(request))
            stream = await entered.enter_async_context(aclosing(wire.stream(request)))
            answer = StreamedAnswer(stream, title=self._spec.title, provider=self.name)
            piece = await answer.read()
            self._breaker.note_answer()
            entered.callback(self._settle, request, answer, place)
            return entered.pop_all(), answer, piece

    def _settle(self, request: ChatRequest, answer: StreamedAnswer, place: Place) -> None:
        """Count a stream that is over: finished, left early, or broken off."""
        if answer.response is not None:
            answer.response = self._meter.measured(request, answer.response)
            answer.usage = answer.response.usage
        else:
            answer.usage = self._meter.broken_off(request, "".join(answer.texts), reported=answer.usage)
        place.tokens = answer.usage.input_tokens + answer.usage.output_tokens

    @asynccontextmanager
    async def _turn(self, request: ChatRequest) -> AsyncGenerator[Place]:
        """Around one attempt: within the limits, and seen by the breaker."""
        tokens = self._meter.expect(request) if self._limits.tpm else 0
        async with self._limits.place(tokens) as place:
            if self._breaker.state == "open":
                self._limits.give_back(place)  # the next line refuses
            with self._breaker.request(title=self._spec.title, provider=self.name):
                yield place

    async def _connected(self) -> WireClient:
        """What sends requests; made at the first one of an event loop, as connections belong to theirs."""
        here = current_token()
        if self._wire is not None and self._loop == here:
            return self._wire
        async with self._connecting:
            if self._loop != here:
                await self.aclose()
            if self._wire is None:
                self._wire = await anyio.to_thread.run_sync(self._connect, abandon_on_cancel=True)
                self._loop = here
            return self._wire

    def _connect(self) -> WireClient:
        """Make what sends requests. It imports the SDK and may ask the keyring: to be called in a thread."""
        if self._lists_prices:
            load_lists()
        if not isinstance(self._way, Connection):
            return self._way
        connection = self._with_key(self._way)
        if self._spec.wire == "anthropic_messages":
            from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient

            return AnthropicMessagesClient(connection)
        from loom_core.llm.chat_completions.client import ChatCompletionsClient

        return ChatCompletionsClient(connection)

    def _with_key(self, connection: Connection) -> Connection:
        """With the key of the environment or the keyring, where none was given."""
        if connection.has_key:
            return connection
        variable = self._spec.key_variable
        try:
            key = find_key(variable, keyring=self._spec.needs_key) if variable else None
        except ConfigError as error:
            raise LLMError(
                error.message, advice=error.advice, failure="authentication", provider=self.name
            ) from error
        if key is None and self._spec.needs_key:
            raise LLMError(
                f"There is no key for {self._spec.title}.",
                advice=f"Set the environment variable {variable}, or put it into the keyring under that name."
                if variable
                else "Give it as `api_key`.",
                failure="authentication",
                provider=self.name,
            )
        return replace(connection, api_key=key)
