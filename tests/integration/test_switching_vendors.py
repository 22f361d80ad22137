"""A turn that a model of one vendor began is gone on with by one of any other, and goes back to the first."""

from __future__ import annotations

import pytest

from loom_core.llm.hosted.providers import PROVIDERS
from loom_core.llm.interface import LLMResponse, ToolSpec
from loom_core.llm.messages import Message, TextPart, ToolMessage, UserMessage
from loom_core.net.retry import RetryPolicy
from tests.fixtures.vendors import FakeVendors

_MODELS = {
    "ollama": "qwen3:8b",
    "vllm": "Qwen/Qwen3.5-9B",
    "gpustack": "qwen3.5-9b",
    "openai_compatible": "some-model",
    "custom": "another-model",
}
"""Of vendors that have no usual one."""

_TOOL = ToolSpec(
    "get_weather",
    "查询天气",
    {"type": "object", "properties": {"城市": {"type": "string"}}, "required": ["城市"]},
)


@pytest.mark.parametrize("first", PROVIDERS)
async def test_any_vendor_goes_on_with_a_turn_that_another_one_began(first: str):
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        models = {
            name: provider(
                _MODELS.get(name, ""),
                api_key=fake.key,
                base_url=fake.base_url(name),
                http_client=http_client,
                retry=RetryPolicy(attempts=1),
            )
            for name, provider in PROVIDERS.items()
        }
        for second in PROVIDERS:
            said: list[Message] = [UserMessage((TextPart("杭州今天天气如何？"),))]
            begun: LLMResponse | None = None
            async for chunk in models[first].chat_stream(said, tools=[_TOOL], effort="high"):
                begun = chunk.response or begun
            assert begun is not None
            assert begun.finish == "tool_calls"
            said += [begun.message]
            said += [ToolMessage(call.id, (TextPart("晴"),)) for call in begun.message.tool_calls]
            went_on = await models[second].chat(said, tools=[_TOOL])
            assert "晴" in went_on.content
            said += [went_on.message, UserMessage((TextPart("明天呢？"),))]
            back = await models[first].chat(said, tools=[_TOOL], effort="low")
            assert [message.message.provider for message in (begun, went_on, back)] == [first, second, first]
    assert len(fake.requests) == 3 * len(PROVIDERS)
