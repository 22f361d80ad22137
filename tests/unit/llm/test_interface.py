from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.interface import OutputSchema, ToolSpec, whole_call
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.providers import PROVIDERS
from loom_core.llm.structured import generate
from loom_core.testing.vendors import FakeVendors, Turn

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
    assert json.loads(whole_call(0, call).arguments) == {"城市": "杭?", "n": "nan"}
