"""The page of runs: its data from a journal, its bounds, its spans, and that it is one file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from loom_core.runs.events import FINAL_EVENTS, EventType, StreamEvent
from loom_core.runs.journal import Journal
from loom_core.runs.run import PARENT_CALL, PARENT_RUN, Run, RunRequest
from loom_core.server.pages.run_page import (
    Bounds,
    RunRecord,
    Span,
    read_records,
    run_page,
    runs_data,
    runs_page,
    seconds_by_kind,
    spans_of,
    waits_of,
)

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


def test_each_attempt_of_a_call_is_a_span_and_the_wait_between_them_is_not(events):
    happened = events(
        (0.0, "tool_calls_start", _CALLS),
        (1.0, "tool_start", {"call_id": "c1", "tool": "查找"}),
        (3.0, "tool_retry", {"call_id": "c1", "tool": "查找", "status": "timeout", "wait": 2.0}),
        (5.0, "tool_start", {"call_id": "c1", "tool": "查找"}),
        (6.0, "tool_result", {"call_id": "c1", "tool": "查找", "status": "success"}),
    )
    assert _told(spans_of(happened)) == [
        ("tool", "查找", 1.0, 3.0, "timeout", (1, 2, 3)),
        ("tool", "查找", 5.0, 6.0, "ok", (1, 4, 5)),
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


def test_until_a_fork_begins_nothing_is_done_for_it(events):
    happened = events(
        (1.0, "request_start", {"goal": "g"}),
        (2.0, "model_start", {"model": "m"}),
        (3.0, "usage", {"input_tokens": 5}),
        (900.0, "forked", {"run_id": "run_b", "step": 2, "given": False}),
        (900.0, "model_start", {"model": "m"}),
        (902.0, "usage", {"input_tokens": 5}),
        (902.0, "agent_finish", {"output": "好"}),
    )
    spans = spans_of(happened)
    assert ("pause", "", 3.0, 900.0, "forked", (4,)) in _told(spans)
    run = replace(_record(happened).run, created=900.0, updated=902.0)
    data = _data(RunRecord(run=run, events=happened))
    assert (data["created"], data["began"], data["end"]) == (1.0, 899.0, 901.0)
    assert data["seconds"] == {"model": 2.0}
    assert data["waits"] == [[2.0, 899.0]]


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


_PAGES = resources.files("loom_core.server.pages")


def _data_of(page: str) -> dict[str, Any]:
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


def _record(events: list[StreamEvent], **changes: Any) -> RunRecord:
    run = Run(
        **{
            "id": "run_a",
            "request": RunRequest(goal="g", session_id="ses_a"),
            "status": "completed",
            "created": 0.0,
            "updated": 9.0,
            "last_seq": len(events),
            **changes,
        }
    )
    return RunRecord(run=run, events=events)


def _data(record: RunRecord, *, now: float = 100.0, **bounds: int) -> dict[str, Any]:
    (data,) = runs_data([record], now=now, bounds=Bounds(**bounds))
    return data


async def test_a_page_shows_what_the_journal_has(journal: Journal, written):
    happened = [
        ("request_start", {"goal": "织机的历史", "session_id": "", "profile": "p", "model": "qwen3"}),
        ("model_start", {"iteration": 1, "model": "qwen3"}),
        ("text_delta", {"text": "汉代"}),
        ("text_delta", {"text": "的织机"}),
        ("agent_finish", {"output": "汉代的织机", "structured": None}),
    ]
    run = await written("织机的历史", happened, profile="p")
    page = await runs_page(journal, [run], program="loom-agent-server")
    data = _data_of(page)
    assert data["roots"] == [run.id]
    (shown,) = data["runs"]
    assert (shown["goal"], shown["status"], shown["model"]) == ("织机的历史", "completed", "qwen3")
    assert [entry["type"] for entry in shown["entries"]] == [
        "request_start",
        "model_start",
        "text_delta",
        "agent_finish",
    ]
    piece = shown["entries"][2]
    assert (piece["payload"], piece["seq"], piece["last"], piece["count"]) == (
        {"text": "汉代的织机"},
        3,
        4,
        2,
    )
    assert shown["left_out"] == shown["texts_cut"] == 0
    assert shown["end"] >= shown["entries"][-1]["at"]


@pytest.mark.hostile("pages")
async def test_what_users_and_tools_wrote_is_data_and_never_html(journal: Journal, written):
    hostile = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> ]]> \u2028 \ud800"
    happened = [
        ("request_start", {"goal": hostile}),
        ("tool_calls_start", {"calls": [{"call_id": "c", "tool": hostile, "arguments": {hostile: hostile}}]}),
        ("agent_finish", {"output": hostile, "structured": {hostile: [hostile]}}),
    ]
    run = await written(hostile, happened)
    page = await runs_page(journal, [run], program="p")
    page.encode()
    assert "alert(1)>" not in page
    assert page.count("</script>") == page.count("<script")
    assert _data_of(page)["runs"][0]["entries"][-1]["payload"]["structured"] == {hostile: [hostile]}


async def test_child_runs_stand_below_the_run_that_had_them_done(journal: Journal, written):
    begun = [
        ("tool_start", {"call_id": "c1", "tool": "研究员"}),
        ("tool_start", {"call_id": "c2", "tool": "x"}),
    ]
    parent = await written("parent", begun)
    child = await written(
        "child",
        [("agent_finish", {"output": "", "structured": None})],
        profile="研究员",
        idempotency_key=f"{parent.id}/c1",
        metadata={PARENT_RUN: parent.id, PARENT_CALL: "c1"},
    )
    data = _data_of(await runs_page(journal, await journal.runs(), program="p"))
    assert data["roots"] == [parent.id]
    shown = {run["id"]: run for run in data["runs"]}
    assert shown[parent.id]["children"] == [child.id]
    assert (shown[child.id]["parent"], shown[child.id]["call"]) == (parent.id, "c1")
    (span,) = [span for span in shown[parent.id]["spans"] if span["kind"] == "child"]
    assert (span["title"], span["key"], span["status"]) == ("研究员", child.id, "ok")
    alone = _data_of(await runs_page(journal, [child], program="p"))
    assert alone["roots"] == [child.id]


@pytest.mark.hostile("pages")
async def test_child_runs_that_are_too_many_or_too_deep_are_counted(journal: Journal, written):
    parent = await written("p", [("step_start", {"step_id": f"s{n}", "key": f"k{n}"}) for n in range(3)])
    for n in range(3):
        more = {PARENT_RUN: parent.id, PARENT_CALL: f"k{n}"}
        await written("c", [], idempotency_key=f"{parent.id}/k{n}", metadata=more)
    (few,) = await read_records(journal, [parent], bounds=Bounds(children=2))
    assert (len(few.children), few.children_left_out) == (2, 1)
    (flat,) = await read_records(journal, [parent], bounds=Bounds(depth=0))
    assert (len(flat.children), flat.children_left_out) == (0, 3)


async def test_of_a_long_run_the_beginning_and_the_end_are_shown_and_the_rest_counted(
    journal: Journal, written
):
    run = await written("long", [("message_received", {"text": str(n)}) for n in range(1300)])
    page = await runs_page(journal, [run], program="p", bounds=Bounds(run_events=1200))
    (shown,) = _data_of(page)["runs"]
    seqs = [entry["seq"] for entry in shown["entries"]]
    assert seqs == [*range(1, 901), *range(1001, 1301)]
    assert (shown["events"], shown["left_out"]) == (1300, 100)


async def test_runs_behind_the_bound_of_all_events_have_their_totals_only(journal: Journal, written):
    runs = [await written(str(n), [("message_received", {"text": "x"})] * 10) for n in range(3)]
    records = await read_records(journal, runs, bounds=Bounds(events=15))
    assert [len(record.events) for record in records] == [10, 5, 0]


def test_long_texts_are_cut_and_say_by_how_much(events):
    record = _record(events((0.0, "tool_result", {"text": "织" * 30, "others": ["a" * 11, "b"]})))
    data = _data(record, text=10)
    assert data["entries"][0]["payload"] == {
        "text": "织" * 10 + "… [+20]",
        "others": ["a" * 10 + "… [+1]", "b"],
    }
    assert data["texts_cut"] == 2


@pytest.mark.hostile("pages")
def test_arguments_that_are_called_a_secret_are_not_shown(events):
    arguments = {"apiKey": "k-1234", "user": {"密码": "芝麻开门", "name": "Ada"}, "tokens": "12", "token": ""}
    calls = {"calls": [{"call_id": "c", "tool": "t", "arguments": arguments}], "text": ""}
    (entry,) = _data(_record(events((0.0, "tool_calls_start", calls))))["entries"]
    assert entry["payload"]["calls"][0]["arguments"] == {
        "apiKey": "[secret]",
        "user": {"密码": "[secret]", "name": "Ada"},
        "tokens": "12",
        "token": "",
    }


@pytest.mark.hostile("pages")
def test_what_has_the_form_of_a_key_is_not_shown_wherever_it_stands(events):
    key = "AKIAIOSFODNN7EXAMPLE"
    (entry,) = _data(_record(events((0.0, "step_result", {"outputs": {"云": f"钥匙是{key}。"}}))))["entries"]
    assert entry["payload"] == {"outputs": {"云": "钥匙是[secret]。"}}


def test_once_there_is_too_much_text_each_is_short_and_lists_too(events):
    big = {"items": ["x" * 50] * 100, "after": list(range(1000))}
    record = _record(events((0.0, "tool_result", big), (1.0, "tool_result", big)))
    data = _data(record, texts=3000, text=50, short=5)
    assert len(json.dumps(data)) < 12_000
    assert data["texts_cut"] > 0
    assert data["entries"][1]["payload"]["after"] == list(range(20))


@pytest.mark.hostile("pages")
def test_what_javascript_would_read_otherwise_is_a_text(events):
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    payload = {"id": 2**60, "small": -3, "nan": float("nan"), "yes": True, "none": None, "deep": nested}
    (shown,) = [entry["payload"] for entry in _data(_record(events((0.0, "usage", payload))))["entries"]]
    assert (shown["id"], shown["small"], shown["nan"]) == (str(2**60), -3, "nan")
    assert (shown["yes"], shown["none"]) == (True, None)
    assert "…" in json.dumps(shown["deep"], ensure_ascii=False)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"status": "completed"}, 9.0),
        ({"status": "working", "driver": "pid 1"}, 100.0),
        ({"status": "working"}, 9.0),  # no one drives it: nothing happens
        ({"status": "input_required"}, 100.0),
    ],
)
def test_a_run_lasts_to_its_end_or_until_now(events, changes, end):
    assert _data(_record(events((0.0, "request_start", {})), **changes))["end"] == end


def test_what_was_done_of_a_failed_run_is_shown(events):
    record = _record(events((0.0, "error", {"message": "no"})), status="failed", output="half", problem="no")
    assert (_data(record)["output"], _data(record)["problem"]) == ("half", "no")


def test_progress_of_one_call_is_one_entry(events):
    happened = events(
        (1.0, "tool_progress", {"call_id": "a", "done": 1}),
        (2.0, "tool_progress", {"call_id": "a", "done": 2}),
        (3.0, "tool_progress", {"call_id": "b", "done": 1}),
    )
    entries = _data(_record(happened))["entries"]
    assert [(each["payload"]["done"], each.get("count")) for each in entries] == [(2, 2), (1, None)]


def test_a_page_without_runs_is_a_page():
    page = run_page([], now=0.0, program="loom-agent-server", bounds=Bounds())
    assert "<title>loom-agent-server</title>" in page
    assert _data_of(page)["roots"] == []


def _words() -> Mapping[str, dict[str, str]]:
    return json.loads(_PAGES.joinpath("run_words.json").read_text("utf-8"))


def test_both_languages_say_the_same_with_the_same_values():
    english, chinese = _words()["en"], _words()["zh"]
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert set(re.findall(r"\{(\w+)\}", text)) == set(re.findall(r"\{(\w+)\}", chinese[key])), key


def test_every_word_that_the_scripts_say_is_there_and_every_other_one_is_used():
    scripts = "".join(
        each.read_text("utf-8") for each in _PAGES.iterdir() if re.fullmatch(r"(run|flow)\w*\.js", each.name)
    )
    words = _words()["en"]
    assert set(re.findall(r"""say\("(\w+)"[,)]""", scripts)) <= words.keys()
    made = ("kind_", "status_", "pending_", "unit_", "step_", "end_of_")
    stages = {"discover", "validate", "authorize", "check_cancel", "execute", "format"}
    unused = {key for key in words if not key.startswith(made) and not re.search(rf'"{key}"', scripts)}
    assert unused <= stages


def test_the_scripts_know_every_type_of_event():
    script = _PAGES.joinpath("run_events.js").read_text("utf-8")
    groups = re.search(r"const GROUPS = \{(.*?)\};", script, re.DOTALL)[1]
    assert set(re.findall(r'"(\w+)"', groups)) == set(EventType.__args__)
    assert set(FINAL_EVENTS) <= set(EventType.__args__)


@pytest.mark.hostile("pages")
def test_scripts_make_no_html_of_texts():
    for each in _PAGES.iterdir():
        if each.name.endswith(".js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", each.read_text("utf-8")
            )
