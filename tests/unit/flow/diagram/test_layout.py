"""The layout of diagrams: everything has a place of its own, and lines pass through nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from loom_core.flow.config import parse_flow_file, read_flow_file
from loom_core.flow.diagram.drawing import Box, Card, Column, Drawing, Line, lay_out, line_key
from loom_core.flow.diagram.shape import FlowShape, StepListShape, shape_of

_EXAMPLES = Path(__file__).parents[4] / "examples"


def _shapes(*flows: dict[str, Any]) -> list[FlowShape]:
    file = parse_flow_file(json.dumps({"flow_url": "https://a.example", "flows": flows})).file
    return [shape_of(file, flow) for flow in file.flows]


@pytest.fixture(params=["clinic", "flow_company", "trip"])
def drawings(request: pytest.FixtureRequest, trip: dict[str, Any]) -> list[Drawing]:
    if request.param == "trip":
        return [lay_out(shape) for shape in _shapes(trip)]
    file = read_flow_file(_EXAMPLES / request.param / "flow.json").file
    return [lay_out(shape_of(file, flow)) for flow in file.flows]


def _cards(column: Column) -> Iterator[Card]:
    for card in column.cards:
        yield card
        for inner in card.columns:
            yield from _cards(inner)


def _boxes(drawing: Drawing) -> Iterator[Box]:
    """Return the boxes that have a text: cards and labels."""
    columns = [drawing.column, *(inner for card in _cards(drawing.column) for inner in card.columns)]
    yield from (column.label for column in columns if column.label)
    yield from (card.box for card in _cards(drawing.column))
    yield drawing.end


def _is_inside(inner: Box, outer: Box) -> bool:
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


def _overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def _pieces(line: Line) -> list[Box]:
    corners = [(min(a, c), min(b, d), abs(a - c), abs(b - d)) for (a, b), (c, d) in pairwise(line.points)]
    return [Box(*corner) for corner in corners]


def _lists(steps: StepListShape) -> Iterator[StepListShape]:
    yield steps
    for step in steps.steps:
        for inner in step.lists:
            yield from _lists(inner)


def test_every_step_has_a_place_and_no_two_have_the_same(drawings: Sequence[Drawing]) -> None:
    for drawing in drawings:
        steps = [step.path for step in drawing.column.steps.all_steps()]
        assert sorted(card.step.path for card in _cards(drawing.column)) == sorted(steps)
        boxes = list(_boxes(drawing))
        assert not [pair for pair in combinations(boxes, 2) if _overlap(*pair)]
        frames = [card for card in _cards(drawing.column) if card.frame]
        assert all(
            _is_inside(inner.box, card.frame)
            for card in frames
            for column in card.columns
            for inner in _cards(column)
            if card.frame
        )
        whole = Box(0, 0, drawing.width, drawing.height)
        assert all(_is_inside(each, whole) for line in drawing.lines for each in [*boxes, *_pieces(line)])


def test_every_transition_and_list_has_a_line(drawings: Sequence[Drawing]) -> None:
    for drawing in drawings:
        lists = list(_lists(drawing.column.steps))
        wanted = {f"{each.path}:start" for each in lists} | {f"{each.path}:end" for each in lists[1:]}
        for steps in lists:
            for step in steps.steps:
                wanted |= {
                    line_key(step.path, each)
                    for each in step.transitions
                    # a retry goes nowhere, and a no inside of other steps ends the whole run
                    if each.type != "retry" and (each.type != "no" or steps.role == "flow")
                }
        assert {line.key for line in drawing.lines} == wanted


def test_lines_pass_through_no_text_and_cross_no_other_line(drawings: Sequence[Drawing]) -> None:
    for drawing in drawings:
        for line in drawing.lines:
            for piece in _pieces(line):
                assert 0.0 in {piece.width, piece.height}
                assert not [box for box in _boxes(drawing) if _overlap(piece, box)]
        for one, other in combinations(drawing.lines, 2):
            for flat, upright in [(one, other), (other, one)]:
                crossings = [
                    (a, b)
                    for a in _pieces(flat)
                    for b in _pieces(upright)
                    if a.width and b.height and _cross(a, b)
                ]
                assert not crossings, (flat.key, upright.key)


def _cross(flat: Box, upright: Box) -> bool:
    """Whether they cross; where one ends at the other, they meet."""
    is_between = flat.x < upright.x < flat.x + flat.width
    return is_between and upright.y < flat.y < upright.y + upright.height


def test_jumps_to_one_target_share_a_lane_and_others_do_not() -> None:
    ends = [{"stepId": each, "onSuccess": [{"type": "end", "criteria": ["$message"]}]} for each in "abc"]
    back = {"stepId": "d", "onFailure": [{"type": "goto", "stepId": "b"}]}
    on = {"stepId": "e", "onSuccess": [{"type": "goto", "stepId": "a", "criteria": ["$message"]}]}
    (shape,) = _shapes({"flow_id": "f", "steps": [*ends, back, on, {"stepId": "z", "say": "z"}]})
    lines = {line.key: line for line in lay_out(shape).lines}
    lanes = {key: line.points[1][0] for key, line in lines.items() if len(line.points) == 4}
    assert lanes["a:success:1"] == lanes["b:success:1"] == lanes["c:success:1"]
    assert len(set(lanes.values())) == 3
    assert lanes["e:success:1"] < lanes["d:failure:1"] < lanes["a:success:1"]


def test_an_action_that_does_the_default_is_no_jump() -> None:
    steps = [
        {"stepId": "a", "onSuccess": [{"type": "goto", "stepId": "b"}]},
        {"stepId": "b", "onSuccess": [{"type": "end", "response": "x"}]},
    ]
    (shape,) = _shapes({"flow_id": "f", "steps": steps})
    assert [line.key for line in lay_out(shape).lines if len(line.points) == 2] == [
        ":start",
        "a:success:1",
        "b:success:1",
    ]
