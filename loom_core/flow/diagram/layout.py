"""Layout of a flow's diagram: cards of steps in columns and the lines between them, in pixels.

A list of steps is a column, from top to bottom. Lists inside a step stand next to each other in its frame. A
jump leaves the card at its own row and runs in a lane next to the column: forward on the right, back on the
left, if no lines cross by that. Jumps to the same target share a lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loom_core.flow.diagram.shape import FlowShape, StepListShape, StepShape, Transition

__all__ = ["Box", "Card", "Column", "Drawing", "Line", "lay_out", "line_key", "rows_of"]

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
    """A step at its place.

    Attributes:
        step: the step.
        box: its card; the head, if there are lists inside it.
        frame: the rectangle around the head and the lists; None if there are none.
        columns: the lists inside it.
    """

    step: StepShape
    box: Box
    frame: Box | None
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Column:
    """A list of steps at its place.

    Attributes:
        steps: the list.
        label: its label; None if it has none.
        cards: its steps.
    """

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
    """A flow's diagram.

    Attributes:
        column: its steps; its label is the start.
        end: the label of its end.
        lines: the lines.
        width: width of the whole.
        height: height of the whole.
    """

    column: Column
    end: Box
    lines: Sequence[Line]
    width: float
    height: float


def line_key(step: str, transition: Transition) -> str:
    """Return the key of a transition from a step, by the path of the step."""
    return f"{step}:{'failure' if transition.after_failure else 'success'}:{transition.action}"


def rows_of(step: StepShape) -> list[Transition]:
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
        self.rows = rows_of(step)
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
    """A transition to another place than the next one.

    Attributes:
        source: number of the card among those of the column.
        target: number of the target; the number of cards for the end of the list.
        y: place of its row, from the top of the column.
        transition: the transition.
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

    Attributes:
        side: 1 on the right of the column, -1 on the left.
        top: its upper end, from the top of the column.
        bottom: its lower end, likewise.
        place: its number from the column outwards.
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
