"""Hosted model of a vendor: rate limits, circuit breaker, retries and deadline around the wire client."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Unpack

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LLMError, capitalise
from loom_core.keys import check_key
from loom_core.llm.accounting.metering import Meter
from loom_core.llm.accounting.prices import list_window, load_lists
from loom_core.llm.accounting.tracing import chat_span, chat_stream_span
from loom_core.llm.hosted.connection import ConnectionManager
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.interface import ChatOptions, ChatRequest, LLMProvider, LLMResponse, StreamChunk
from loom_core.llm.transport.protocol import Connection
from loom_core.net.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    import httpx2
    from pydantic import SecretStr

    from loom_core.llm.accounting.metering import UsageTotals
    from loom_core.llm.accounting.prices import Prices
    from loom_core.llm.hosted.limits import RequestPermit
    from loom_core.llm.interface import ToolSpec, Usage
    from loom_core.llm.messages import MessageLike
    from loom_core.llm.transport.protocol import WireClient
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["HostedProvider", "StreamedAnswer"]


class HostedProvider(LLMProvider):
    """A model of a vendor.

    Each attempt of a request waits for a permit of the rate limits, passes the circuit breaker, and goes over
    the wire once; `RetryPolicy` says which failures are retried, and how often. A stream is retried only
    until its first chunk is emitted: a later failure is `interrupted`. All waits end at
    `RetryPolicy.deadline`, counted from the call. `spent` sums up the usage of all responses. A provider may
    be used in one event loop after the other, but not in two at once.
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
        """Set up the provider. Nothing is loaded or connected before the first request.

        Args:
            spec: the vendor.
            model: the model; by default the vendor's usual one.
            api_key: the key; by default what `spec.key_variable` names in the environment, at the first
                request; if the vendor requires a key, also in the keyring.
            base_url: address of the vendor's API; by default the vendor's usual one.
            timeout: seconds without data from the vendor, after which an attempt has failed.
            headers: headers of every request, added to those of the spec.
            retry: the retry policy; by default `RetryPolicy()`.
            breaker: the circuit breaker; by default a new one.
            limits: the rate limits; by default none.
            prices: prices of the model; by default those of `prices.list_price`.
            http_client: the HTTP client; it is not closed here.
            wire: a wire client for a custom protocol; it then handles key, address, headers, timeout and
                HTTP client itself. It is closed with the provider.

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
        key = None if api_key is None else check_key(api_key, source="the argument `api_key`")
        self._others: dict[str, HostedProvider] = {}
        self._other = (
            None
            if wire
            else partial(
                HostedProvider,
                spec,
                base_url=base_url,
                api_key=key,
                timeout=timeout,
                headers=headers,
                retry=self._retry,
                limits=self._limits,
                http_client=http_client,
            )
        )
        way = wire or Connection(
            spec=self._spec,
            model=model,
            base_url=base_url,
            api_key=key,
            headers=dict(headers or {}),
            timeout=timeout,
            http_client=http_client,
        )
        self._connection = ConnectionManager(
            way, spec=self._spec, model=model, before=load_lists if prices is None else None
        )

    @property
    def name(self) -> str:
        """The vendor's name, such as `deepseek`."""
        return self._spec.name

    @property
    def model(self) -> str:
        """The model."""
        return self._model

    @property
    def spec(self) -> ProviderSpec:
        """The vendor, as it is for this model."""
        return self._spec

    @property
    def takes_images(self) -> bool:
        """Whether this model of the vendor takes images."""
        return self._spec.images

    @property
    def spent(self) -> UsageTotals:
        """Usage totals of all requests so far, those to other models (`with_model`) included."""
        return sum((other.spent for other in self._others.values()), self._meter.spent)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a usage in US dollars, or None if the price is unknown."""
        return self._meter.cost(usage)

    def window(self) -> int | None:
        """Return the context window by the spec, else by the price lists; see `LLMProvider.window`."""
        return self._spec.window or list_window(
            provider=self.name, model=self._model, base_url=self._base_url
        )

    def problem(self) -> str:
        """See `LLMProvider.problem`."""
        return self._connection.problem()

    def with_model(self, model: str) -> HostedProvider:
        """Return a provider of another model of the vendor; it is kept, and closed with this one.

        It has the same key, address, headers and limits, but a separate circuit breaker and usage, and the
        listed prices.

        Raises:
            InvalidInputError: this provider has a custom wire client.
        """
        if model == self._model:
            return self
        if model not in self._others:
            if self._other is None:
                raise InvalidInputError(
                    f"This provider's custom wire client is for {self._model} only.",
                    advice=f"Make another provider for {model}.",
                )
            self._others[model] = self._other(model=model, breaker=self._breaker.renew())
        return self._others[model]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, model={self.model!r}, base_url={self._base_url!r})"

    def estimate(self, messages: Sequence[MessageLike], *, tools: Sequence[ToolSpec] = ()) -> int:
        """Estimate the tokens of a conversation for this model, corrected by earlier reports.

        Raises:
            InvalidInputError: a message cannot be used.
        """
        return self._meter.estimate(ChatRequest.of(messages, {"tools": tools}))

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Answer a conversation; see `LLMProvider.chat`."""
        request, closings = ChatRequest.of(messages, options), self._connection.closings
        if request.model not in {"", self._model}:
            return await self.with_model(request.model).chat(messages, **options)
        with chat_span(self, request) as told:
            response = await self._retry.run(
                lambda: self._complete(request, closings), title=self._spec.title, provider=self.name
            )
            told.record_response(response)
            return response

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Answer a conversation piece by piece; see `LLMProvider.chat_stream`.

        There is one `usage` chunk, right before `done`. A response that is closed early, or breaks off,
        counts with an estimate of its received part.
        """
        request, closings = ChatRequest.of(messages, options), self._connection.closings
        if request.model not in {"", self._model}:
            async with aclosing(self.with_model(request.model).chat_stream(messages, **options)) as stream:
                async for chunk in stream:
                    yield chunk
            return
        ends = anyio.current_time() + self._retry.deadline
        with chat_stream_span(self, request) as told:
            entered, answer, piece = await self._retry.run(
                lambda: self._begin(request, closings), title=self._spec.title, provider=self.name
            )
            answer.ends = ends
            told.record_chunk()
            try:
                async with entered:
                    while piece is not None:
                        yield piece
                        piece = await answer.read()
            except LLMError as error:
                raise error.reword(
                    f"The answer of {self._spec.title} broke off. {error.message}", failure="interrupted"
                ) from error
            finally:  # also if the stream is closed early
                told.record_end(answer.response, answer.usage)
        yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer.response)

    async def aclose(self) -> None:
        """Close connections. Requests in progress fail as `interrupted`.

        The provider may be used again: it looks up its key again and reconnects.
        """
        await self._connection.aclose()
        for other in self._others.values():
            await other.aclose()

    async def _complete(self, request: ChatRequest, closings: int) -> LLMResponse:
        """Make one attempt at a complete response; `closings` is that of the request's start."""
        wire = await self._connection.open(closings=closings)
        async with self._attempt(request, closings) as place:
            response = self._meter.record_response(request, await wire.complete(request))
            place.tokens = response.usage.input_tokens + response.usage.output_tokens
            return response

    async def _begin(
        self, request: ChatRequest, closings: int
    ) -> tuple[AsyncExitStack, StreamedAnswer, StreamChunk | None]:
        """Make one attempt to open a stream; return its exit stack, the response, and the first chunk."""
        wire = await self._connection.open(closings=closings)
        async with AsyncExitStack() as entered:
            place = await entered.enter_async_context(self._attempt(request, closings))
            stream = await entered.enter_async_context(aclosing(wire.stream(request)))
            answer = StreamedAnswer(stream, title=self._spec.title, provider=self.name)
            piece = await answer.read()
            self._breaker.record_success()
            entered.callback(self._settle, request, answer, place)
            return entered.pop_all(), answer, piece

    def _settle(self, request: ChatRequest, answer: StreamedAnswer, place: RequestPermit) -> None:
        """Record a stream that is over: finished, closed early, or broken off."""
        if answer.response is not None:
            answer.response = self._meter.record_response(request, answer.response)
            answer.usage = answer.response.usage
        else:
            answer.usage = self._meter.record_partial(request, "".join(answer.texts), reported=answer.usage)
        place.tokens = answer.usage.input_tokens + answer.usage.output_tokens

    @asynccontextmanager
    async def _attempt(self, request: ChatRequest, closings: int) -> AsyncGenerator[RequestPermit]:
        """Guard one attempt by the rate limits and the circuit breaker."""
        tokens = self._meter.expect(request) if self._limits.tpm else 0
        async with self._limits.acquire(tokens) as place:
            if self._breaker.state == "open" or self._connection.closings != closings:
                self._limits.release(place)  # one of the next lines raises
            self._connection.check(closings=closings)
            with self._breaker.request(title=self._spec.title, provider=self.name):
                yield place


class StreamedAnswer:
    """One streamed response.

    Attributes:
        ends: its deadline, by `anyio.current_time`; none until it is set.
        texts: received pieces of text, reasoning and tool calls.
        usage: the usage that the vendor reported so far, if any.
        response: the complete response, once it is there.
    """

    def __init__(self, stream: AsyncIterator[StreamChunk], *, title: str, provider: str) -> None:
        """Wrap a stream; read nothing yet.

        Args:
            stream: the chunks from the wire.
            title: display name of the vendor, for messages.
            provider: `LLMError.provider`.
        """
        self.ends = math.inf
        self.texts: list[str] = []
        self.usage: Usage | None = None
        self.response: LLMResponse | None = None
        self._stream = stream
        self._title = capitalise(title)
        self._provider = provider

    async def read(self) -> StreamChunk | None:
        """Return the next chunk, or None when the response is complete.

        Raises:
            LLMError: there is none; with failure `interrupted`, if it is not in time.
        """
        while True:
            chunk = await self._next()
            if chunk is None:
                raise LLMError(
                    f"{self._title} ended its answer without saying that it is finished.",
                    failure="unreadable",
                    provider=self._provider,
                )
            if chunk.response is not None:
                self.response = chunk.response
                return None
            if chunk.kind != "usage":
                self.texts.append(chunk.tool_call.arguments if chunk.tool_call else chunk.text)
                return chunk
            self.usage = chunk.usage

    async def _next(self) -> StreamChunk | None:
        # The wire's timeout is not enough: a vendor can send keep-alives for ever, without a response.
        with anyio.move_on_after(self.ends - anyio.current_time()):
            return await anext(self._stream, None)
        raise LLMError(
            f"{self._title} did not finish its answer before the deadline.",
            advice="Ask for less at once, or allow a longer `deadline`.",
            failure="interrupted",
            provider=self._provider,
        )
