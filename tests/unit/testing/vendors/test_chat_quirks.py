"""For every rule of a single vendor one request that breaks it, and the nearest one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.chat_bodies import (
    CITY,
    HTTPS,
    PNG,
    QUESTION,
    SYSTEM,
    Case,
    answer,
    ask,
    body,
    calls,
    check_case,
    image,
    said,
    signed,
    tool,
)
from tests.fixtures.vendors.chat_quirks import gemini_signature

STRICT = {**CITY, "required": ["city"], "additionalProperties": False}
REFERENCE = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}},
    "$defs": {"City": {"type": "string"}},
}
CHOSEN = {"type": "function", "function": {"name": "weather"}}
JSON = {"type": "json_object"}
IN_JSON = [{"role": "user", "content": "用 JSON 回答"}]


def schema_format(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "facts", "schema": schema, **more}}


CASES = [
    Case(
        "openai",
        "max_tokens",
        {"max_tokens": 9},
        {"max_completion_tokens": 9},
        "max_completion_tokens",
        code="unsupported_parameter",
    ),
    Case(
        "openai",
        "max_tokens of old models",
        {"model": "gpt-4.1", "max_tokens": 9, "max_completion_tokens": 9},
        {"model": "gpt-4.1", "max_tokens": 9},
        "at the same time",
    ),
    Case(
        "openai",
        "temperature",
        {"temperature": 0.2},
        {"temperature": 0.2, "reasoning_effort": "none"},
        "temperature",
        code="unsupported_value",
    ),
    Case(
        "openai",
        "temperature of old models",
        {"model": "gpt-4.1", "temperature": 3},
        {"model": "gpt-4.1", "temperature": 0.2},
        "temperature",
    ),
    Case(
        "openai",
        "effort",
        {"reasoning_effort": "lots"},
        {"reasoning_effort": "max"},
        "reasoning_effort",
        code="unsupported_value",
    ),
    Case(
        "openai",
        "effort of old models",
        {"model": "gpt-4.1", "reasoning_effort": "low"},
        {"model": "gpt-4.1"},
        "reasoning_effort",
    ),
    Case(
        "openai",
        "stop",
        {"model": "o3", "stop": ["。"]},
        {"stop": ["。"]},
        "stop",
        code="unsupported_parameter",
    ),
    Case(
        "openai",
        "tools while it thinks",
        {"tools": [tool()], "reasoning_effort": "low"},
        {"tools": [tool()], "reasoning_effort": "none"},
        "Function tools with reasoning_effort",
    ),
    Case(
        "openai",
        "tools while it thinks by itself",
        {"model": "gpt-5.6-terra", "tools": [tool()]},
        {"model": "gpt-5.6-terra", "tools": [tool()], "reasoning_effort": "none"},
        "set reasoning_effort to 'none'",
    ),
    Case(
        "openai",
        "unknown field",
        {"thinking": {"type": "enabled"}},
        {"verbosity": "low"},
        "thinking",
        code="unknown_parameter",
    ),
    Case(
        "openai",
        "unknown field of a message",
        body(QUESTION, said("好", reasoning_content="想"), QUESTION),
        body(QUESTION, said("好", refusal=None), QUESTION),
        "reasoning_content",
        code="unknown_parameter",
    ),
    Case(
        "openai",
        "unknown field of a call",
        body(QUESTION, signed(calls("a"), "s"), answer("a")),
        body(QUESTION, calls("a"), answer("a")),
        "extra_content",
        code="unknown_parameter",
    ),
    Case(
        "openai",
        "strict tools",
        {"tools": [tool(CITY, strict=True)]},
        {"tools": [tool(STRICT, strict=True)]},
        "additionalProperties",
        code="invalid_function_parameters",
    ),
    Case(
        "openai",
        "strict tools name all",
        {"tools": [tool({**STRICT, "required": []}, strict=True)]},
        {"tools": [tool(CITY)]},
        "every key",
        code="invalid_function_parameters",
    ),
    Case(
        "openai",
        "strict answers",
        {"response_format": schema_format(CITY, strict=True)},
        {"response_format": schema_format(STRICT, strict=True)},
        "additionalProperties",
    ),
    Case(
        "openai",
        "json is said",
        {"response_format": JSON},
        body(*IN_JSON, response_format=JSON),
        "must contain the word 'json'",
    ),
    Case(
        "openai",
        "roles",
        body({"role": "narrator", "content": "x"}),
        body({"role": "developer", "content": "x"}, QUESTION),
        "role",
    ),
    Case(
        "deepseek",
        "developer",
        body({"role": "developer", "content": "x"}, QUESTION),
        body(SYSTEM, QUESTION),
        "role",
    ),
    Case(
        "deepseek",
        "reasoning with tools",
        body(QUESTION, said("好"), QUESTION, tools=[tool()]),
        body(QUESTION, said("好"), QUESTION),
        "must be passed back",
        code="invalid_request_error",
    ),
    Case(
        "deepseek",
        "reasoning with calls",
        body(QUESTION, calls("a"), answer("a"), tools=[tool()]),
        body(QUESTION, calls("a", reasoning_content=""), answer("a"), tools=[tool()]),
        "must be passed back",
    ),
    Case(
        "deepseek",
        "reasoning of every answer",
        body(QUESTION, said("好", reasoning_content="想"), QUESTION, said("行"), QUESTION, tools=[tool()]),
        body(QUESTION, said("好"), QUESTION, tools=[tool()], thinking={"type": "disabled"}),
        "must be passed back",
    ),
    Case(
        "deepseek",
        "forced tools",
        {"tools": [tool()], "tool_choice": "required"},
        {"tools": [tool()], "tool_choice": "required", "thinking": {"type": "disabled"}},
        "tool_choice",
    ),
    Case(
        "deepseek",
        "named tool",
        {"tools": [tool()], "tool_choice": CHOSEN},
        {"tools": [tool()], "tool_choice": CHOSEN, "thinking": {"type": "disabled"}},
        "tool_choice",
    ),
    Case(
        "deepseek",
        "max_completion_tokens",
        {"max_completion_tokens": 9},
        {"max_tokens": 9},
        "max_completion_tokens",
    ),
    Case(
        "deepseek",
        "schema",
        body(*IN_JSON, response_format=schema_format(CITY)),
        body(*IN_JSON, response_format=JSON),
        "unavailable",
    ),
    Case(
        "deepseek",
        "json is said",
        {"response_format": JSON},
        body(*IN_JSON, response_format=JSON),
        "must contain the word 'json'",
    ),
    Case(
        "deepseek", "thinking", {"thinking": {"type": "auto"}}, {"thinking": {"type": "enabled"}}, "thinking"
    ),
    Case(
        "deepseek", "effort", {"reasoning_effort": "none"}, {"reasoning_effort": "xhigh"}, "reasoning_effort"
    ),
    Case("deepseek", "images", body(image(PNG)), {}, "image"),
    Case(
        "gemini",
        "signature",
        body(QUESTION, calls("a"), answer("a")),
        body(QUESTION, signed(calls("a"), gemini_signature("weather")), answer("a")),
        "missing a thought_signature",
    ),
    Case(
        "gemini",
        "signature of the first call",
        body(QUESTION, calls("a", "b"), answer("a"), answer("b")),
        body(QUESTION, signed(calls("a", "b"), gemini_signature("weather")), answer("a"), answer("b")),
        "missing a thought_signature",
    ),
    Case(
        "gemini",
        "foreign signature",
        body(QUESTION, signed(calls("a"), "made up"), answer("a")),
        body(QUESTION, signed(calls("a"), "skip_thought_signature_validator"), answer("a")),
        "not valid",
    ),
    Case(
        "gemini",
        "signature of this turn",
        body(QUESTION, calls("a"), answer("a"), said("晴"), QUESTION, calls("b"), answer("b")),
        body(QUESTION, calls("a"), answer("a"), said("晴"), QUESTION),
        "missing a thought_signature",
    ),
    Case(
        "gemini",
        "reasoning_content",
        body(QUESTION, said("好", reasoning_content="想"), QUESTION),
        body(QUESTION, said("好"), QUESTION),
        "reasoning_content",
    ),
    Case("gemini", "unknown field", {"thinking": {"type": "enabled"}}, {"extra_body": {}}, "thinking"),
    Case(
        "gemini",
        "schema words",
        {"tools": [tool({**CITY, "additionalProperties": False})]},
        {"tools": [tool({**CITY, "description": "城市"})]},
        "additionalProperties",
    ),
    Case(
        "gemini",
        "schema types",
        {"tools": [tool({"type": "object", "properties": {"x": {"type": ["string", "null"]}}})]},
        {"tools": [tool({"type": "object", "properties": {"x": {"type": "string", "nullable": True}}})]},
        "Invalid value at 'type'",
    ),
    Case(
        "gemini",
        "schema without a type",
        {"tools": [tool({"type": "object", "properties": {"x": {}}})]},
        {"tools": [tool({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}]}}})]},
        "type field",
    ),
    Case(
        "gemini",
        "numbers in enum",
        {"tools": [tool({"type": "object", "properties": {"x": {"type": "integer", "enum": [1]}}})]},
        {"tools": [tool({"type": "object", "properties": {"x": {"type": "string", "enum": ["1"]}}})]},
        "enum",
    ),
    Case(
        "gemini",
        "lists of anything",
        {"tools": [tool({"type": "object", "properties": {"x": {"type": "array"}}})]},
        {
            "tools": [
                tool({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}})
            ]
        },
        "items",
    ),
    Case(
        "gemini",
        "required",
        {"tools": [tool({**CITY, "required": ["town"]})]},
        {"tools": [tool({**CITY, "required": ["city"]})]},
        "town",
    ),
    Case("gemini", "images by address", body(image(HTTPS)), body(image(PNG)), "base64"),
    Case("gemini", "user", body(SYSTEM), body(SYSTEM, QUESTION), "user"),
    Case(
        "gemini",
        "effort",
        {"reasoning_effort": "none"},
        {"model": "gemini-2.5-flash", "reasoning_effort": "none"},
        "reasoning_effort",
    ),
    Case(
        "ollama",
        "effort of models that do not think",
        {"model": "llama3.2", "reasoning_effort": "low"},
        {"model": "llama3.2", "reasoning_effort": "none"},
        "does not support thinking",
    ),
    Case("ollama", "effort", {"reasoning_effort": "lots"}, {"reasoning_effort": "low"}, "reasoning_effort"),
    Case(
        "ollama",
        "tools",
        {"model": "gemma3:4b", "tools": [tool()]},
        {"tools": [tool()]},
        "does not support tools",
    ),
    Case(
        "ollama",
        "images by address",
        body(image(HTTPS), model="gemma3:4b"),
        body(image(PNG), model="gemma3:4b"),
        "base64",
    ),
    Case(
        "vllm",
        "parser",
        {"model": "plain/base", "tools": [tool()]},
        {"model": "plain/base", "tools": [tool()], "tool_choice": "required"},
        "--enable-auto-tool-choice",
    ),
    Case(
        "vllm",
        "alternation",
        body(QUESTION, QUESTION, model="plain/base"),
        body(QUESTION, QUESTION),
        "alternate",
    ),
    Case("vllm", "systems", body(QUESTION, SYSTEM), body(SYSTEM, QUESTION), "at the beginning"),
    Case("vllm", "user", body(SYSTEM, said("好")), body(SYSTEM, QUESTION), "No user query"),
    Case("gpustack", "effort", {"reasoning_effort": "lots"}, {"reasoning_effort": "low"}, "reasoning_effort"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.vendor}: {case.name}")
async def test_a_request_that_breaks_a_rule_is_refused_and_the_nearest_one_is_not(case: Case):
    await check_case(case)


async def test_gemini_takes_back_the_signature_that_it_gave():
    fake = FakeVendors()
    first = (await ask(fake, "gemini", {"tools": [tool(), tool(name="time")]})).choices[0].message
    back = first.model_dump(exclude_none=True)
    assert back["tool_calls"][0]["extra_content"]["google"]["thought_signature"]
    conversation = [QUESTION, back, answer(back["tool_calls"][0]["id"])]
    assert (await ask(fake, "gemini", {"messages": conversation})).choices[0].message.content
