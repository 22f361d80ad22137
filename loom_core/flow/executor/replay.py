"""The state of a flow from what its journal tells: the same changes again, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom_core.flow.executor.frame import Frame, Next, digests_from
from loom_core.flow.executor.state import FlowState
from loom_core.runs.orders import Answered, Decided
from loom_core.runs.run import Pending
from loom_core.tools.permissions import ToolIdentity

if TYPE_CHECKING:
    from loom_core.runs.journal import Step

__all__ = ["restored"]


def restored(steps: Sequence[Step]) -> FlowState:
    """The state after the steps of a journal."""
    state = FlowState()
    for step in steps:
        _again(state, step.event.type, step.event.payload, step.state)
    return state


def _again(  # noqa: C901 - one case an event
    state: FlowState, type_: str, told: Mapping[str, Any], kept: Mapping[str, Any]
) -> None:
    match type_:
        case "flow_start":
            if not kept["path"]:
                state.message, state.config = told["message"], told["config"]
            state.frame_begun(Frame.from_json(kept))
        case "branch":
            state.frame_begun(Frame.from_json(kept))
        case "flow_changed":
            state.config = told["config"]
            for path, digests in kept["digests"].items():
                state.frames[path].digests = digests_from(digests)
        case "inputs":
            state.given(
                kept["path"],
                kept["inputs"],
                answered=kept["answered"],
                decided=kept["decided"],
                back_to=kept.get("back_to", ""),
            )
        case "step_start":
            approved = kept["approved"]
            whole = approved if isinstance(approved, bool) else ToolIdentity(**approved)
            state.step_begun(
                kept["path"],
                kept["step"],
                changes=kept.get("changes", kept["risky"]),
                risky=kept["risky"],
                approved=whole,
                tool=kept["tool"],
            )
        case "step_result":
            state.step_ended(
                kept["path"],
                kept["step"],
                status=told["status"],
                outputs=told["outputs"],
                problem=told["problem"],
                said=kept.get("said", ""),
                following=Next(**told["next"]),
                maybe_done=kept.get("maybe_done", told["status"] == "unknown"),
            )
        case "approval_required":
            state.calls.add(kept["id"])
            state.asked(Pending(**kept))
        case "approval_decided" if "content" in kept:
            state.answered(Answered(**kept))
        case "approval_decided":
            state.decided(Decided(**kept))
        case "message_received":
            state.replies.append(told["text"])
        case "resumed":
            state.resumed(kept["seconds"])
            if "retry" in kept:
                digests = {path: digests_from(each) for path, each in kept["digests"].items()}
                state.retried(
                    kept["path"],
                    kept["retry"],
                    digests,
                    config=kept["config"],
                    inputs=kept.get("inputs", {}),
                )
        case "flow_finish" | "error" | "aborted":
            state.pending.clear()
        case _:
            pass  # an event of a newer version that changes nothing here
