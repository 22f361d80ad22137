"""Two requests in one message: both are done, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loom_core.flow.config import read_flow_file
from loom_core.flow.policy.router import FlowRouter, find_unread_request, split_requests
from loom_core.flow.regression import read_utterances
from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import talking

_EXAMPLE = Path(__file__).parents[4] / "examples" / "flow_company"
CANCEL: dict[str, Any] = {
    "flow_id": "cancel",
    "name": "取消预约 / Cancel an appointment",
    "trigger_patterns": ["取消.{0,4}(?P<code>A[0-9]{4})", "\\bcancel\\b.{0,10}\\b(?P<code>A[0-9]{4})\\b"],
    "endpoint": "POST /cancel",
    "response": "{$inputs.code} 取消了 / {$inputs.code} is cancelled.",
    "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}
BOOK: dict[str, Any] = {
    "flow_id": "book",
    "name": "预约 / Book",
    "trigger_patterns": ["约.{0,3}(?P<kind>牙科|眼科)", "\\bbook\\b.{0,6}\\b(?P<kind>dental|eye)\\b"],
    "endpoint": "POST /book",
    "response": "{$inputs.kind} 约好了 / Booked: {$inputs.kind}",
    "input_schema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["牙科", "眼科", "dental", "eye"]},
            "time": {"type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}$", "title": "时间 / time"},
        },
        "required": ["kind", "time"],
    },
}


@pytest.mark.parametrize("llm", [None, MockProvider([])])
@pytest.mark.parametrize(
    ("message", "asked", "done"),
    [
        (
            "cancel A1001 and book a dental one",
            "A1001 is cancelled.\n\nBook needs: time.",
            "Booked: dental",
        ),
        ("取消A1001再约一个牙科", "A1001 取消了\n\n预约还需要：时间。", "牙科 约好了"),
        ("取消A1001，然后约一个牙科", "A1001 取消了\n\n预约还需要：时间。", "牙科 约好了"),
    ],
)
async def test_both_are_done_in_their_order(message: str, asked: str, done: str, llm: Any) -> None:
    async with talking(CANCEL, BOOK, llm=llm) as talk:
        assert (await talk(message)).text == asked
        assert talk.api.requests == [("POST /cancel", {"code": "A1001"})]
        assert (await talk("9:30")).text == done
        assert [each for each, _ in talk.api.requests] == ["POST /cancel", "POST /book"]


async def test_the_second_waits_for_the_first() -> None:
    async with talking(CANCEL, BOOK) as talk:
        assert (await talk("book a dental one and cancel A1001")).text == "Book needs: time."
        assert (await talk("9:30")).text == "Booked: dental\n\nA1001 is cancelled."
        assert [each for each, _ in talk.api.requests] == ["POST /book", "POST /cancel"]


@pytest.mark.parametrize(
    "steps",
    [
        [{"stepId": "sure", "confirm": "Really?"}],
        [{"stepId": "where", "ask": "Really?"}],
        [{"stepId": "desk", "handover": "Really?"}],
        [{"stepId": "inner", "workflowId": "inner"}],
    ],
)
async def test_one_that_changes_nothing_and_asks_waits_too_and_gets_no_answer_of_the_first(
    steps: list[dict[str, Any]],
) -> None:
    inner = {"flow_id": "inner", "steps": [{"stepId": "sure", "confirm": "Really?"}]}
    plan = {"flow_id": "plan", "trigger_patterns": ["plan a trip"], "steps": steps}
    async with talking({**CANCEL, "confirm": "always"}, plan, inner) as talk:
        begun = await talk("cancel A1001 and plan a trip")
        assert "Cancel an appointment" in begun.text
        assert (await talk("yes")).text == "A1001 is cancelled.\n\nReally?"


async def test_what_is_called_off_does_not_take_the_other_with_it_unasked() -> None:
    async with talking(CANCEL, BOOK) as talk:
        await talk("book a dental one and cancel A1001")
        off = await talk("never mind")
        assert off.text.endswith("Do you want “Cancel an appointment”?")
        assert (await talk("yes")).text == "A1001 is cancelled."


async def test_two_of_the_same_kind_are_two() -> None:
    async with talking(CANCEL, BOOK) as talk:
        assert (
            await talk("cancel A1001 and cancel A1002")
        ).text == "A1001 is cancelled.\n\nA1002 is cancelled."


@pytest.mark.parametrize(
    "message",
    [
        "I don't want to cancel A1001 and book a dental one",
        "cancel A1001 or book a dental one",
        "book a dental one and never mind",
        "book a dental one, at 9:30 and on Monday",
        "取消A1001，再见",
    ],
)
async def test_a_single_request_is_not_split(message: str) -> None:
    async with talking(CANCEL, BOOK) as talk:
        await talk(message)
        assert not (await talk.assistant.journal.runs(limit=5))[1:]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "cancel A1001 and then remind my wife about lunch",
            "A1001 is cancelled.\n\nAbout “remind my wife about lunch”: I found nothing about that.",
        ),
        (
            "取消A1001，另外给我太太订一束鲜花",
            "A1001 取消了\n\n关于“给我太太订一束鲜花”：没有找到相关的内容。",
        ),
    ],
)
async def test_a_further_request_that_no_pattern_reads_is_named(message: str, text: str) -> None:
    async with talking(CANCEL, BOOK) as talk:
        assert (await talk(message)).text.startswith(text)


def test_no_single_request_of_the_example_is_split_and_none_of_two_is_missed() -> None:
    router = FlowRouter(read_flow_file(_EXAMPLE / "flow.json").file.flows)
    utterances = read_utterances((_EXAMPLE / "utterances.jsonl").read_text(encoding="utf-8"))
    split = {
        each.message
        for each in utterances
        if split_requests(each.message, router, router.match(each.message))
    }
    further = {
        each.message
        for each in utterances
        if find_unread_request(each.message, router, router.match(each.message))
    }
    assert further <= split
    assert split == {
        "我要请假，顺便查一下订单",
        "预约验光，再查下订单BO20418",
        "I want to take leave and book an eye test",
        "Track my order and book a fitting",
    }


def test_the_docs_say_how_many_utterances_there_are() -> None:
    count = len(read_utterances((_EXAMPLE / "utterances.jsonl").read_text(encoding="utf-8")))
    root = _EXAMPLE.parents[1]
    assert f"The example has {count} lines." in (root / "docs/flow.md").read_text(encoding="utf-8")
    assert str(count) in (_EXAMPLE / "README.md").read_text(encoding="utf-8")
