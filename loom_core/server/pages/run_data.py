"""Runs as the data of their page: bounded, and saying what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.redaction import Redaction, is_secret_name
from loom_core.server.pages.run_spans import Span, seconds_by_kind, spans_of, waits_of

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.server.pages.run_record import Bounds, RunRecord

__all__ = ["runs_data"]

_Json: TypeAlias = "str | int | float | bool | list[_Json] | dict[str, _Json] | None"

_ENDED = frozenset({"completed", "failed", "aborted"})
_MOST_WHOLE = 2**53  # beyond this a number is another one in JavaScript
_MOST_DEPTH = 40
_FEW = 20  # items of a list or object, once there is too much of everything


def runs_data(records: Sequence[RunRecord], *, now: float, bounds: Bounds) -> list[dict[str, _Json]]:
    """What the script of the page reads: each run behind the one that had it done.

    Times of a run are seconds since it was asked for.

    Args:
        records: the runs.
        now: in seconds since 1970: how far runs are that have not ended.
        bounds: how long texts may be.
    """
    cutter = _Cutter(bounds)
    found: list[dict[str, _Json]] = []

    def add(record: RunRecord) -> None:
        found.append(_run_data(record, now=now, cutter=cutter))
        for child in record.children:
            add(child)

    for record in records:
        add(record)
    return found


def _run_data(record: RunRecord, *, now: float, cutter: _Cutter) -> dict[str, _Json]:
    run, events = record.run, record.events
    left_alone = run.status == "working" and not run.driver
    end = run.updated if run.status in _ENDED or left_alone else max(now, run.updated)
    own = spans_of(events)
    spans = sorted([*own, *map(_child_span, record.children)], key=lambda span: span.start)
    zero, before = run.created, cutter.cuts
    seconds = seconds_by_kind(spans, start=zero, end=end)
    waits = waits_of(spans, events, start=zero, end=end)
    budget = {name: value for name, value in asdict(run.request.budget).items() if value is not None}
    data: dict[str, _Json] = {
        "id": run.id,
        "parent": record.parent,
        "call": record.call,
        "children": [child.run.id for child in record.children],
        "children_left_out": record.children_left_out,
        "goal": cutter.text(run.request.goal),
        "status": run.status,
        "problem": cutter.text(run.problem),
        "output": "" if run.status == "completed" and events else cutter.text(run.output),
        "profile": run.request.profile,
        "model": _model(events),
        "session": run.request.session_id,
        "caller": run.request.caller,
        "client": cutter.text(str(run.request.metadata.get("client", ""))),
        "driver": run.driver,
        "created": zero,
        "end": _since(zero, end),
        "spent": asdict(run.spent),
        "budget": budget,
        "pending": [each.id for each in run.pending],
        "seconds": {kind: round(each, 4) for kind, each in seconds.items()},
        "waits": [[_since(zero, a), _since(zero, b)] for a, b in waits],
        "spans": [_span_data(span, zero) for span in spans],
        "entries": [_entry_data(entry, zero, cutter) for entry in _entries(events)],
        "events": run.last_seq,
        "left_out": run.last_seq - len(events),
    }
    return {**data, "texts_cut": cutter.cuts - before}


def _child_span(child: RunRecord) -> Span:
    run: Run = child.run
    ended = run.status in _ENDED
    status = "ok" if run.status == "completed" else run.status if ended else "open"
    end = run.updated if ended else None
    title = run.request.profile
    return Span(kind="child", title=title, start=run.created, end=end, status=status, key=run.id)


def _span_data(span: Span, zero: float) -> dict[str, _Json]:
    return {
        "kind": span.kind,
        "title": span.title,
        "start": _since(zero, span.start),
        "end": None if span.end is None else _since(zero, span.end),
        "status": span.status,
        "key": span.key,
        "events": list(span.events),
    }


@dataclass(slots=True)
class _Entry:
    """An event, or several of a kind on end: pieces of a text, or how far a call is."""

    first: StreamEvent
    last: StreamEvent
    count: int
    texts: list[str]


def _entries(events: Sequence[StreamEvent]) -> list[_Entry]:
    entries: list[_Entry] = []
    for event in events:
        before = entries[-1] if entries else None
        if before is not None and _goes_on(before.last, event):
            before.last, before.count = event, before.count + 1
        else:
            before = _Entry(event, event, 1, [])
            entries.append(before)
        if event.type in {"text_delta", "reasoning_delta"}:
            before.texts.append(str(event.payload.get("text", "")))
    return entries


def _goes_on(before: StreamEvent, event: StreamEvent) -> bool:
    if before.type != event.type or before.seq + 1 != event.seq:
        return False
    if event.type == "tool_progress":
        return before.payload.get("call_id") == event.payload.get("call_id")
    return event.type in {"text_delta", "reasoning_delta"}


def _entry_data(entry: _Entry, zero: float, cutter: _Cutter) -> dict[str, _Json]:
    payload = {"text": "".join(entry.texts)} if entry.texts else dict(entry.last.payload)
    data: dict[str, _Json] = {
        "seq": entry.first.seq,
        "type": entry.first.type,
        "at": _since(zero, entry.first.at),
        "payload": cutter.shortened(payload),
    }
    if entry.count > 1:
        data |= {"last": entry.last.seq, "count": entry.count, "until": _since(zero, entry.last.at)}
    return data


def _model(events: Sequence[StreamEvent]) -> str:
    for event in events:
        if event.type in {"request_start", "model_start"} and event.payload.get("model"):
            return str(event.payload["model"])
    return ""


def _since(zero: float, at: float) -> float:
    return round(at - zero, 4)


class _Cutter:
    """Makes JSON that a page can hold: what is too long is cut, and says by how much, as `… [+1,234]`.

    Attributes:
        cuts: how often something was cut.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.cuts = 0
        self._bounds = bounds
        self._left = bounds.texts
        self._redaction = Redaction.now()

    def text(self, text: str) -> str:
        text = self._redaction.text(text)
        most = self._bounds.text if self._left > 0 else self._bounds.short
        if len(text) > most:
            self.cuts += 1
            text = f"{text[:most]}… [+{len(text) - most:,}]"
        self._left -= len(text)
        return text

    def shortened(self, value: object, *, name: str = "", depth: int = 0) -> _Json:
        """JSON that is short enough, that JavaScript reads as it is meant, and without secrets by name.

        Args:
            value: JSON.
            name: what it is called, with the names of what it is in.
            depth: how deep it stands.
        """
        match value:
            case str():
                return "[secret]" if value and is_secret_name(name) else self.text(value)
            case None | bool():
                return value
            case int():
                return value if abs(value) <= _MOST_WHOLE else self.text(str(value))
            case float():
                return value if math.isfinite(value) else str(value)
            case _ if depth >= _MOST_DEPTH:
                self.cuts += 1
                return "…"
            case Mapping():
                items = self._some(list(cast("Mapping[str, Any]", value).items()))
                return {
                    self.text(str(key)): self.shortened(each, name=f"{name} {key}", depth=depth + 1)
                    for key, each in items
                }
            case Sequence():
                items = self._some(list(cast("Sequence[Any]", value)))
                return [self.shortened(each, name=name, depth=depth + 1) for each in items]
            case _:
                return self.text(str(value))

    def _some(self, items: list[Any]) -> list[Any]:
        self._left -= 8 * len(items)
        if self._left > 0 or len(items) <= _FEW:
            return items
        self.cuts += 1
        return items[:_FEW]
