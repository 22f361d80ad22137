"""Choices of a question that come from an API's answer, with a real API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from loom_core.flow.config import parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.responses.reply import FlowReply
from loom_core.runs.commands import InputResponse
from loom_core.runs.journal import Journal
from loom_core.server.calls.elicitation import form_of

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

_TIMES = [
    {"id": "s1", "text": "9:30"},
    {"id": "s2", "text": "11:00"},
    {"id": "s3", "text": "15:00"},
    {"id": "s4", "text": "16:30"},
]
_OPTIONS = {"from": "$steps.slots.outputs.times", "value": "/id", "label": "/text"}
_ASK: dict[str, Any] = {
    "stepId": "time",
    "ask": {
        "question": "您想约哪个时间？ / Which time would you like?",
        "options": _OPTIONS,
        "into": "slot",
    },
}
_SLOTS = {
    "stepId": "slots",
    "operation": "GET /slots",
    "outputs": {"times": "$response.body#/times?"},
}
_BOOK = {
    "stepId": "book",
    "operation": {"url": "/book", "failure": "{$response.body#/error}"},
    "onFailure": [{"type": "goto", "stepId": "slots", "criteria": ["$statusCode == 409"]}],
}
BOOKING: dict[str, Any] = {
    "flow_id": "book",
    "name": "预约 / Appointment",
    "trigger_patterns": ["预约", "\\bbook\\b"],
    "input_schema": {
        "type": "object",
        "properties": {"slot": {"type": "string", "title": "时间 / time"}},
    },
    "steps": [_SLOTS, _ASK, _BOOK],
    "response": "约好了：{$inputs.slot}。 / Booked: {$inputs.slot}.",
}
_SURE = {"stepId": "sure", "confirm": "约{$inputs.slot}？ / Book {$inputs.slot}?"}
CONFIRMED = {**BOOKING, "steps": [_SLOTS, _ASK, _SURE, _BOOK]}

Say = Callable[[str], Any]
Flows = Callable[..., FlowExecutor]


@asynccontextmanager
async def _conversation(
    api: Api, flow: dict[str, Any], journal: Journal | None = None, session: str = "", **file: Any
) -> AsyncGenerator[Say]:
    written = {"flow_url": api.url, "net": {"allow": ["127.0.0.1"]}, "flows": [flow], **file}
    loaded = parse_flow_file(json.dumps(written, ensure_ascii=False))
    async with WorkflowOrchestrator(loaded, journal=journal, look_seconds=None) as assistant:
        last = session

        async def say(message: str) -> FlowReply:
            nonlocal last
            reply = await assistant.query(message, session_id=last)
            last = reply.session_id
            return reply

        yield say


def _refusal(reason: str) -> Callable[[Request], Awaitable[Response]]:
    async def refuse(_: Request) -> Response:
        return JSONResponse({"error": reason}, 409)

    return refuse


def _booked(api: Api) -> list[Any]:
    return [each.body["slot"] for each in api.asked if each.path == "/book"]


@pytest.mark.parametrize(
    ("said", "slot"),
    [
        ("15:00", "s3"),
        ("三点", "s3"),
        ("下午三点吧", "s3"),
        ("第二个", "s2"),
        ("2", "s2"),
        ("最后一个", "s4"),
        ("s4", "s4"),
    ],
)
async def test_a_choice_is_said_by_title_number_time_or_code(api: Api, said: str, slot: str) -> None:
    api.on("/slots", {"times": _TIMES})
    async with _conversation(api, BOOKING) as say:
        asked = await say("我要预约")
        assert asked.text == "您想约哪个时间？\n1. 9:30\n2. 11:00\n3. 15:00\n4. 16:30"
        done = await say(said)
    title = next(each["text"] for each in _TIMES if each["id"] == slot)
    assert (done.status, done.text) == ("completed", f"约好了：{title}。")
    assert _booked(api) == [slot]


@pytest.mark.parametrize("said", ["at half past four", "the fourth one", "4", "16:30", "the last one please"])
async def test_it_is_said_in_english_as_well(api: Api, said: str) -> None:
    api.on("/slots", {"times": _TIMES})
    async with _conversation(api, BOOKING) as say:
        await say("please book it")
        assert (await say(said)).text == "Booked: 16:30."
    assert _booked(api) == ["s4"]


async def test_only_what_is_offered_is_taken_and_anything_else_gets_the_list_again(api: Api) -> None:
    api.on("/slots", {"times": _TIMES})
    async with _conversation(api, BOOKING) as say:
        await say("我要预约")
        refused = await say("四点")
        assert refused.text.startswith("没有“四点”这一项。您想约哪个时间？\n1. 9:30\n")
        assert (await say("你好")).text.endswith("您想约哪个时间？\n1. 9:30\n2. 11:00\n3. 15:00\n4. 16:30")
        assert "没有" not in (await say("谢谢")).text  # the question is only repeated
        assert (await say("算了")).status == "aborted"
    async with _conversation(api, BOOKING) as say:
        await say("please book it")
        assert (await say("at noon")).text.startswith("“at noon” is not one of the choices. Which time")
    assert _booked(api) == []


async def test_words_narrow_many_choices_down_and_numbers_are_of_the_list_that_was_read(api: Api) -> None:
    times = [
        {"id": f"{day}-{hour}", "text": f"{name} {hour}:00"}
        for day, name in ((1, "Tue 1 Dec"), (2, "Wed 2 Dec"))
        for hour in range(9, 17)
    ]
    api.on("/slots", {"times": times})
    async with _conversation(api, BOOKING) as say:
        asked = await say("please book it")
        assert asked.text.splitlines()[10:] == [
            "10. Wed 2 Dec 10:00",
            "… and 6 more: say a day, a name or another word of them to see fewer.",
        ]
        assert "11. " not in asked.text
        narrowed = await say("Wednesday")
        assert narrowed.text.startswith("Several fit. Which time would you like?\n1. Wed 2 Dec 9:00\n")
        afternoon = await say("anything in the afternoon?")
        assert afternoon.text.splitlines()[1] == "1. Wed 2 Dec 12:00"
        assert (await say("the second one")).text == "Booked: Wed 2 Dec 13:00."
    assert _booked(api) == ["2-13"]


@pytest.mark.parametrize(
    ("begin", "asked_again", "thanks", "said", "booked"),
    [
        ("我要预约", "这个时间刚刚被约走了。您想约哪个时间？", "谢谢", "第三个", "约好了：16:30。"),
        (
            "please book it",
            "That time has just been taken. Which time would you like?",
            "thanks",
            "the last one",
            "Booked: 16:30.",
        ),
    ],
)
async def test_after_a_conflict_the_reason_of_the_api_is_said_and_what_is_free_now_is_offered(
    api: Api, begin: str, asked_again: str, thanks: str, said: str, booked: str
) -> None:
    left = [each for each in _TIMES if each["id"] != "s3"]
    api.on("/slots", {"times": _TIMES}, {"times": left})
    api.on("/book", _refusal("这个时间刚刚被约走了。 / That time has just been taken."), {"id": 1})
    async with _conversation(api, BOOKING) as say:
        await say(begin)
        conflict = await say("15:00")
        assert conflict.status == "input_required"
        assert conflict.text == f"{asked_again}\n1. 9:30\n2. 11:00\n3. 16:30"
        assert asked_again[:8] not in (await say(thanks)).text
        assert (await say(said)).text == booked
    first, second = (each for each in api.asked if each.path == "/book")
    assert (first.body["slot"], second.body["slot"]) == ("s3", "s4")
    assert first.key != second.key


async def test_a_later_question_says_nothing_of_a_conflict_that_was_said_before(api: Api) -> None:
    api.on("/slots", {"times": _TIMES})
    api.on("/book", _refusal("Taken."), {"id": 1})
    note = {"stepId": "note", "ask": "Anything else?"}
    async with _conversation(api, {**BOOKING, "steps": [_SLOTS, _ASK, note, _BOOK]}) as say:
        await say("please book it")
        assert (await say("1")).text == "Anything else?"
        assert (await say("a coffee")).text.startswith("Taken. Which time")
        assert (await say("2")).text == "Anything else?"


async def test_an_empty_list_is_a_failure_that_the_user_reads_or_an_action_handles(api: Api) -> None:
    empty: list[dict[str, Any]] = [{"times": []}, {}]
    for times in empty:
        api.on("/slots", times)
        none = {**_OPTIONS, "none": "今天约满了。 / Today is fully booked."}
        full = {**_ASK, "ask": {**_ASK["ask"], "options": none}}
        async with _conversation(api, {**BOOKING, "steps": [_SLOTS, full, _BOOK]}) as say:
            failed = await say("我要预约")
            assert (failed.status, failed.text.split("。")[:2]) == (
                "failed",
                ["“预约”没有办成", "今天约满了"],
            )
        async with _conversation(api, BOOKING) as say:
            assert "There is nothing to choose from at the moment." in (await say("please book it")).text
        end = {**_ASK, "onFailure": [{"type": "end", "response": "明天再来 / Come tomorrow"}]}
        async with _conversation(api, {**BOOKING, "steps": [_SLOTS, end, _BOOK]}) as say:
            done = await say("please book it")
            assert (done.status, done.text) == ("completed", "Come tomorrow")


async def test_a_list_that_is_none_fails_for_operators(api: Api, flows: Flows) -> None:
    for times, problem in (({"a": 1}, "The choices are no list"), ([{"x": 1}], "has the value /id")):
        api.on("/slots", {"times": times})
        run = await flows([BOOKING]).execute("book", "please book it")
        assert run.status == "failed"
        assert problem in run.problem
        assert "list" not in run.output


@pytest.mark.parametrize(
    ("items", "options", "said", "value"),
    [
        (["红", "蓝"], {}, "蓝的", "蓝"),
        ([2, 4, 6], {}, "4", 4),
        ([{"no": 7, "n": "靠窗"}, {"no": 9, "n": "里间"}], {"value": "/no", "label": "/n"}, "里间", 9),
        ([{"no": 7, "n": "靠窗"}, {"no": 9, "n": "里间"}], {"label": "/n"}, "第一个", {"no": 7, "n": "靠窗"}),
        (["2026-12-01", "2026-12-02"], {}, "12月2号", "2026-12-02"),
        ([{"n": "两人桌"}, {"id": 1, "n": "四人桌"}], {"value": "/id", "label": "/n"}, "四人桌", 1),
    ],
)
async def test_values_may_be_any_json(
    api: Api, items: list[Any], options: dict[str, str], said: str, value: Any
) -> None:
    api.on("/slots", {"times": items})
    ask = {**_ASK, "ask": {**_ASK["ask"], "options": {"from": _OPTIONS["from"], **options}}}
    flow: dict[str, Any] = {**BOOKING, "input_schema": {}}
    flow["steps"] = [_SLOTS, ask, {"stepId": "b", "operation": "POST /book"}]
    async with _conversation(api, flow) as say:
        await say("我要预约")
        assert (await say(said)).status == "completed"
    assert _booked(api) == [value]


async def test_dates_are_offered_in_words(api: Api) -> None:
    api.on("/slots", {"times": ["2026-12-01", "2026-12-02T15:00:00+08:00"]})
    ask = {**_ASK, "ask": {**_ASK["ask"], "options": {"from": _OPTIONS["from"]}}}
    async with _conversation(api, {**BOOKING, "steps": [_SLOTS, ask, _BOOK]}) as say:
        asked = await say("please book it")
    assert asked.text.splitlines()[1:] == [
        "1. Tuesday, 1 December 2026",
        "2. Wednesday, 2 December 2026 15:00",
    ]


async def test_numbers_are_not_numbered(api: Api) -> None:
    api.on("/slots", {"times": [2, 4]})
    ask = {**_ASK, "ask": {**_ASK["ask"], "options": {"from": _OPTIONS["from"]}}}
    async with _conversation(api, {**BOOKING, "steps": [_SLOTS, ask, _BOOK]}) as say:
        assert (await say("please book it")).text.endswith("\n- 2\n- 4")


async def test_titles_are_in_later_texts_and_a_correction_is_one_of_the_choices(api: Api) -> None:
    api.on("/slots", {"times": _TIMES})
    async with _conversation(api, CONFIRMED) as say:
        await say("我要预约")
        asked = await say("三点")
        assert asked.text == "约15:00？"
        assert asked.pending[0].arguments == {"slot": "s3"}
        refused = await say("改成五点")
        assert refused.text.startswith("没有“五点”这一项。时间：9:30、11:00、15:00、16:30。")
        assert (await say("改成十一点")).text == "约11:00？"
        assert (await say("是的")).text == "约好了：11:00。"
    assert _booked(api) == ["s2"]


async def test_choices_in_a_case_are_corrected_and_named_like_others(api: Api) -> None:
    api.on("/slots", {"times": _TIMES})
    case = {"when": "$context.shop != 'closed'", "steps": [_SLOTS, _ASK, _SURE]}
    flow = {
        **BOOKING,
        "steps": [{"stepId": "which", "switch": [case]}, {"stepId": "b", "operation": "POST /book"}],
    }
    async with _conversation(api, flow, context={"shop": "open"}) as say:
        await say("我要预约")
        assert (await say("三点")).text == "约15:00？"
        assert (await say("改成十一点")).text == "约11:00？"
        assert (await say("是的")).text == "约好了：11:00。"
    assert _booked(api) == ["s2"]


async def test_after_a_failed_run_a_choice_is_not_corrected_to_what_was_never_offered(api: Api) -> None:
    api.on("/slots", {"times": _TIMES})
    api.on("/book", 422)
    async with _conversation(api, BOOKING) as say:
        await say("我要预约")
        assert (await say("三点")).status == "failed"
        await say("改成五点")
    assert _booked(api) == ["s3"]


@pytest.mark.parametrize(
    ("given", "slot", "said"),
    [("s2", "s2", ""), ("三点", "s3", ""), ("15:00", "s3", ""), ("五点", "", "没有“五点”这一项。")],
)
async def test_what_was_said_before_is_taken_if_it_is_offered(
    api: Api, flows: Flows, given: str, slot: str, said: str
) -> None:
    api.on("/slots", {"times": _TIMES})
    run = await flows([BOOKING]).execute("book", "我要预约", {"slot": given})
    if slot:
        assert (run.status, _booked(api)) == ("completed", [slot])
    else:
        assert run.pending[0].reason.startswith(f"{said}您想约哪个时间？")


async def test_another_process_offers_the_same_and_asks_the_api_no_more(api: Api, tmp_path: Path) -> None:
    api.on("/slots", {"times": _TIMES}, {"times": []})
    first = Journal(tmp_path / "runs.db")
    async with _conversation(api, BOOKING, first) as say:
        asked = await say("我要预约")
        narrowed = await say("下午")
        assert narrowed.text == "符合的有几个。您想约哪个时间？\n1. 15:00\n2. 16:30"
    await first.aclose()
    second = Journal(tmp_path / "runs.db")
    async with _conversation(api, BOOKING, second, session=asked.session_id) as say:
        assert (await say("谢谢")).text.endswith("1. 15:00\n2. 16:30")
        assert (await say("第二个")).text == "约好了：16:30。"
    await second.aclose()
    assert api.counts == {"/slots": 1, "/book": 1}


async def test_a_form_shows_the_choices_with_their_titles_and_its_answer_is_checked(
    api: Api, flows: Flows
) -> None:
    api.on("/slots", {"times": _TIMES})
    executor = flows([BOOKING])
    run = await executor.execute("book", "please book it")
    form = form_of(run.pending[0].schema)
    assert form is not None
    assert form["properties"]["slot"] == {
        "title": "time",
        "type": "string",
        "oneOf": [{"const": each["id"], "title": each["text"]} for each in _TIMES],
    }
    wrong = InputResponse(id=run.pending[0].id, action="accept", content={"slot": "s9"})
    run = await executor.send_command(run.id, wrong)
    assert run.pending[0].reason.startswith("“s9” is not one of the choices. Which time")
    right = InputResponse(id=run.pending[0].id, action="accept", content={"slot": "s4"})
    assert (await executor.send_command(run.id, right)).output == "Booked: 16:30."
