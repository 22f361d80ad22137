"""What follows from an answer that calls no tools: the run ends with it, or the model is asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.errors import LLMError
from loom_core.llm.interface import OutputSchema
from loom_core.llm.structured import read_value

if TYPE_CHECKING:
    from loom_core.agent.notices import Notices
    from loom_core.agent.record import NudgeKind, RunState

__all__ = ["Final", "Nudge", "conclusion"]

_MOST: Mapping[NudgeKind, int] = {"go_on": 3, "paused": 20, "empty": 1, "repair": 1}


@dataclass(frozen=True, slots=True)
class Nudge:
    """The model is asked again.

    Attributes:
        kind: why.
        text: what it is told; empty where what came meanwhile says enough.
    """

    kind: NudgeKind = "none"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Final:
    """The run ends.

    Attributes:
        output: the answer.
        structured: the same as data, where a schema was given.
    """

    output: str
    structured: Mapping[str, Any] | None = None


def conclusion(state: RunState, *, schema: OutputSchema | None, notices: Notices) -> Final | Nudge:
    """What follows from the last answer, which calls no tools.

    Args:
        state: how far the run is.
        schema: what the final answer has to be.
        notices: what the model is told.

    Raises:
        LLMError: the model refused, or gives no answer that can be used although it was asked again.
    """
    answer = state.answer
    if answer is None:
        return Nudge()
    if answer.finish == "refused":
        raise LLMError(
            f"The model {answer.model} refuses to answer: {state.output[:200]}".rstrip(": "),
            advice="Say the goal differently, or use another model.",
            failure="refused",
            provider=answer.message.provider,
        )
    if state.inbox:
        return Nudge("late")
    if answer.finish == "paused" and state.nudges["paused"] < _MOST["paused"]:
        return Nudge("paused")
    if answer.finish == "length" and state.nudges["go_on"] < _MOST["go_on"]:
        return Nudge("go_on", notices.go_on)
    if not state.output.strip():
        if state.nudges["empty"] < _MOST["empty"]:
            return Nudge("empty", notices.empty)
        raise LLMError(
            f"The model {answer.model} gives no answer: neither a text nor a call.",
            advice="Try again, or use another model.",
            failure="unreadable",
            provider=answer.message.provider,
        )
    if schema is None:
        return Final(state.output)
    value, wrong = read_value(state.output, schema)
    if value is not None:
        return Final(state.output, value)
    if state.nudges["repair"] < _MOST["repair"]:
        listed = "\n".join(f"- {problem}" for problem in wrong)
        shown = json.dumps(schema.schema, ensure_ascii=False)
        return Nudge("repair", notices.repair.format(problems=listed, schema=shown))
    raise LLMError(
        f"The final answer of the model {answer.model} is not what was asked for: {'; '.join(wrong)}",
        advice="Use a stronger model, or a simpler schema.",
        failure="unreadable",
        provider=answer.message.provider,
    )
