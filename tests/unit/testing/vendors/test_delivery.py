"""Streams as each vendor writes them, and what goes wrong on the way, seen through the real SDKs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest

from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.chat_bodies import MODELS, QUESTION, body, tool
from tests.fixtures.vendors.chat_vendors import CHAT_VENDORS
from tests.fixtures.vendors.script import Call, Recorded, Tokens, Turn

SAID = Turn(text="今天杭州晴。", reasoning="先想一想。", usage=Tokens(100, 40, 12, 30))
CALLED = Turn(text="查一下。", calls=(Call("weather", {"city": "杭州"}), Call("time", "{broken")))
FIELDS = {name: row.reasoning_field for name, row in CHAT_VENDORS.items()}


@asynccontextmanager
async def openai_client(fake: FakeVendors, vendor: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with fake.http_client() as http_client:
        yield openai.AsyncOpenAI(
            base_url=fake.base_url(vendor), api_key=fake.key, http_client=http_client, max_retries=0
        )


@asynccontextmanager
async def anthropic_client(fake: FakeVendors) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with fake.http_client() as http_client:
        yield anthropic.AsyncAnthropic(
            base_url=fake.base_url("anthropic"), api_key=fake.key, http_client=http_client, max_retries=0
        )


def asked(vendor: str, **more: object) -> dict[str, Any]:
    return {"model": MODELS[vendor], "messages": [QUESTION], **more}


def to_claude(**more: object) -> dict[str, Any]:
    return {"model": "claude-sonnet-5-5", "max_tokens": 99, "messages": [QUESTION], **more}


async def raw(fake: FakeVendors, vendor: str, **more: object) -> bytes:
    async with fake.http_client() as http_client:
        response = await http_client.post(
            f"{fake.base_url(vendor)}/chat/completions",
            json=asked(vendor, **more),
            headers={"authorization": f"Bearer {fake.key}"},
        )
        return response.content


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_a_stream_says_what_the_whole_answer_says(vendor: str):
    fake = FakeVendors([SAID, SAID])
    async with openai_client(fake, vendor) as client:
        whole = await client.chat.completions.create(**asked(vendor))
        stream = await client.chat.completions.create(
            **asked(vendor, stream=True, stream_options={"include_usage": True})
        )
        chunks = [chunk async for chunk in stream]
    message = whole.choices[0].message
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert message.content.endswith(SAID.text)
    field = FIELDS[vendor]
    if field == "think":
        assert message.content.startswith("<think>\n先想一想。\n</think>")
    elif field:
        pieces = [getattr(delta, field, None) or "" for delta in deltas]
        assert "".join(pieces) == getattr(message, field) == SAID.reasoning
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert usages[-1] == whole.usage
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (100, 40)
    assert len(usages) == (len(chunks) if vendor == "gemini" else 1)
    assert fake.turns_left == 0


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_calls_come_in_streams_as_they_come_whole(vendor: str):
    fake = FakeVendors([CALLED])
    async with openai_client(fake, vendor) as client:
        stream = await client.chat.completions.create(**asked(vendor, stream=True))
        chunks = [chunk async for chunk in stream]
    calls: dict[int, list[str]] = {0: ["", ""], 1: ["", ""]}
    for chunk in chunks:
        for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            calls[call.index][0] += call.function.name or ""
            calls[call.index][1] += call.function.arguments or ""
    assert calls == {0: ["weather", '{"city": "杭州"}'], 1: ["time", "{broken"]}
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finishes[-1] == ("stop" if vendor == "gemini" else "tool_calls")


async def test_minimax_puts_reasoning_into_fields_of_its_own_if_asked():
    async with openai_client(FakeVendors([SAID]), "minimax") as client:
        stream = await client.chat.completions.create(
            **asked("minimax", stream=True, extra_body={"reasoning_split": True})
        )
        deltas = [chunk.choices[0].delta async for chunk in stream]
    assert "".join(delta.content or "" for delta in deltas) == SAID.text
    details = [detail for delta in deltas for detail in getattr(delta, "reasoning_details", None) or []]
    assert "".join(detail["text"] for detail in details) == SAID.reasoning


async def test_anthropic_streams_blocks_with_pings_and_signatures():
    fake = FakeVendors(
        [
            Turn(
                text="好",
                reasoning="想",
                redacted=True,
                calls=(Call("weather", {"城": "杭州"}),),
                usage=Tokens(9, 8, 3),
            )
        ]
        * 2
    )
    async with anthropic_client(fake) as client:
        whole = await client.messages.create(**to_claude())
        async with client.messages.stream(**to_claude()) as stream:
            final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert [block.model_dump(exclude={"id"}) for block in final.content] == [
        block.model_dump(exclude={"id"}) for block in whole.content
    ]
    assert final.usage.output_tokens == whole.usage.output_tokens == 8
    assert final.stop_reason == whole.stop_reason == "tool_use"


async def test_usage_may_be_missing():
    turn = Turn(text="好", usage=None)
    async with openai_client(FakeVendors([turn, turn]), "openai") as client:
        assert (await client.chat.completions.create(**asked("openai"))).usage is None
        stream = await client.chat.completions.create(
            **asked("openai", stream=True, stream_options={"include_usage": True})
        )
        assert all([chunk.usage is None async for chunk in stream])
    async with anthropic_client(FakeVendors([turn, turn])) as client:
        assert (await client.messages.create(**to_claude())).usage is None
        events = [event async for event in await client.messages.create(**to_claude(stream=True))]
    assert [event.type for event in events][-1] == "message_stop"


STATUSES = (401, 402, 404, 408, 429, 500, 503, 529)


@pytest.mark.parametrize("vendor", CHAT_VENDORS)
async def test_a_scripted_error_is_the_vendors_own(vendor: str):
    turns = [Turn(status=status, headers={"retry-after": "7"}, message="太忙了") for status in STATUSES]
    async with openai_client(FakeVendors(turns), vendor) as client:
        for status in STATUSES:
            with pytest.raises(openai.APIStatusError) as error:
                await client.chat.completions.create(**asked(vendor))
            assert error.value.status_code == status
            assert error.value.response.headers["retry-after"] == "7"
            assert "太忙了" in error.value.response.text


async def test_a_scripted_error_is_anthropics_own():
    turns = [Turn(status=status, headers={"retry-after": "7"}) for status in STATUSES]
    types: list[str | None] = []
    async with anthropic_client(FakeVendors(turns)) as client:
        for _ in STATUSES:
            with pytest.raises(anthropic.APIStatusError) as error:
                await client.messages.create(**to_claude())
            types.append(error.value.type)
            assert error.value.response.headers["retry-after"] == "7"
    assert types == [
        "authentication_error",
        "billing_error",
        "not_found_error",
        "api_error",
        "rate_limit_error",
        "api_error",
        "api_error",
        "overloaded_error",
    ]


async def test_an_error_in_a_stream_ends_it():
    turn = Turn(text="一二三四五六七八", stream_error="Engine overloaded")
    async with openai_client(FakeVendors([turn]), "deepseek") as client:
        stream = await client.chat.completions.create(**asked("deepseek", stream=True))
        with pytest.raises(openai.APIError, match="Engine overloaded"):
            [chunk async for chunk in stream]
    async with openai_client(FakeVendors([turn]), "gemini") as client:
        stream = await client.chat.completions.create(**asked("gemini", stream=True))
        with pytest.raises(openai.APIError, match="Engine overloaded"):
            [chunk async for chunk in stream]
    async with anthropic_client(FakeVendors([turn])) as client:
        stream = await client.messages.create(**to_claude(stream=True))
        with pytest.raises(anthropic.APIStatusError, match="Engine overloaded"):
            [event async for event in stream]


@pytest.mark.hostile("answers of models")
@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'{"choices": []}', b"data: {]\n\n", b"\xff\xfe"])
async def test_any_bytes_can_be_sent_instead_of_an_answer(sent: bytes):
    fake = FakeVendors([Turn(body=sent), Turn(body=sent)])
    assert await raw(fake, "openai") == sent
    assert await raw(fake, "openai", stream=True) == sent


@pytest.mark.slow
async def test_a_stream_can_be_cut_behind_every_byte():
    short = Turn(text="好", usage=None)
    whole = await raw(FakeVendors([short]), "deepseek", stream=True)
    for size in range(len(whole)):
        fake, got = FakeVendors([replace(short, cut_after=size)]), b""
        async with fake.http_client() as client:
            request = client.build_request(
                "POST",
                f"{fake.base_url('deepseek')}/chat/completions",
                json=asked("deepseek", stream=True),
                headers={"authorization": f"Bearer {fake.key}"},
            )
            response = await client.send(request, stream=True)
            pieces = response.aiter_bytes()
            while len(got) < size:
                got += await anext(pieces)
            with pytest.raises(httpx2.RemoteProtocolError):
                await anext(pieces)
            await response.aclose()
        assert got == whole[:size]


async def test_a_cut_answer_that_is_no_stream_is_no_answer():
    async with openai_client(FakeVendors([Turn(text="好", cut_after=10)]), "qwen") as client:
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(**asked("qwen"))


async def test_the_first_token_waits_and_keep_alive_does_not():
    gate = anyio.Event()
    fake = FakeVendors([Turn(text="好", wait=gate)])
    async with fake.http_client() as client:
        request = client.stream(
            "POST",
            f"{fake.base_url('deepseek')}/chat/completions",
            json=asked("deepseek", stream=True),
            headers={"authorization": f"Bearer {fake.key}"},
        )
        async with request as response:
            pieces = response.aiter_bytes()
            assert await anext(pieces) == b": keep-alive\n\n"
            gate.set()
            assert (await anext(pieces)).startswith(b"data: ")


async def test_an_answer_that_waits_is_asked_again_by_no_one_else():
    gate = anyio.Event()
    fake = FakeVendors([Turn(text="慢", wait=gate), Turn(text="快")])
    said: list[str] = []
    async with openai_client(fake, "kimi") as client, anyio.create_task_group() as group:

        async def ask_slowly() -> None:
            completion = await client.chat.completions.create(**asked("kimi"))
            said.append(completion.choices[0].message.content)

        group.start_soon(ask_slowly)
        while not fake.requests:
            await anyio.lowlevel.checkpoint()
        said.append((await client.chat.completions.create(**asked("kimi"))).choices[0].message.content)
        gate.set()
    assert said == ["快", "慢"]


async def test_who_leaves_a_stream_that_hangs_is_noticed():
    fake = FakeVendors([Turn(text="一二三四五六七八", hang_after=300)])
    async with openai_client(fake, "vllm") as client:
        stream = await client.chat.completions.create(**asked("vllm", stream=True))
        await anext(stream)
        assert fake.disconnects == 0
        await stream.close()
    assert fake.disconnects == 1


async def test_an_answer_that_hangs_ends_with_the_patience_of_its_reader():
    fake = FakeVendors([Turn(text="好", hang_after=0)] * 2)
    async with openai_client(fake, "doubao") as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(**asked("doubao"), timeout=0.02)
        with anyio.move_on_after(0.02) as scope:
            await client.chat.completions.create(**asked("doubao"))
    assert scope.cancelled_caught
    assert fake.disconnects == 2


@pytest.mark.hostile("answers of models")
async def test_answers_may_be_huge():
    async with openai_client(FakeVendors([Turn(text="长" * 1_000_000)]), "zhipu") as client:
        completion = await client.chat.completions.create(**asked("zhipu"))
    assert len(completion.choices[0].message.content) == 1_000_000


async def test_requests_are_recorded_without_their_key():
    fake = FakeVendors(lambda request: Turn(text=request.body["model"]))
    async with openai_client(fake, "zhipu") as client:
        completion = await client.chat.completions.create(**asked("zhipu"))
    async with anthropic_client(fake) as client:
        await client.messages.create(**to_claude())
    assert completion.choices[0].message.content == "glm-5.3"
    chat, claude = fake.requests
    assert (chat.vendor, chat.path, chat.body["messages"]) == (
        "zhipu",
        "/api/paas/v4/chat/completions",
        [QUESTION],
    )
    assert (claude.vendor, claude.path) == ("anthropic", "/v1/messages")
    assert fake.key not in repr(fake.requests)
    assert isinstance(chat, Recorded)


async def test_a_script_that_is_used_up_says_so():
    fake = FakeVendors([Turn(text="好")])
    async with openai_client(fake, "openai") as client:
        await client.chat.completions.create(**asked("openai"))
        with pytest.raises(openai.BadRequestError) as error:
            await client.chat.completions.create(**asked("openai"))
    assert error.value.code == "script_used_up"


async def test_without_a_script_calls_fit_their_schema_and_answers_their_form():
    schema = {
        "type": "object",
        "required": ["who", "when", "sure", "n", "tags", "kind", "none", "nested"],
        "properties": {
            "who": {"$ref": "#/$defs/Name"},
            "when": {"type": ["string", "null"]},
            "sure": {"type": "boolean"},
            "n": {"type": "integer", "minimum": 3},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "kind": {"const": "fact"},
            "none": {"type": "null"},
            "nested": {
                "anyOf": [{"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}]
            },
        },
        "$defs": {"Name": {"type": "string", "maxLength": 2}},
    }
    fake = FakeVendors()
    async with openai_client(fake, "openai") as client:
        called = await client.chat.completions.create(
            **asked("openai", tools=[tool(schema)]), tool_choice="required", reasoning_effort="none"
        )
        form = {"type": "json_schema", "json_schema": {"name": "facts", "schema": schema}}
        formed = await client.chat.completions.create(**asked("openai", response_format=form))
    (call,) = called.choices[0].message.tool_calls
    value = json.loads(call.function.arguments)
    assert value == json.loads(formed.choices[0].message.content)
    assert value == {
        "who": "杭州",
        "when": QUESTION["content"],
        "sure": True,
        "n": 3,
        "tags": ["a"],
        "kind": "fact",
        "none": None,
        "nested": {"x": 1},
    }


async def test_vendors_are_found_under_their_real_names_too():
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        for base_url in ("https://api.deepseek.com", "https://api.deepseek.com/v2"):
            client = openai.AsyncOpenAI(
                base_url=base_url, api_key=fake.key, http_client=http_client, max_retries=0
            )
            if base_url.endswith("v2"):
                with pytest.raises(openai.NotFoundError):
                    await client.chat.completions.create(**asked("deepseek"))
            else:
                await client.chat.completions.create(**asked("deepseek"))
        unknown = await http_client.post("http://fake/unknown/v1/chat/completions", json=body())
        broken = await http_client.post("http://fake/vllm/v1/chat/completions", content=b"{")
        claude = await http_client.post(
            "http://fake/anthropic/v1/complete", json={}, headers={"x-api-key": fake.key}
        )
    assert [response.status_code for response in (unknown, broken, claude)] == [404, 400, 404]
