"""What people tell a run while it is under way.

Orders go through the journal, so that any process can give them, and none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loom_core.agent.run import RunStatus

__all__ = ["Abort", "Answered", "Decided", "Order", "Pause", "Reply", "Resume", "revives"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What becomes of a call that has to be approved, or of which it is not known whether it was done.

    Attributes:
        id: `Pending.id`.
        action: run it; do not; run it with other arguments. For an unknown call, `approve` runs it again and
            `deny` tells the model that nobody knows.
        arguments: for `edit`.
        reason: shown to the model where it is denied.
        by: who decided.
        scope: what an approval holds for: this call; or all calls of the tool in this run, those that are
            asked about now included, as long as the tool stays what it is (`Pending.for_run`).
    """

    id: str
    action: Literal["approve", "deny", "edit"]
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    by: str = ""
    scope: Literal["once", "run"] = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a question of a tool.

    Attributes:
        id: `Pending.id`.
        action: as in `loom_core.tools.interface.Answer`.
        content: what was answered.
        by: who.
    """

    id: str
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Something the user says while the run goes on: the model reads it before its next turn."""

    text: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Begin nothing new; what runs is let end."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on: after a pause, or where it failed or was aborted."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End now: what runs is cancelled."""

    reason: str = ""
    by: str = ""


Order = Decided | Answered | Reply | Pause | Resume | Abort


def revives(order: Order, status: RunStatus) -> bool:
    """Whether a run that has ended as `status` goes on by an order: the user's last words are always read."""
    return isinstance(order, Resume) or (isinstance(order, Reply) and status == "completed")
