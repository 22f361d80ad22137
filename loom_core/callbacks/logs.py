"""`LoggingCallback`: logs the events of an agent's runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from loom_core.callbacks.interface import Callback

if TYPE_CHECKING:
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.run import Run

__all__ = ["LoggingCallback"]

_PIECES: frozenset[EventType] = frozenset({"text_delta", "reasoning_delta", "tool_progress"})
_PROBLEMS: frozenset[EventType] = frozenset(
    {"error", "aborted", "model_retry", "tool_retry", "loop_detected"}
)

# Fields of an event that may be logged: no text of users, models or tools.
_LOGGED_FIELDS: dict[EventType, tuple[str, ...]] = {
    "request_start": ("profile", "model"),
    "knowledge": ("outcome",),
    "model_start": ("iteration", "model"),
    "model_retry": ("attempt", "wait"),
    "tool_start": ("call_id", "tool"),
    "tool_retry": ("call_id", "tool", "status", "attempt", "wait"),
    "approval_decided": ("call_id", "action", "by"),
    "tool_result": ("call_id", "tool", "status", "seconds"),
    "loop_detected": ("tool", "times", "action"),
    "answer_reviewed": ("hook", "action"),
    "compression_warning": ("used", "window"),
    "compression_applied": ("before", "after"),
    "usage": ("input_tokens", "output_tokens", "cost"),
    "paused": ("by",),
    "resumed": ("by", "from_status"),
    "error": ("failure",),
    "aborted": ("by",),
}


class LoggingCallback(Callback):
    """Logs a line for each event: run, type and figures; no text of people, models or tools.

    The fields are also in `extra`, for handlers that write JSON: `run_id`, `event`, `seq`, and the fields of
    the event under `facts`.

    Args:
        logger: the logger; by default `loom_core.callbacks`.
        level: level of normal events; problems are warnings.
        pieces: whether to log text deltas and progress too.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, level: int = logging.INFO, pieces: bool = False
    ) -> None:
        self._logger = logger or logging.getLogger("loom_core.callbacks")
        self._level = level
        self._pieces = pieces

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Log the event."""
        if event.type in _PIECES and not self._pieces:
            return
        level = max(self._level, logging.WARNING) if event.type in _PROBLEMS else self._level
        if not self._logger.isEnabledFor(level):
            return
        facts = {
            name: event.payload[name] for name in _LOGGED_FIELDS.get(event.type, ()) if name in event.payload
        }
        told = "".join(f" {name}={value}" for name, value in facts.items() if value not in (None, ""))
        extra = {"run_id": event.run_id, "event": event.type, "seq": event.seq, "facts": facts}
        self._logger.log(level, "%s #%d %s%s", event.run_id, event.seq, event.type, told, extra=extra)
