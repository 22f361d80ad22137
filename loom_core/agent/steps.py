"""Steps of an agent run, numbered: the answers of the model and the results of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent

__all__ = ["AgentStep", "StepCall", "read_steps"]


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
