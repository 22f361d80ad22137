"""Events of a run put together to what took time."""

from __future__ import annotations

import pytest

from loom_core.server.pages.run_page import Span, seconds_by_kind, spans_of, waits_of

_CALLS = {"calls": [{"call_id": "c1", "tool": "查找", "arguments": {"词": "织机"}}], "text": ""}


def _told(spans):
    return [(span.kind, span.title, span.start, span.end, span.status, span.events) for span in spans]


def test_a_turn_and_its_calls_are_spans_with_all_their_events(events):
    happened = events(
        (0.0, "request_start", {"goal": "g"}),
        (1.0, "model_start", {"iteration": 1, "model": "qwen3"}),
        (2.0, "text_delta", {"text": "我"}),
        (3.0, "usage", {"input_tokens": 5}),
        (3.0, "tool_calls_start", _CALLS),
        (4.0, "tool_start", {"call_id": "c1", "tool": "查找"}),
        (5.0, "tool_progress", {"call_id": "c1", "done": 1}),
        (6.0, "tool_result", {"call_id": "c1", "tool": "查找", "status": "success"}),
        (7.0, "agent_finish", {"output": "好"}),
    )
    assert _told(spans_of(happened)) == [
        ("model", "qwen3", 1.0, 3.0, "ok", (2, 3, 4)),
        ("tool", "查找", 4.0, 6.0, "ok", (5, 6, 7, 8)),
    ]


def test_a_call_that_is_refused_took_no_time_and_its_question_was_answered(events):
    happened = events(
        (0.0, "tool_calls_start", _CALLS),
        (1.0, "approval_required", {"pending": {"id": "c1", "kind": "approval", "tool": "查找"}}),
        (9.0, "approval_decided", {"call_id": "c1", "action": "deny"}),
        (9.0, "tool_result", {"call_id": "c1", "tool": "查找", "status": "denied"}),
    )
    assert _told(spans_of(happened)) == [
        ("people", "查找", 1.0, 9.0, "deny", (1, 2, 3)),
        ("tool", "查找", 9.0, 9.0, "denied", (1, 4)),
    ]


def test_what_is_not_at_its_end_is_open(events):
    happened = events(
        (0.0, "model_start", {"model": "m"}),
        (1.0, "text_delta", {"text": "a"}),
    )
    assert _told(spans_of(happened)) == [("model", "m", 0.0, None, "open", (1, 2))]


def test_what_a_crash_or_the_end_of_the_run_broke_off_says_so(events):
    happened = events(
        (0.0, "model_start", {"model": "m"}),
        (5.0, "model_start", {"model": "m"}),  # another process takes the turn again
        (6.0, "aborted", {"by": "Ada"}),
    )
    assert [(span.start, span.end, span.status) for span in spans_of(happened)] == [
        (0.0, 5.0, "cut"),
        (5.0, 6.0, "cut"),
    ]


def test_a_run_that_goes_on_after_its_end_was_at_rest_between(events):
    happened = events(
        (1.0, "error", {"message": "no", "failure": "budget"}),
        (9.0, "resumed", {"by": "Ada", "from_status": "failed"}),
        (10.0, "paused", {"by": "Ada"}),
        (12.0, "resumed", {"by": "Ada", "from_status": "paused"}),
    )
    assert _told(spans_of(happened)) == [
        ("pause", "", 1.0, 9.0, "failed", (1, 2)),
        ("pause", "", 10.0, 12.0, "ok", (3, 4)),
    ]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ((8.0, "compression_applied", {"before": 9, "after": 2}), (2.0, 8.0, "ok", (1, 2))),
        ((2.5, "model_start", {"model": "m"}), (2.0, 2.5, "warning", (1, 2))),
    ],
)
def test_compaction_lasts_from_the_warning_to_what_came_of_it(events, then, expected):
    spans = spans_of(events((2.0, "compression_warning", {"used": 9}), then))
    span = next(each for each in spans if each.kind == "compaction")
    assert (span.start, span.end, span.status, span.events) == expected


def test_compaction_without_a_warning_and_passages_are_moments(events):
    happened = events(
        (1.0, "knowledge", {"outcome": "found", "passages": []}),
        (2.0, "compression_applied", {"before": 9, "after": 2}),
    )
    assert _told(spans_of(happened)) == [
        ("knowledge", "", 1.0, 1.0, "found", (1,)),
        ("compaction", "", 2.0, 2.0, "ok", (2,)),
    ]


def test_steps_of_a_flow_may_lie_in_each_other_and_run_again(events):
    happened = events(
        (0.0, "flow_start", {"flow_id": "f", "step_id": ""}),
        (1.0, "step_start", {"step_id": "外", "key": "k"}),
        (2.0, "step_start", {"step_id": "外/里", "key": "k2"}),
        (3.0, "step_result", {"step_id": "外/里", "status": "failure"}),
        (4.0, "step_result", {"step_id": "外", "status": "success"}),
        (5.0, "step_start", {"step_id": "外", "key": "k3"}),
    )
    assert [(span.title, span.start, span.end, span.status) for span in spans_of(happened)] == [
        ("外", 1.0, 4.0, "ok"),
        ("外/里", 2.0, 3.0, "failure"),
        ("外", 5.0, None, "open"),
    ]


def test_events_whose_payload_is_not_as_expected_are_no_reason_to_fail(events):
    spans = spans_of(
        events((0.0, "tool_start", {}), (1.0, "tool_result", {}), (2.0, "approval_required", {}))
    )
    assert [(span.kind, span.title) for span in spans] == [("tool", ""), ("people", "")]


def test_every_second_counts_once_and_waiting_comes_first():
    spans = [
        Span(kind="model", start=1.0, end=3.0),
        Span(kind="tool", start=3.0, end=10.0),
        Span(kind="tool", start=4.0, end=6.0),  # side by side
        Span(kind="people", start=5.0, end=8.0),  # the tool asks
        Span(kind="model", start=11.0, end=None),
    ]
    seconds = seconds_by_kind(spans, start=0.0, end=12.0)
    assert seconds == {"other": 2.0, "model": 3.0, "tool": 4.0, "people": 3.0}
    assert sum(seconds.values()) == 12.0
    assert seconds_by_kind([], start=5.0, end=5.0) == {}


def test_waits_are_times_in_which_nothing_happens_while_a_person_is_waited_for(events):
    happened = events(
        (0.0, "tool_calls_start", _CALLS),
        (1.0, "approval_required", {"pending": {"id": "c1", "tool": "查找"}}),
        (10.0, "tool_progress", {"call_id": "c2", "done": 1}),
        (11.0, "tool_progress", {"call_id": "c2", "done": 2}),
        (60.0, "approval_decided", {"call_id": "c1", "action": "approve"}),
        (99.0, "agent_finish", {"output": ""}),
    )
    assert waits_of(spans_of(happened), happened, start=0.0, end=99.0) == [(1.0, 10.0), (11.0, 60.0)]
