"""For every rule of a vendor from China one request that breaks it, and the nearest one that does not."""

from __future__ import annotations

import json
from typing import Any

import openai
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
    tool,
)
from tests.fixtures.vendors.script import Call, Turn

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
        "qwen",
        "references",
        {"tools": [tool(REFERENCE)]},
        {"tools": [tool(CITY)]},
        "must be written out",
        code="invalid_parameter_error",
    ),
    Case(
        "qwen",
        "references of answers",
        body(*IN_JSON, response_format=schema_format(REFERENCE), enable_thinking=False),
        body(*IN_JSON, response_format=schema_format(CITY), enable_thinking=False),
        "must be written out",
    ),
    Case(
        "qwen",
        "forms while it thinks",
        body(*IN_JSON, response_format=JSON),
        body(*IN_JSON, response_format=JSON, enable_thinking=False),
        "response_format",
    ),
    Case(
        "qwen",
        "named tool while it thinks",
        {"tools": [tool()], "tool_choice": CHOSEN},
        {"tools": [tool()], "tool_choice": CHOSEN, "enable_thinking": False},
        "in thinking mode",
    ),
    Case(
        "qwen",
        "forced tools",
        {"tools": [tool()], "tool_choice": "required", "enable_thinking": False},
        {"tools": [tool()], "tool_choice": "none"},
        "required",
    ),
    Case("qwen", "streams only", {"model": "qwq-plus"}, {"model": "qwen3.7-plus"}, "stream mode"),
    Case(
        "qwen",
        "thinks always",
        {"model": "qwen3-thinking", "enable_thinking": False},
        {"model": "qwen3.5-plus", "enable_thinking": False},
        "restricted to True",
    ),
    Case("qwen", "switch", {"enable_thinking": "yes"}, {"enable_thinking": True}, "enable_thinking"),
    Case(
        "qwen",
        "effort",
        {"model": "qwen3.7-plus", "reasoning_effort": "low"},
        {"reasoning_effort": "low"},
        "reasoning_effort",
    ),
    Case(
        "qwen",
        "budget",
        {"thinking_budget": 100},
        {"model": "qwen3.7-plus", "thinking_budget": 100},
        "thinking_budget",
    ),
    Case(
        "kimi",
        "reasoning of calls",
        body(QUESTION, calls("a", reasoning_content=""), answer("a")),
        body(QUESTION, calls("a", reasoning_content=" "), answer("a")),
        "reasoning_content is missing",
    ),
    Case(
        "kimi",
        "no reasoning where it does not think",
        body(QUESTION, calls("a"), answer("a"), model="kimi-k2.6"),
        body(QUESTION, calls("a"), answer("a"), model="kimi-k2.6", thinking={"type": "disabled"}),
        "reasoning_content is missing",
    ),
    Case(
        "kimi",
        "forced tools",
        {"tools": [tool()], "tool_choice": "required"},
        {"tools": [tool()], "tool_choice": "auto"},
        "tool_choice",
    ),
    Case(
        "kimi",
        "named tool",
        {"tools": [tool()], "tool_choice": CHOSEN},
        {"model": "kimi-k2.6", "thinking": {"type": "disabled"}, "tools": [tool()], "tool_choice": CHOSEN},
        "tool_choice",
    ),
    Case("kimi", "strict", {"tools": [tool(STRICT, strict=True)]}, {"tools": [tool(STRICT)]}, "strict"),
    Case("kimi", "temperature", {"temperature": 0.3}, {"temperature": 1}, "only 1 is allowed"),
    Case(
        "kimi",
        "temperature of old models",
        {"model": "kimi-k2.6", "temperature": 0.3},
        {"model": "moonshot-v1-32k", "temperature": 0.3},
        "temperature",
    ),
    Case(
        "kimi",
        "off",
        {"thinking": {"type": "disabled"}},
        {"model": "kimi-k2.6", "thinking": {"type": "disabled"}},
        "thinking",
    ),
    Case("kimi", "effort", {"reasoning_effort": "medium"}, {"reasoning_effort": "high"}, "reasoning_effort"),
    Case(
        "kimi",
        "thinking said twice",
        {"model": "kimi-k2.6", "thinking": {"type": "enabled"}, "reasoning_effort": "low"},
        {"model": "kimi-k2.6", "thinking": {"type": "enabled"}},
        "cannot specify both",
    ),
    Case(
        "kimi",
        "images of models for text",
        body(image(PNG), model="moonshot-v1-32k"),
        body(image(PNG)),
        "image",
    ),
    Case("kimi", "images by address", body(image(HTTPS)), body(image(PNG)), "base64"),
    Case(
        "kimi",
        "empty answers",
        body(QUESTION, said(""), QUESTION),
        body(QUESTION, said("好"), QUESTION),
        "must not be empty",
    ),
    Case(
        "doubao",
        "thinking",
        {"thinking": {"type": "maybe"}},
        {"thinking": {"type": "auto"}},
        "thinking",
        code="InvalidParameter",
    ),
    Case(
        "doubao",
        "effort without thinking",
        {"thinking": {"type": "disabled"}, "reasoning_effort": "high"},
        {"thinking": {"type": "disabled"}, "reasoning_effort": "minimal"},
        "minimal",
    ),
    Case(
        "doubao",
        "model",
        {"model": "seed"},
        {"model": "ep-20260101-abcde"},
        "seed",
        status=404,
        code="InvalidEndpointOrModel.NotFound",
    ),
    Case(
        "zhipu",
        "forced tools",
        {"tools": [tool()], "tool_choice": "none"},
        {"tools": [tool()], "tool_choice": "auto"},
        "tool_choice",
        code="1214",
    ),
    Case("zhipu", "references", {"tools": [tool(REFERENCE)]}, {"tools": [tool(CITY)]}, "must be written out"),
    Case(
        "zhipu",
        "off",
        {"thinking": {"type": "disabled"}},
        {"model": "glm-5.2", "thinking": {"type": "disabled"}},
        "thinking",
        code="1210",
    ),
    Case(
        "zhipu",
        "effort",
        {"reasoning_effort": "medium"},
        {"reasoning_effort": "max"},
        "reasoning_effort",
        code="1210",
    ),
    Case(
        "zhipu",
        "effort of old models",
        {"model": "glm-4.7", "reasoning_effort": "low"},
        {"model": "glm-4.7"},
        "reasoning_effort",
        code="1210",
    ),
    Case(
        "zhipu",
        "empty answers",
        body(QUESTION, said(""), QUESTION),
        body(QUESTION, said("好"), QUESTION),
        "不能同时为空",
        code="1214",
    ),
    Case(
        "zhipu", "schema", {"response_format": schema_format(CITY)}, {"response_format": JSON}, "unavailable"
    ),
    Case("zhipu", "images of models for text", body(image(PNG)), body(image(PNG), model="glm-5v"), "image"),
    Case(
        "minimax",
        "forced tools",
        {"tools": [tool()], "tool_choice": "required"},
        {"tools": [tool()]},
        "(2013)",
    ),
    Case("minimax", "forms", {"response_format": JSON}, {"response_format": {"type": "text"}}, "(2013)"),
    Case("minimax", "temperature", {"temperature": 0}, {"temperature": 0.01}, "temperature"),
    Case(
        "minimax",
        "several systems",
        body(SYSTEM, QUESTION, SYSTEM, QUESTION),
        body(SYSTEM, QUESTION),
        "System message",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.vendor}: {case.name}")
async def test_a_request_that_breaks_a_rule_is_refused_and_the_nearest_one_is_not(case: Case):
    await check_case(case)


async def test_zhipu_wants_the_reasoning_back_with_the_results_as_it_was():
    fake = FakeVendors(
        [Turn(reasoning="先查。", calls=(Call("weather", {"city": "杭州"}),)), Turn(text="晴")]
    )
    first = (await ask(fake, "zhipu", {"tools": [tool()]})).choices[0].message
    back = first.model_dump(exclude_none=True)
    conversation = [QUESTION, back, answer(back["tool_calls"][0]["id"])]
    with pytest.raises(openai.BadRequestError, match="不一致"):
        await ask(
            fake, "zhipu", {"messages": [QUESTION, {**back, "reasoning_content": "改了"}, conversation[2]]}
        )
    assert (await ask(fake, "zhipu", {"messages": conversation})).choices[0].message.content == "晴"


@pytest.mark.parametrize("split", [False, True])
async def test_minimax_wants_the_message_with_calls_back_complete(split: bool):
    fake = FakeVendors([Turn(reasoning="先查。", calls=(Call("weather", {}),)), Turn(text="晴")])
    first = (await ask(fake, "minimax", {"tools": [tool()], "reasoning_split": split})).choices[0].message
    back = json.loads(first.model_dump_json(exclude_none=True))
    assert ("<think>" in back["content"]) is not split
    less = {**back, "content": "", "reasoning_details": None}
    result = answer(back["tool_calls"][0]["id"])
    with pytest.raises(openai.BadRequestError, match="complete"):
        await ask(fake, "minimax", {"messages": [QUESTION, less, result]})
    assert (await ask(fake, "minimax", {"messages": [QUESTION, back, result]})).choices[
        0
    ].message.content == "晴"
