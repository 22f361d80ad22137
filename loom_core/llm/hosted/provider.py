"""A model of a vendor: asked over the wire, with one way of dealing with everything that goes wrong."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LLMError, capitalised
from loom_core.keys import checked_key
from loom_core.llm.accounting.metering import Meter
from loom_core.llm.accounting.prices import list_window, load_lists
from loom_core.llm.accounting.tracing import chat_span, chat_stream_span
from loom_core.llm.hosted.breaker import CircuitBreaker
from loom_core.llm.hosted.connection import ConnectionManager
from loom_core.llm.hosted.limits import RateLimits
from loom_core.llm.interface import ChatOptions, ChatRequest, LLMProvider, LLMResponse, StreamChunk
from loom_core.llm.transport.protocol import Connection
from loom_core.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from types import TracebackType

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
        key = None if api_key is None else checked_key(api_key, source="the argument `api_key`")
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
        self._line = ConnectionManager(
            way, spec=self._spec, model=model, before=load_lists if prices is None else None
        )

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
    def spent(self) -> UsageTotals:
        """Tokens and cost of all requests so far, those to other models (`with_model`) included."""
        return sum((other.spent for other in self._others.values()), self._meter.spent)

    def cost(self, usage: Usage) -> float | None:
        """US dollars for an answer that takes so much, or None where the price is not known."""
        return self._meter.cost(usage)

    def window(self) -> int | None:
        """What the vendor's row says, else the lists of models; see `LLMProvider.window`."""
        return self._spec.window or list_window(
            provider=self.name, model=self._model, base_url=self._base_url
        )

    def problem(self) -> str:
        """See `LLMProvider.problem`."""
        return self._line.problem()

    def with_model(self, model: str) -> HostedProvider:
        """Return a provider of another model of the vendor; it is kept, and closed with this one.

        It has the same key, address, headers and limits, but a circuit breaker and usage of its own, and the
        price of its list.

        Raises:
            InvalidInputError: this provider sends its requests in a protocol of its own.
        """
        if model == self._model:
            return self
        if model not in self._others:
            if self._other is None:
                raise InvalidInputError(
                    f"This provider asks {self._model} only, in a protocol of its own.",
                    advice=f"Make another provider for {model}.",
                )
            self._others[model] = self._other(model=model)
        return self._others[model]

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
        request, closings = ChatRequest.of(messages, options), self._line.closings
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

        There is one `usage` chunk, right before `done`. An answer that is left early, or breaks off, counts
        with an estimate of what came.
        """
        request, closings = ChatRequest.of(messages, options), self._line.closings
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
                raise error.retold(
                    f"The answer of {self._spec.title} broke off. {error.message}", failure="interrupted"
                ) from error
            finally:  # also where it is left early
                told.record_end(answer.response, answer.usage)
        yield StreamChunk("usage", usage=answer.usage)
        yield StreamChunk("done", response=answer.response)

    async def aclose(self) -> None:
        """Close connections. Requests that are under way fail, as `interrupted`.

        The provider may be used again: it looks for its key and connects anew.
        """
        await self._line.aclose()
        for other in self._others.values():
            await other.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _complete(self, request: ChatRequest, closings: int) -> LLMResponse:
        """One attempt at a whole answer, for a request that began when the line was closed so often."""
        wire = await self._line.open(closings=closings)
        async with self._attempt(request, closings) as place:
            response = self._meter.record_response(request, await wire.complete(request))
            place.tokens = response.usage.input_tokens + response.usage.output_tokens
            return response

    async def _begin(
        self, request: ChatRequest, closings: int
    ) -> tuple[AsyncExitStack, StreamedAnswer, StreamChunk | None]:
        """One attempt at the beginning of a stream: what to leave in the end, the answer, its first piece."""
        wire = await self._line.open(closings=closings)
        async with AsyncExitStack() as entered:
            place = await entered.enter_async_context(self._attempt(request, closings))
            stream = await entered.enter_async_context(aclosing(wire.stream(request)))
            answer = StreamedAnswer(stream, title=self._spec.title, provider=self.name)
            piece = await answer.read()
            self._breaker.note_answer()
            entered.callback(self._settle, request, answer, place)
            return entered.pop_all(), answer, piece

    def _settle(self, request: ChatRequest, answer: StreamedAnswer, place: RequestPermit) -> None:
        """Count a stream that is over: finished, left early, or broken off."""
        if answer.response is not None:
            answer.response = self._meter.record_response(request, answer.response)
            answer.usage = answer.response.usage
        else:
            answer.usage = self._meter.record_partial(request, "".join(answer.texts), reported=answer.usage)
        place.tokens = answer.usage.input_tokens + answer.usage.output_tokens

    @asynccontextmanager
    async def _attempt(self, request: ChatRequest, closings: int) -> AsyncGenerator[RequestPermit]:
        """Around one attempt: within the limits, and seen by the breaker."""
        tokens = self._meter.expect(request) if self._limits.tpm else 0
        async with self._limits.acquire(tokens) as place:
            if self._breaker.state == "open" or self._line.closings != closings:
                self._limits.release(place)  # one of the next lines refuses
            self._line.check(closings=closings)
            with self._breaker.request(title=self._spec.title, provider=self.name):
                yield place


class StreamedAnswer:
    """One answer that comes piece by piece.

    Attributes:
        ends: when it has to be over, by `anyio.current_time`; never, until somebody sets it.
        texts: what came so far of text, reasoning and tool calls, in pieces.
        usage: what the vendor said of its usage so far, if anything.
        response: the whole answer, once it is there.
    """

    def __init__(self, stream: AsyncIterator[StreamChunk], *, title: str, provider: str) -> None:
        """Read nothing yet.

        Args:
            stream: what comes from the wire.
            title: whom people know the vendor as, for messages.
            provider: `LLMError.provider`.
        """
        self.ends = math.inf
        self.texts: list[str] = []
        self.usage: Usage | None = None
        self.response: LLMResponse | None = None
        self._stream = stream
        self._title = capitalised(title)
        self._provider = provider

    async def read(self) -> StreamChunk | None:
        """The next piece, or None when the answer is whole.

        Raises:
            LLMError: it does not come; of failure `interrupted`, if not in time.
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
        # The wire's own timeout is not enough: a vendor can show signs of life for ever, without an answer.
        with anyio.move_on_after(self.ends - anyio.current_time()):
            return await anext(self._stream, None)
        raise LLMError(
            f"{self._title} did not finish its answer in the time that there was.",
            advice="Ask for less at once, or allow a longer `deadline`.",
            failure="interrupted",
            provider=self._provider,
        )
