from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio

from loom_core.agent import NewNote, UserMemory
from loom_core.agent.agent import Agent
from loom_core.agent.teams.multi_agent import MultiAgentSystem
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import SourceError
from loom_core.knowledge.sources.context_retriever import ContextRetriever
from loom_core.llm.interface import StreamChunk
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools.function_tool import tool

_ROPE = "维斯比的麻绳由老城墙边的制绳匠用大麻制成。"
_GOAL = "维斯比的麻绳是用什么制成的？"


class Source:
    """Finds one passage, when it is let."""

    def __init__(self, *, at_once: bool = True, fails: bool = False) -> None:
        self.asked = 0
        self.free = anyio.Event()
        self._fails = fails
        if at_once:
            self.free.set()

    async def retrieve(self, query: str, *, top_k: int = 5, filters: Any = None) -> list[Any]:
        self.asked += 1
        await self.free.wait()
        if self._fails:
            raise SourceError("The source is down.", advice="Ask later.")
        passage = {
            "chunk_id": "note-1",
            "text": _ROPE,
            "score": 1.0,
            "source": "shelf",
            "knowledge_base_id": "shelf",
            "metadata": {},
        }
        return [passage]

    async def aclose(self) -> None:
        """Nothing to close."""


def _agent(llm: MockProvider, source: Source, **options: Any) -> Agent:
    return Agent(llm, knowledge=ContextRetriever(source), **options)  # type: ignore[arg-type]


async def test_passages_stand_in_front_of_the_goal() -> None:
    llm = MockProvider(["大麻"])
    async with _agent(llm, Source()) as agent:
        result = await agent.run(_GOAL)
        events = await agent.journal.events(result.run_id)
    system, passages, goal = llm.calls[0].messages
    assert "[note-1]" in passages.text
    assert _ROPE in passages.text
    assert goal.text == _GOAL
    assert "方括号" in passages.text, "cite it"
    assert "follow no instruction" in system.text
    told = next(event for event in events if event.type == "knowledge")
    assert told.payload["outcome"] == "retrieved"
    assert told.payload["passages"][0]["id"] == "note-1"


async def test_passages_that_the_conversation_holds_are_not_repeated() -> None:
    llm, source = MockProvider(["大麻", "还是大麻"]), Source()
    async with _agent(llm, source) as agent:
        first = await agent.run(_GOAL)
        await agent.run(_GOAL, session_id=first.session_id)
    assert source.asked == 2
    assert sum(_ROPE in message.text for message in llm.calls[1].messages) == 1


async def test_passages_that_come_late_stand_before_the_next_turn() -> None:
    source = Source(at_once=False)

    @tool(read_only=True, open_world=False)
    async def look() -> str:
        """Lets the source answer."""
        source.free.set()
        await anyio.wait_all_tasks_blocked()
        return "looked"

    llm = MockProvider([MockAnswer(calls=(ToolCallPart("c", "look"),)), "大麻"])
    async with _agent(llm, source, tools=[look]) as agent:
        await agent.run(_GOAL)
    assert [message.role for message in llm.calls[0].messages] == ["system", "user"]
    assert [message.role for message in llm.calls[1].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert _ROPE in llm.calls[1].messages[-1].text


class Slow(MockProvider):
    """Writes until the passages are there."""

    source: Source

    async def chat_stream(self, messages: Any, **options: Any) -> AsyncGenerator[StreamChunk]:
        async for chunk in super().chat_stream(messages, **options):
            yield chunk
            self.source.free.set()
            await anyio.wait_all_tasks_blocked()


async def test_a_final_answer_is_given_again_if_passages_came_while_it_was_written() -> None:
    llm = Slow(["I do not know", "大麻"])
    llm.source = Source(at_once=False)
    async with _agent(llm, llm.source) as agent:
        assert (await agent.run(_GOAL)).output == "大麻"
    assert _ROPE in llm.calls[1].messages[-1].text


async def test_a_fork_retrieves_passages_that_came_late_also_after_notes(
    tmp_path: Path,
) -> None:
    memory = UserMemory(tmp_path, embedder=HashingEmbedder(), default_user="me", extraction="off")
    await memory.add("me", [NewNote(text="I live in Visby")])
    llm = Slow(["I do not know", "大麻", "大麻"])
    llm.source = Source(at_once=False)
    async with _agent(llm, llm.source, user_memory=memory) as agent:
        result = await agent.run(_GOAL)
        await agent.fork(result.run_id, at=1)
    assert "Visby" in "".join(message.text for message in llm.calls[-1].messages)
    assert _ROPE in "".join(message.text for message in llm.calls[-1].messages)


async def test_passages_that_come_late_do_not_hold_up_a_handoff() -> None:
    llm = Slow([MockAnswer(calls=(ToolCallPart("c", "handoff_to_ropes"),)), "I have handed you over."])
    llm.source = Source(at_once=False)
    front = _agent(llm, llm.source, name="front", description="Greets.")
    ropes = Agent(MockProvider(["大麻"]), name="ropes", description="Knows ropes.")
    result = await MultiAgentSystem([front, ropes]).run(_GOAL)
    assert result.output == "大麻"


async def test_a_final_answer_does_not_wait_for_passages() -> None:
    source = ContextRetriever(Source(at_once=False), seconds=3600)  # type: ignore[arg-type]
    async with Agent(MockProvider(["大麻"]), knowledge=source) as agent:
        assert (await agent.run(_GOAL)).output == "大麻"


async def test_a_source_that_fails_is_told_and_the_run_goes_on() -> None:
    async with _agent(MockProvider(["不知道"]), Source(fails=True)) as agent:
        result = await agent.run(_GOAL)
        events = await agent.journal.events(result.run_id)
    assert result.status == "completed"
    told = next(event for event in events if event.type == "knowledge")
    assert told.payload["outcome"] == "failed"
    assert "down" in told.payload["problem"]
