"""Budget accounting: the resources a run has used, and its remaining budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar, cast

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

_N = TypeVar("_N", bound=float | None)


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

    def left(limit: _N, used: float) -> _N:
        return limit if limit is None else cast("_N", max(limit - used, 0))

    before = granted_from
    return Budget(
        iterations=left(budget.iterations, spent.iterations - before.iterations),
        tokens=left(budget.tokens, _tokens(spent.usage) - _tokens(before.usage)),
        cost=left(budget.cost, (spent.usage.cost or 0.0) - (before.usage.cost or 0.0)),
        tool_calls=left(budget.tool_calls, spent.tool_calls - before.tool_calls),
        seconds=left(budget.seconds, spent.seconds - before.seconds),
    )


def add_call_usage(spent: RunUsage, of_call: RunUsage) -> RunUsage:
    """Add the usage of a call that made its own model requests; turns and calls are counted elsewhere."""
    return replace(add_answer_usage(spent, of_call.usage), iterations=spent.iterations)


def add_answer_usage(spent: RunUsage, usage: Usage) -> RunUsage:
    """Add the usage of an answer. An unknown price counts as 0."""
    cost = spent.usage.cost if usage.cost is None else (spent.usage.cost or 0.0) + usage.cost
    total = replace(Usage.total((spent.usage, usage)), cost=cost)
    return replace(spent, usage=total, iterations=spent.iterations + 1)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
