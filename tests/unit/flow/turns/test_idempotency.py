"""Idempotency: a request repeated with its key counts once, also without a session and in two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import InvalidInputError
from loom_core.flow.http.response import EndpointResult
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.turns.session import ConversationStore
from loom_core.llm.mock import MockProvider
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import is_overdue
from tests.unit.flow.conftest import Api, decides, loaded_flows, talking


async def test_an_answer_in_words_is_given_again_in_the_same_session() -> None:
    llm = MockProvider([decides("respond"), "一", decides("respond"), "二"])
    async with talking(llm=llm) as talk:
        first = await talk.assistant.query("今天天气怎么样", idempotency_key="k1")
        again = await talk.assistant.query("今天天气怎么样", idempotency_key="k1")
        assert (again.text, again.session_id) == (first.text, first.session_id) == ("一", first.session_id)
        other = await talk.assistant.query("今天天气怎么样", idempotency_key="k1", caller="王芳")
        assert (other.text, other.session_id == first.session_id) == ("二", False)
        with pytest.raises(InvalidInputError, match="another message"):
            await talk.assistant.query("明天呢", idempotency_key="k1")


async def test_messages_that_come_at_once_are_answered_once() -> None:
    llm = MockProvider([decides("respond"), "一", decides("respond"), "二"])
    async with talking(llm=llm) as talk:
        told = list[str]()

        async def ask() -> None:
            told.append((await talk.assistant.query("今天天气怎么样", idempotency_key="k1")).text)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        assert told == ["一", "一"]


async def test_a_flow_is_begun_once_by_two_processes(tmp_path: Path) -> None:
    loaded, path = loaded_flows(), tmp_path / "runs.db"
    async with Api(loaded.file) as api:
        one, two = Journal(path), Journal(path)
        options = {"caller": api, "look_seconds": None}
        async with (
            WorkflowOrchestrator(loaded, journal=one, **options) as first,
            WorkflowOrchestrator(loaded, journal=two, **options) as second,
        ):
            found = set[tuple[str, str]]()

            async def begin(assistant: WorkflowOrchestrator) -> None:
                reply = await assistant.run_flow("order", {"number": "7"}, idempotency_key="k")
                found.add((reply.run_id, reply.session_id))

            async with anyio.create_task_group() as group:
                for assistant in (first, second, first, second):
                    group.start_soon(begin, assistant)
            assert len(found) == 1
        await one.aclose()
        await two.aclose()
        assert len(api.requests) == 1


async def test_a_key_with_other_inputs_is_refused() -> None:
    async with talking() as talk:
        run = talk.assistant.run_flow
        first = await run("order", {"number": "7"}, idempotency_key="k")
        assert (await run("order", {"number": "7"}, idempotency_key="k")).run_id == first.run_id
        for flow, inputs, message in (
            ("order", {"number": "8"}, ""),
            ("order", {"number": "7"}, "查一下"),
            ("leave", {"days": 3}, ""),
        ):
            with pytest.raises(InvalidInputError, match="'k' was used before"):
                await run(flow, inputs, message=message, idempotency_key="k")
        assert len(talk.api.requests) == 1


async def test_a_session_may_have_any_number_of_unfinished_runs() -> None:
    async with talking() as talk:
        session = (await talk("你好")).session_id
        for _ in range(25):
            reply = await talk.assistant.run_flow("order", session_id=session)
            assert reply.status == "input_required"
        assert (await talk("我要请假")).flow_id == "leave"


async def test_what_two_processes_remember_of_a_session_is_all_kept() -> None:
    journal = Journal()
    async with talking(journal=journal) as talk:
        session = (await talk("你好", idempotency_key="a")).session_id
        conversations = ConversationStore(journal, SQLiteMemory(journal=journal))  # of another process
        one = await conversations.peek(session, caller="", context={})
        await talk("再见", idempotency_key="b")
        await conversations.save(one)
        kept = await conversations.peek(session, caller="", context={})
        assert {each.key for each in kept.answered} == {"a", "b"}
    await journal.aclose()


async def test_an_answer_that_comes_too_late_ends_the_run_and_is_told_so() -> None:
    async with talking(answer_seconds=0.2) as talk:
        asked = await talk("我要请假")
        assert asked.status == "input_required"
        with anyio.fail_after(30):
            while not is_overdue(await talk.assistant.journal.get(asked.run_id)):
                await anyio.lowlevel.checkpoint()
        late = await talk("三天")
        assert (late.run_id, late.status) == (asked.run_id, "aborted")
        assert "回答的时间已经过了" in late.text


async def test_a_run_whose_flow_is_gone_waits_until_it_is_back() -> None:
    async with talking() as talk:
        asked = await talk("订单到哪了，我想请假")
        await talk.assistant.reload(loaded_flows({**_ORDER}))
        assert (await talk("三天", wait_seconds=2.0)).run_id != asked.run_id
        assert (await talk("算了", wait_seconds=2.0)).route.action == "cancel"
        assert (await talk.assistant.status(asked.run_id)).status == "input_required"
        await talk.assistant.reload(loaded_flows())
        assert (await talk("三天，感冒了")).run_id == asked.run_id


_ORDER = {"flow_id": "order", "name": "查订单", "trigger_patterns": ["订单"], "endpoint": "GET /order"}


async def test_the_latest_run_that_failed_takes_a_correction() -> None:
    async with talking() as talk:
        answers: list[Any] = [EndpointResult(404, {}, {"msg": "没有"}), {"ok": True}]
        talk.api.answer = lambda _: answers.pop(0)
        failed = await talk("订单9")
        assert failed.status == "failed"
        again = await talk("改成8")
        assert (again.run_id, again.status) == (failed.run_id, "completed")
        assert talk.api.requests == [("GET /order", {"number": "9"}), ("GET /order", {"number": "8"})]


async def test_a_remark_on_an_answer_is_made_once() -> None:
    steps = [
        {"stepId": "hold", "description": "占座", "operation": "POST /hold"},
        {"stepId": "sure", "confirm": "{$inputs.day}，行吗？"},
    ]
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date", "title": "日期"}}}
    flow = {"flow_id": "book", "name": "订座", "trigger_patterns": ["订座"], "input_schema": schema}
    async with talking({**flow, "steps": steps}) as talk:
        run = await talk.assistant.run_flow("book", {"day": "2026-12-01"}, message="我要订座")
        talk.session_id = run.session_id
        refused = await talk("改成2026-12-02")
        assert "日期改不了了：“占座”已经按原来的办好了" in refused.text
        repeated = await talk("嗯哼")
        assert "改不了" not in repeated.text
        assert "2026年12月1日（周二），行吗？" in repeated.text
