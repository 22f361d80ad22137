"""Rules of every chat-completions vendor."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.chat_bodies import (
    MODELS,
    PNG,
    QUESTION,
    SYSTEM,
    answer,
    ask,
    body,
    calls,
    image,
    signed,
    tool,
)
from tests.fixtures.vendors.chat_quirks import gemini_signature
from tests.fixtures.vendors.chat_vendors import CHAT_VENDORS

EVERYWHERE = [
    ("no messages", body(), "messages"),
    ("calls without answers", body(QUESTION, calls("a"), QUESTION), "did not have response messages: a"),
    ("calls without answers at the end", body(QUESTION, calls("a")), "did not have response messages: a"),
    (
        "one of two answers",
        body(QUESTION, calls("a", "b"), answer("b"), QUESTION),
        "did not have response messages: a",
    ),
    ("two answers to one call", body(QUESTION, calls("a"), answer("a"), answer("a")), "must be a response"),
    ("an answer to no call", body(QUESTION, answer("a")), "must be a response"),
    ("the same id twice", body(QUESTION, calls("a"), answer("a"), calls("a"), answer("a")), "Duplicate"),
    (
        "arguments that are no JSON",
        body(QUESTION, calls("a", arguments='{"city": '), answer("a")),
        "arguments",
    ),
    (
        "arguments that are no object",
        body(QUESTION, calls("a", arguments='["杭州"]'), answer("a")),
        "arguments",
    ),
    (
        "no calls in a list of calls",
        body(QUESTION, {"role": "assistant", "content": "x", "tool_calls": []}),
        "empty array",
    ),
    ("a call without an id", body(QUESTION, calls(""), answer("")), "id"),
    (
        "a call of a tool with a name that cannot be",
        body(QUESTION, calls("a", name="天气"), answer("a")),
        "name",
    ),
    ("calls of the user", body({**calls("a"), "role": "user", "content": "x"}), "Only assistant"),
    ("an id of a user's message", body({**QUESTION, "tool_call_id": "a"}), "Only tool messages"),
    ("nothing said", body({"role": "user", "content": None}), "got null"),
    ("an empty list of parts", body({"role": "user", "content": []}), "content"),
    ("a part of an unknown kind", body({"role": "user", "content": [{"type": "smell"}]}), "smell"),
    ("an image of the assistant", body(QUESTION, {**image(PNG), "role": "assistant"}, QUESTION), "image_url"),
    ("a tool with a name that cannot be", {"tools": [tool(name="天气")]}, "name"),
    ("a tool with a name that is too long", {"tools": [tool(name="x" * 65)]}, "name"),
    ("two tools of one name", {"tools": [tool(), tool()]}, "unique"),
    ("a tool that takes no object", {"tools": [tool({"type": "string"})]}, "object"),
    ("no tools in a list of tools", {"tools": []}, "tools"),
    ("a tool without a function", {"tools": [{"type": "function"}]}, "function.name"),
    ("tools that are no list", {"tools": "weather"}, "tools"),
    ("a choice without tools", {"tool_choice": "auto"}, "tool_choice"),
    (
        "a tool chosen that is not there",
        {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "not found",
    ),
    ("options of a stream without one", {"stream_options": {"include_usage": True}}, "stream_options"),
    ("five stops", {"stop": list("abcde")}, "stop"),
    ("no model", {"model": ""}, "model"),
    ("a form that is no form", {"response_format": {"type": "xml"}}, "xml"),
    ("a limit of nothing", {"max_tokens": 0}, "max_tokens"),
    ("a stream that may be", {"stream": "perhaps"}, "stream"),
]


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_what_no_vendor_takes_is_refused_by_all(vendor: str):
    fake = FakeVendors()
    for name, broken, says in EVERYWHERE:
        with pytest.raises(openai.BadRequestError) as error:
            await ask(fake, vendor, broken)
        assert says in error.value.response.text, name


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_a_whole_conversation_with_tools_is_taken_by_all(vendor: str):
    more: dict[str, Any] = {"tools": [tool(), tool(name="time")]}
    call = calls("a", "b")
    match vendor:
        case "gemini":
            call = signed(call, gemini_signature("weather"))
        case "deepseek" | "kimi":
            call["reasoning_content"] = "先查天气。"
    completion = await ask(
        FakeVendors(),
        vendor,
        body(SYSTEM, QUESTION, call, answer("b"), answer("a"), **more),
    )
    assert completion.choices[0].message.content.endswith("The tools say: 晴，21°C")


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_a_wrong_key_is_refused_where_one_is_needed(vendor: str):
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        client = openai.AsyncOpenAI(
            base_url=fake.base_url(vendor), api_key="wrong", http_client=http_client, max_retries=0
        )
        if CHAT_VENDORS[vendor].needs_key:
            with pytest.raises(openai.AuthenticationError):
                await client.chat.completions.create(model=MODELS[vendor], messages=[QUESTION])
        else:
            await client.chat.completions.create(model=MODELS[vendor], messages=[QUESTION])


@pytest.mark.parametrize("vendor", [name for name in CHAT_VENDORS if "*" not in CHAT_VENDORS[name].models])
async def test_a_model_that_is_not_there_is_not_found(vendor: str):
    with pytest.raises(openai.NotFoundError):
        await ask(FakeVendors(), vendor, {"model": "gpt-2"})
