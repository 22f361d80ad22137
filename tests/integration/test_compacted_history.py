"""Histories that were shortened, stopped anywhere and gone on with: every vendor takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_core.agent.compaction.compaction import Compactor
from loom_core.agent.compaction.summary import SECTIONS, is_summary
from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient
from loom_core.llm.chat_completions.client import ChatCompletionsClient
from loom_core.llm.interface import ChatRequest, ToolSpec
from loom_core.llm.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockProvider
from loom_core.llm.transport.protocol import Connection
from loom_core.llm.transport.replay import pair_tool_results
from loom_core.llm.vendors import VENDORS
from tests.fixtures.conversations import conversations
from tests.fixtures.vendors.app import FakeVendors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.transport.protocol import WireClient

_MODELS = [
    ("openai", "gpt-5.6-terra"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-fable-5-1"),
    ("anthropic", "claude-haiku-4-5"),
    ("deepseek", "deepseek-flash"),
    ("qwen", "qwen3.8-flash"),
    ("gemini", "gemini-3.8-flash"),
    ("kimi", "kimi-k3"),
    ("doubao", "doubao-seed-2-1-pro-260915"),
    ("zhipu", "glm-5.3"),
    ("minimax", "MiniMax-M3"),
    ("ollama", "qwen3-vl:8b"),
    ("vllm", "Qwen/Qwen3.5-9B"),
    ("gpustack", "qwen3.5-9b"),
    ("openai_compatible", "some-model"),
    ("custom", "another-model"),
]
_GOAL = "把知识库里的文档整理成一份报告，并附上来源"
_SUMMARY = "\n\n".join(f"## {section.title_zh}\n已完成。" for section in SECTIONS)
_TOOLS = (
    ToolSpec("search", "Finds things.", {"type": "object", "properties": {"query": {"type": "string"}}}),
)


def _user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def _results(answer: AssistantMessage) -> list[Message]:
    return [ToolMessage(call.id, (TextPart("晴"),)) for call in answer.tool_calls]


@dataclass(slots=True)
class _Vendor:
    """A vendor that is asked over its SDK, and that remembers what it said."""

    client: WireClient
    effort: str | None

    async def answers(self, history: Sequence[Message]) -> AssistantMessage:
        request = ChatRequest(messages=tuple(history), tools=_TOOLS, effort=self.effort)  # pyright: ignore[reportArgumentType]
        return (await self.client.complete(request)).message


@pytest.mark.parametrize(("vendor", "model"), _MODELS)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_any_history_is_taken_when_it_was_shortened_or_stopped_anywhere(
    vendor: str, model: str, data: st.DataObject
):
    spec = VENDORS[vendor].for_model(model)
    talk = conversations(images=spec.images, image_urls=spec.image_urls, max_turns=3)
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        connection = Connection(
            spec=spec,
            model=model,
            base_url=fake.base_url(vendor),
            api_key=SecretStr(fake.key),
            http_client=http_client,
        )
        kind = ChatCompletionsClient if spec.wire == "chat_completions" else AnthropicMessagesClient
        asked = _Vendor(kind(connection), data.draw(st.sampled_from([None, "off", "high"])))
        history: list[Message] = [
            _user("背景" * 3000),
            *data.draw(talk),
            AssistantMessage((TextPart("好。"),)),
        ]
        history += [_user(_GOAL), *data.draw(talk)]
        for _ in range(data.draw(st.integers(1, 3))):
            answer = await asked.answers(history)
            history += [answer, *_results(answer)]
        shorter = await _shortened(history, keep=data.draw(st.floats(0.01, 0.7)))
        answer = await asked.answers(shorter)
        whole = [*shorter, answer, *_results(answer)]
        await asked.answers(whole)
        stopped = whole[: data.draw(st.integers(1, len(whole)))]
        await asked.answers([*stopped, _user("继续")])
        more = [*data.draw(talk), _user("背景" * 2000), AssistantMessage((TextPart("好。"),)), _user("继续")]
        again = await _shortened([*whole, *more], keep=0.1)
        await asked.answers(again)
        await asked.client.aclose()


async def _shortened(history: Sequence[Message], *, keep: float) -> list[Message]:
    """A history after a compaction that leaves about so much of it, and is as it has to be."""
    compactor = Compactor(MockProvider([_SUMMARY]), window=20_000, target=keep)
    compacted = await compactor.compact(history, goal=_GOAL, pinned=["来源必须注明"])

    assert compacted is not None
    shorter = compacted.history
    assert any(_GOAL in message.text for message in shorter if isinstance(message, UserMessage))
    if not compacted.summary:
        assert all(
            new is old or (isinstance(new, ToolMessage) and isinstance(old, ToolMessage))
            for new, old in zip(shorter, history, strict=True)
        )
        return list(shorter)
    assert sum(map(is_summary, shorter)) == 1
    place = next(place for place, message in enumerate(shorter) if is_summary(message))
    kept = shorter[place + 1 :]
    assert kept
    assert all(new is old for new, old in zip(kept, history[-len(kept) :], strict=True))
    answers = [message.text for message in pair_tool_results(kept) if isinstance(message, ToolMessage)]
    before = [message.text for message in pair_tool_results(history) if isinstance(message, ToolMessage)]
    assert answers == (before[-len(answers) :] if answers else [])
    return list(shorter)
