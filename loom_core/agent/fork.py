"""Fork of a run at a step: the events that the new run begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from loom_core.agent.steps import read_steps
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import Usage
from loom_core.llm.message_json import message_to_json
from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage
from loom_core.runs.journal import NewEvent
from loom_core.runs.run import Budget

if TYPE_CHECKING:
    from loom_core.agent.steps import AgentStep
    from loom_core.runs.events import StreamEvent

__all__ = ["ForkOptions", "ForkPlan"]


class ForkOptions(TypedDict, total=False):
    """Options of a fork, all of them optional; see `Agent.fork`.

    Attributes:
        outcome: the outcome of the step, in place of doing it again: the result of a call; the text of an
            answer, or the calls of an answer. Calls need no ids.
        message: a message of the user, which the model reads next.
        same_session: whether the fork belongs to the session of the original, whose conversation it replaces.
            By default it has a session of its own, which begins with a copy of the conversation.
        budget: the budget; by default that of the original.
        caller: the caller; by default that of the original.
    """

    outcome: str | Sequence[ToolCallPart] | None
    message: str
    same_session: bool
    budget: Budget
    caller: str


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """Plan of a fork: what it keeps of a run, and what is different from then on.

    Attributes:
        events: the events of the run.
        step: the step from which the fork differs: the steps before it are kept.
    """

    events: Sequence[StreamEvent]
    step: AgentStep

    @classmethod
    def at(cls, run_id: str, events: Sequence[StreamEvent], number: int) -> ForkPlan:
        """Plan a fork at a step.

        Raises:
            InvalidInputError: the run has no such step.
        """
        steps = read_steps(events)
        if not 1 <= number <= len(steps):
            has = (
                f"It has the steps 1 to {len(steps)}." if steps else "No answer and no call of it has ended."
            )
            raise InvalidInputError(f"Run {run_id} has no step {number}.", advice=has)
        return cls(events, steps[number - 1])

    def first_events(
        self, *, outcome: str | Sequence[ToolCallPart] | None, message: str
    ) -> list[int | NewEvent]:
        """Return the events that the fork begins with; see `Journal.fork`.

        Args:
            outcome: the outcome of the step, in place of doing it again; see `Agent.fork`.
            message: a message of the user after it; empty for none.

        Raises:
            InvalidInputError: calls are given as the result of a call.
        """
        given: list[NewEvent] = []
        if outcome is not None:
            given += self._answer(outcome) if self.step.kind == "answer" else [self._result(outcome)]
        if message:
            given.append(NewEvent("message_received", {"text": message}, {"text": message}))
        origin = {"run_id": self.events[0].run_id, "step": self.step.number, "given": outcome is not None}
        # A given answer is that of its turn: what the model was told for it belongs to the conversation.
        turn = [self.step.start] if outcome is not None and self.step.kind == "answer" else []
        return [*self._kept(), *turn, NewEvent("forked", origin, {}), *given]

    def _kept(self) -> list[int]:
        """Return the seqs of the events before the step, without those of calls that have no result then."""
        end = self.step.start if self.step.kind == "answer" else self.step.seq
        before = [event for event in self.events if event.seq < end]
        made: set[str] = set()
        for event in before:
            if event.type == "tool_calls_start":
                made |= {call["call_id"] for call in event.payload["calls"]}
            elif event.type == "tool_result":
                made.discard(event.payload["call_id"])
        return [event.seq for event in before if not _is_about(event, made)]

    def _answer(self, outcome: str | Sequence[ToolCallPart]) -> list[NewEvent]:
        usage = asdict(Usage())
        if isinstance(outcome, str):
            finish, parts = "stop", (TextPart(outcome),)
            shown = [NewEvent("text_delta", {"text": outcome}, None)]
        else:
            finish, shown = "tool_calls", []
            parts = tuple(replace(each, id=f"fork_{self.step.seq}_{n}") for n, each in enumerate(outcome))
        kept = {"message": message_to_json(AssistantMessage(parts)), "finish": finish, "usage": usage}
        answered = NewEvent("usage", {**usage, "total": usage, "finish": finish}, kept)
        return [*shown, answered]

    def _result(self, outcome: str | Sequence[ToolCallPart]) -> NewEvent:
        (call,) = self.step.calls
        if not isinstance(outcome, str):
            raise InvalidInputError(
                f"Step {self.step.number} is a call: its outcome is a text.",
                advice=f"Give calls at the step of the answer that calls `{call.tool}`.",
            )
        payload = {
            "call_id": call.id,
            "tool": call.tool,
            "status": "success",
            "text": outcome,
            "seconds": 0.0,
            "stages": dict[str, float](),
            "blob": "",
        }
        message = message_to_json(ToolMessage(call.id, (TextPart(outcome),)))
        return NewEvent("tool_result", payload, {"id": call.id, "message": message})


def _is_about(event: StreamEvent, calls: set[str]) -> bool:
    """Whether an event is about the start, the approval or the progress of one of these calls."""
    if event.type == "tool_calls_start":
        return False
    asked: str = event.payload["pending"]["id"] if event.type == "approval_required" else ""
    about: str = asked or event.payload.get("call_id", "")
    return about in calls or any(about.startswith(f"{call}.") for call in calls)  # a question of the tool
