from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio

from loom_core.agent.agent import Agent
from loom_core.llm.interface import StreamChunk
from loom_core.llm.mock import MockAnswer, MockProvider

_TEXT = "一段很长的回答，" * 200


async def _deltas(llm: MockProvider) -> list[tuple[str, str]]:
    async with Agent(llm) as agent:
        return [
            (event.type, event.payload["text"])
            async for event in agent.stream("go")
            if event.type in {"text_delta", "reasoning_delta"}
        ]


async def test_pieces_that_come_fast_are_few_events() -> None:
    deltas = await _deltas(MockProvider([MockAnswer(_TEXT, reasoning="let me think about it")]))
    assert "".join(text for kind, text in deltas if kind == "text_delta") == _TEXT
    assert deltas[0] == ("reasoning_delta", "let me think about it")
    assert len(deltas) < 8


async def test_a_piece_is_shown_soon_although_nothing_follows() -> None:
    class Stalls(MockProvider):
        shown = anyio.Event()

        async def chat_stream(self, messages: Any, **options: Any) -> AsyncGenerator[StreamChunk]:
            async for chunk in super().chat_stream(messages, **options):
                yield chunk
                if chunk.text == "first ":
                    with anyio.fail_after(10):
                        await self.shown.wait()

    llm = Stalls(["first second"])
    texts: list[str] = []
    async with Agent(llm) as agent:
        async for event in agent.stream("go"):
            if event.type == "text_delta":
                texts.append(event.payload["text"])
                llm.shown.set()
    assert texts == ["first ", "second"]


async def test_a_very_long_answer_is_not_held_back_as_a_whole() -> None:
    deltas = await _deltas(MockProvider(["word " * 3000]))
    assert len(deltas) >= 3
    assert max(len(text) for _, text in deltas) < 5000
