"""State of an agent run, and the recorder of its events: each event changes the run and the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.agent.attachments import attachment_parts
from loom_core.agent.run_context import RunContext
from loom_core.agent.spending import add_answer_usage, add_call_usage
from loom_core.llm.interface import LLMResponse, Usage
from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.llm.messages import AssistantMessage, Message, TextPart, ToolCallPart, ToolMessage, UserMessage
from loom_core.runs.commands import ApprovalDecision
from loom_core.runs.executor import RunRecorder
from loom_core.runs.journal.rows.runs import FINAL_STATUSES, parse_usage
from loom_core.runs.run import Pending, RunUsage
from loom_core.tools.permission.permissions import ToolIdentity

if TYPE_CHECKING:
    from loom_core.agent.compaction.compaction import CompactionResult, ContextUsage
    from loom_core.agent.loop_guard import Verdict
    from loom_core.errors import LoomError
    from loom_core.knowledge.sources.context_retriever import RetrievedContext
    from loom_core.llm.messages import UserPart
    from loom_core.runs.commands import InputResponse
    from loom_core.runs.events import EventType
    from loom_core.runs.journal import RunLog, Step
    from loom_core.tools.calls import CallResult
    from loom_core.tools.execution.retries import CallRetry

__all__ = ["AgentRunRecorder", "OpenCall", "RepromptKind", "RunState"]

_ATTACHED = "attached"
"""Key of a stored message that begins with the attachments of the run."""

RepromptKind = Literal["none", "go_on", "paused", "empty", "late", "repair", "rejected", "closing"]
"""Why the model is prompted again after an answer without tool calls, or for the last time: the answer was
cut at its limit; the vendor paused it; it was empty; something came while it was written; it does not fit the
schema; a hook rejected it; the budget is exhausted, and the model has to answer with what it has."""


@dataclass(slots=True)
class OpenCall:
    """A tool call of the last answer.

    Attributes:
        part: the call as the model wrote it; when it runs, with the arguments of a person or a hook, if any.
        started: whether it was started.
        running: whether an attempt was started whose outcome is not recorded; after a crash it is unknown.
        failed_attempts: number of attempts that failed, after which it is retried.
        changed: whether its arguments differ from the model's.
        task_id: task of another server that its current attempt has become; empty for none.
        result: the result for the model; None while there is none.
    """

    part: ToolCallPart
    started: bool = False
    running: bool = False
    failed_attempts: int = 0
    changed: bool = False
    task_id: str = ""
    result: ToolMessage | None = None


@dataclass(slots=True)
class RunState:
    """State of an agent run. Only the journaled events change it, in order.

    So it is the same whether it was built live or restored from the journal (`restore`).

    Attributes:
        history: the messages that the model has read and written, oldest first, without the system prompt.
        goal: the goal as the model reads it.
        inbox: messages that it reads before its next turn, after the results of its calls.
        answer: its last answer; None before the first one, and during a turn.
        calls: tool calls of the last answer, by id, in order.
        announced: whether the calls were announced to people.
        final: the final answer, if a call has ended the run: `output`, and the same as `structured` data.
        reviewed: the final answer that took the place of the model's, likewise.
        pending: unanswered requests to people, by id.
        decisions: their decisions about calls that have not started since, by id.
        decided_about: the requests for these decisions.
        approved: tools that were approved for the rest of the run, with their fingerprints.
        looked: whether passages were retrieved.
        turns: number of turns started, including interrupted ones.
        calls_begun: number of calls started; a call repeated after a crash counts again, a retry or the
            wait for a task does not; calls of child runs count too.
        refused_arguments: how often in a row a tool has asked for other arguments, by the name of its calls;
            once for each turn.
        nudge: the reprompt kind of the current or interrupted turn; `none` after the answer.
        nudges: number of reprompts by kind since the last progress.
        replies: messages of the user since the goal, oldest first.
        unread: number of the latest of them that the model has not read.
        closing: why this is the last turn, if the budget is exhausted; else empty.
        prefix: the beginning of an answer that the last one continues.
        granted_from: resources used when the budget was granted.
        reported: usage of the last turn as the vendor reported it.
        warned: whether a warning about the context usage was recorded.
        attached: the attachments, as the message with the goal begins with them. Events refer to them, so
            that the journal stores them once.
    """

    history: list[Message] = field(default_factory=list[Message])
    goal: str = ""
    inbox: list[Message] = field(default_factory=list[Message])
    answer: LLMResponse | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    announced: bool = False
    final: Mapping[str, Any] | None = None
    reviewed: Mapping[str, Any] | None = None
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    decisions: dict[str, ApprovalDecision] = field(default_factory=dict[str, ApprovalDecision])
    decided_about: dict[str, Pending] = field(default_factory=dict[str, Pending])
    approved: set[ToolIdentity] = field(default_factory=set[ToolIdentity])
    looked: bool = False
    turns: int = 0
    calls_begun: int = 0
    refused_arguments: Counter[str] = field(default_factory=Counter[str])
    nudge: RepromptKind = "none"
    nudges: Counter[RepromptKind] = field(default_factory=Counter[RepromptKind])
    replies: list[str] = field(default_factory=list[str])
    unread: int = 0
    closing: str = ""
    prefix: str = ""
    granted_from: RunUsage = field(default_factory=RunUsage)
    reported: Usage | None = None
    warned: bool = False
    attached: tuple[UserPart, ...] = ()
    _ids: set[str] = field(default_factory=set[str])
    _refused_now: set[str] = field(default_factory=set[str])

    @property
    def open_calls(self) -> list[OpenCall]:
        """Calls of the last answer without a result."""
        return [call for call in self.calls.values() if call.result is None]

    @property
    def output(self) -> str:
        """The text of the last answer, with the beginning from earlier answers; empty if there is none."""
        return self.prefix + (self.answer.content if self.answer is not None else "")

    @property
    def has_news(self) -> bool:
        """Whether the model has to read something before the run can end.

        If a call has ended the run, only a message of the user keeps it from that, but no late passages.
        """
        return bool(self.inbox if self.final is None else self.unread)

    def conversation(self) -> list[Message]:
        """Return the history with the results of the last calls and the inbox."""
        results = (call.result for call in self.calls.values() if call.result is not None)
        return [*self.history, *results, *self.inbox]

    def conversation_of_run(self) -> list[Message]:
        """Return the conversation from the goal on, without that of earlier runs of the session."""
        said = self.conversation()
        goals = (n for n, each in enumerate(said) if isinstance(each, UserMessage) and self._is_goal(each))
        return said[max(goals, default=0) :]

    def _is_goal(self, message: UserMessage) -> bool:
        return message.parts[-1:] == (TextPart(self.goal),)

    def start(self, history: Sequence[Message]) -> None:
        """Start the run; the last message ends with the goal."""
        self.history, self.goal = list(history), _goal_of(history)

    def add_passages(self, text: str, *, late: str = "") -> None:
        """Add retrieved passages: before the goal if no turn has started, else at the end.

        Args:
            text: the passages, with an explanation.
            late: note after them if the model has already started; empty for notes about the user.
        """
        self.looked = self.looked or bool(late)
        if self.turns:
            self.inbox.append(UserMessage((TextPart(f"{text}\n\n{late}" if late else text),)))
        else:
            self.history.insert(len(self.history) - 1, UserMessage((TextPart(text),)))

    def add_message(self, text: str) -> None:
        """Add a message of the user."""
        self.inbox.append(UserMessage((TextPart(text),)))
        self.replies.append(text)
        self.unread += 1
        self.nudges.clear()
        self.refused_arguments.clear()

    def replace_messages(self, texts: Sequence[str]) -> None:
        """Replace the messages of the user that the model has not read yet."""
        old = self.replies[len(self.replies) - len(texts) :]
        self.replies[len(self.replies) - len(texts) :] = texts
        place = 0
        for before, after in zip(old, texts, strict=True):
            place = self.inbox.index(UserMessage((TextPart(before),)), place)
            self.inbox[place] = UserMessage((TextPart(after),))
            place += 1

    def replace_last_text(self, text: str, *, final: Mapping[str, Any] | None = None) -> None:
        """Replace the text of the last answer in the conversation, but no result of a call that ends the run.

        Args:
            text: the text.
            final: the final answer, if this is it.
        """
        self.reviewed = final
        last = self.history[-1] if self.history and self.final is None else None
        if isinstance(last, AssistantMessage):
            kept = (part for part in last.parts if not isinstance(part, TextPart))
            self.history[-1] = replace(last, parts=(*kept, TextPart(text)))

    def start_turn(self, nudge: RepromptKind, text: str, *, closing: str = "") -> None:
        """Start a turn: the model reads everything new, and the reprompt."""
        self.prefix = self.output if nudge in {"go_on", "paused"} else ""
        self.history += (call.result for call in self.calls.values() if call.result is not None)
        self.history += self.inbox
        if text:
            self.history.append(UserMessage((TextPart(text),)))
        self.inbox, self.calls, self.answer, self.announced, self.final = [], {}, None, False, None
        self._refused_now.clear()
        self.reviewed, self.unread = None, 0
        self.closing, self.nudge = closing, nudge
        self.nudges[nudge] += 1
        self.turns += 1

    def add_response(self, response: LLMResponse) -> None:
        """Add the answer of the model; the ids of its calls must be unused (see `with_unused_ids`)."""
        self.history.append(response.message)
        self.answer, self.reported, self.nudge = response, response.usage, "none"
        self.calls = {part.id: OpenCall(part) for part in response.message.tool_calls}
        self._ids |= self.calls.keys()
        if self.calls:
            self.nudges = Counter({"rejected": self.nudges["rejected"]})

    def with_unused_ids(self, message: AssistantMessage) -> AssistantMessage:
        """Return the answer with call ids that are unique in the run."""
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
        """Start a call; this consumes the decision about it.

        Args:
            id_: id of the call.
            arguments: its arguments, if they differ from the model's; else None.
            approved: its tool, if a person has approved it for the rest of the run.
        """
        call = self.calls[id_]
        self.calls_begun += not (call.failed_attempts or call.task_id)
        call.started = call.running = True
        if arguments is not None:
            call.changed = True
            call.part = replace(call.part, arguments=arguments, unreadable="")
        self.decisions.pop(id_, None)
        self.decided_about.pop(id_, None)
        if approved is not None:
            self.approved.add(approved)

    def retry_call(self, id_: str) -> None:
        """Record that an attempt has failed, and that the call is retried."""
        call = self.calls[id_]
        call.running, call.task_id = False, ""
        call.failed_attempts += 1

    def end_call(
        self,
        id_: str,
        result: ToolMessage,
        *,
        final: Mapping[str, Any] | None = None,
        calls: int = 0,
        refuses_arguments: bool = False,
    ) -> None:
        """End a call with a result; no decision about it is needed any more.

        Args:
            id_: id of the call.
            result: the result for the model.
            final: the final answer, if the call ends the run; else None. The first one of a turn counts.
            calls: number of calls in its child runs.
            refuses_arguments: whether the tool asks for other arguments.
        """
        call = self.calls[id_]
        call.result, name = result, call.part.name
        if refuses_arguments:
            self.refused_arguments[name] += name not in self._refused_now
            self._refused_now.add(name)
        elif not result.failed:
            self.refused_arguments.pop(name, None)
        self.pending.pop(id_, None)
        self.final = self.final or final
        self.calls_begun += calls

    def add_pending(self, pending: Pending) -> None:
        """Add a pending request to people."""
        self.pending[pending.id] = pending

    def apply_decision(self, decision: ApprovalDecision) -> None:
        """Apply a decision about a call."""
        if (pending := self.pending.pop(decision.id, None)) is not None:
            self.decided_about[decision.id] = pending
        self.decisions[decision.id] = decision

    def apply_compaction(self, history: Sequence[Message], *, taken: int) -> None:
        """Apply a compaction of the conversation.

        An answer without calls still counts as the last answer, unless messages came after it.

        Args:
            history: the compacted conversation.
            taken: number of messages of the inbox that are in it.
        """
        self.history, self.inbox = list(history), self.inbox[taken:]
        if self.calls or taken:
            self.answer, self.calls = None, {}
        self.reported, self.warned = None, False

    def resume(self, spent: RunUsage, text: str) -> None:
        """Resume after the end of the run: the budget is granted again.

        Args:
            spent: resources used until then.
            text: message to the model, if its last answer would otherwise end the run; else empty.
        """
        self.granted_from = spent
        self.nudges.clear()
        self.refused_arguments.clear()
        self.closing = ""
        if text:
            self.inbox.append(UserMessage((TextPart(text),)))

    def fork(self) -> None:
        """Become the state of a fork: its budget, and what people approve for the run, are its own."""
        self.calls_begun, self.granted_from = 0, RunUsage()
        self.approved.clear()
        self.nudges.clear()
        self.refused_arguments.clear()
        self.closing = ""

    def history_to_json(self, history: Sequence[Message]) -> list[dict[str, Any]]:
        """Serialize messages; the one with the attachments refers to them."""
        return [self._message_to_json(message) for message in history]

    def _message_to_json(self, message: Message) -> dict[str, Any]:
        count = len(self.attached)
        if count and isinstance(message, UserMessage) and message.parts[:count] == self.attached:
            return {**message_to_json(replace(message, parts=message.parts[count:])), _ATTACHED: True}
        return message_to_json(message)

    def _history_from_json(self, kept: Sequence[Mapping[str, Any]]) -> list[Message]:
        return [self._message_from_json(each) for each in kept]

    def _message_from_json(self, kept: Mapping[str, Any]) -> Message:
        message = message_from_json(kept)
        if _ATTACHED in kept and isinstance(message, UserMessage):
            return replace(message, parts=(*self.attached, *message.parts))
        return message

    @classmethod
    def restore(cls, steps: Sequence[Step], *, attached: tuple[UserPart, ...] = ()) -> RunState:
        """Restore the state from the journaled events, and the attachments of the run."""
        state = cls(attached=attached)
        for step in steps:
            state.apply(step.event.type, step.state)
        return state

    def apply(self, type_: str, kept: Mapping[str, Any]) -> None:  # noqa: C901 - one case an event
        """Apply an event by its journaled state."""
        match type_:
            case "request_start":
                self.start(self._history_from_json(kept["history"]))
            case "knowledge":
                self.add_passages(kept["text"], late=kept["late"])
            case "message_received":
                self.add_message(kept["text"])
            case "answer_reviewed":
                self.replace_last_text(kept["text"], final=kept.get("final"))
            case "input_reviewed":
                self.replace_messages(kept["texts"])
            case "model_start":
                self.start_turn(kept["nudge"], kept["text"], closing=kept["closing"])
            case "usage":
                self.add_response(_parse_response(kept))
            case "tool_calls_start":
                self.announced = True
            case "tool_start":
                approved = ToolIdentity(**kept["approved"]) if "approved" in kept else None
                self.start_call(kept["id"], kept["arguments"], approved=approved)
            case "tool_task":
                self.calls[kept["id"]].task_id = kept["task"]
            case "tool_retry":
                self.retry_call(kept["id"])
            case "tool_result":
                self.end_call(
                    kept["id"],
                    cast("ToolMessage", message_from_json(kept["message"])),
                    final=kept.get("final"),
                    calls=kept.get("calls", 0),
                    refuses_arguments=kept.get("refuses_arguments", False),
                )
            case "approval_required":
                self.add_pending(Pending(**kept))
            case "approval_decided":
                self.apply_decision(ApprovalDecision(**kept))
            case "compression_warning":
                self.warned = True
            case "compression_applied":
                self.apply_compaction(self._history_from_json(kept["history"]), taken=kept["taken"])
            case "resumed":
                self.resume(parse_usage(kept["spent"]), kept["text"])
            case "forked":
                self.fork()
            case _:
                pass  # an event of a newer version that changes nothing here


def _goal_of(history: Sequence[Message]) -> str:
    """Return the goal: the last text of the last message, which may begin with attachments."""
    message = history[-1]
    assert isinstance(message, UserMessage)
    (goal,) = (part.text for part in message.parts[-1:] if isinstance(part, TextPart))
    return goal


def _parse_response(kept: Mapping[str, Any]) -> LLMResponse:
    message = cast("AssistantMessage", message_from_json(kept["message"]))
    return LLMResponse(message, kept["finish"], Usage(**kept["usage"]))


class AgentRunRecorder(RunRecorder[RunState]):
    """Recorder of the events of one agent run: each method adds an event and applies it to `state`.

    Attributes:
        state: the state that the run resumes from.
    """

    def __init__(self, log: RunLog, *, streams_text: bool = True) -> None:
        """Create the recorder.

        Args:
            log: the log of the run.
            streams_text: whether events have the model's text while it is written, not only the answer.
        """
        attached = attachment_parts(log.run.request.attachments)
        super().__init__(log, RunState.restore(log.steps, attached=attached))
        self._streams_text = streams_text

    @property
    def spent(self) -> RunUsage:
        """Resources used so far."""
        return replace(self._spent, tool_calls=self.state.calls_begun, seconds=self.stopwatch.seconds)

    def context(self, deps: object) -> RunContext[object]:
        """Return the context of the run, for its tools and instructions.

        Args:
            deps: the program's dependencies.
        """
        run = self.run
        return RunContext(run_id=run.id, depth=run.request.depth + 1, run=run, deps=deps)

    @property
    def granted_from(self) -> RunUsage:
        """Resources used when the budget was granted."""
        return self.state.granted_from

    def record_start(self, history: Sequence[Message], *, model: str) -> None:
        """Record the start of the run; the last message ends with the goal."""
        request = self.run.request
        payload: dict[str, Any] = {
            "goal": _goal_of(history),
            "session_id": request.session_id,
            "profile": request.profile,
            "model": model,
        }
        if attached := request.attachments:
            payload["attachments"] = [
                {"name": each.name, "media_type": each.media_type, "bytes": len(each.data)}
                for each in attached
            ]
        self._add("request_start", payload, {"history": self.state.history_to_json(history)})
        self.state.start(history)

    def _apply(self, type_: EventType, payload: dict[str, Any], kept: dict[str, Any]) -> None:
        """Add an event, and change the state by it as when the run is restored."""
        self._add(type_, payload, kept)
        self.state.apply(type_, kept)

    def record_passages(self, found: RetrievedContext, *, late: str) -> None:
        """Record retrieved passages; `late` is the note after passages that come during the first turn."""
        passages = [
            {"id": item.id, "title": str(item.metadata.get("title", "")), "source": item.source}
            for item in found.items
        ]
        payload = {"outcome": found.outcome, "passages": passages, "problem": found.problem}
        if not found.text:
            self._log.add("knowledge", payload)
            return
        self._apply("knowledge", payload, {"text": found.text, "late": late})

    def record_message(self, text: str) -> None:
        """Record a message of the user."""
        self._apply("message_received", {"text": text}, {"text": text})

    def record_replaced_messages(self, texts: Sequence[str]) -> None:
        """Record that hooks replaced the messages of the user that the model has not read yet."""
        self._apply("input_reviewed", {}, {"texts": list(texts)})

    def record_rejected_answer(self, hook: str, reason: str) -> None:
        """Record that a hook sends the answer back to the model."""
        self._log.add("answer_reviewed", {"hook": hook, "action": "rejected", "reason": reason})

    def record_refused_answer(self, hook: str, reason: str, *, notice: str) -> None:
        """Record that a hook refused the answer; `notice` takes its place in the conversation."""
        self._apply(
            "answer_reviewed", {"hook": hook, "action": "refused", "reason": reason}, {"text": notice}
        )

    def record_replaced_answer(self, hook: str, output: str, structured: Mapping[str, Any] | None) -> None:
        """Record the answer that takes the place of the model's, in the run and in the conversation."""
        final = {"output": output, "structured": structured}
        payload = {"hook": hook, "action": "replaced", "reason": ""}
        self._apply("answer_reviewed", payload, {"text": output, "final": final})

    def record_turn_start(self, nudge: RepromptKind, text: str, *, model: str, closing: str = "") -> None:
        """Record the start of a turn."""
        payload = {"iteration": self._spent.iterations + 1, "model": model}
        self._apply("model_start", payload, {"nudge": nudge, "text": text, "closing": closing})

    def record_text(self, text: str) -> None:
        """Record a piece of the answer."""
        if self._streams_text:
            self._log.add("text_delta", {"text": text})

    def record_reasoning(self, text: str) -> None:
        """Record a piece of the model's reasoning."""
        if self._streams_text:
            self._log.add("reasoning_delta", {"text": text})

    def record_retry(self, error: LoomError, *, attempt: int, wait: float) -> None:
        """Record that the answer broke off, and that the request is retried after `wait` seconds."""
        self._log.add("model_retry", {"problem": str(error), "attempt": attempt, "wait": round(wait, 3)})

    def record_response(self, response: LLMResponse) -> None:
        """Record the answer of the model."""
        message = self.state.with_unused_ids(response.message)
        response = response if message is response.message else replace(response, message=message)
        self._spent = add_answer_usage(self._spent, response.usage)
        used, total = asdict(response.usage), asdict(self._spent.usage)
        kept = {"message": message_to_json(message), "finish": response.finish, "usage": used}
        payload = {**used, "total": total, "finish": response.finish}
        self._add("usage", payload, kept, spent=self.spent)
        self.state.add_response(response)

    def add_compaction_usage(self, usage: Usage) -> None:
        """Add the usage of a compaction; it does not count as a turn."""
        iterations = self._spent.iterations
        self._spent = replace(add_answer_usage(self._spent, usage), iterations=iterations)

    def record_calls(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Announce the tool calls of the model to people."""
        answer = self.state.answer
        text = answer.content if answer is not None and self._streams_text else ""
        self._apply("tool_calls_start", {"calls": list(calls), "text": text}, {})

    def record_call_start(
        self, call: ToolCallPart, tool: str, *, approved: ToolIdentity | None = None
    ) -> None:
        """Record the start of a call with its final arguments; commit this before the call runs.

        Args:
            call: the call.
            tool: name of the tool, for people.
            approved: the tool, if a person has approved it for the rest of the run.
        """
        known = self.state.calls[call.id]
        arguments = None if call.arguments is known.part.arguments else dict(call.arguments)
        payload: dict[str, Any] = {"call_id": call.id, "tool": tool}
        if arguments is not None or known.changed:
            payload["arguments"] = dict(call.arguments)
        kept: dict[str, Any] = {"id": call.id, "arguments": arguments}
        if approved is not None:
            kept["approved"] = asdict(approved)
        self._apply("tool_start", payload, kept)

    def record_call_task(self, call_id: str, tool: str, task_id: str) -> None:
        """Record that another server continues a call as a task.

        A client that knows the id may control the task, so the event does not show it.
        """
        self._apply("tool_task", {"call_id": call_id, "tool": tool}, {"id": call_id, "task": task_id})

    def record_call_retry(self, call_id: str, tool: str, retry: CallRetry) -> None:
        """Record that an attempt of a call has failed, and that the call is retried."""
        payload = {"call_id": call_id, "tool": tool, **asdict(retry), "wait": round(retry.wait, 3)}
        self._apply("tool_retry", payload, {"id": call_id})

    def record_call_end(
        self, result: CallResult, message: ToolMessage | None = None, *, spent: RunUsage | None = None
    ) -> None:
        """Record the result of a call.

        Args:
            result: the result.
            message: message to the model, if it differs from the result's own.
            spent: resources used by its child runs.
        """
        message = message or result.message
        stages = {stage: round(seconds, 6) for stage, seconds in result.stages.items()}
        payload: dict[str, Any] = {
            "call_id": result.call_id,
            "tool": result.tool,
            "status": result.status,
            "text": message.text,
            "seconds": stages.get("execute", 0.0),
            "stages": stages,
            "blob": result.blob,
        }
        if result.output.warnings:
            payload["warnings"] = list(result.output.warnings)
        kept: dict[str, Any] = {"id": result.call_id, "message": message_to_json(message)}
        output, final = result.output, None
        if output.ends_run and result.status == "success":
            final = kept["final"] = {"output": output.text, "structured": output.structured}
            if output.is_handoff:
                final["is_handoff"] = True
        if spent is not None:
            kept["calls"] = spent.tool_calls
            self._spent = add_call_usage(self._spent, spent)
        refuses = output.failure is not None and output.failure.kind == "arguments"
        if refuses:
            kept["refuses_arguments"] = True
        was_pending = result.call_id in self.state.pending
        calls = 0 if spent is None else spent.tool_calls
        self.state.end_call(result.call_id, message, final=final, calls=calls, refuses_arguments=refuses)
        changes = self._waiting_changes() if was_pending else {}
        if spent is not None:
            changes["spent"] = self.spent
        self._add("tool_result", payload, kept, **changes)

    def record_loop(self, id_: str, tool: str, verdict: Verdict) -> None:
        """Record that the loop guard detected a repeated call."""
        payload = {"call_id": id_, "tool": tool, "times": verdict.times, "action": verdict.action}
        self._log.add("loop_detected", payload)

    def record_answer(self, answered: InputResponse) -> None:
        """Record the answer to a question of a tool."""
        self.close_question(answered.id, action=answered.action, by=answered.by)

    def record_window_warning(self, fill: ContextUsage) -> None:
        """Record a warning that the model's context window is filling up."""
        payload = {"used": fill.used, "window": fill.window, "ratio": round(fill.ratio, 3)}
        self._apply("compression_warning", payload, {})

    def record_compaction(self, compacted: CompactionResult, *, taken: int) -> None:
        """Record a compaction; `taken` messages of the inbox are in the new history."""
        payload = {
            "before": compacted.before,
            "after": compacted.after,
            "ratio": round(compacted.ratio, 3),
            "dropped": compacted.dropped,
            "kept": compacted.kept,
        }
        history = self.state.history_to_json(compacted.history)
        self._add("compression_applied", payload, {"history": history, "taken": taken}, spent=self.spent)
        self.state.apply_compaction(compacted.history, taken=taken)

    def record_resume(self, by: str, *, text: str = "") -> None:
        """Record that the run resumes, after a pause or after its end; `text` as in `RunState.resume`."""
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
        """Record the final answer, which ends the run."""
        if not self._streams_text:
            self._log.add("text_delta", {"text": output})
        payload = {"output": output, "structured": structured}
        self._end("agent_finish", payload, "completed", output=output, structured=structured, problem="")

    def record_abort(self, *, by: str, reason: str, problem: str, output: str) -> None:
        """Record that the run was aborted; `problem` says so in the language of the goal."""
        self._end("aborted", {"by": by, "reason": reason}, "aborted", output=output, problem=problem)
