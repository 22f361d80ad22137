"""An agent with the model of any vendor: its runs are shortened, aborted, resumed and gone on with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.summary import SECTIONS, is_summary
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.recorder import RunState
from loom_core.llm.hosted.providers import PROVIDERS
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.llm.mock import MockProvider
from loom_core.net.retry import RetryPolicy
from loom_core.runs.commands import Abort
from loom_core.runs.memory import InMemoryMemory
from loom_core.tools.function_tool import tool
from tests.fixtures.vendors import FakeVendors
from tests.fixtures.vendors.script import Call, Recorded, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import httpx2

    from loom_core.llm.hosted.provider import HostedProvider
    from loom_core.llm.messages import Message

_MODELS = {
    "ollama": "qwen3:8b",
    "vllm": "Qwen/Qwen3.5-9B",
    "gpustack": "qwen3.5-9b",
    "openai_compatible": "some-model",
    "custom": "another-model",
}
_GOAL = "通读全部章节，列出每一章的要点，并注明出处"
_SUMMARY = "\n\n".join(f"## {section.title_zh}\n已读前几章。" for section in SECTIONS)
_READING = 6  # turns of two chapters each: about 8,000 tokens


class _Book:
    """The data that the agent reads, and the event that it waits for."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.read: list[int] = []

    def tools(self) -> list[Any]:
        @tool(read_only=True, open_world=False)
        async def read_chapter(number: int) -> str:
            """读取一章。"""
            self.read.append(number)
            return f"第 {number} 章：" + "山高水长" * 230

        @tool(read_only=True, open_world=False)
        async def wait_for_editor() -> str:
            """Waits for someone who does not come."""
            self.waiting.set()
            await anyio.sleep_forever()
            return "never"

        return [read_chapter, wait_for_editor]


class _Reader:
    """The model: reads chapter after chapter, waits, and answers when it is asked once more."""

    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, request: Recorded) -> Turn:
        self.turns += 1
        thought = f"还要读第 {self.turns} 部分"
        if self.turns <= _READING:
            chapters = (2 * self.turns - 1, 2 * self.turns)
            calls = tuple(Call("read_chapter", {"number": number}) for number in chapters)
            return Turn(reasoning=thought, text="继续读。", calls=calls, usage=None, piece=50)
        if self.turns == _READING + 1:
            calls = (Call("read_chapter", {"number": 99}), Call("wait_for_editor"))
            return Turn(reasoning=thought, redacted=True, calls=calls, usage=None, piece=50)
        if self.turns % 2:
            return Turn(
                reasoning=thought, calls=(Call("read_chapter", {"number": 100}),), usage=None, piece=50
            )
        return Turn(reasoning=thought, text="要点如下。", usage=None, piece=50)


def _model(vendor: str, fake: FakeVendors, http_client: httpx2.AsyncClient) -> HostedProvider:
    return PROVIDERS[vendor](
        _MODELS.get(vendor, ""),
        api_key=fake.key,
        base_url=fake.base_url(vendor),
        http_client=http_client,
        retry=RetryPolicy(attempts=1),
    )


async def _begun_and_aborted(agent: Agent, book: _Book) -> str:
    """A run that is aborted while a tool waits; returns its id."""
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, _GOAL)
        with anyio.fail_after(20):
            await book.waiting.wait()
            (run,) = await agent.journal.runs()
            await agent.send_command(run.id, Abort(reason="换个时间"))
    return run.id


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_a_run_is_taken_by_its_vendor_from_the_first_request_to_the_last(vendor: str):
    book, memory = _Book(), InMemoryMemory()
    histories: list[list[Message]] = []
    fake = FakeVendors(_Reader())
    async with fake.http_client() as http_client:
        agent = Agent(
            _model(vendor, fake, http_client),
            tools=book.tools(),
            memory=memory,
            compaction=Compaction(llm=MockProvider(lambda request: _SUMMARY), window=8000),
            options={"effort": "high"},
        )
        run_id = await _begun_and_aborted(agent, book)
        run = await agent.journal.get(run_id)
        session = run.request.session_id
        assert run.status == "aborted"
        histories.append(list(await memory.messages(session)))

        resumed = await agent.resume(run_id)
        assert resumed.or_raise().output == "要点如下。"
        histories.append(list(await memory.messages(session)))

        again = await agent.run("再读一遍附录", session_id=session)
        assert again.or_raise().output == "要点如下。"
        histories.append(list(await memory.messages(session)))
        events = await agent.journal.events(run_id)
        stopped = await _stopped_anywhere(agent, run_id)
        await agent.aclose()
    assert "compression_applied" in {event.type for event in events}
    assert any(map(is_summary, histories[-1]))
    # The calls of one turn run side by side.
    assert sorted(book.read[: 2 * _READING + 1]) == [*range(1, 2 * _READING + 1), 99]
    for request in fake.requests[:-2]:  # those of the first goal
        assert _GOAL in json.dumps(request.body, ensure_ascii=False)
    await _taken(histories, PROVIDERS)
    await _taken(stopped, [vendor])


async def _stopped_anywhere(agent: Agent, run_id: str) -> list[list[Message]]:
    """The conversations of a run that ends after each of its journalled steps."""
    log = await agent.journal.claim(run_id)
    assert log is not None
    async with log:
        states = [RunState.restore(log.steps[:count]) for count in range(1, len(log.steps) + 1)]
    return [state.conversation() for state in states]


async def _taken(histories: Iterable[Sequence[Message]], vendors: Iterable[str]) -> None:
    """Check that models of these vendors accept a run's conversation when the user continues it."""
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        for vendor in vendors:
            model = _model(vendor, fake, http_client)
            for history in histories:
                answer = await model.chat([*history, UserMessage((TextPart("谢谢"),))])
                assert answer.message.provider == vendor
