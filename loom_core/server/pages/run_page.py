"""HTML page of runs: timeline, messages and events, for offline viewing.

A run is read from the journal with its child runs; its events are grouped into spans; its data is bounded,
and says what was left out.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from loom_core.agent.notices import Notices
from loom_core.redaction import Redaction, is_secret_name
from loom_core.runs.events import FINAL_EVENTS
from loom_core.runs.run import FORK_OF, FORK_STEP, PARENT_CALL, PARENT_RUN
from loom_core.server.pages.page import asset, page
from loom_core.server.pages.run_compare import steps_data

if TYPE_CHECKING:
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run

__all__ = [
    "Bounds",
    "DrawRun",
    "RunRecord",
    "Span",
    "read_records",
    "run_page",
    "runs_data",
    "runs_page",
    "seconds_by_kind",
    "spans_of",
    "waits_of",
]

_HERE = "loom_core.server.pages"
_SCRIPTS = (
    "run_parts.js",
    "run_timeline.js",
    "flow_diagram.js",
    "run_conversation.js",
    "run_events.js",
    "run_compare.js",
    "run.js",
)
_BODY = """
<div id="page"></div>
<noscript><p class="empty">This page needs JavaScript. 此页面需要 JavaScript。</p></noscript>
"""

Kind: TypeAlias = Literal["model", "tool", "child", "step", "people", "pause", "compaction", "knowledge"]
# Precedence of kinds: several spans may be open at a moment, which counts as the first of their kinds here.
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
"""Events that begin a span: its kind, and the payload fields of its key and title; empty for none."""

_GOES_ON: Mapping[EventType, tuple[Kind, str]] = {
    "text_delta": ("model", ""),
    "reasoning_delta": ("model", ""),
    "model_retry": ("model", ""),
    "tool_task": ("tool", "call_id"),
    "tool_progress": ("tool", "call_id"),
    "loop_detected": ("tool", "call_id"),
}
_ENDS: Mapping[EventType, tuple[Kind, str, str]] = {
    "usage": ("model", "", ""),
    "tool_retry": ("tool", "call_id", "status"),
    "approval_decided": ("people", "call_id", "action"),
    "step_result": ("step", "step_id", "status"),
}
"""Events that end a span: its kind, and the payload fields of its key and status."""

DrawRun: TypeAlias = "Callable[[Run, Sequence[StreamEvent]], Mapping[str, Any] | None]"
"""Returns the data for `flow_diagram.js` of a run with these events; None if it is no run of a flow."""

_Json: TypeAlias = "str | int | float | bool | list[_Json] | dict[str, _Json] | None"
_ENDED = frozenset({"completed", "failed", "aborted"})
_MOST_WHOLE = 2**53  # larger integers lose precision in JavaScript
_MOST_DEPTH = 40
_FEW = 20  # items of a list or object, once there is too much of everything
_AT_ONCE = 500
_TAIL = 4  # the last quarter of the events read from a long run is its end


async def runs_page(
    journal: Journal,
    runs: Sequence[Run],
    *,
    program: str,
    more: bool = False,
    bounds: Bounds | None = None,
    draw: DrawRun | None = None,
) -> str:
    """Build the page of some runs with their child runs, in their current state.

    Args:
        journal: their journal.
        runs: the runs; a single one is shown at once, several as a list.
        program: the command that lists more runs, for a message.
        more: whether more runs were left out.
        bounds: size limits of the page.
        draw: draws the flow of a run; by default the page has no diagrams.

    Raises:
        NotFoundError: a run was deleted meanwhile.
        StoreError: the journal cannot be read.
    """
    bounds = bounds or Bounds()
    records = await read_records(journal, runs, bounds=bounds)
    return run_page(records, now=time.time(), program=program, more=more, bounds=bounds, draw=draw)


def run_page(
    records: Sequence[RunRecord],
    *,
    now: float,
    program: str,
    more: bool = False,
    bounds: Bounds,
    draw: DrawRun | None = None,
) -> str:
    """Build the page of loaded runs; see `runs_page`.

    Args:
        records: the runs.
        now: the time, in seconds since 1970.
        program: as for `runs_page`.
        more: likewise.
        bounds: likewise.
        draw: likewise.
    """
    title = records[0].run.id if len(records) == 1 else program
    return page(
        title=title,
        body=_BODY,
        css=[asset(_HERE, name) for name in ("run.css", "flow_diagram.css", "run_compare.css")],
        scripts=[asset(_HERE, name) for name in _SCRIPTS],
        data={
            "program": program,
            "now": now,
            "more": more,
            "roots": [record.run.id for record in records],
            "runs": runs_data(records, now=now, bounds=bounds),
            "flows": _flows_data(records, draw) if draw is not None else {},
            "words": json.loads(asset(_HERE, "run_words.json")),
            "sentences": list(Notices.of("zh").sentences.items()),
            "rule": [Notices.of("en").by_rule, Notices.of("zh").by_rule],
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time or a moment in a run.

    Attributes:
        kind: its kind.
        title: name of the tool, model or step; empty if the kind is enough.
        start: in seconds since 1970.
        end: likewise; None while it goes on.
        status: how it ended: `ok`, or the status of its last event, such as `denied`; `open` while it goes
            on; `cut` if something else ended it, such as the end of a process.
        key: its key: the id of a call, or of a child run.
        events: seqs of its events.
    """

    kind: Kind
    title: str = ""
    start: float
    end: float | None = None
    status: str = "open"
    key: str = ""
    events: tuple[int, ...] = ()


def spans_of(events: Iterable[StreamEvent]) -> list[Span]:
    """Return the spans of a run, sorted by start."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return sorted([*reader.closed, *reader.open.values()], key=lambda span: span.start)


def seconds_by_kind(spans: Sequence[Span], *, start: float, end: float) -> dict[str, float]:
    """Return the seconds that a run spent on each `Kind`, and on none of them (`other`).

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
    """Return the periods without events while a run waited for a person or paused, in seconds since 1970."""
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
    """Builder of spans from events."""

    closed: list[Span] = field(default_factory=list[Span])
    open: dict[tuple[Kind, str], Span] = field(default_factory=dict[tuple[Kind, str], Span])
    announced: dict[str, int] = field(default_factory=dict[str, int])
    """Seq of the event with the arguments of a call, by call id."""
    ended: StreamEvent | None = None
    last: StreamEvent | None = None

    def read(self, event: StreamEvent) -> None:
        self._read(event)
        self.last = event

    def _read(self, event: StreamEvent) -> None:
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
                self._read_result(event)
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
                self._read_resume(event)
            case "forked" if self.last is not None:
                self._read_fork(event, since=self.last.at)
            case _:
                pass

    def _begin(self, kind: Kind, key: str, event: StreamEvent, *, title: str = "") -> None:
        self._close(kind, key, event, "cut")  # it starts again, as a process had died
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

    def _read_result(self, event: StreamEvent) -> None:
        call = _text(event.payload, "call_id")
        self._close("people", call, event, "unanswered")
        if ("tool", call) not in self.open:  # it was refused before it ran
            self._begin("tool", call, event, title=_text(event.payload, "tool"))
        self._close("tool", call, event, _status(event.payload, "status"))

    def _over(self, event: StreamEvent) -> None:
        for kind, key in list(self.open):
            self._close(kind, key, event, "cut")
        self.ended = event

    def _read_fork(self, event: StreamEvent, *, since: float) -> None:
        """Read the end of the events that a fork has copied: until then, nothing was done for it."""
        self.open.clear()
        self.ended = None
        self.closed.append(
            Span(kind="pause", start=since, end=event.at, status="forked", events=(event.seq,))
        )

    def _read_resume(self, event: StreamEvent) -> None:
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


def runs_data(records: Sequence[RunRecord], *, now: float, bounds: Bounds) -> list[dict[str, _Json]]:
    """Return the data for the page's script: each run behind its parent.

    Times of a run are seconds since its creation, or since the first event that a fork has copied.

    Args:
        records: the runs.
        now: the time in seconds since 1970, as the end of running runs.
        bounds: size limits.
    """
    cutter = _Truncator(bounds)
    found: list[dict[str, _Json]] = []

    def add(record: RunRecord, *, compared: bool) -> None:
        steps: list[Any] = steps_data(record.events, last_seq=record.run.last_seq) if compared else []
        found.append({**_run_data(record, now=now, cutter=cutter), "steps": steps})
        for child in record.children:
            add(child, compared=False)

    for record in records:
        add(record, compared=len(records) > 1)
    return found


def _flows_data(records: Sequence[RunRecord], draw: DrawRun) -> dict[str, object]:
    """Return the diagrams by the id of their run."""
    redaction = Redaction.now()
    drawn = ((each.run.id, draw(each.run, each.events)) for each in records)
    return {run_id: redaction.value(data) for run_id, data in drawn if data is not None}


def _run_data(record: RunRecord, *, now: float, cutter: _Truncator) -> dict[str, _Json]:
    run, events = record.run, record.events
    left_alone = run.status == "working" and not run.driver
    end = run.updated if run.status in _ENDED or left_alone else max(now, run.updated)
    own = spans_of(events)
    spans = sorted([*own, *map(_child_span, record.children)], key=lambda span: span.start)
    # A fork begins with events from before its own beginning.
    zero, before = min([run.created, *(event.at for event in events[:1])]), cutter.cuts
    seconds = seconds_by_kind(spans, start=run.created, end=end)
    waits = waits_of(spans, events, start=zero, end=end)
    budget = {name: value for name, value in asdict(run.request.budget).items() if value is not None}
    data: dict[str, _Json] = {
        "id": run.id,
        "parent": record.parent,
        "call": record.call,
        "fork_of": run.request.metadata.get(FORK_OF, ""),
        "fork_step": run.request.metadata.get(FORK_STEP),
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
        "began": _since(zero, run.created),
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
    """An event, or consecutive events of a kind, such as pieces of a text or progress of a call."""

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


def _entry_data(entry: _Entry, zero: float, cutter: _Truncator) -> dict[str, _Json]:
    payload = {"text": "".join(entry.texts)} if entry.texts else dict(entry.last.payload)
    data: dict[str, _Json] = {
        "seq": entry.first.seq,
        "type": entry.first.type,
        "at": _since(zero, entry.first.at),
        "payload": cutter.shorten(payload),
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


class _Truncator:
    """Truncator of JSON for a page; a truncated text says by how much, as `… [+1,234]`.

    Attributes:
        cuts: number of truncations.
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

    def shorten(self, value: object, *, name: str = "", depth: int = 0) -> _Json:
        """Shorten a JSON value, make it safe for JavaScript, and redact secrets by name.

        Args:
            value: JSON.
            name: its key, preceded by those of the enclosing objects.
            depth: its nesting depth.
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
                    self.text(str(key)): self.shorten(each, name=f"{name} {key}", depth=depth + 1)
                    for key, each in items
                }
            case Sequence():
                items = self._some(list(cast("Sequence[Any]", value)))
                return [self.shorten(each, name=name, depth=depth + 1) for each in items]
            case _:
                return self.text(str(value))

    def _some(self, items: list[Any]) -> list[Any]:
        self._left -= 8 * len(items)
        if self._left > 0 or len(items) <= _FEW:
            return items
        self.cuts += 1
        return items[:_FEW]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Size limits of a page.

    Attributes:
        run_events: events of one run; if there are more, the first and the last ones.
        events: events of all runs together; further runs have totals only.
        children: child runs of one run.
        depth: nesting depth of child runs.
        text: characters of one text.
        texts: characters of all texts together; further texts have `short` characters.
        short: characters of one text, after `texts` is used up.
    """

    run_events: int = 20_000
    events: int = 60_000
    children: int = 50
    depth: int = 5
    text: int = 8_000
    texts: int = 16_000_000
    short: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run with its events and child runs.

    Attributes:
        run: its current state.
        events: its events, oldest first; without the middle if there are too many.
        children: its child runs, oldest first.
        children_left_out: minimum number of omitted child runs.
    """

    run: Run
    events: Sequence[StreamEvent] = ()
    children: Sequence[RunRecord] = ()
    children_left_out: int = 0

    @property
    def parent(self) -> str:
        """Id of the parent run; empty if there is none."""
        return str(self.run.request.metadata.get(PARENT_RUN, ""))

    @property
    def call(self) -> str:
        """Id of the call in the parent run that started it; empty if there is none."""
        return str(self.run.request.metadata.get(PARENT_CALL, ""))


async def read_records(journal: Journal, runs: Sequence[Run], *, bounds: Bounds) -> list[RunRecord]:
    """Read runs with their events and child runs.

    A run that is a child of another one appears only below that one.

    Args:
        journal: their journal.
        runs: the runs.
        bounds: size limits.

    Raises:
        NotFoundError: a run was deleted meanwhile.
        StoreError: the journal cannot be read.
    """
    reading = _Reading(journal, bounds)
    records = [await reading.record(run, depth=0) for run in runs]
    below = {child.run.id for record in records for child in _below(record)}
    return [record for record in records if record.run.id not in below]


class _Reading:
    """Reader of runs within a remaining budget."""

    def __init__(self, journal: Journal, bounds: Bounds) -> None:
        self._journal = journal
        self._bounds = bounds
        self._left = bounds.events

    async def record(self, run: Run, *, depth: int) -> RunRecord:
        events = await self._events(run)
        children: list[RunRecord] = []
        left_out = 0
        for call in _calls(events):
            child = await self._journal.find_by_key(f"{run.id}/{call}", caller=run.request.caller)
            if child is None:
                continue
            if depth >= self._bounds.depth or len(children) >= self._bounds.children:
                left_out += 1
            else:
                children.append(await self.record(child, depth=depth + 1))
        return RunRecord(run=run, events=events, children=children, children_left_out=left_out)

    async def _events(self, run: Run) -> list[StreamEvent]:
        most = min(self._bounds.run_events, self._left)
        if run.last_seq <= most:
            found = await self._between(run.id, 0, run.last_seq)
        else:
            tail = most // _TAIL
            found = await self._between(run.id, 0, most - tail)
            found += await self._between(run.id, run.last_seq - tail, run.last_seq)
        self._left -= len(found)
        return found

    async def _between(self, run_id: str, after: int, last: int) -> list[StreamEvent]:
        found: list[StreamEvent] = []
        while after < last:
            some = await self._journal.events(run_id, after=after, limit=min(_AT_ONCE, last - after))
            if not some:
                break
            found += some
            after = some[-1].seq
        return found


def _calls(events: Sequence[StreamEvent]) -> list[str]:
    """List calls that may have child runs (of an agent, or steps of a flow): each once, in order."""
    began = {"tool_start": "call_id", "step_start": "key"}
    found = [str(event.payload.get(began[event.type], "")) for event in events if event.type in began]
    return [call for call in dict.fromkeys(found) if call]


def _below(record: RunRecord) -> list[RunRecord]:
    return [each for child in record.children for each in (child, *_below(child))]
