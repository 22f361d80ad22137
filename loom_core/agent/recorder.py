"""The state of a run, and its record: each event of the loop, with what it changes in run and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from loom_core.agent.spending import add_answer_usage, add_call_usage
from loom_core.llm.interface import LLMResponse, Usage
from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.llm.messages import AssistantMessage, Message, TextPart, ToolCallPart, ToolMessage, UserMessage
from loom_core.runs.commands import ApprovalDecision
from loom_core.runs.executor import RunRecorder
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import Pending, RunUsage
from loom_core.tools.permission.permissions import ToolIdentity

if TYPE_CHECKING:
    from loom_core.agent.compaction.compaction import CompactionResult, ContextUsage
    from loom_core.agent.loop_guard import Verdict
    from loom_core.errors import LoomError
    from loom_core.knowledge.sources.context_retriever import RetrievedContext
    from loom_core.runs.commands import InputResponse
    from loom_core.runs.journal import RunLog, Step
    from loom_core.tools.calls import CallResult

__all__ = ["AgentRunRecorder", "OpenCall", "RepromptKind", "RunState"]


RepromptKind = Literal["none", "go_on", "paused", "empty", "late", "repair", "closing"]
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
    decisions: dict[str, ApprovalDecision] = field(default_factory=dict[str, ApprovalDecision])
    decided_about: dict[str, Pending] = field(default_factory=dict[str, Pending])
    approved: set[ToolIdentity] = field(default_factory=set[ToolIdentity])
    looked: bool = False
    turns: int = 0
    calls_begun: int = 0
    nudge: RepromptKind = "none"
    nudges: Counter[RepromptKind] = field(default_factory=Counter[RepromptKind])
    replies: list[str] = field(default_factory=list[str])
    closing: str = ""
    prefix: str = ""
    granted_from: RunUsage = field(default_factory=RunUsage)
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

    def start(self, history: Sequence[Message]) -> None:
        """The run has begun, the goal being the last message."""
        self.history = list(history)

    def add_passages(self, text: str, *, late: str = "") -> None:
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

    def add_message(self, text: str) -> None:
        """The user said something."""
        self.inbox.append(UserMessage((TextPart(text),)))
        self.replies.append(text)
        self.nudges.clear()

    def start_turn(self, nudge: RepromptKind, text: str, *, closing: str = "") -> None:
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

    def add_response(self, response: LLMResponse) -> None:
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

    def start_call(
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

    def end_call(
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

    def add_pending(self, pending: Pending) -> None:
        """People are asked."""
        self.pending[pending.id] = pending

    def apply_decision(self, decision: ApprovalDecision) -> None:
        """They have decided of a call."""
        if (pending := self.pending.pop(decision.id, None)) is not None:
            self.decided_about[decision.id] = pending
        self.decisions[decision.id] = decision

    def apply_compaction(self, history: Sequence[Message], *, taken: int) -> None:
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

    def resume(self, spent: RunUsage, text: str) -> None:
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
    def restore(cls, steps: Sequence[Step]) -> RunState:
        """The state after the steps of a journal."""
        state = cls()
        for step in steps:
            state._replay(step.event.type, step.state)
        return state

    def _replay(self, type_: str, kept: Mapping[str, Any]) -> None:  # noqa: C901 - one case an event
        match type_:
            case "request_start":
                self.start(list(map(message_from_json, kept["history"])))
            case "knowledge":
                self.add_passages(kept["text"], late=kept["late"])
            case "message_received":
                self.add_message(kept["text"])
            case "model_start":
                self.start_turn(kept["nudge"], kept["text"], closing=kept["closing"])
            case "usage":
                self.add_response(_parse_response(kept))
            case "tool_calls_start":
                self.announced = True
            case "tool_start":
                approved = ToolIdentity(**kept["approved"]) if "approved" in kept else None
                self.start_call(kept["id"], kept["arguments"], approved=approved)
            case "tool_result":
                final, calls = kept.get("final"), kept.get("calls", 0)
                self.end_call(kept["id"], _parse_tool_message(kept["message"]), final=final, calls=calls)
            case "approval_required":
                self.add_pending(Pending(**kept))
            case "approval_decided":
                self.apply_decision(ApprovalDecision(**kept))
            case "compression_warning":
                self.warned = True
            case "compression_applied":
                self.apply_compaction(list(map(message_from_json, kept["history"])), taken=kept["taken"])
            case "resumed":
                self.resume(_parse_usage(kept["spent"]), kept["text"])
            case _:
                pass  # an event of a newer version that changes nothing here


def _parse_response(kept: Mapping[str, Any]) -> LLMResponse:
    message = message_from_json(kept["message"])
    assert isinstance(message, AssistantMessage)
    return LLMResponse(message, kept["finish"], Usage(**kept["usage"]))


def _parse_tool_message(kept: Mapping[str, Any]) -> ToolMessage:
    message = message_from_json(kept)
    assert isinstance(message, ToolMessage)
    return message


def _parse_usage(kept: Mapping[str, Any]) -> RunUsage:
    return replace(RunUsage(**kept), usage=Usage(**kept["usage"]))


_USAGE = tuple(each.name for each in fields(Usage))


class AgentRunRecorder(RunRecorder[RunState]):
    """The events of one run that is driven here: each method adds one, and changes `state` with it.

    Attributes:
        state: what the loop goes on from.
    """

    def __init__(self, log: RunLog) -> None:
        super().__init__(log, RunState.restore(log.steps))

    @property
    def spent(self) -> RunUsage:
        """What it has taken until now."""
        return replace(self._spent, tool_calls=self.state.calls_begun, seconds=self.stopwatch.seconds)

    @property
    def granted_from(self) -> RunUsage:
        """What it had taken when its budget was granted."""
        return self.state.granted_from

    def record_start(self, history: Sequence[Message], *, model: str) -> None:
        """The run begins; the goal is the last message."""
        request = self.run.request
        payload = {
            "goal": request.goal,
            "session_id": request.session_id,
            "profile": request.profile,
            "model": model,
        }
        self._add("request_start", payload, {"history": [message_to_json(each) for each in history]})
        self.state.start(history)

    def record_passages(self, found: RetrievedContext, *, late: str) -> None:
        """The sources have answered; `late` is put behind passages that come when the model has begun."""
        passages = [
            {"id": item.id, "title": str(item.metadata.get("title", "")), "source": item.source}
            for item in found.items
        ]
        payload = {"outcome": found.outcome, "passages": passages, "problem": found.problem}
        if not found.text:
            self._log.add("knowledge", payload)
            return
        self._add("knowledge", payload, {"text": found.text, "late": late})
        self.state.add_passages(found.text, late=late)

    def record_message(self, text: str) -> None:
        """The user said something."""
        self._add("message_received", {"text": text}, {"text": text})
        self.state.add_message(text)

    def record_turn_start(self, nudge: RepromptKind, text: str, *, model: str, closing: str = "") -> None:
        """The model is asked."""
        payload = {"iteration": self._spent.iterations + 1, "model": model}
        self._add("model_start", payload, {"nudge": nudge, "text": text, "closing": closing})
        self.state.start_turn(nudge, text, closing=closing)

    def record_text(self, text: str) -> None:
        """More of the answer."""
        self._log.add("text_delta", {"text": text})

    def record_reasoning(self, text: str) -> None:
        """More of what the model thinks."""
        self._log.add("reasoning_delta", {"text": text})

    def record_retry(self, error: LoomError, *, attempt: int, wait: float) -> None:
        """The answer broke off, and the model is asked again after a wait of so many seconds."""
        self._log.add("model_retry", {"problem": str(error), "attempt": attempt, "wait": round(wait, 3)})

    def record_response(self, response: LLMResponse) -> None:
        """The model has answered."""
        message = self.state.with_unused_ids(response.message)
        response = response if message is response.message else replace(response, message=message)
        self._spent = add_answer_usage(self._spent, response.usage)
        used, total = _usage(response.usage), _usage(self._spent.usage)
        kept = {"message": message_to_json(message), "finish": response.finish, "usage": used}
        self._add("usage", {**used, "total": total}, kept, spent=self.spent)
        self.state.add_response(response)

    def add_compaction_usage(self, usage: Usage) -> None:
        """A model was asked to shorten the conversation, which counts, but not as a turn."""
        iterations = self._spent.iterations
        self._spent = replace(add_answer_usage(self._spent, usage), iterations=iterations)

    def record_calls(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """The model wants tools called; people are shown this."""
        text = self.state.answer.content if self.state.answer is not None else ""
        self._add("tool_calls_start", {"calls": list(calls), "text": text}, {})
        self.state.announced = True

    def record_call_start(
        self, call: ToolCallPart, tool: str, *, approved: ToolIdentity | None = None
    ) -> None:
        """A call runs from now on, with these arguments: to be committed before it does.

        Args:
            call: as it runs.
            tool: as people call it.
            approved: the tool, where a person has approved it for the rest of the run.
        """
        known = self.state.calls[call.id]
        arguments = None if call.arguments is known.part.arguments else dict(call.arguments)
        payload: dict[str, Any] = {"call_id": call.id, "tool": tool}
        if arguments is not None or known.changed:
            payload["arguments"] = dict(call.arguments)
        kept: dict[str, Any] = {"id": call.id, "arguments": arguments}
        if approved is not None:
            kept["approved"] = asdict(approved)
        self._add("tool_start", payload, kept)
        self.state.start_call(call.id, arguments, approved=approved)

    def record_call_end(
        self, result: CallResult, message: ToolMessage | None = None, *, spent: RunUsage | None = None
    ) -> None:
        """There is something to tell the model of a call.

        Args:
            result: of the call.
            message: what the model is told, where it is not the result's own.
            spent: what was taken for it, besides itself.
        """
        message = message or result.message
        stages = {stage: round(seconds, 6) for stage, seconds in result.stages.items()}
        payload = {
            "call_id": result.call_id,
            "tool": result.tool,
            "status": result.status,
            "text": message.text,
            "seconds": stages.get("execute", 0.0),
            "stages": stages,
            "blob": result.blob,
        }
        kept: dict[str, Any] = {"id": result.call_id, "message": message_to_json(message)}
        output, final = result.output, None
        if output.ends_run and result.status == "success":
            final = kept["final"] = {"output": output.text, "structured": output.structured}
        if spent is not None:
            kept["calls"] = spent.tool_calls
            self._spent = add_call_usage(self._spent, spent)
        was_pending = result.call_id in self.state.pending
        calls = 0 if spent is None else spent.tool_calls
        self.state.end_call(result.call_id, message, final=final, calls=calls)
        changes = self._waiting_changes() if was_pending else {}
        if spent is not None:
            changes["spent"] = self.spent
        self._add("tool_result", payload, kept, **changes)

    def record_loop(self, id_: str, tool: str, verdict: Verdict) -> None:
        """A call repeats what was done before without anything new coming of it."""
        payload = {"call_id": id_, "tool": tool, "times": verdict.times, "action": verdict.action}
        self._log.add("loop_detected", payload)

    def record_answer(self, answered: InputResponse) -> None:
        """A question of a tool is answered."""
        self.close_question(answered.id, action=answered.action, by=answered.by)

    def record_window_warning(self, fill: ContextUsage) -> None:
        """The model's window fills up."""
        payload = {"used": fill.used, "window": fill.window, "ratio": round(fill.ratio, 3)}
        self._add("compression_warning", payload, {})
        self.state.warned = True

    def record_compaction(self, compacted: CompactionResult, *, taken: int) -> None:
        """The conversation was shortened; so many messages of the inbox are in what stands for it."""
        payload = {
            "before": compacted.before,
            "after": compacted.after,
            "ratio": round(compacted.ratio, 3),
            "dropped": compacted.dropped,
            "kept": compacted.kept,
        }
        history = [message_to_json(each) for each in compacted.history]
        self._add("compression_applied", payload, {"history": history, "taken": taken}, spent=self.spent)
        self.state.apply_compaction(compacted.history, taken=taken)

    def record_resume(self, by: str, *, text: str = "") -> None:
        """It goes on: after a pause, or after its end; `text` as in `RunState.resumed`."""
        was = self.run.status
        self._paused = False
        payload = {"by": by, "from_status": was}
        if was in FINAL_STATUSES:
            spent = self.spent
            kept = {"spent": asdict(spent), "text": text}
            self.state.resume(spent, text)
            self._add(
                "resumed", payload, kept, **self._waiting_changes(), output="", structured=None, problem=""
            )
        else:
            self._add("resumed", payload, None, **self._waiting_changes())

    def record_finish(self, output: str, structured: object) -> None:
        """It has its final answer."""
        payload = {"output": output, "structured": structured}
        self._end("agent_finish", payload, "completed", output=output, structured=structured, problem="")

    def record_abort(self, *, by: str, reason: str, problem: str, output: str) -> None:
        """Somebody ended it; `problem` says so in the language of the goal."""
        self._end("aborted", {"by": by, "reason": reason}, "aborted", output=output, problem=problem)


def _usage(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in _USAGE}
