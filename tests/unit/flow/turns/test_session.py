"""Whose a conversation is, what outlives the process, and messages that come twice or at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.knowledge import ProviderKnowledge
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.turns.session import ConversationStore, KeyedMessage
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.llm.mock import MockProvider
from loom_core.runs.commands import InputResponse
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory
from tests.fixtures.fork_server import starts_quickly
from tests.unit.flow.conftest import LEAVE, ORDER, Api, decides, loaded_flows, talking


async def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with talking(journal=Journal(path)) as first:
        begun = await first("我要请三天假", context={"tenantId": "acme"})
        await first.assistant.journal.aclose()
    async with talking(journal=Journal(path)) as second:
        done = await second("感冒了", session_id=begun.session_id)
        assert (done.status, done.run_id, done.text) == ("completed", begun.run_id, "已提交：3天，感冒了")
        ((_, _, context),) = second.api.asked
        assert context["tenantId"] == "acme"
        await second.assistant.journal.aclose()


async def test_the_variables_of_a_conversation_do_not_grow_with_each_message() -> None:
    async with talking() as talk:
        await talk("你好", context={"a": "x" * 10_000})
        await talk("你好", context={"a": "y" * 10_000})
        with pytest.raises(InvalidInputError, match="The context has 20"):
            await talk("你好", context={"b": "x" * 10_000})


async def test_an_offer_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with talking(journal=Journal(path)) as first:
        offered = await first("我不请3天假了")
        assert offered.route.action == "clarify"
        await first.assistant.journal.aclose()
    async with talking(journal=Journal(path)) as second:
        begun = await second("是的", session_id=offered.session_id)
        assert (begun.flow_id, begun.text) == ("leave", "请假还需要：事由。")
        await second.assistant.journal.aclose()


_KILLED = """
import asyncio, json, os, signal, sys
from pathlib import Path
from loom_core.flow.config import parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.knowledge import ProviderKnowledge
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.runs.journal import Journal

async def main():
    loaded = parse_flow_file(sys.stdin.read())
    async with WorkflowOrchestrator(loaded, journal=Journal(Path(sys.argv[1]))) as assistant:
        reply = await assistant.query("我要请三天假", context={"tenantId": "acme"})
        reply = await assistant.query("改成5天", session_id=reply.session_id)
        print(reply.session_id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_conversation_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    written = json.dumps({"flow_url": "http://127.0.0.1:9", "flows": [LEAVE]})
    killed = await anyio.run_process(
        [sys.executable, "-c", starts_quickly(_KILLED), str(path)], input=written.encode(), check=False
    )
    assert killed.returncode == -9
    async with talking(journal=Journal(path)) as talk:
        done = await talk("感冒了", session_id=killed.stdout.decode().strip())
        assert (done.status, done.text) == ("completed", "已提交：5天，感冒了")
        assert talk.api.asked[0][2]["tenantId"] == "acme"
        await talk.assistant.journal.aclose()


async def test_two_processes_serve_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with talking(journal=Journal(path)) as one, talking(journal=Journal(path)) as two:
        begun = await one("我要请三天假")
        between = await two("订单123到哪了", session_id=begun.session_id)
        assert between.waiting is not None
        done = await one("感冒了")
        assert done.status == "completed"
        assert (await two("算了", session_id=begun.session_id)).route.how == "none"
        for talk in (one, two):
            await talk.assistant.journal.aclose()


async def test_a_session_belongs_to_its_caller() -> None:
    async with talking() as talk:
        begun = await talk("我要请三天假", caller="ann")
        for caller in ("bob", ""):
            with pytest.raises(NotFoundError, match="no session"):
                await talk("感冒了", caller=caller)
            with pytest.raises(NotFoundError):
                await talk.assistant.explain("感冒了", session_id=begun.session_id, caller=caller)
            with pytest.raises(NotFoundError):
                await talk.assistant.status(begun.run_id, caller=caller)
            order = InputResponse(id=begun.pending[0].id, action="accept", content={"reason": "x"})
            with pytest.raises(NotFoundError):
                await talk.assistant.send_command(begun.run_id, order, caller=caller)
        assert (await talk("感冒了", caller="ann")).status == "completed"
        with pytest.raises(NotFoundError):
            await talk("你好", session_id="made-up", caller="ann")


async def test_one_conversation_serves_one_tenant_and_its_variables_last() -> None:
    async with talking(file={"context": {"tenantId": "default", "region": "cn"}}) as talk:
        await talk("你好", context={"tenantId": "acme", "user": "王芳"})
        await talk("订单1到哪了", context={"user": "李雷"})
        ((_, _, context),) = talk.api.asked
        assert (context["tenantId"], context["user"]) == ("acme", "李雷")
        with pytest.raises(InvalidInputError, match="another tenantId"):
            await talk("你好", context={"tenantId": "other"})
        with pytest.raises(InvalidInputError, match="not valid JSON"):
            await talk("你好", context={"user": object()})
        with pytest.raises(InvalidInputError, match="characters"):
            await talk("你好", context={"user": "x" * 20_000})


async def test_the_same_message_with_the_same_key_is_taken_once() -> None:
    async with talking() as talk:
        first = await talk("我要请三天假", idempotency_key="k1")
        again = await talk("我要请三天假", idempotency_key="k1")
        lost = await talk.assistant.query(
            "我要请三天假", idempotency_key="k1"
        )  # its session was not heard of
        assert {each.run_id for each in (first, again, lost)} == {first.run_id}
        assert again.session_id == lost.session_id == first.session_id
        assert again.text == "请假还需要：事由。"

        done = await talk("感冒了", idempotency_key="k2")
        repeated = await talk("感冒了", idempotency_key="k2")
        assert (repeated.status, repeated.text, repeated.route) == (done.status, done.text, done.route)
        greeted = await talk("你好", idempotency_key="k3")
        assert (await talk("你好", idempotency_key="k3")).text == greeted.text
        with pytest.raises(InvalidInputError, match="another message"):
            await talk("再见", idempotency_key="k3")
        assert len(talk.api.asked) == 1
        runs = await talk.assistant.journal.runs(session_id=first.session_id)
        assert len(runs) == 1


async def test_messages_that_come_at_once_are_taken_one_after_the_other() -> None:
    async with talking() as talk:
        begun = await talk("我要请三天假")
        replies: list[Any] = []

        async def say(message: str) -> None:
            replies.append(await talk.assistant.query(message, session_id=begun.session_id))

        async with anyio.create_task_group() as group:
            for message in ("感冒了", "订单123到哪了", "你好"):
                group.start_soon(say, message)
        assert {reply.status for reply in replies} == {"completed"}
        assert len(talk.api.asked) == 2


async def test_a_run_that_takes_longer_is_told_of_later() -> None:
    let = anyio.Event()

    class Slow(Api):
        async def call(self, *args: Any, **options: Any) -> Any:
            await let.wait()
            return await super().call(*args, **options)

    llm = MockProvider([decides("respond"), "是的。", decides("respond"), "好。"])
    loaded = loaded_flows()
    async with Slow(loaded.file) as api, WorkflowOrchestrator(loaded, caller=api, llm=llm) as assistant:
        reply = await assistant.query("订单123到哪了", wait_seconds=0.0)
        assert (reply.status, reply.text) == ("working", "“查订单”正在办理，还没有结束。")
        let.set()
        with anyio.fail_after(30):
            done = await assistant.status(reply.run_id, wait_seconds=5)
        assert (done.status, done.text) == ("completed", "订单123在路上")
        later = await assistant.query("真的是这样说的", session_id=reply.session_id)
        assert (later.text, later.late) == ("订单123在路上\n\n是的。", "订单123在路上")
        again = await assistant.query("那就放心了吗", session_id=reply.session_id)
        assert again.text == "好。"
    decided, answered, *_, last = [[each.text for each in call.messages] for call in llm.calls]
    assert decided[1:] == ["订单123到哪了", "真的是这样说的"]  # it is not told yet
    assert answered[0].endswith("订单123在路上")  # now it is, before the answer
    assert last[1:-1] == ["订单123到哪了", "真的是这样说的", "订单123在路上\n\n是的。"]


async def test_what_works_can_be_cancelled_by_a_word() -> None:
    class Stuck(Api):
        async def call(self, *args: Any, **options: Any) -> Any:
            await anyio.sleep_forever()

    loaded = loaded_flows()
    async with Stuck(loaded.file) as api, WorkflowOrchestrator(loaded, caller=api) as assistant:
        reply = await assistant.query("订单123到哪了", wait_seconds=0.0)
        ended = await assistant.query("算了", session_id=reply.session_id)
        assert (ended.status, ended.text) == ("aborted", "“查订单”已取消。")


async def test_a_flow_begun_by_its_id_is_part_of_the_conversation() -> None:
    async with talking() as talk:
        begun = await talk.assistant.run_flow("leave", {"days": 2}, idempotency_key="one")
        assert (begun.status, begun.route.how) == ("input_required", "given")
        assert (
            await talk.assistant.run_flow("leave", {"days": 2}, idempotency_key="one")
        ).run_id == begun.run_id
        done = await talk("感冒了", session_id=begun.session_id)
        assert done.status == "completed"
        with pytest.raises(NotFoundError, match="no flow"):
            await talk.assistant.run_flow("nowhere")
        with pytest.raises(InvalidInputError):
            await talk.assistant.run_flow("leave", {"color": "red"})


async def test_another_file_is_taken_while_conversations_go_on() -> None:
    async with talking() as talk:
        await talk("我要请三天假")
        await talk.assistant.reload(loaded_flows(LEAVE, {**ORDER, "response": "新：{$inputs.number}"}))
        assert (await talk("订单7到哪了")).text.startswith("新：7")
        done = await talk("感冒了")
        assert done.status == "completed"
        with pytest.raises(RuntimeError):
            await WorkflowOrchestrator(loaded_flows()).reload(loaded_flows())


def known(text: str) -> ProviderKnowledge:
    """A source of knowledge that knows one text."""
    return ProviderKnowledge(DocumentsKnowledgeBase([TextDocument(text=text)], name="rules"))


async def test_what_is_given_besides_the_file_is_exchanged_with_it_or_kept() -> None:
    old, new = known("年假每年有15天。"), known("年假每年有20天。")
    async with talking(knowledge=old) as talk:
        assert "15天" in (await talk("年假每年有几天")).text
        await talk.assistant.reload(loaded_flows(LEAVE))
        assert "15天" in (await talk("年假每年有几天")).text
        await talk.assistant.reload(loaded_flows(LEAVE), knowledge=new)
        assert "20天" in (await talk("年假每年有几天")).text
        await talk.assistant.reload(loaded_flows(LEAVE), knowledge=None)
        assert "20天" not in (await talk("年假每年有几天")).text


async def test_a_run_whose_flow_is_not_in_the_file_is_driven_when_it_is_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking(LEAVE, look_seconds=0.01) as talk:
        journal = talk.assistant.journal
        order = FlowExecutor(loaded_flows(ORDER), journal=journal, caller=talk.api)
        run = await journal.create(order.build_request("order", "订单7到哪了", {"number": "7"}))
        with anyio.fail_after(10):
            while "left to others" not in caplog.text:
                await anyio.lowlevel.checkpoint()
        assert (await journal.get(run.id)).status == "working"
        await talk.assistant.reload(loaded_flows(LEAVE, ORDER))
        with anyio.fail_after(10):
            while (await journal.get(run.id)).status != "completed":
                await anyio.lowlevel.checkpoint()
        assert [what for what, _ in talk.api.requests] == ["GET /order"]


async def test_a_message_whose_process_died_before_the_run_was_told_is_told_it_once() -> None:
    async with talking() as talk:
        begun = await talk("我要请三天假")
        journal, run_id, pending = talk.assistant.journal, begun.run_id, begun.pending[0].id
        conversations = ConversationStore(journal, InMemoryMemory())
        conversation = await conversations.peek(begun.session_id, caller="", context={})
        conversation.note(KeyedMessage("k", "感冒了", run_id, pending))
        await conversations.save(conversation)
        assert (
            await conversations.find_duplicate(conversation, "感冒了", "k") is None
        )  # not told yet: it is taken
        assert (await talk("感冒了", idempotency_key="k")).status == "completed"

        conversation = await conversations.peek(begun.session_id, caller="", context={})
        conversation.note(KeyedMessage("k2", "改一下", run_id, pending))
        await conversations.save(conversation)
        assert await conversations.find_duplicate(conversation, "改一下", "k2") is not None  # it was told


async def test_a_run_begun_in_the_moment_of_a_crash_is_found_by_its_key() -> None:
    async with talking() as talk:
        request = talk.assistant.executor.build_request(
            "leave", "我要请三天假", {"days": 3}, idempotency_key="k"
        )
        run = await talk.assistant.journal.create(request)
        await talk.assistant.host.adopt(run.id)
        reply = await talk.assistant.query("我要请三天假", idempotency_key="k")
        assert (reply.run_id, reply.session_id) == (run.id, run.request.session_id)
        with pytest.raises(InvalidInputError, match="another message"):
            await talk.assistant.query("订单1到哪了", idempotency_key="k")


async def test_a_file_that_cannot_be_used_leaves_all_as_it_was() -> None:
    async with talking() as talk:
        before = talk.assistant.loaded
        with pytest.raises(ConfigError):
            await talk.assistant.reload(
                loaded_flows(LEAVE, knowledge={"kind": "local", "knowledge_base": "hr"})
            )
        assert talk.assistant.loaded is before
        assert (await talk("订单1到哪了")).status == "completed"


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    async def broken() -> None:
        async with talking() as talk:
            await talk("我要请三天假")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await broken()
