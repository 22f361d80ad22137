"""Public events of a run: they are journaled, streamed and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["FINAL_EVENTS", "EventType", "StreamEvent"]

EventType = Literal[
    "request_start",  # goal, session_id, profile, model; attachments: name, media_type, bytes of each
    "knowledge",  # outcome, passages: [{id, title, source}], problem
    "model_start",  # iteration, model
    "text_delta",  # text
    "reasoning_delta",  # text
    "model_retry",  # problem, attempt, wait: the text streamed in this turn is discarded
    "tool_calls_start",  # calls: [{call_id, tool, arguments}], text
    "tool_start",  # call_id, tool: the call starts; in the journal before anything is done; arguments, if a
    # hook or a person has changed those of the model
    "tool_task",  # call_id, tool: another server continues the call as a task, and the run waits for it, also
    # after a crash
    "tool_retry",  # call_id, tool, status, problem, attempt, attempts, wait: the call failed, and is repeated
    # after `wait` seconds as number `attempt` of `attempts`; nothing of it runs meanwhile
    "tool_progress",  # call_id, done, total, message
    "approval_required",  # pending: the fields of `Pending`
    "approval_decided",  # call_id, action, by, reason, scope
    "tool_result",  # call_id, tool, status (`CallStatus`), text, seconds, stages, blob; warnings, if any
    "loop_detected",  # call_id, tool, times, action: remind|refuse|stop
    "compression_warning",  # used, window, ratio
    "compression_applied",  # before, after, ratio: tokens; dropped, kept: messages
    "usage",  # input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens,
    # estimated, cost: the fields of `Usage`, of this answer; total: the same of the run; finish: why it ended
    "message_received",  # text: a message of the user while it ran
    "input_reviewed",  # a hook replaced messages of the user
    "answer_reviewed",  # hook, action: replaced|rejected|refused, reason: what a hook did with the answer
    "operator_message",  # call_id, by, text: an operator took the conversation, or wrote to the user
    "paused",  # by
    "resumed",  # by, from_status
    "forked",  # run_id, step, given: the events before this one are copies of those of that run, up to that
    # step; given: whether the outcome of the step was given to the fork; it follows then
    "agent_finish",  # output, structured
    "route",  # the fields of `RoutingOutcome`: how a flow was chosen
    "flow_start",  # flow_id, name, message, inputs, config; step_id: the step that runs it, or empty
    "flow_changed",  # config: the configuration has changed since, but not the steps done so far
    "inputs",  # step_id, names: inputs that were given or corrected during the flow
    "step_start",  # step_id, key: with the visit, attempt, what; in the journal before anything is done
    "step_result",  # step_id, status, outputs, seconds, problem, next: the next step
    "branch",  # step_id, branch: a number, also of a case or an item; status: start|success|failure
    "flow_finish",  # output, structured
    "error",  # message, advice, failure
    "aborted",  # by, reason
]
"""The event types; the comments list the keys of each payload."""

FINAL_EVENTS: frozenset[EventType] = frozenset({"agent_finish", "flow_finish", "error", "aborted"})
"""After one of these events a run continues only if it is resumed."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of a run.

    Attributes:
        type: the event type.
        payload: JSON; its keys depend on the type, see `EventType`.
        run_id: the run.
        seq: sequence number in the run, from 1, without gaps. It never changes: a reader continues after the
            last one it has seen.
        at: when, in seconds since 1970.
    """

    type: EventType
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    seq: int = 0
    at: float = 0.0
