"""Data of diagrams for pages: the layout of a flow, and the trace of a run through it.

The layout is cards of steps in columns and the lines between them, in pixels. A list of steps is a column,
from top to bottom. Lists inside a step are next to each other in its frame. A jump leaves the card at its own
row and runs in a lane next to the column: forward on the right, back on the left, if no lines cross by that.
Jumps to the same target share a lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from loom_core.flow.config.localization import localize
from loom_core.flow.config.models import SKILLS_PROFILE
from loom_core.flow.diagram.shape import FlowShape, StepListShape, StepShape, Transition, shape_of
from loom_core.flow.responses.phrases import language_of_run

if TYPE_CHECKING:
    from loom_core.flow.config import LoadedFlows
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["Box", "Card", "Column", "Drawing", "Line", "draw_flow", "draw_run", "lay_out", "line_key"]

_CARD = 224.0  # width of a card
_PADDING = 8.0  # inside of a card, above and below its texts
_TEXT = 20.0  # height of a line of text
_LABEL = 26.0  # height of a label
_SHORT = 96.0  # width of the labels of start and end, and of a list without steps
_GAP = 28.0  # between cards of a column
_LANE = 14.0  # between lanes
_COLUMNS = 20.0  # between columns
_INSET = 14.0  # between a frame and its columns
_FORK = 32.0  # height of the lines above and below the columns of a frame
_MARGIN = 8.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Card:
    """A step at its place; if there are lists inside it, `box` is its head and `frame` surrounds all."""

    step: StepShape
    box: Box
    frame: Box | None
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Column:
    """A list of steps at its place."""

    steps: StepListShape
    label: Box | None
    cards: Sequence[Card]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of horizontal and vertical pieces.

    Attributes:
        key: key of its transition (see `line_key`); or the path of a list and `start` or `end`.
        points: its corners.
        after_failure: whether it follows a failure.
        arrow: whether it ends at a card or a label.
    """

    key: str
    points: Sequence[tuple[float, float]]
    after_failure: bool = False
    arrow: bool = True


@dataclass(frozen=True, slots=True)
class Drawing:
    """A flow's diagram. The label of its column is the start."""

    column: Column
    end: Box
    lines: Sequence[Line]
    width: float
    height: float


def line_key(step: str, transition: Transition) -> str:
    """Return the key of a transition from a step, by the path of the step."""
    return f"{step}:{'failure' if transition.after_failure else 'success'}:{transition.action}"


def _rows_of(step: StepShape) -> list[Transition]:
    """Return the transitions that have a row of their own on a step's card."""
    return [each for each in step.transitions if each.type != "next"]


def lay_out(flow: FlowShape) -> Drawing:
    """Lay out the diagram of a flow."""
    plan = _ColumnPlan(flow.steps)
    lines: list[Line] = []
    width = plan.width + 2 * _MARGIN
    column = plan.place(width / 2, _MARGIN, lines)
    end = Box((width - _SHORT) / 2, _MARGIN + plan.height, _SHORT, _LABEL)
    return Drawing(column, end, lines, width, end.y + _LABEL + _MARGIN)


class _CardPlan:
    """The size of a card, before it has a place."""

    def __init__(self, step: StepShape) -> None:
        self.step = step
        self.rows = _rows_of(step)
        texts = 1 + bool(step.text or step.description)
        self._rows_top = _PADDING + texts * _TEXT
        self.head = self._rows_top + len(self.rows) * _TEXT + _PADDING
        self.columns: list[_ColumnPlan] = [_ColumnPlan(inner) for inner in step.lists]
        self._inside = sum(each.width for each in self.columns) + _COLUMNS * (len(self.columns) - 1)
        self.width: float = _CARD
        self.height: float = self.head
        if self.columns:
            self.width = max(_CARD, self._inside + 2 * _INSET)
            self.height += max(each.height for each in self.columns) + 2 * _FORK

    def row_place(self, number: int) -> float:
        """Return the middle of a row, from the top of the card."""
        return self._rows_top + (number + 0.5) * _TEXT

    def place(self, axis: float, top: float, lines: list[Line]) -> Card:
        left = axis - self.width / 2
        head = Box(left, top, self.width, self.head)
        if not self.columns:
            return Card(self.step, head, None, ())
        columns: list[Column] = []
        x, upper, lower = axis - self._inside / 2, top + self.head, top + self.height
        for each in self.columns:
            middle, path = x + each.width / 2, each.steps.path
            start, end = upper + _FORK, upper + _FORK + each.height
            bent = [(axis, upper), (axis, upper + _FORK / 2), (middle, upper + _FORK / 2), (middle, start)]
            lines.append(Line(key=f"{path}:start", points=_corners(bent)))
            columns.append(each.place(middle, start, lines))
            bent = [(middle, end), (middle, lower - _FORK / 2), (axis, lower - _FORK / 2), (axis, lower)]
            lines.append(Line(key=f"{path}:end", points=_corners(bent), arrow=False))
            x += each.width + _COLUMNS
        return Card(self.step, head, Box(left, top, self.width, self.height), columns)


@dataclass(frozen=True, slots=True)
class _Jump:
    """A transition to another place than the next one, by numbers of cards of the column.

    The number of cards stands for the end of the list; `y` is the place of its row, from the column's top.
    """

    source: int
    target: int
    y: float
    transition: Transition

    @property
    def is_forward(self) -> bool:
        """Whether it leads down."""
        return self.target > self.source

    @property
    def lane(self) -> tuple[bool, int]:
        """Key of its lane."""
        return self.is_forward, self.target


@dataclass(slots=True)
class _Lane:
    """The jumps to one target in one direction.

    It is on the right of the column (1) or on the left (-1); its place is its number, outwards; `top` and
    `bottom` are from the top of the column.
    """

    side: Literal[1, -1]
    top: float
    bottom: float
    place: int = 0

    def crosses(self, other: _Lane) -> bool:
        """Return whether lines would cross if it were on the same side: neither is inside of the other."""
        first, second = sorted((self, other), key=lambda each: (each.top, -each.bottom))
        return first.top < second.top < first.bottom < second.bottom

    def overlaps(self, other: _Lane) -> bool:
        """Return whether it needs another place than one on the same side."""
        return self.side == other.side and self.top <= other.bottom and other.top <= self.bottom


class _ColumnPlan:
    """The size of a column and its lanes, before it has a place."""

    def __init__(self, steps: StepListShape) -> None:
        self.steps = steps
        self.has_label = steps.role != "branch"
        self.cards = [_CardPlan(step) for step in steps.steps]
        self._tops: list[float] = []
        y = _LABEL + _GAP if self.has_label else 0.0
        for card in self.cards:
            self._tops.append(y)
            y += card.height + _GAP
        self.height = y  # to the end of the list, where the label of the end or the way out of a frame begins
        self._content = max((card.width for card in self.cards), default=_SHORT)
        self._lanes = self._find_lanes()
        _place_lanes(self._lanes.values())
        lanes = max((lane.place + 1 for lane in self._lanes.values()), default=0)
        self.width = self._content + 2 * _LANE * lanes

    def _jumps(self) -> Iterator[_Jump]:
        numbers = {card.step.step_id: number for number, card in enumerate(self.cards)}
        for number, card in enumerate(self.cards):
            for row, each in enumerate(card.rows):
                target = numbers[each.to] if each.type == "goto" else len(self.cards)
                if each.type in {"goto", "end"} or (each.type == "no" and self.steps.role == "flow"):
                    yield _Jump(number, target, self._tops[number] + card.row_place(row), each)

    def _find_lanes(self) -> dict[tuple[bool, int], _Lane]:
        found: dict[tuple[bool, int], _Lane] = {}
        for jump in self._jumps():
            end = self._entry(jump.target)
            lane = found.setdefault(jump.lane, _Lane(1 if jump.is_forward else -1, end, end))
            lane.top, lane.bottom = min(lane.top, jump.y), max(lane.bottom, jump.y)
        return found

    def _entry(self, target: int) -> float:
        """Return where jumps reach a card, or the end, from the top of the column."""
        if target < len(self.cards):
            return self._tops[target] + _PADDING + _TEXT / 2
        return self.height + (_LABEL / 2 if self.steps.role == "flow" else 0.0)

    def place(self, axis: float, top: float, lines: list[Line]) -> Column:
        wide = _CARD if self.cards and self.steps.role != "flow" else _SHORT
        label = Box(axis - wide / 2, top, wide, _LABEL) if self.has_label else None
        cards = [card.place(axis, top + y, lines) for card, y in zip(self.cards, self._tops, strict=True)]
        tops = [*self._tops, self.height]
        if label is not None:
            points = [(axis, top + _LABEL), (axis, top + tops[0])]
            lines.append(Line(key=f"{self.steps.path}:start", points=points, arrow=self._is_shown(0)))
        for number, card in enumerate(self.cards):
            for each in card.step.transitions:
                if each.type == "next":
                    points = [(axis, top + tops[number] + card.height), (axis, top + tops[number + 1])]
                    key = line_key(card.step.path, each)
                    lines.append(Line(key=key, points=points, arrow=self._is_shown(number + 1)))
        lines += self._jump_lines(axis, top)
        return Column(self.steps, label, cards)

    def _is_shown(self, target: int) -> bool:
        """Return whether a target has a card or a label: the end of an inner list has none."""
        return target < len(self.cards) or self.steps.role == "flow"

    def _jump_lines(self, axis: float, top: float) -> Iterator[Line]:
        for jump in self._jumps():
            lane, card = self._lanes[jump.lane], self.cards[jump.source]
            x = axis + lane.side * (self._content / 2 + _LANE * (lane.place + 1))
            start = axis + lane.side * card.width / 2
            y, end, is_shown = top + jump.y, top + self._entry(jump.target), self._is_shown(jump.target)
            is_card = jump.target < len(self.cards)
            reached = self.cards[jump.target].width if is_card else _SHORT if is_shown else 0.0
            yield Line(
                key=line_key(card.step.path, jump.transition),
                points=[(start, y), (x, y), (x, end), (axis + lane.side * reached / 2, end)],
                after_failure=jump.transition.after_failure,
                arrow=is_shown,
            )


def _place_lanes(lanes: Collection[_Lane]) -> None:
    """Place lanes from the column outwards, shorter ones first; on the other side, if lines would cross."""
    placed: list[_Lane] = []
    for lane in sorted(lanes, key=lambda each: each.bottom - each.top):
        crossed = {each.side for each in placed if lane.crosses(each)}
        if lane.side in crossed and -lane.side not in crossed:
            lane.side = -1 if lane.side == 1 else 1
        lane.place = max((each.place for each in placed if lane.overlaps(each)), default=-1) + 1
        placed.append(lane)


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without repeated ones and without those on a straight line."""
    found = list(dict.fromkeys(points))
    ends = {found[0], found[-1]}
    return [point for point in found if point in ends or {x for x, _ in found} != {point[0]}]


_StepStatus: TypeAlias = Literal["waiting", "open", "failed", "declined", "stopped", "recovered", "done"]
"""`failed`: and its list with it; `declined`: likewise, by a person's no; `stopped`: the run ended before the
step; `recovered`: it failed, and the flow went on. Of several items, the first of these counts."""

_PRECEDENCE: Sequence[_StepStatus] = get_args(_StepStatus)


@dataclass(slots=True)
class _StepTrace:
    """The trace of a run in a step of the diagram.

    Attributes:
        starts: number of times that it started, for all items and with retries.
        latest: the latest status by the id in the events, which has the number of the item.
        items: the latest result by list inside it, if it is a `for_each`; empty while it runs.
    """

    starts: int = 0
    latest: dict[str, _StepStatus] = field(default_factory=dict[str, _StepStatus])
    items: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def status(self) -> _StepStatus:
        """The status."""
        return min(self.latest.values(), key=_PRECEDENCE.index)


@dataclass(slots=True)
class _RunTrace:
    """The path of a run through a diagram.

    Attributes:
        steps: what was done in each step, by path; only those that have started.
        lines: keys of the lines that it took.
        unknown: ids of its steps that the flow does not have.
        waits: whether it waits for input before its first step.
        reached_end: whether it has reached the end of the flow.
    """

    steps: dict[str, _StepTrace] = field(default_factory=dict[str, _StepTrace])
    lines: set[str] = field(default_factory=set[str])
    unknown: list[str] = field(default_factory=list[str])
    waits: bool = False
    reached_end: bool = False


def _trace_run(flow: FlowShape, run: Run, events: Sequence[StreamEvent]) -> _RunTrace:
    """Trace a run through the shape of its flow."""
    tracer = _Tracer(flow)
    for event in events:
        tracer.read(event.type, event.payload)
    return tracer.finish(run)


class _Tracer:
    """Reader of events."""

    def __init__(self, flow: FlowShape) -> None:
        self._steps = {step.path: step for step in flow.steps.all_steps()}
        self._open: dict[str, str] = {}
        self._chosen: set[str] = set()
        self.trace = _RunTrace()

    def read(self, type_: str, it: Mapping[str, Any]) -> None:
        match type_:
            case "step_start":
                self._start(it["step_id"], it.get("key", ""))
            case "step_result":
                self._end(it["step_id"], it["status"], it["next"])
            case "branch":
                self._read_branch(it["step_id"], it["branch"], it["status"])
            case "flow_finish":
                self.trace.reached_end = True
            case _:
                pass

    def finish(self, run: Run) -> _RunTrace:
        """Return the trace, with the status of the steps that have no result."""
        asked = {each.id for each in run.pending}
        waits = run.status == "input_required"
        self.trace.waits = waits and not self._open
        for step_id, key in self._open.items():
            step = self._find(step_id)
            if step is not None:
                is_asked = not step.lists and (waits or key in asked)
                has_ended = run.status in {"completed", "failed", "aborted"}
                status: _StepStatus = "waiting" if is_asked else "stopped" if has_ended else "open"
                self.trace.steps[step.path].latest[step_id] = status
        return self.trace

    def _start(self, step_id: str, key: str) -> None:
        step = self._find(step_id)
        if step is None:
            return
        self._open[step_id] = key
        self._chosen.discard(step_id)
        self.trace.lines.add(":start")
        trace = self.trace.steps.setdefault(step.path, _StepTrace())
        trace.starts += 1
        trace.latest[step_id] = "open"

    def _end(self, step_id: str, status: str, following: Mapping[str, Any]) -> None:
        step = self._find(step_id)
        if step is None or step_id not in self._open:
            return
        del self._open[step_id]
        succeeded, fails = status == "success", following["to"] == "fail"
        failed: _StepStatus = "recovered" if not fails else "declined" if status == "declined" else "failed"
        self.trace.steps[step.path].latest[step_id] = "done" if succeeded else failed
        if failed != "failed":
            self.trace.lines.add(f"{step.path}:{'success' if succeeded else 'failure'}:{following['action']}")
        if succeeded and step.kind == "switch" and step_id not in self._chosen:
            self.trace.lines |= {f"{step.path}/else/:start", f"{step.path}/else/:end"}

    def _read_branch(self, step_id: str, number: int, status: str) -> None:
        step = self._find(step_id)
        if step is None:
            return
        self._chosen.add(step_id)
        is_item = step.kind == "for_each"
        path = f"{step.path}/{0 if is_item else number}/"
        if status != "failure":
            self.trace.lines.add(f"{path}:{'start' if status == 'start' else 'end'}")
        if is_item:
            self.trace.steps[step.path].items[number] = "" if status == "start" else status

    def _find(self, step_id: str) -> StepShape | None:
        """Find the step with an id of the events; None for a step of a flow inside it, and an unknown one."""
        path, ids = "", step_id.split("/")
        while True:
            step = self._steps.get(path + ids[0])
            if step is None and path + ids[0] not in self.trace.unknown:
                self.trace.unknown.append(path + ids[0])
            if step is None or len(ids) == 1:
                return step
            if not step.lists:
                return None
            path = f"{step.path}/{0 if step.kind == 'for_each' else ids[1]}/"
            ids = ids[2:]


_LONGEST = 300  # characters of a text: of a tooltip, as a card shows less


def draw_flow(flow: FlowShape) -> dict[str, Any]:
    """Return the data of a flow's diagram."""
    drawing = lay_out(flow)
    return {
        "id": flow.flow_id,
        "title": flow.title,
        "width": drawing.width,
        "height": drawing.height,
        "end": asdict(drawing.end),
        "column": _column_data(drawing.column),
        "lines": [asdict(line) for line in drawing.lines],
    }


def draw_run(loaded: LoadedFlows, run: Run, events: Sequence[StreamEvent]) -> dict[str, Any] | None:
    """Return the data of the diagram of a run, as the current file has its flow; None for a run of skills.

    The journal has no copy of the flow, so the data says whether the file has changed since.
    """
    if run.request.profile == SKILLS_PROFILE:
        return None
    language = language_of_run(run.request, setting=loaded.file.basic_settings.language)
    file = localize(loaded.file, language)
    flow = file.flow(run.request.profile)
    if flow is None:
        return {"is_missing": True}
    shape = shape_of(file, flow)
    versions = [
        event.payload.get("config") for event in events if event.type in {"flow_start", "flow_changed"}
    ]
    return {
        **draw_flow(shape),
        "has_changed": bool(versions) and versions[-1] != loaded.version,
        "trace": _trace_data(_trace_run(shape, run, events)),
    }


def _column_data(column: Column) -> dict[str, Any]:
    return {
        "role": column.steps.role,
        "start": f"{column.steps.path}:start",
        "condition": _shorten(column.steps.condition),
        "label": column.label and asdict(column.label),
        "cards": [_card_data(card) for card in column.cards],
    }


def _card_data(card: Card) -> dict[str, Any]:
    step = card.step
    return {
        "path": step.path,
        "step": step.step_id,
        "kind": step.kind,
        "text": _shorten(step.text),
        "description": _shorten(step.description),
        "rows": [_row_data(step.path, each) for each in _rows_of(step)],
        "box": asdict(card.box),
        "frame": card.frame and asdict(card.frame),
        "columns": [_column_data(each) for each in card.columns],
    }


def _row_data(path: str, row: Transition) -> dict[str, Any]:
    return {**asdict(row), "key": line_key(path, row), "condition": _shorten(row.condition)}


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _trace_data(trace: _RunTrace) -> dict[str, Any]:
    steps = {
        path: {
            "status": step.status,
            "starts": step.starts,
            "latest": step.latest,
            "items": len(step.items),
            "failed_items": sum(each == "failure" for each in step.items.values()),
        }
        for path, step in trace.steps.items()
    }
    return {
        "steps": steps,
        "lines": sorted(trace.lines),
        "unknown": trace.unknown,
        "waits": trace.waits,
        "reached_end": trace.reached_end,
    }
