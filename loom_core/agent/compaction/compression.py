"""Compression: call a compressor, and validate the conversation that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.errors import LLMError
from loom_core.llm.messages import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.runs.compressor import Compressor

__all__ = ["compress"]


async def compress(
    compressor: Compressor, history: Sequence[Message], *, goal: str, target: int, seconds: float
) -> tuple[Message, ...]:
    """Call a compressor, and validate its result; see `Compressor.compress`.

    Raises:
        LLMError: it failed, took longer than `seconds`, or lost the goal, or vendors would reject its result.
    """
    name = type(compressor).__qualname__
    try:
        with anyio.fail_after(seconds):
            shorter = tuple(await compressor.compress(tuple(history), goal=goal, target=target))
    except Exception as error:
        problem = f"{name} failed: {type(error).__name__}: {error}".rstrip(": ")
        raise LLMError(problem, failure="unreadable") from error
    if problem := _find_problem(shorter, history, goal.strip()):
        raise LLMError(f"{name} returned {problem}.", failure="unreadable")
    return shorter


def _find_problem(shorter: Sequence[object], history: Sequence[Message], goal: str) -> str:
    """Return why a conversation cannot replace another one; empty if it can."""
    messages = [each for each in shorter if isinstance(each, Message)]
    if len(messages) < len(shorter):
        return "something that is not a message"
    if not _has_paired_calls(messages):
        return "a call without its result, or a result without its call"
    if _contains(history, goal) and not _contains(messages, goal):
        return "a conversation without the goal"
    return ""


def _has_paired_calls(messages: Sequence[Message]) -> bool:
    """Whether each answer with calls is followed by their results, and no other results are there."""
    unanswered: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in unanswered:
                return False
            unanswered.remove(message.call_id)
        elif isinstance(message, AssistantMessage):
            if unanswered:
                return False
            unanswered = {call.id for call in message.tool_calls}
    return not unanswered


def _contains(messages: Sequence[Message], goal: str) -> bool:
    return any(isinstance(message, UserMessage) and goal in message.text for message in messages)
