"""How far a run is: what the model has read, what it wants called, and what came of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from loom_core.llm.interface import LLMResponse, Usage
from loom_core.llm.message_json import message_from_json
from loom_core.llm.messages import AssistantMessage, Message, TextPart, ToolCallPart, ToolMessage, UserMessage
from loom_core.runs.commands import Decided
from loom_core.runs.run import Pending, Spent
from loom_core.tools.permission.permissions import ToolIdentity

if TYPE_CHECKING:
    from loom_core.runs.journal import Step

__all__ = ["NudgeKind", "OpenCall", "RunState"]

NudgeKind = Literal["none", "go_on", "paused", "empty", "late", "repair", "closing"]
"""Why the model is asked again after an answer that called no tools, or for the last time: the answer was cut
at its limit; the vendor paused it; there was nothing in it; something came while it was written; it is not
what the schema wants; the budget is used up, and it is to answer with what it has."""


@dataclass(slots=True)
class OpenCall:
    """A call of the last answer.

    Attributes:
        part: what the model wrote; with other arguments from when it runs with those of a person or a hook.
        started: it was told to run; without a result after a crash, nobody knows whether it was done.
        changed: they are others than the model's.
        result: what the model is told of it; None as long as nothing came of it.
    """

    part: ToolCallPart
    started: bool = False
    changed: bool = False
    result: ToolMessage | None = None


@dataclass(slots=True)
class RunState:
    """What the loop goes on from. It changes by the journalled events only, in their order.

    So it is the same whether it was lived through or read back (`restored`).

    Attributes:
        history: what the model has read and answered, oldest first, without the system prompt.
        inbox: what it reads before its next turn, after the results of its calls.
        answer: its last answer; None before the first one, and while a turn is under way.
        calls: those of the last answer, by id, in the model's order.
        announced: whether they were shown to people.
        final: what ends the run, where a call has said so: the `output`, and the same as `structured` data.
        pending: what people were asked and have not answered, by id.
        decisions: what they decided of calls that have not begun since, by id.
        decided_about: what they were asked then.
        approved: tools that they approved for the rest of the run, as they were then.
        looked: whether passages were found.
        turns: how many turns of the model have begun, also those that were broken off.
        calls_begun: how many calls have begun; one that is made again counts again, and so do those that
            were made for a call.
        nudge: why the model was asked in the turn that is under way, or was broken off; `none` behind it.
        nudges: how often each was made since somebody last had a hand in it.
        replies: what the user said since the goal, oldest first.
        closing: why this is the last turn, where the budget is used up; else empty.
        prefix: the beginning of an answer that goes on in the last one.
        granted_from: what was spent when the budget was granted.
        reported: what the vendor said of the last turn.
        warned: that it was said that the window fills up.
    """

    history: list[Message] = field(default_factory=list[Message])
    inbox: list[Message] = field(default_factory=list[Message])
    answer: LLMResponse | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    announced: bool = False
    final: Mapping[str, Any] | None = None
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    decisions: dict[str, Decided] = field(default_factory=dict[str, Decided])
    decided_about: dict[str, Pending] = field(default_factory=dict[str, Pending])
    approved: set[ToolIdentity] = field(default_factory=set[ToolIdentity])
    looked: bool = False
    turns: int = 0
    calls_begun: int = 0
    nudge: NudgeKind = "none"
    nudges: Counter[NudgeKind] = field(default_factory=Counter[NudgeKind])
    replies: list[str] = field(default_factory=list[str])
    closing: str = ""
    prefix: str = ""
    granted_from: Spent = field(default_factory=Spent)
    reported: Usage | None = None
    warned: bool = False
    _ids: set[str] = field(default_factory=set[str])

    @property
    def open_calls(self) -> list[OpenCall]:
        """Calls of the last answer that have no result."""
        return [call for call in self.calls.values() if call.result is None]

    @property
    def output(self) -> str:
        """The last answer's text, with the beginning that came in answers before; empty if there is none."""
        return self.prefix + (self.answer.content if self.answer is not None else "")

    def conversation(self) -> list[Message]:
        """The history with the results of the last calls and what came since."""
        results = (call.result for call in self.calls.values() if call.result is not None)
        return [*self.history, *results, *self.inbox]

    def begun(self, history: Sequence[Message]) -> None:
        """The run has begun, the goal being the last message."""
        self.history = list(history)

    def told(self, text: str, *, late: str = "") -> None:
        """Passages were found: before the first turn they stand in front of the goal, later behind all.

        Args:
            text: the passages, and what they are.
            late: what is put behind them where the model has begun already.
        """
        self.looked = True
        if self.turns:
            self.inbox.append(UserMessage((TextPart(f"{text}\n\n{late}" if late else text),)))
        else:
            self.history.insert(len(self.history) - 1, UserMessage((TextPart(text),)))

    def received(self, text: str) -> None:
        """The user said something."""
        self.inbox.append(UserMessage((TextPart(text),)))
        self.replies.append(text)
        self.nudges.clear()

    def turn_begun(self, nudge: NudgeKind, text: str, *, closing: str = "") -> None:
        """The model is asked: it reads all that came since, and what it is nudged with."""
        self.prefix = self.output if nudge in {"go_on", "paused"} else ""
        self.history += (call.result for call in self.calls.values() if call.result is not None)
        self.history += self.inbox
        if text:
            self.history.append(UserMessage((TextPart(text),)))
        self.inbox, self.calls, self.answer, self.announced, self.final = [], {}, None, False, None
        self.closing, self.nudge = closing, nudge
        self.nudges[nudge] += 1
        self.turns += 1

    def answered(self, response: LLMResponse) -> None:
        """The model has answered; the ids of its calls are unused ones (see `with_unused_ids`)."""
        self.history.append(response.message)
        self.answer, self.reported, self.nudge = response, response.usage, "none"
        self.calls = {part.id: OpenCall(part) for part in response.message.tool_calls}
        self._ids |= self.calls.keys()
        if self.calls:
            self.nudges.clear()

    def with_unused_ids(self, message: AssistantMessage) -> AssistantMessage:
        """An answer whose calls have ids that no other call of the run has."""
        taken, renamed = set(self._ids), False
        parts = list(message.parts)
        for place, part in enumerate(parts):
            if isinstance(part, ToolCallPart):
                number, id_ = 1, part.id
                while not id_ or id_ in taken:
                    number += 1
                    id_ = f"{part.id or 'call'}_{number}"
                taken.add(id_)
                if id_ != part.id:
                    parts[place], renamed = replace(part, id=id_), True
        return replace(message, parts=tuple(parts)) if renamed else message

    def call_started(
        self, id_: str, arguments: Mapping[str, Any] | None, *, approved: ToolIdentity | None = None
    ) -> None:
        """A call runs from now on; what was decided of it is used up.

        Args:
            id_: which.
            arguments: with which it runs, where they are not the model's; None where they are.
            approved: its tool, where a person has approved it for the rest of the run.
        """
        call = self.calls[id_]
        call.started = True
        self.calls_begun += 1
        if arguments is not None:
            call.changed = True
            call.part = replace(call.part, arguments=arguments, unreadable="")
        self.decisions.pop(id_, None)
        self.decided_about.pop(id_, None)
        if approved is not None:
            self.approved.add(approved)

    def call_ended(
        self, id_: str, result: ToolMessage, *, final: Mapping[str, Any] | None = None, calls: int = 0
    ) -> None:
        """There is something to tell the model of a call; nobody has to be asked about it any more.

        Args:
            id_: which call.
            result: what the model is told.
            final: what ends the run; None where it goes on. The first of a turn counts.
            calls: how many were made for it.
        """
        self.calls[id_].result = result
        self.pending.pop(id_, None)
        self.final = self.final or final
        self.calls_begun += calls

    def asked(self, pending: Pending) -> None:
        """People are asked."""
        self.pending[pending.id] = pending

    def decided(self, decision: Decided) -> None:
        """They have decided of a call."""
        if (pending := self.pending.pop(decision.id, None)) is not None:
            self.decided_about[decision.id] = pending
        self.decisions[decision.id] = decision

    def compacted(self, history: Sequence[Message], *, taken: int) -> None:
        """The conversation was shortened.

        What follows from an answer without calls still does; it does not where something came behind it.

        Args:
            history: what stands for it; nothing has to be behind it.
            taken: how many messages of the inbox are in it.
        """
        self.history, self.inbox = list(history), self.inbox[taken:]
        if self.calls or taken:
            self.answer, self.calls = None, {}
        self.reported, self.warned = None, False

    def resumed(self, spent: Spent, text: str) -> None:
        """It goes on after it had ended: everything that is limited is granted again.

        Args:
            spent: what was spent until then.
            text: what the model is told, where its last answer would be the end otherwise; else empty.
        """
        self.granted_from = spent
        self.nudges.clear()
        self.closing = ""
        if text:
            self.inbox.append(UserMessage((TextPart(text),)))

    @classmethod
    def restored(cls, steps: Sequence[Step]) -> RunState:
        """The state after the steps of a journal."""
        state = cls()
        for step in steps:
            state._again(step.event.type, step.state)
        return state

    def _again(self, type_: str, kept: Mapping[str, Any]) -> None:  # noqa: C901 - one case an event
        match type_:
            case "request_start":
                self.begun(list(map(message_from_json, kept["history"])))
            case "knowledge":
                self.told(kept["text"], late=kept["late"])
            case "message_received":
                self.received(kept["text"])
            case "model_start":
                self.turn_begun(kept["nudge"], kept["text"], closing=kept["closing"])
            case "usage":
                self.answered(_response(kept))
            case "tool_calls_start":
                self.announced = True
            case "tool_start":
                approved = ToolIdentity(**kept["approved"]) if "approved" in kept else None
                self.call_started(kept["id"], kept["arguments"], approved=approved)
            case "tool_result":
                final, calls = kept.get("final"), kept.get("calls", 0)
                self.call_ended(kept["id"], _tool_message(kept["message"]), final=final, calls=calls)
            case "approval_required":
                self.asked(Pending(**kept))
            case "approval_decided":
                self.decided(Decided(**kept))
            case "compression_warning":
                self.warned = True
            case "compression_applied":
                self.compacted(list(map(message_from_json, kept["history"])), taken=kept["taken"])
            case "resumed":
                self.resumed(_spent(kept["spent"]), kept["text"])
            case _:
                pass  # an event of a newer version that changes nothing here


def _response(kept: Mapping[str, Any]) -> LLMResponse:
    message = message_from_json(kept["message"])
    assert isinstance(message, AssistantMessage)
    return LLMResponse(message, kept["finish"], Usage(**kept["usage"]))


def _tool_message(kept: Mapping[str, Any]) -> ToolMessage:
    message = message_from_json(kept)
    assert isinstance(message, ToolMessage)
    return message


def _spent(kept: Mapping[str, Any]) -> Spent:
    return replace(Spent(**kept), usage=Usage(**kept["usage"]))
