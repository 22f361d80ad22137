"""What a run has taken, against what it may take."""

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
    """A run has taken all that it may."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem, advice="Resume it to grant the same budget once more, or begin anew with a larger one."
        )


@dataclass(frozen=True, slots=True)
class ExhaustedLimit:
    """A part of the budget that is used up.

    Attributes:
        problem: which, in a sentence.
        closing: whether the model may say in one last turn, without tools, what it has. It may where turns
            or calls are used up; where tokens, money or time are, another turn would take more of them.
    """

    problem: str
    closing: bool


def find_exhausted_limit(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> ExhaustedLimit | None:
    """Which part of a budget is used up, if any.

    Args:
        budget: what a run may take.
        spent: what it has taken.
        granted_from: what it had taken when the budget was granted to it.
    """
    tokens = _tokens(spent.usage) - _tokens(granted_from.usage)
    if budget.tokens is not None and tokens >= budget.tokens:
        return ExhaustedLimit(f"The run has used {tokens} of {budget.tokens} tokens.", closing=False)
    cost = (spent.usage.cost or 0.0) - (granted_from.usage.cost or 0.0)
    if budget.cost is not None and cost >= budget.cost:
        return ExhaustedLimit(f"The run has cost {cost:.4f} of {budget.cost:g} US dollars.", closing=False)
    if budget.seconds is not None and spent.seconds - granted_from.seconds >= budget.seconds:
        return ExhaustedLimit(f"The run has taken all of its {budget.seconds:g} s.", closing=False)
    if spent.iterations - granted_from.iterations >= budget.iterations:
        return ExhaustedLimit(
            f"The run has taken all of its {budget.iterations} turns of the model.", closing=True
        )
    return None


def remaining_calls(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> float:
    """How many calls of tools may still be made."""
    left = remaining_budget(budget, spent, granted_from=granted_from).tool_calls
    return inf if left is None else left


def remaining_budget(budget: Budget, spent: RunUsage, *, granted_from: RunUsage) -> Budget:
    """What is left of a budget: 0 or more of each, None where that is not limited."""
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
    """What is spent after a call for which models were asked; its turns and calls are counted elsewhere."""
    return replace(add_answer_usage(spent, of_call.usage), iterations=spent.iterations)


def add_answer_usage(spent: RunUsage, usage: Usage) -> RunUsage:
    """What is spent after another answer. One whose price is not known counts as nothing."""
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
