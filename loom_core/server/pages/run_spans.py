"""What took time in a run, and how much: its events, put together to spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.runs.events import FINAL_EVENTS

if TYPE_CHECKING:
    from loom_core.runs.events import EventType, StreamEvent

__all__ = ["Kind", "Span", "seconds_by_kind", "spans_of", "waits_of"]

Kind: TypeAlias = Literal["model", "tool", "child", "step", "people", "pause", "compaction", "knowledge"]

# Several may be open at a moment, which counts as one kind: a call that waits for a person waits.
_COUNTS_AS: Sequence[Kind] = ("people", "pause", "compaction", "model", "child", "tool", "step", "knowledge")
_WAITING: frozenset[Kind] = frozenset({"people", "pause"})
_WAIT_SECONDS = 2.0  # a shorter one is not worth folding

_BEGINS: Mapping[EventType, tuple[Kind, str, str]] = {
    "model_start": ("model", "", "model"),
    "tool_start": ("tool", "call_id", "tool"),
    "step_start": ("step", "step_id", "step_id"),
    "compression_warning": ("compaction", "", ""),
    "paused": ("pause", "", ""),
}
"""The kind of what begins, and where its key and its title are in the payload; empty for nowhere."""

_GOES_ON: Mapping[EventType, tuple[Kind, str]] = {
    "text_delta": ("model", ""),
    "reasoning_delta": ("model", ""),
    "model_retry": ("model", ""),
    "tool_progress": ("tool", "call_id"),
    "loop_detected": ("tool", "call_id"),
}
_ENDS: Mapping[EventType, tuple[Kind, str, str]] = {
    "usage": ("model", "", ""),
    "approval_decided": ("people", "call_id", "action"),
    "step_result": ("step", "step_id", "status"),
}
"""Likewise what ends, and where its status is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time, or happened at a moment.

    Attributes:
        kind: what it was.
        title: which: a tool, a model, a step; empty where the kind says all.
        start: in seconds since 1970.
        end: likewise; None while it goes on.
        status: how it ended: `ok`, or in the words of its last event, such as `denied`; `open` while it goes
            on; `cut` if something else ended it, such as the end of a process.
        key: what others name it by: the id of a call; of a child run, its id.
        events: seqs of those that belong to it.
    """

    kind: Kind
    title: str = ""
    start: float
    end: float | None = None
    status: str = "open"
    key: str = ""
    events: tuple[int, ...] = ()


def spans_of(events: Iterable[StreamEvent]) -> list[Span]:
    """What took time, by when it began."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return sorted([*reader.closed, *reader.open.values()], key=lambda span: span.start)


def seconds_by_kind(spans: Sequence[Span], *, start: float, end: float) -> dict[str, float]:
    """How long a run was at what, in seconds: at each `Kind`, and at nothing of these (`other`).

    Together they are the time from start to end.
    """
    inside = (at for span in spans for at in (span.start, _end(span, end)) if start < at < end)
    edges = sorted({start, end, *inside})
    opening = sorted(spans, key=lambda span: span.start)
    seconds: dict[str, float] = {}
    active: list[Span] = []
    place = 0
    for begin, until in pairwise(edges):
        while place < len(opening) and opening[place].start <= begin:
            active.append(opening[place])
            place += 1
        active = [span for span in active if _end(span, end) >= until]
        kinds = {span.kind for span in active}
        kind = next((each for each in _COUNTS_AS if each in kinds), "other")
        seconds[kind] = seconds.get(kind, 0.0) + until - begin
    return seconds


def waits_of(
    spans: Sequence[Span], events: Sequence[StreamEvent], *, start: float, end: float
) -> list[tuple[float, float]]:
    """When nothing happened as a person was waited for: from when to when, in seconds since 1970."""
    waiting = [(span.start, _end(span, end)) for span in spans if span.kind in _WAITING]
    moments = sorted({start, end, *(event.at for event in events)})
    return [
        (begin, until)
        for begin, until in pairwise(moments)
        if until - begin >= _WAIT_SECONDS and any(a <= begin and until <= b for a, b in waiting)
    ]


def _end(span: Span, now: float) -> float:
    return now if span.end is None else span.end


@dataclass(slots=True)
class _Reader:
    """Reads events one by one."""

    closed: list[Span] = field(default_factory=list[Span])
    open: dict[tuple[Kind, str], Span] = field(default_factory=dict[tuple[Kind, str], Span])
    announced: dict[str, int] = field(default_factory=dict[str, int])
    """For each call, the event that has its arguments."""
    ended: StreamEvent | None = None

    def read(self, event: StreamEvent) -> None:
        it, type_ = event.payload, event.type
        if type_ in _BEGINS:
            if type_ == "model_start":
                self._close("compaction", "", event, "warning")  # nothing came of it
            kind, key, title = _BEGINS[type_]
            self._begin(kind, _text(it, key), event, title=_text(it, title))
        elif type_ in _GOES_ON:
            kind, key = _GOES_ON[type_]
            self._more(kind, _text(it, key), event)
        elif type_ in _ENDS:
            kind, key, status = _ENDS[type_]
            self._close(kind, _text(it, key), event, _status(it, status))
        elif type_ in FINAL_EVENTS:
            self._over(event)
        else:
            self._read_other(event)

    def _read_other(self, event: StreamEvent) -> None:
        it = event.payload
        match event.type:
            case "tool_calls_start":
                self.announced |= {_text(call, "call_id"): event.seq for call in it.get("calls", ())}
            case "tool_result":
                self._returned(event)
            case "approval_required":
                pending: Mapping[str, Any] = it.get("pending", {})
                self._begin("people", _text(pending, "id"), event, title=_text(pending, "tool"))
            case "compression_applied":
                if ("compaction", "") not in self.open:
                    self._begin("compaction", "", event)
                self._close("compaction", "", event, "ok")
            case "knowledge":
                self._begin("knowledge", "", event)
                self._close("knowledge", "", event, _status(it, "outcome"))
            case "resumed":
                self._resumed(event)
            case _:
                pass

    def _begin(self, kind: Kind, key: str, event: StreamEvent, *, title: str = "") -> None:
        self._close(kind, key, event, "cut")  # it begins anew, as a process had died
        known = self.announced.get(key) if kind in {"tool", "people"} else None
        events = (event.seq,) if known is None else (known, event.seq)
        self.open[kind, key] = Span(kind=kind, title=title, start=event.at, key=key, events=events)

    def _more(self, kind: Kind, key: str, event: StreamEvent) -> None:
        if (span := self.open.get((kind, key))) is not None and span.events[-1] != event.seq:
            self.open[kind, key] = replace(span, events=(*span.events, event.seq))

    def _close(self, kind: Kind, key: str, event: StreamEvent, status: str) -> None:
        if status != "cut":
            self._more(kind, key, event)
        if (span := self.open.pop((kind, key), None)) is not None:
            self.closed.append(replace(span, end=event.at, status=status))

    def _returned(self, event: StreamEvent) -> None:
        call = _text(event.payload, "call_id")
        self._close("people", call, event, "unanswered")
        if ("tool", call) not in self.open:  # it was refused before it ran
            self._begin("tool", call, event, title=_text(event.payload, "tool"))
        self._close("tool", call, event, _status(event.payload, "status"))

    def _over(self, event: StreamEvent) -> None:
        for kind, key in list(self.open):
            self._close(kind, key, event, "cut")
        self.ended = event

    def _resumed(self, event: StreamEvent) -> None:
        self._close("pause", "", event, "ok")
        if self.ended is not None:  # it had ended, and goes on
            status = _text(event.payload, "from_status")
            seqs = (self.ended.seq, event.seq)
            self.closed.append(
                Span(kind="pause", start=self.ended.at, end=event.at, status=status, events=seqs)
            )
            self.ended = None


def _text(payload: Mapping[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def _status(payload: Mapping[str, Any], name: str) -> str:
    status = _text(payload, name)
    return "ok" if status in {"", "success"} else status
