from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.hosted.providers import PROVIDERS
from loom_core.llm.interface import OutputSchema, ToolSpec, call_delta
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockProvider
from loom_core.llm.structured import generate
from loom_core.tools import tool
from tests.fixtures.vendors import FakeVendors, Turn

_QUESTION = [{"role": "user", "content": "杭州天气怎么样？"}]
_PLAIN: Mapping[str, Any] = {
    "type": "object",
    "properties": {"城市": {"type": ["string", "null"]}},
    "required": ["城市"],
}
_FROZEN = MappingProxyType(
    {
        "type": "object",
        "properties": MappingProxyType({"城市": MappingProxyType({"type": ("string", "null")})}),
        "required": ("城市",),
    }
)


def test_a_schema_is_kept_as_plain_json_whatever_it_was_given_in():
    assert ToolSpec("weather", parameters=_FROZEN).parameters == _PLAIN
    assert OutputSchema("weather", _FROZEN).schema == _PLAIN
    assert ToolSpec("weather", parameters=_FROZEN) == ToolSpec("weather", parameters=_PLAIN)


def test_a_schema_is_a_copy():
    given: dict[str, Any] = {"type": "object", "properties": {}}
    tool, output = ToolSpec("weather", parameters=given), OutputSchema("weather", given)
    given["properties"]["x"] = {"type": "string"}
    assert tool.parameters == output.schema == {"type": "object", "properties": {}}


def _endless() -> Mapping[str, Any]:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [({"properties": {"city": {"enum": {"杭州"}}}}, "JSON has no set"), (_endless(), "nested too deeply")],
)
def test_a_schema_that_is_no_json_is_found_when_it_is_given(schema: Mapping[str, Any], why: str):
    with pytest.raises(InvalidInputError, match=why):
        ToolSpec("weather", parameters=schema)
    with pytest.raises(InvalidInputError, match=why):
        OutputSchema("weather", schema)


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "deepseek", "gemini", "zhipu"])
async def test_every_vendor_takes_a_frozen_schema(vendor: str):
    fake = FakeVendors(lambda _: Turn(text='{"城市": "杭州"}'))
    async with fake.http_client() as http_client:
        provider = PROVIDERS[vendor](
            api_key=fake.key, base_url=fake.base_url(vendor), http_client=http_client
        )
        await provider.chat(_QUESTION, tools=[ToolSpec("weather", "天气", _FROZEN)])
        found = await generate(provider, _QUESTION, schema=OutputSchema("weather", _FROZEN))
    assert found.value == {"城市": "杭州"}


def test_a_whole_call_is_written_as_it_would_be_sent():
    call = ToolCallPart("call_1", "weather", MappingProxyType({"城市": "杭\ud83d", "n": float("nan")}))
    assert json.loads(call_delta(0, call).arguments) == {"城市": "杭?", "n": "nan"}


# -- tools and options as users write them ----------------------------------------------------------------

_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
_WRITTEN: list[Mapping[str, Any]] = [
    {"name": "weather", "description": "天气", "parameters": _PARAMETERS},
    {
        "type": "function",
        "function": {"name": "weather", "description": "天气", "parameters": _PARAMETERS, "strict": True},
    },
    {"name": "weather", "description": "天气", "input_schema": _PARAMETERS},
]


async def _body(vendor: str, *, model: str = "", **options: Any) -> Mapping[str, Any]:
    """The body that the vendor is sent."""
    fake = FakeVendors(lambda _: Turn(text="好"))
    async with fake.http_client() as http_client:
        provider = PROVIDERS[vendor](
            model, api_key=fake.key, base_url=fake.base_url(vendor), http_client=http_client
        )
        await provider.chat(_QUESTION, **options)
    return fake.requests[-1].body


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "deepseek", "qwen", "kimi"])
@pytest.mark.parametrize("written", _WRITTEN)
async def test_tools_written_as_mappings_are_sent_like_others(vendor: str, written: Mapping[str, Any]):
    expected = await _body(vendor, tools=[ToolSpec("weather", "天气", _PARAMETERS)])
    assert (await _body(vendor, tools=[written]))["tools"] == expected["tools"]


@pytest.mark.parametrize("written", _WRITTEN)
async def test_the_mock_takes_the_same_tools(written: Mapping[str, Any]):
    model = MockProvider(["好"])
    await model.chat(
        _QUESTION, tools=[written], tool_choice={"type": "function", "function": {"name": "weather"}}
    )
    assert model.calls[0].tools == (ToolSpec("weather", "天气", _PARAMETERS),)
    assert model.calls[0].tool_choice == "weather"


@tool
def _weather(city: str) -> str:
    """Weather of a city."""
    return city


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ("weather", "`tools` cannot be 'weather'"),
        ({"name": "weather"}, "`tools` cannot be {'name': 'weather'}"),
        ([3], "neither a `ToolSpec` nor a mapping"),
        ([_weather], "of a `Tool` give its `spec()`"),
        ([{"description": "天气"}], "it has no `name`"),
        ([{"type": "web_search"}], "put them into `extra`"),
        ([{"name": "weather", "params": {}}], "the unknown field 'params'"),
        ([{"name": "weather", "parameters": "city"}], "not a JSON Schema"),
    ],
)
async def test_what_is_no_tool_is_refused_by_the_mock_and_by_vendors_alike(tools: Any, why: str):
    for provider in (MockProvider(["好"]), PROVIDERS["deepseek"](api_key="sk-not-asked")):
        with pytest.raises(InvalidInputError) as refused:
            await provider.chat(_QUESTION, tools=tools)
        assert why in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("max_tokens", 0),
        ("max_tokens", "many"),
        ("max_tokens", 1.5),
        ("model", None),
        ("tool_choice", {"name": "weather"}),
        ("output", {"type": "object"}),
        ("stop", [3]),
        ("stop", 3),
        ("extra", ["top_k"]),
    ],
)
async def test_a_value_that_an_option_cannot_have_is_refused_with_what_it_can(option: str, value: Any):
    with pytest.raises(InvalidInputError, match=f"`{option}` cannot be") as refused:
        await MockProvider(["好"]).chat(_QUESTION, **{option: value})
    assert refused.value.advice.startswith("Give ")


async def test_an_option_that_there_is_not_is_refused_with_the_nearest_and_where_it_may_go():
    for provider in (MockProvider(["好"]), PROVIDERS["deepseek"](api_key="sk-not-asked")):
        with pytest.raises(InvalidInputError, match=r"no option 'top_k'.*extra=\{'top_k': …\}"):
            await provider.chat(_QUESTION, top_k=3)  # pyright: ignore[reportCallIssue]
        with pytest.raises(InvalidInputError, match="Did you mean 'temperature'"):
            async for _ in provider.chat_stream(_QUESTION, temprature=1):  # pyright: ignore[reportCallIssue]
                pass


async def test_a_single_text_that_ends_the_answer_is_one_text():
    model = MockProvider(["好"])
    await model.chat(_QUESTION, stop="END")
    assert model.calls[0].stop == ("END",)


@pytest.mark.parametrize(
    ("vendor", "model", "effort", "sent"),
    [
        ("openai", "gpt-4.1", None, True),
        ("openai", "gpt-5.6-terra", "high", False),  # refused there while it thinks
        ("deepseek", "", "off", True),
        ("deepseek", "", None, False),
        ("kimi", "", None, False),  # fixed there
        ("anthropic", "", None, False),
        ("gemini", "", None, True),
        ("openai_compatible", "m", None, True),
    ],
)
async def test_top_p_is_sent_where_a_temperature_would_be(vendor: str, model: str, effort: Any, sent: bool):
    body = await _body(vendor, model=model, top_p=0.9, temperature=0.5, effort=effort)
    assert ("top_p" in body, "temperature" in body) == (sent, sent)
