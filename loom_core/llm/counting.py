"""Requests to models, counted: how many, how long they took, what they took and cost, why they failed."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from loom_core.errors import LLMError
from loom_core.observability.families import LLM_CALLS, LLM_COST, LLM_FAILURES, LLM_SECONDS, LLM_TOKENS
from loom_core.observability.metrics import process_metrics

if TYPE_CHECKING:
    from collections.abc import Generator

    from loom_core.llm.interface import LLMProvider, Usage

__all__ = ["count_usage", "counted_call"]


@contextmanager
def counted_call(llm: LLMProvider) -> Generator[None]:
    """Around a request to a model, from the first attempt to the end of the answer."""
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
    """What an answer, or what came of one, has taken."""
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
