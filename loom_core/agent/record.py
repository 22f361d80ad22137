"""Writes down what happens in a run: each event of the loop, with what it changes in run and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from loom_core.agent.spending import with_answer, with_call
from loom_core.agent.state import NudgeKind, RunState
from loom_core.llm.interface import Usage
from loom_core.llm.message_json import message_to_json
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.recorded_run import RecordedRun
from loom_core.runs.run import Spent

if TYPE_CHECKING:
    from loom_core.agent.compaction.compaction import Compacted, Fill
    from loom_core.agent.loop_guard import Verdict
    from loom_core.errors import LoomError
    from loom_core.knowledge.sources.context_retriever import RetrievedContext
    from loom_core.llm.interface import LLMResponse
    from loom_core.llm.messages import Message, ToolCallPart, ToolMessage
    from loom_core.runs.commands import Answered
    from loom_core.runs.journal import RunLog
    from loom_core.tools.calls import CallResult
    from loom_core.tools.permission.permissions import ToolIdentity

__all__ = ["RunRecord"]

_USAGE = tuple(each.name for each in fields(Usage))


class RunRecord(RecordedRun[RunState]):
    """The events of one run that is driven here: each method adds one, and changes `state` with it.

    Attributes:
        state: what the loop goes on from.
    """

    def __init__(self, log: RunLog) -> None:
        super().__init__(log, RunState.restored(log.steps))

    @property
    def spent(self) -> Spent:
        """What it has taken until now."""
        return replace(self._spent, tool_calls=self.state.calls_begun, seconds=self.stopwatch.seconds)

    @property
    def granted_from(self) -> Spent:
        """What it had taken when its budget was granted."""
        return self.state.granted_from

    def begun(self, history: Sequence[Message], *, model: str) -> None:
        """The run begins; the goal is the last message."""
        request = self.run.request
        payload = {
            "goal": request.goal,
            "session_id": request.session_id,
            "profile": request.profile,
            "model": model,
        }
        self._add("request_start", payload, {"history": [message_to_json(each) for each in history]})
        self.state.begun(history)

    def knowledge(self, found: RetrievedContext, *, late: str) -> None:
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
        self.state.told(found.text, late=late)

    def received(self, text: str) -> None:
        """The user said something."""
        self._add("message_received", {"text": text}, {"text": text})
        self.state.received(text)

    def turn_begun(self, nudge: NudgeKind, text: str, *, model: str, closing: str = "") -> None:
        """The model is asked."""
        payload = {"iteration": self._spent.iterations + 1, "model": model}
        self._add("model_start", payload, {"nudge": nudge, "text": text, "closing": closing})
        self.state.turn_begun(nudge, text, closing=closing)

    def text(self, text: str) -> None:
        """More of the answer."""
        self._log.add("text_delta", {"text": text})

    def reasoning(self, text: str) -> None:
        """More of what the model thinks."""
        self._log.add("reasoning_delta", {"text": text})

    def retried(self, error: LoomError, *, attempt: int, wait: float) -> None:
        """The answer broke off, and the model is asked again after a wait of so many seconds."""
        self._log.add("model_retry", {"problem": str(error), "attempt": attempt, "wait": round(wait, 3)})

    def answered(self, response: LLMResponse) -> None:
        """The model has answered."""
        message = self.state.with_unused_ids(response.message)
        response = response if message is response.message else replace(response, message=message)
        self._spent = with_answer(self._spent, response.usage)
        used, total = _usage(response.usage), _usage(self._spent.usage)
        kept = {"message": message_to_json(message), "finish": response.finish, "usage": used}
        self._add("usage", {**used, "total": total}, kept, spent=self.spent)
        self.state.answered(response)

    def compacting_took(self, usage: Usage) -> None:
        """A model was asked to shorten the conversation, which counts, but not as a turn."""
        iterations = self._spent.iterations
        self._spent = replace(with_answer(self._spent, usage), iterations=iterations)

    def calls_announced(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """The model wants tools called; people are shown this."""
        text = self.state.answer.content if self.state.answer is not None else ""
        self._add("tool_calls_start", {"calls": list(calls), "text": text}, {})
        self.state.announced = True

    def call_started(self, call: ToolCallPart, tool: str, *, approved: ToolIdentity | None = None) -> None:
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
        self.state.call_started(call.id, arguments, approved=approved)

    def call_ended(
        self, result: CallResult, message: ToolMessage | None = None, *, spent: Spent | None = None
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
            self._spent = with_call(self._spent, spent)
        was_pending = result.call_id in self.state.pending
        calls = 0 if spent is None else spent.tool_calls
        self.state.call_ended(result.call_id, message, final=final, calls=calls)
        changes = self._waiting() if was_pending else {}
        if spent is not None:
            changes["spent"] = self.spent
        self._add("tool_result", payload, kept, **changes)

    def loop_detected(self, id_: str, tool: str, verdict: Verdict) -> None:
        """A call repeats what was done before without anything new coming of it."""
        payload = {"call_id": id_, "tool": tool, "times": verdict.times, "action": verdict.action}
        self._log.add("loop_detected", payload)

    def answered_by(self, answered: Answered) -> None:
        """A question of a tool is answered."""
        self.question_closed(answered.id, action=answered.action, by=answered.by)

    def filling(self, fill: Fill) -> None:
        """The model's window fills up."""
        payload = {"used": fill.used, "window": fill.window, "ratio": round(fill.ratio, 3)}
        self._add("compression_warning", payload, {})
        self.state.warned = True

    def compacted(self, compacted: Compacted, *, taken: int) -> None:
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
        self.state.compacted(compacted.history, taken=taken)

    def resumed_by(self, by: str, *, text: str = "") -> None:
        """It goes on: after a pause, or after its end; `text` as in `RunState.resumed`."""
        was = self.run.status
        self._paused = False
        payload = {"by": by, "from_status": was}
        if was in FINAL_STATUSES:
            spent = self.spent
            kept = {"spent": asdict(spent), "text": text}
            self.state.resumed(spent, text)
            self._add("resumed", payload, kept, **self._waiting(), output="", structured=None, problem="")
        else:
            self._add("resumed", payload, None, **self._waiting())

    def finished(self, output: str, structured: object) -> None:
        """It has its final answer."""
        payload = {"output": output, "structured": structured}
        self._end("agent_finish", payload, "completed", output=output, structured=structured, problem="")

    def aborted(self, *, by: str, reason: str, problem: str, output: str) -> None:
        """Somebody ended it; `problem` says so in the language of the goal."""
        self._end("aborted", {"by": by, "reason": reason}, "aborted", output=output, problem=problem)


def _usage(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in _USAGE}
