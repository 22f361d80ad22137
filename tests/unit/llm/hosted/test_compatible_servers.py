"""Servers that speak a well-known format and have no row of their own: reasoning, keys, another model."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn

from loom_core.agent.agent import Agent
from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm import (
    AnthropicProvider,
    CustomProvider,
    DeepSeekProvider,
    OpenAICompatibleProvider,
    OpenAIProvider,
    QwenProvider,
)
from loom_core.llm.factory import create_provider
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.hosted.providers import NamedProvider
from loom_core.llm.mock import MockProvider
from loom_core.llm.vendors import DEEPSEEK
from loom_core.net.retry import RetryPolicy
from loom_core.tools import tool
from tests.fixtures.local_server import LocalServer
from tests.fixtures.scripted_wire import ScriptedWire
from tests.fixtures.vendors import FakeVendors, Turn
from tests.fixtures.vendors.script import Call, Tokens

_QUESTION = [{"role": "user", "content": "工作三年后有多少天年假？"}]
_ONCE = RetryPolicy(attempts=1)


@tool(read_only=True, open_world=False)
def leave_days(years: int) -> int:
    """Days of leave after so many years."""
    return 25 + years


def _sent_back(fake: FakeVendors) -> list[object]:
    """The reasoning of each answer in the last request."""
    messages = fake.requests[-1].body["messages"]
    return [each.get("reasoning_content") for each in messages if each["role"] == "assistant"]


# -- reasoning -------------------------------------------------------------------------------------------

_ROUNDS = [
    Turn(reasoning="先查三年的。", calls=(Call("leave_days", {"years": 3}),)),
    Turn(reasoning="再查五年的。", calls=(Call("leave_days", {"years": 5}),)),
    Turn(reasoning="够了。", text="28 天和 30 天。"),
]


@pytest.mark.parametrize("provider", [OpenAICompatibleProvider, CustomProvider])
async def test_a_model_behind_a_gateway_gets_its_reasoning_back_in_tool_rounds(provider: type[NamedProvider]):
    fake = FakeVendors(_ROUNDS)  # that of DeepSeek refuses results without the reasoning of their calls
    async with fake.http_client() as http_client:
        llm = provider(
            "deepseek-flash",
            base_url=fake.base_url("deepseek"),
            api_key=fake.key,
            http_client=http_client,
            retry=_ONCE,
        )
        result = await Agent(llm, tools=[leave_days]).run("三年和五年后各有多少天年假？")
    assert result.or_raise().output == "28 天和 30 天。"
    assert _sent_back(fake) == ["先查三年的。", "再查五年的。"]


@pytest.mark.parametrize("provider", [OpenAICompatibleProvider, CustomProvider])
async def test_a_server_that_sends_no_reasoning_gets_none(provider: type[NamedProvider]):
    rounds = [Turn(calls=(Call("leave_days", {"years": 3}),)), Turn(text="28 天。")]
    fake = FakeVendors(rounds)  # that of OpenAI refuses fields that it does not know
    async with fake.http_client() as http_client:
        llm = provider(
            "gpt-4.1",
            base_url=fake.base_url("openai"),
            api_key=fake.key,
            http_client=http_client,
            retry=_ONCE,
        )
        result = await Agent(llm, tools=[leave_days]).run("三年后有多少天年假？")
    assert result.or_raise().output == "28 天。"
    assert _sent_back(fake) == [None]


async def test_qwen_gets_the_reasoning_of_the_turn_back():
    fake = FakeVendors(_ROUNDS)
    async with fake.http_client() as http_client:
        llm = QwenProvider(
            base_url=fake.base_url("qwen"), api_key=fake.key, http_client=http_client, retry=_ONCE
        )
        result = await Agent(llm, tools=[leave_days]).run("三年和五年后各有多少天年假？")
    assert result.or_raise().output == "28 天和 30 天。"
    assert _sent_back(fake) == ["先查三年的。", "再查五年的。"]


# -- keys ------------------------------------------------------------------------------------------------


def _imitation(fake: FakeVendors, http_client: Any, **options: Any) -> CustomProvider:
    return CustomProvider(
        "claude-sonnet-4-5",
        base_url=fake.base_url("anthropic_compatible"),
        api_key=fake.key,
        http_client=http_client,
        retry=_ONCE,
        **options,
    )


async def test_a_server_that_imitates_anthropic_gets_its_key_and_version_by_one_setting():
    rounds = [Turn(calls=(Call("leave_days", {"years": 3}),)), Turn(text="28 天。")]
    fake = FakeVendors(rounds)
    async with fake.http_client() as http_client:
        spec = {"wire": "anthropic_messages", "auth_style": "x-api-key"}
        llm = _imitation(fake, http_client, spec=spec)
        result = await Agent(llm, tools=[leave_days]).run("三年后有多少天年假？")
    assert result.or_raise().output == "28 天。"
    assert {each.headers["anthropic-version"] for each in fake.requests} == {"2023-06-01"}


async def test_without_that_setting_it_refuses():
    fake = FakeVendors([])
    async with fake.http_client() as http_client:
        llm = _imitation(fake, http_client, spec={"wire": "anthropic_messages"})
        with pytest.raises(LLMError, match="x-api-key") as refused:
            await llm.chat(_QUESTION)
    assert refused.value.failure == "authentication"
    assert fake.requests[0].headers["anthropic-version"] != "2023-06-01"


async def test_another_version_may_be_said_in_a_header():
    fake = FakeVendors([Turn(text="好")])
    spec = {"auth_style": "x-api-key", "headers": {"Anthropic-Version": "2026-10-21"}}
    async with fake.http_client() as http_client:
        llm = AnthropicProvider(
            "claude-sonnet-4-5",
            base_url=fake.base_url("anthropic"),
            api_key=fake.key,
            http_client=http_client,
            retry=_ONCE,
            spec=spec,
        )
        assert (await llm.chat(_QUESTION)).content == "好"
    assert fake.requests[0].headers["anthropic-version"] == "2026-10-21"


@asynccontextmanager
async def _serving(fake: FakeVendors) -> AsyncIterator[str]:
    """The address of the fake vendors on this machine."""
    server = uvicorn.Server(uvicorn.Config(fake, log_config=None, lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listening])
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True


async def test_a_configuration_says_it_as_auth_style(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeVendors([Turn(text="好")])
    monkeypatch.setenv("LOOM_TEST_IMITATION_KEY", fake.key)
    async with _serving(fake) as address:
        llm = create_provider(
            {
                "provider": "custom",
                "model": "claude-sonnet-4-5",
                "base_url": f"{address}/anthropic_compatible",
                "api_key": "env:LOOM_TEST_IMITATION_KEY",
                "auth_style": "x-api-key",
            }
        )
        assert (await llm.chat(_QUESTION)).content == "好"
        await llm.aclose()
    assert [each.vendor for each in fake.requests] == ["anthropic_compatible"]


def test_an_auth_style_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="auth_style: Input should be 'bearer' or 'x-api-key'"):
        create_provider({"provider": "custom", "model": "m", "auth_style": "api-key"})


async def test_a_server_with_openais_format_may_want_its_key_so_too(
    local_servers: Callable[..., LocalServer],
) -> None:
    server = local_servers()
    message = {"role": "assistant", "content": "好"}
    answer = {"id": "1", "object": "chat.completion", "model": "m", "choices": [{"message": message}]}
    server.answers("/v1/chat/completions", json.dumps(answer).encode(), Content_Type="application/json")
    spec = {"auth_style": "x-api-key"}
    llm = OpenAICompatibleProvider("m", base_url=server.url("/v1"), api_key="sk-of-no-value", spec=spec)
    assert (await llm.chat(_QUESTION)).content == "好"
    await llm.aclose()
    (asked,) = server.asked
    assert asked.headers["x-api-key"] == "sk-of-no-value"
    assert "authorization" not in asked.headers


# -- another model, options ----------------------------------------------------------------------------------


async def test_another_model_of_the_vendor_may_be_asked_in_a_single_call():
    fake = FakeVendors(lambda _: Turn(text="好", usage=Tokens(input=100, output=20)))
    async with fake.http_client() as http_client:
        llm = DeepSeekProvider(base_url=fake.base_url("deepseek"), api_key=fake.key, http_client=http_client)
        answer = await llm.chat(_QUESTION, model="deepseek-v4-pro")
        pieces = [each async for each in llm.chat_stream(_QUESTION, model="deepseek-v4-pro")]
        own = await llm.chat(_QUESTION)
        same = await llm.chat(_QUESTION, model="deepseek-flash")
        assert llm.with_model("deepseek-v4-pro") is llm.with_model("deepseek-v4-pro")
        assert (llm.spent.requests, llm.spent.input_tokens) == (4, 400)
        await llm.aclose()
    assert [each.body["model"] for each in fake.requests] == [
        *("deepseek-v4-pro", "deepseek-v4-pro", "deepseek-flash", "deepseek-flash")
    ]
    assert answer.model == "deepseek-v4-pro"
    assert pieces[-1].response is not None
    assert pieces[-1].response.model == "deepseek-v4-pro"
    assert (own.model, same.model) == ("deepseek-flash", "deepseek-flash")


async def test_another_model_has_its_own_rules():
    fake = FakeVendors(lambda _: Turn(text="好"))
    async with fake.http_client() as http_client:
        llm = OpenAIProvider(base_url=fake.base_url("openai"), api_key=fake.key, http_client=http_client)
        await llm.chat(_QUESTION, model="gpt-4.1", temperature=0.2)
        await llm.chat(_QUESTION, temperature=0.2, effort="high")
    assert [each.body.get("temperature") for each in fake.requests] == [0.2, None]


async def test_a_protocol_of_ones_own_has_one_model():
    llm = HostedProvider(DEEPSEEK, wire=ScriptedWire([]))
    with pytest.raises(InvalidInputError, match="client is for deepseek-flash only"):
        await llm.chat(_QUESTION, model="deepseek-v4-pro")


async def test_of_several_models_the_first_asks_the_one_that_is_named(caplog: pytest.LogCaptureFixture):
    first, second = MockProvider([LLMError("down"), LLMError("down")], model="a"), MockProvider(["好", "好"])
    chain = FallbackProvider([first, second])
    with caplog.at_level(logging.ERROR):
        assert (await chain.chat(_QUESTION, model="b")).model == "mock"
        pieces = [each async for each in chain.chat_stream(_QUESTION, model="b")]
    assert pieces[-1].kind == "done"
    assert [each.model for each in first.calls] == ["b", "b"]
    assert [each.model for each in second.calls] == ["", ""]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"temperature": 0.2}, "chat(messages, temperature=…)"),
        ({"replay": "always"}, "spec={'replay': …}"),
        ({"organization": "o"}, "There are: api_key, base_url, breaker,"),
    ],
)
def test_an_option_that_a_provider_has_not_is_refused_with_where_it_belongs(
    options: Mapping[str, Any], advice: str
):
    with pytest.raises(
        ConfigError, match=f"DeepSeekProvider has no option '{next(iter(options))}'"
    ) as refused:
        DeepSeekProvider(**options)
    assert advice in refused.value.advice
