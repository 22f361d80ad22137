"""Steps of an agent run, numbered: answers of the model and results of its calls; and forks at a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from loom_core.errors import InvalidInputError
from loom_core.llm.interface import Usage
from loom_core.llm.message_json import message_to_json
from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage
from loom_core.runs.journal import NewEvent
from loom_core.runs.run import Budget

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent

__all__ = ["AgentStep", "ForkOptions", "ForkPlan", "StepCall", "read_steps"]


@dataclass(frozen=True, slots=True)
class StepCall:
    """A tool call in an answer.

    Attributes:
        id: id of the call.
        tool: display name of the tool; the model's text if there is no such tool.
        arguments: the arguments as the model wrote them.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class AgentStep:
    """A step of a run: an answer of the model, or the result of a call.

    Attributes:
        number: its number in the run, from 1: in the order in which the steps ended.
        kind: `answer` or `call`.
        start: seq of the event that began it.
        seq: seq of the event that ended it.
        text: the text of the answer, or the result as the model read it.
        reasoning: reasoning before the answer.
        calls: the calls of the answer, or the call.
        status: how it ended: the finish of an answer, the `CallStatus` of a call.
        tokens: input and output tokens of an answer.
        cost: its price in US dollars; None if unknown, and for a call.
        seconds: how long it took; for a call, without waiting for people.
        is_inherited: whether it was copied from the run that this one is a fork of.
        is_given: whether its outcome was given to the fork: neither the model nor the tool made it.
    """

    number: int
    kind: Literal["answer", "call"]
    start: int
    seq: int
    text: str = ""
    reasoning: str = ""
    calls: tuple[StepCall, ...] = ()
    status: str = ""
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    is_inherited: bool = False
    is_given: bool = False


def read_steps(events: Iterable[StreamEvent]) -> list[AgentStep]:
    """Return the steps of a run, from all of its events in order. An interrupted step is not among them."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return reader.steps


@dataclass(slots=True)
class _Reader:
    """Reader of steps: `begun` is the start of the current turn, `calls` the known calls and their starts."""

    steps: list[AgentStep] = field(default_factory=list[AgentStep])
    begun: StreamEvent | None = None
    text: str = ""
    reasoning: str = ""
    calls: dict[str, StepCall] = field(default_factory=dict[str, StepCall])
    starts: dict[str, int] = field(default_factory=dict[str, int])
    given: bool = False

    def read(self, event: StreamEvent) -> None:
        it = event.payload
        match event.type:
            case "model_start":
                self.begun, self.text, self.reasoning = event, "", ""
            case "model_retry":
                self.text, self.reasoning = "", ""
            case "text_delta":
                self.text += it["text"]
            case "reasoning_delta":
                self.reasoning += it["text"]
            case "usage" if self.begun is not None:
                self._add_answer(event, self.begun)
            case "tool_calls_start":
                made = [StepCall(each["call_id"], each["tool"], each["arguments"]) for each in it["calls"]]
                self.calls |= {each.id: each for each in made}
                self.starts |= {each.id: event.seq for each in made}
                if self.steps:
                    self.steps[-1].calls = tuple(made)
            case "tool_start":
                self.starts[it["call_id"]] = event.seq
            case "tool_result":
                self._add_call(event)
            case "forked":
                self.given = it["given"]
                for step in self.steps:
                    step.is_inherited, step.is_given = True, False
            case _:
                pass

    def _add_answer(self, event: StreamEvent, begun: StreamEvent) -> None:
        it = event.payload
        step = self._add("answer", start=begun.seq, event=event)
        step.text, step.reasoning = self.text, self.reasoning
        step.status = it.get("finish", "")  # older journals do not have it
        step.tokens, step.cost = it["input_tokens"] + it["output_tokens"], it["cost"]
        step.seconds = 0.0 if step.is_given else event.at - begun.at
        self.begun = None

    def _add_call(self, event: StreamEvent) -> None:
        it = event.payload
        call = self.calls.get(it["call_id"]) or StepCall(it["call_id"], it["tool"], {})
        step = self._add("call", start=self.starts.get(call.id, event.seq), event=event)
        step.calls = (call,)
        step.text, step.status, step.seconds = it["text"], it["status"], it["seconds"]

    def _add(self, kind: Literal["answer", "call"], *, start: int, event: StreamEvent) -> AgentStep:
        step = AgentStep(number=len(self.steps) + 1, kind=kind, start=start, seq=event.seq)
        step.is_given, self.given = self.given, False
        self.steps.append(step)
        return step


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
