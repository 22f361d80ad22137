"""Any conversation, with any options, to any vendor: the vendor takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_core.llm.anthropic_messages.client import AnthropicMessagesClient
from loom_core.llm.chat_completions.client import ChatCompletionsClient
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import TextPart, ToolMessage, UserMessage
from loom_core.llm.transport.protocol import Connection
from loom_core.llm.vendors import VENDORS
from tests.fixtures.conversations import chat_requests
from tests.fixtures.vendors.app import FakeVendors

MODELS = [
    ("openai", "gpt-5.6-terra"),
    ("openai", "gpt-5.5"),
    ("openai", "gpt-4.1-mini"),
    ("openai", "o4-mini"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-fable-5-1"),
    ("anthropic", "claude-opus-5"),
    ("anthropic", "claude-haiku-5-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("deepseek", "deepseek-flash"),
    ("qwen", "qwen3.8-flash"),
    ("qwen", "qwen3.7-plus"),
    ("qwen", "qwq-plus"),
    ("gemini", "gemini-3.8-flash"),
    ("gemini", "gemini-3.1-pro-preview"),
    ("gemini", "gemini-2.5-flash"),
    ("kimi", "kimi-k3"),
    ("kimi", "kimi-k2.7-code"),
    ("kimi", "kimi-k2.6"),
    ("kimi", "moonshot-v1-32k"),
    ("doubao", "doubao-seed-2-1-pro-260915"),
    ("zhipu", "glm-5.3"),
    ("zhipu", "glm-4.7"),
    ("zhipu", "glm-4.6v"),
    ("minimax", "MiniMax-M3"),
    ("ollama", "qwen3-vl:8b"),
    ("vllm", "Qwen/Qwen3.5-9B"),
    ("gpustack", "qwen3.5-9b"),
    ("openai_compatible", "some-model"),
    ("custom", "another-model"),
]


@pytest.mark.parametrize(("vendor", "model"), MODELS)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_any_history_is_taken_by_any_vendor_and_so_is_its_answer(
    vendor: str, model: str, data: st.DataObject
):
    spec = VENDORS[vendor].for_model(model)
    request: ChatRequest = data.draw(chat_requests(images=spec.images, image_urls=spec.image_urls))
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
        client = kind(connection)
        answer = (await client.complete(request)).message
        assert answer.provider == vendor
        results = [ToolMessage(call.id, (TextPart("晴"),)) for call in answer.tool_calls]
        more = results or [UserMessage((TextPart("继续"),))]
        request = replace(request, messages=(*request.messages, answer, *more))
        chunks = [chunk async for chunk in client.stream(request)]
        assert chunks[-1].kind == "done"
        await client.aclose()
    assert len(fake.requests) == 2
