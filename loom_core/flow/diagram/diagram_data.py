"""Data of diagrams for pages: a flow at its place, and the trace of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loom_core.flow.config.localization import localize
from loom_core.flow.config.models import SKILLS_PROFILE
from loom_core.flow.diagram.layout import lay_out, line_key, rows_of
from loom_core.flow.diagram.run_trace import trace_run
from loom_core.flow.diagram.shape import shape_of
from loom_core.flow.responses.phrases import language_of_run

if TYPE_CHECKING:
    from loom_core.flow.config import LoadedFlows
    from loom_core.flow.diagram.layout import Card, Column
    from loom_core.flow.diagram.run_trace import RunTrace
    from loom_core.flow.diagram.shape import FlowShape, Transition
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["draw_flow", "draw_run"]

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

    Args:
        loaded: the current file.
        run: the run.
        events: its events.
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
        "trace": _trace_data(trace_run(shape, run, events)),
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
        "rows": [_row_data(step.path, each) for each in rows_of(step)],
        "box": asdict(card.box),
        "frame": card.frame and asdict(card.frame),
        "columns": [_column_data(each) for each in card.columns],
    }


def _row_data(path: str, row: Transition) -> dict[str, Any]:
    return {**asdict(row), "key": line_key(path, row), "condition": _shorten(row.condition)}


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _trace_data(trace: RunTrace) -> dict[str, Any]:
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
