"""How calls wait for the runs of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from loom_agent.texts import question_of
from loom_agent.wording import Wording
from loom_core.knowledge.text.control_characters import visible
from loom_core.server.calls.long_polling import Attending

if TYPE_CHECKING:
    from loom_agent.service import Service
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.run import Pending, Run

__all__ = ["ProgressLines", "attending"]


def attending(service: Service) -> Attending:
    """Waiting for the runs of a service, in the language of their goals."""
    return Attending(service, _question, _lines)


def _question(run: Run, pending: Pending) -> str:
    return question_of(pending, Wording.for_goal(run.request.goal))


def _lines(run: Run) -> Callable[[StreamEvent], str]:
    return ProgressLines(Wording.for_goal(run.request.goal)).line


_TAIL = 80  # characters of what the model is writing
_SHOWN = 120

_Line = Callable[["Wording", Mapping[str, Any]], str]


class ProgressLines:
    """Says each event of a run in a line; of what the model writes, the end.

    Args:
        wording: in which language.
    """

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._tail = ""

    def line(self, event: StreamEvent) -> str:
        """The line of an event; empty for one that tells people nothing."""
        if event.type == "text_delta":
            self._tail = (self._tail + str(event.payload["text"]))[-4 * _TAIL :]
            return visible(" ".join(self._tail.split())[-_TAIL:])
        if event.type in {"model_start", "model_retry"}:
            self._tail = ""
        say = _LINES.get(event.type)
        return visible(say(self._wording, event.payload))[:_SHOWN] if say else ""


def _ended(wording: Wording, payload: Mapping[str, Any]) -> str:
    if payload["status"] == "success":
        return wording.done.format(tool=payload["tool"], seconds=payload["seconds"])
    return wording.failed.format(tool=payload["tool"], status=payload["status"])


_LINES: Mapping[EventType, _Line] = {
    "model_start": lambda say, it: say.starts.format(model=it["model"], turn=it["iteration"]),
    "model_retry": lambda say, it: say.retried.format(problem=it["problem"]),
    "tool_start": lambda say, it: say.uses.format(tool=it["tool"]),
    "tool_progress": lambda say, it: f"{it['message']} {_share(it['done'], it['total'])}".lstrip(),
    "tool_result": _ended,
    "approval_required": lambda say, it: say.asks.format(tool=it["pending"]["tool"]),
    "approval_decided": lambda say, it: say.decided.format(action=it["action"]),
    "compression_applied": lambda say, it: say.compacted.format(before=it["before"], after=it["after"]),
    "agent_finish": lambda say, it: say.finished,
    "error": lambda say, it: str(it["message"]),
    "aborted": lambda say, it: dict(say.statuses)["aborted"],
    "paused": lambda say, it: dict(say.statuses)["paused"],
}


def _share(done: float, total: float | None) -> str:
    return f"{done:g}" if total is None else f"{done:g} / {total:g}"
