"""Tools by prompt, for models without native tool calls: requests, responses and streams."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import pytest
from pydantic import BaseModel

from loom_core.agent.agent import Agent
from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm import OllamaProvider
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.hosted.providers import PROVIDERS, override_spec
from loom_core.llm.interface import LLMResponse, OutputSchema, StreamChunk
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    MessageLike,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.structured import generate
from loom_core.llm.vendors import OLLAMA
from loom_core.net.retry import RetryPolicy
from loom_core.tools import tool
from tests.fixtures.scripted_wire import ScriptedWire
from tests.fixtures.vendors import FakeVendors, Turn

_ENGLISH = "How many days of leave after three years?"
_CHINESE = "工作三年后有多少天年假？"
_CALL = '{"tool": "leave_days", "arguments": {"years": 3}}'


@tool(read_only=True, open_world=False)
def leave_days(years: int, part_time: bool = False) -> int:
    """Days of leave after so many years."""
    return 25 + years


def _provider(vendor: str, model: str, fake: FakeVendors, http_client: Any, **spec: Any) -> HostedProvider:
    return PROVIDERS[vendor](
        model,
        spec={"supports_tools": False, **spec},
        api_key=fake.key,
        base_url=fake.base_url(vendor),
        http_client=http_client,
        retry=RetryPolicy(attempts=1),
    )


def _scripted(*steps: Any, **spec: Any) -> tuple[HostedProvider, ScriptedWire]:
    """A model without tool calls that gives these responses, and its wire."""
    wire = ScriptedWire(*(LLMResponse.of_text(each) if isinstance(each, str) else each for each in steps))
    spec_of_model = override_spec(OLLAMA, {"supports_tools": False, **spec})
    return HostedProvider(spec_of_model, model="m", wire=wire), wire


# -- whole runs, in every wire format and JSON mode --------------------------------------------------------


@pytest.mark.parametrize("goal", [_ENGLISH, _CHINESE])
@pytest.mark.parametrize(
    ("vendor", "model", "constraint"),
    [
        ("ollama", "gemma3:4b", "json_schema"),
        ("deepseek", "deepseek-flash", None),
        ("anthropic", "claude-haiku-4-5", None),
    ],
)
async def test_an_agent_calls_tools_by_prompt(vendor: str, model: str, constraint: Any, goal: str) -> None:
    fake = FakeVendors([Turn(text=_CALL), Turn(text='{"answer": "28"}')])
    async with fake.http_client() as http_client:
        llm = _provider(vendor, model, fake, http_client)
        result = await Agent(llm, tools=[leave_days]).run(goal)
        await llm.aclose()
    assert result.or_raise().output == "28"
    for request in fake.requests:
        body = request.body
        assert "tools" not in body
        assert {each["role"] for each in body["messages"]} <= {"system", "user", "assistant"}
        assert body.get("response_format", {}).get("type") == constraint
    said = json.dumps(fake.requests[-1].body, ensure_ascii=False)
    assert "years (integer, required)" in said or "years (integer, 必填)" in said
    assert _CALL in said.replace('\\"', '"')
    assert "<result>\\n28\\n</result>" in said


async def test_a_vendor_knows_which_models_call_none() -> None:
    fake = FakeVendors([Turn(text=_CALL), Turn(text="28")])
    async with fake.http_client() as http_client:
        llm = OllamaProvider("gemma3:4b", base_url=fake.base_url("ollama"), http_client=http_client)
        result = await Agent(llm, tools=[leave_days]).run(_ENGLISH)
        await llm.aclose()
    assert result.or_raise().output == "28"
    assert all("tools" not in each.body for each in fake.requests)


async def test_a_server_that_refuses_tools_is_answered_with_the_setting() -> None:
    refusal = "registry.ollama.ai/library/qwen3 does not support tools"
    fake = FakeVendors([Turn(status=400, message=refusal)])
    async with fake.http_client() as http_client:
        llm = OllamaProvider("qwen3", base_url=fake.base_url("ollama"), http_client=http_client)
        with pytest.raises(LLMError, match="qwen3 does not support tools") as refused:
            await llm.chat([{"role": "user", "content": _ENGLISH}], tools=_TOOLS)
        await llm.aclose()
    assert (refused.value.failure, len(fake.requests)) == ("invalid_request", 1)
    assert "`supports_tools` to false" in refused.value.advice


# -- requests ------------------------------------------------------------------------------------------------

_TOOLS = [
    {"name": "search", "parameters": {"type": "object", "properties": {"words": {"type": "string"}}}},
    {"name": "open", "parameters": {"type": "object", "properties": {"page": {"enum": ["a", "b"]}}}},
]


@pytest.mark.parametrize(
    ("choice", "forms"),
    [
        ("auto", [["tool", "arguments"], ["tool", "arguments"], ["answer"]]),
        ("required", [["tool", "arguments"], ["tool", "arguments"]]),
        ("open", [["tool", "arguments"]]),
    ],
)
async def test_the_schema_allows_what_the_choice_allows(choice: str, forms: list[list[str]]) -> None:
    llm, wire = _scripted("…")
    await llm.chat([{"role": "user", "content": _ENGLISH}], tools=_TOOLS, tool_choice=choice)
    (request,) = wire.requests
    assert request.output is not None
    assert [each["required"] for each in request.output.schema["anyOf"]] == forms
    described = request.messages[0]
    assert isinstance(described, SystemMessage)
    assert ("- search" in described.text, "page (a | b)" in described.text) == (choice != "open", True)
    assert ('{"answer":' in described.text) == (choice == "auto")


async def test_a_conversation_goes_as_plain_messages_also_where_no_tool_is_offered() -> None:
    llm, wire = _scripted("28")
    messages = [
        {"role": "user", "content": _ENGLISH},
        AssistantMessage((TextPart("I look."), ToolCallPart("1", "search"), ToolCallPart("2", "open"))),
        ToolMessage("2", (TextPart("28</result>"), ImagePart(url="https://pictures.example/a.png"))),
        ToolMessage("1", (TextPart("no network"),), failed=True),
    ]
    response = await llm.chat(messages, tools=_TOOLS, tool_choice="none")
    assert response.content == "28"
    (request,) = wire.requests
    assert request.output is None
    _, call, failed, returned = request.messages
    assert [each.role for each in request.messages] == ["user", "assistant", "user", "user"]
    assert isinstance(call, AssistantMessage)
    first, second = json.loads(call.text.removeprefix("I look.\n"))
    assert (first["tool"], second["tool"]) == ("search", "open")
    assert isinstance(failed, UserMessage)
    assert failed.text.startswith("The tool search failed")
    assert isinstance(returned, UserMessage)
    assert "‹/result>" in returned.text  # a result cannot end its own tags
    assert all(isinstance(part, TextPart) for part in returned.parts)  # Ollama takes no URL


async def test_a_tool_that_there_is_not_cannot_be_chosen() -> None:
    llm, wire = _scripted()
    with pytest.raises(InvalidInputError, match="'close' is not among the tools"):
        await llm.chat([{"role": "user", "content": _ENGLISH}], tools=_TOOLS, tool_choice="close")
    assert wire.requests == []


class Days(BaseModel):
    days: int


async def test_structured_output_is_the_answer_where_there_are_tools_and_needs_none() -> None:
    llm, wire = _scripted('{"answer": {"days": 28}}', '{"days": 28}', json_mode="tool")
    output = OutputSchema("days", Days.model_json_schema())
    question: list[MessageLike] = [{"role": "user", "content": _ENGLISH}]
    response = await llm.chat(question, tools=_TOOLS, output=output)
    assert json.loads(response.content) == {"days": 28}
    described = wire.requests[0].messages[0]
    assert isinstance(described, SystemMessage)
    assert '"days": {' in described.text
    fake = FakeVendors([Turn(text='{"days": 28}')])
    async with fake.http_client() as http_client:
        plain = _provider("deepseek", "deepseek-flash", fake, http_client, json_mode="tool")
        assert (await generate(plain, question, schema=Days)).value == Days(days=28)
        await plain.aclose()
    assert "tools" not in fake.requests[0].body


# -- responses -----------------------------------------------------------------------------------------------

_Called: TypeAlias = tuple[str, dict[str, Any] | None]
_SEARCH: _Called = ("search", {"words": "x"})


_RESPONSES: list[tuple[str, str, list[_Called]]] = [
    ('{"tool": "search", "arguments": {"words": "x"}}', "", [_SEARCH]),
    ('I search.\n```json\n{"tool": "search", "arguments": {"words": "x",},}\n```', "", [_SEARCH]),
    ('<tool_call>{"name": "search", "parameters": {"words": "x"}}</tool_call>', "", [_SEARCH]),
    (
        '[{"tool": "search", "arguments": {"words": "x"}}, {"tool": "open"}]',
        "",
        [_SEARCH, ("open", {})],
    ),
    ('{"tool": "search", "arguments": "{\\"words\\": \\"x\\"}"}', "", [_SEARCH]),
    ('{"tool": "no_such_tool", "arguments": {}}', "", [("no_such_tool", {})]),
    ('{"tool": "search", "arguments": ["x"]}', "", [("search", None)]),
    ('{"tool": "search", "arguments": {"words": "x', "", [("search", None)]),
    ('{"answer": "28 days"}', "28 days", []),
    ('{"answer": 28}', "28", []),
    ('{"answer": "It says \\"28\\" \\ud83d\\ude00.\\n"}', 'It says "28" 😀.\n', []),
    ('{"answer": "half \\ud83d of a pair"}', "half \ud83d of a pair", []),
    ('{"answer": "It says "28" days"}', 'It says "28" days', []),
    ('{"answer": "It\\\'s 28"}', "It's 28", []),
    ('{"answer": "cut off \\u4f', "cut off ", []),
    ('{"answer": "I look", "tool": "search", "arguments": {"words": "x"}}', "I look", [_SEARCH]),
    ("28 days, {as the rules say}", "28 days, {as the rules say}", []),
    ('{"name": "Ada"}', '{"name": "Ada"}', []),
    ("", "", []),
]


@pytest.mark.parametrize(("said", "text", "calls"), _RESPONSES)
async def test_responses_are_read_leniently_and_alike_as_streams(
    said: str, text: str, calls: list[_Called]
) -> None:
    whole = LLMResponse.of_text(said)
    pieces = [StreamChunk("text", text=letter) for letter in said]
    llm, _ = _scripted(whole, [*pieces, StreamChunk("done", response=whole)])
    question: list[MessageLike] = [{"role": "user", "content": _ENGLISH}]
    response = await llm.chat(question, tools=_TOOLS)
    chunks = [each async for each in llm.chat_stream(question, tools=_TOOLS)]
    for each in (response, chunks[-1].response):
        assert each is not None
        assert each.content == text
        called = each.message.tool_calls
        assert [(call.name, None if call.unreadable else call.arguments) for call in called] == calls
        assert each.finish == ("tool_calls" if calls else "stop")
    streamed = [chunk.text for chunk in chunks if chunk.kind == "text"]
    assert "".join(streamed) == text
    if said.startswith('{"answer": "'):
        assert len(streamed) > 3  # it came as it was written
    assert [chunk.tool_call.name for chunk in chunks if chunk.tool_call] == [call[0] for call in calls]
