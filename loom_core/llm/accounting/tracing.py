"""Spans of model requests, by the OpenTelemetry semantic conventions for generative AI."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING

from loom_core.errors import LLMError
from loom_core.observability.families import LLM_CALLS, LLM_COST, LLM_FAILURES, LLM_SECONDS, LLM_TOKENS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import CHAT
from loom_core.observability.tracing import (
    AttributeValue,
    content_json,
    record_failure,
    records_content,
    span,
    start_span,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.trace import Span

    from loom_core.llm.interface import ChatRequest, LLMProvider, LLMResponse, Usage

__all__ = ["ChatSpan", "chat_span", "chat_stream_span", "count_call", "count_usage"]

_PROVIDERS = {"gemini": "gcp.gemini", "kimi": "moonshot_ai"}
"""Vendors whose name in the conventions differs from Loom's."""


class ChatSpan:
    """The span of a request; it records the response and its usage."""

    def __init__(self, started: Span, llm: LLMProvider) -> None:
        self._span = started
        self._llm = llm
        self._began = perf_counter()
        self._is_first = True

    def record_chunk(self) -> None:
        """Record a chunk of the stream."""
        if self._is_first:
            self._is_first = False
            seconds = perf_counter() - self._began
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)

    def record_response(self, response: LLMResponse) -> None:
        """Record the response."""
        count_usage(self._llm, response.usage)
        if not self._span.is_recording():
            return
        self._set_usage(response.usage)
        self._span.set_attribute("gen_ai.response.finish_reasons", [response.finish])
        if response.model:
            self._span.set_attribute("gen_ai.response.model", response.model)
        if records_content():
            told = content_json([asdict(response.message)])
            self._span.set_attribute("gen_ai.output.messages", told)

    def record_end(self, response: LLMResponse | None, usage: Usage | None) -> None:
        """Record the end of the stream; without a response it was closed early, or broke off."""
        if response is not None:
            self.record_response(response)
        elif usage is not None:
            count_usage(self._llm, usage)
            self._set_usage(usage)

    def _set_usage(self, usage: Usage) -> None:
        self._span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        more = {
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
        self._span.set_attributes({name: tokens for name, tokens in more.items() if tokens})
        self._span.set_attribute("loom.usage.estimated", usage.estimated)
        if usage.cost is not None:
            self._span.set_attribute("loom.usage.cost", usage.cost)


@contextmanager
def chat_span(llm: LLMProvider, request: ChatRequest) -> Generator[ChatSpan]:
    """Start the span of a request without streaming.

    Args:
        llm: the provider.
        request: the request.
    """
    with count_call(llm), span(CHAT, _attributes(llm, request, stream=False)) as started:
        _set_input(started, request)
        yield ChatSpan(started, llm)


@contextmanager
def chat_stream_span(llm: LLMProvider, request: ChatRequest) -> Generator[ChatSpan]:
    """Start the span of a streaming request.

    It is not the current span: the reader of a stream does other things between two chunks.

    Args:
        llm: the provider.
        request: the request.
    """
    started = start_span(CHAT, _attributes(llm, request, stream=True))
    try:
        with count_call(llm):
            _set_input(started, request)
            yield ChatSpan(started, llm)
    except Exception as error:
        record_failure(started, error)
        raise
    finally:
        started.end()


def _attributes(llm: LLMProvider, request: ChatRequest, *, stream: bool) -> dict[str, AttributeValue | None]:
    return {
        "gen_ai.operation.name": CHAT.name,
        "gen_ai.provider.name": _PROVIDERS.get(llm.name, llm.name),
        "gen_ai.request.model": llm.model,
        "gen_ai.request.stream": stream,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.output.type": "json" if request.output is not None else None,
    }


def _set_input(started: Span, request: ChatRequest) -> None:
    if started.is_recording() and records_content():
        told = content_json([asdict(message) for message in request.messages])
        started.set_attribute("gen_ai.input.messages", told)


@contextmanager
def count_call(llm: LLMProvider) -> Generator[None]:
    """Count a request in the metrics, from the first attempt to the end of the response."""
    began = perf_counter()
    try:
        yield
    except LLMError as error:
        process_metrics.add(LLM_FAILURES, llm.name, llm.model, error.failure)
        raise
    finally:
        process_metrics.add(LLM_CALLS)
        process_metrics.observe(LLM_SECONDS, perf_counter() - began, llm.name, llm.model)


def count_usage(llm: LLMProvider, usage: Usage) -> None:
    """Count the usage of a response, or of a part of one, in the metrics."""
    if not process_metrics.enabled:
        return
    tokens = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
    for kind, number in tokens.items():
        if number:
            process_metrics.add(LLM_TOKENS, llm.name, llm.model, kind, by=number)
    if usage.cost:
        process_metrics.add(LLM_COST, llm.name, llm.model, by=usage.cost)
