"""Budget accounting: the resources a run has used, and its remaining budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from loom_core.errors import LoomError
from loom_core.llm.interface import Usage
from loom_core.runs.run import Budget, RunUsage

__all__ = [
    "BudgetError",
    "ExhaustedLimit",
    "add_answer_usage",
    "add_call_usage",
    "find_exhausted_limit",
    "remaining_budget",
    "remaining_calls",
]


class BudgetError(LoomError):
    """A run has exhausted its budget."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem, advice="Resume it to grant the same budget again, or start a new run with a larger one."
        )


@dataclass(frozen=True, slots=True)
class ExhaustedLimit:
    """An exhausted limit of the budget.

    Attributes:
        problem: the limit, in a sentence.
        closing: whether the model gets one last turn, without tools, to report its results. It does if turns
            or calls are exhausted, but not for tokens, cost or time, as a turn uses more of them.
    """

    problem: str
    closing: bool


def find_exhausted_limit(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> ExhaustedLimit | None:
    """Find a limit of the budget that is exhausted, if any.

    Args:
        budget: the limits of the run.
        spent: the resources it has used.
        granted_from: the resources it had used when the budget was granted.
    """
    tokens = _tokens(spent.usage) - _tokens(granted_from.usage)
    if budget.tokens is not None and tokens >= budget.tokens:
        return ExhaustedLimit(f"The run has used {tokens} of {budget.tokens} tokens.", closing=False)
    cost = (spent.usage.cost or 0.0) - (granted_from.usage.cost or 0.0)
    if budget.cost is not None and cost >= budget.cost:
        return ExhaustedLimit(f"The run has cost {cost:.4f} of {budget.cost:g} US dollars.", closing=False)
    if budget.seconds is not None and spent.seconds - granted_from.seconds >= budget.seconds:
        return ExhaustedLimit(f"The run has used all of its {budget.seconds:g} s.", closing=False)
    if spent.iterations - granted_from.iterations >= budget.iterations:
        return ExhaustedLimit(
            f"The run has used all of its {budget.iterations} turns of the model.", closing=True
        )
    return None


def remaining_calls(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> float:
    """Return the number of remaining tool calls."""
    left = remaining_budget(budget, spent, granted_from=granted_from).tool_calls
    return inf if left is None else left


def remaining_budget(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> Budget:
    """Return the remaining budget: 0 or more of each resource, None without a limit."""
    tokens = _tokens(spent.usage) - _tokens(granted_from.usage)
    cost = (spent.usage.cost or 0.0) - (granted_from.usage.cost or 0.0)
    return Budget(
        iterations=max(budget.iterations - (spent.iterations - granted_from.iterations), 0),
        tokens=None if budget.tokens is None else max(budget.tokens - tokens, 0),
        cost=None if budget.cost is None else max(budget.cost - cost, 0.0),
        tool_calls=None
        if budget.tool_calls is None
        else max(budget.tool_calls - (spent.tool_calls - granted_from.tool_calls), 0),
        seconds=None
        if budget.seconds is None
        else max(budget.seconds - (spent.seconds - granted_from.seconds), 0.0),
    )


def add_call_usage(spent: RunUsage, of_call: RunUsage) -> RunUsage:
    """Add the usage of a call that made its own model requests; turns and calls are counted elsewhere."""
    return replace(add_answer_usage(spent, of_call.usage), iterations=spent.iterations)


def add_answer_usage(spent: RunUsage, usage: Usage) -> RunUsage:
    """Add the usage of an answer. An unknown price counts as 0."""
    before = spent.usage
    total = Usage(
        input_tokens=before.input_tokens + usage.input_tokens,
        output_tokens=before.output_tokens + usage.output_tokens,
        reasoning_tokens=before.reasoning_tokens + usage.reasoning_tokens,
        cache_read_tokens=before.cache_read_tokens + usage.cache_read_tokens,
        cache_write_tokens=before.cache_write_tokens + usage.cache_write_tokens,
        estimated=before.estimated or usage.estimated,
        cost=before.cost if usage.cost is None else (before.cost or 0.0) + usage.cost,
    )
    return replace(spent, usage=total, iterations=spent.iterations + 1)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
