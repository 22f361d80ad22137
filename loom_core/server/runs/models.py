"""Data models of runs in the servers' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from loom_core.runs.run import PendingKind

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Pending

__all__ = ["EventInfo", "PendingInfo", "event_info", "pending_info"]


class PendingInfo(BaseModel):
    """Pending input or approval of a run."""

    id: str = Field(description="What a decision names.")
    kind: PendingKind = Field(
        description="May a call be made; may one be made again that may already have been done; the question "
        "of a tool; or, not for the user, an event or an operator."
    )
    tool: str
    arguments: dict[str, Any]
    reason: str
    answer_schema: dict[str, Any] = Field(description="JSON Schema of the answer to a question.")
    for_run: bool = Field(description="Whether it can be approved with scope `run`.")
    deadline: float | None = Field(description="When it counts as refused, in seconds since 1970.")


class EventInfo(BaseModel):
    """An event of a run."""

    seq: int
    type: str
    at: float = Field(description="Seconds since 1970.")
    payload: dict[str, Any]


def pending_info(pending: Pending) -> PendingInfo:
    """Convert a pending input to data."""
    return PendingInfo(
        id=pending.id,
        kind=pending.kind,
        tool=pending.tool,
        arguments=dict(pending.arguments),
        reason=pending.reason,
        answer_schema=dict(pending.schema),
        for_run=pending.for_run,
        deadline=pending.deadline,
    )


def event_info(event: StreamEvent) -> EventInfo:
    """Convert an event to data."""
    return EventInfo(seq=event.seq, type=event.type, at=event.at, payload=dict(event.payload))
