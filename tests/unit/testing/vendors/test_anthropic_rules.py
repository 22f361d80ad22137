"""For every rule of Anthropic's one request that breaks it, and the nearest one that does not."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from tests.fixtures.vendors.anthropic_blocks import REDACTED, anthropic_signature
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Call, Turn

Body = dict[str, Any]

CITY: Body = {"type": "object", "properties": {"city": {"type": "string"}}}
CLOSED: Body = {**CITY, "additionalProperties": False}
QUESTION: Body = {"role": "user", "content": "杭州今天天气怎么样？"}
OFF: Body = {"thinking": {"type": "disabled"}}


def tool(name: str = "weather", schema: Body = CITY, **more: object) -> Body:
    return {"name": name, "input_schema": schema, **more}


def text(words: str) -> Body:
    return {"type": "text", "text": words}


def use(id_: str = "toolu_a", name: str = "weather", **more: object) -> Body:
    return {"type": "tool_use", "id": id_, "name": name, "input": {"city": "杭州"}, **more}


def result(id_: str = "toolu_a", content: object = "晴", **more: object) -> Body:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def thought(words: str = "先查。", signature: str | None = None) -> Body:
    return {"type": "thinking", "thinking": words, "signature": signature or anthropic_signature(words)}


def image(**source: str) -> Body:
    return {"type": "image", "source": source}


def user(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Body) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def body(*messages: Body, **more: object) -> Body:
    return {"messages": list(messages), **more}


def form(schema: Body) -> Body:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


PNG = image(type="base64", media_type="image/png", data="iVBORw0KGgo=")
DROP = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
BETA = {"extra_headers": {"anthropic-beta": "thinking-binding-controls-2026-08-01"}}
DONE = (QUESTION, model(use()), user(result()))
MORE = (model(use("toolu_b")), user(result("toolu_b")))
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "model": "claude-haiku-4-5"}

CASES: list[tuple[str, Body, Body, str]] = [
    ("temperature", {"temperature": 0.5}, {}, "temperature: Extra inputs"),
    ("top_p", {"top_p": 0.5}, {}, "top_p: Extra inputs"),
    ("no limit", {"max_tokens": None}, {"max_tokens": 1}, "max_tokens: Field required"),
    ("a limit of nothing", {"max_tokens": 0}, {"max_tokens": 1}, "max_tokens"),
    ("no messages", body(), {}, "at least one message"),
    (
        "an assistant first",
        body(model(text("好")), QUESTION),
        body(QUESTION, model(text("好")), QUESTION),
        "first message",
    ),
    (
        "an assistant last",
        body(QUESTION, model(text("好"))),
        body(QUESTION, model(text("好")), QUESTION),
        "prefill",
    ),
    ("a role", body({"role": "tool", "content": "x"}), body(QUESTION, QUESTION), "role"),
    (
        "a system message in front",
        body({"role": "system", "content": "x"}, QUESTION),
        {"system": "x"},
        "first message",
    ),
    (
        "a system message before the user",
        body(QUESTION, {"role": "system", "content": "x"}, QUESTION),
        body(QUESTION, {"role": "system", "content": "x"}),
        "system message",
    ),
    ("an empty system", {"system": [text("")]}, {"system": [text("简短")]}, "non-empty"),
    ("a system of images", {"system": [PNG]}, {"system": [text("简短")]}, "system.0.type"),
    ("a field of a message", body({**QUESTION, "name": "x"}), {}, "name: Extra inputs"),
    (
        "empty content",
        body({"role": "user", "content": ""}),
        body({"role": "user", "content": "?"}),
        "non-empty content",
    ),
    ("no blocks", body(user()), body(user(text("?"))), "non-empty content"),
    ("an empty text", body(user(text(""))), body(user(text("?"))), "non-empty"),
    ("a blank text", body(user(text(" \n"))), body(user(text(" ?"))), "non-whitespace"),
    ("a block of an unknown type", body(user({"type": "smell"})), {}, "smell"),
    ("a field of a block", body(user({**text("x"), "index": 0})), {}, "index: Extra inputs"),
    (
        "an image of the assistant",
        body(QUESTION, model(PNG), QUESTION),
        body(user(PNG)),
        "can not be in `assistant`",
    ),
    (
        "an image of another kind",
        body(user(image(type="base64", media_type="image/bmp", data="QQ=="))),
        body(user(PNG)),
        "media_type",
    ),
    (
        "an empty image",
        body(user(image(type="base64", media_type="image/png", data=""))),
        body(user(PNG)),
        "cannot be empty",
    ),
    (
        "an image without TLS",
        body(user(image(type="url", url="http://a/b.png"))),
        body(user(image(type="url", url="https://a/b.png"))),
        "HTTPS",
    ),
    ("an image of an unknown source", body(user(image(type="disk"))), {}, "disk"),
    (
        "a call without a result",
        body(QUESTION, model(use()), QUESTION),
        body(*DONE),
        "without `tool_result` blocks immediately after: toolu_a",
    ),
    (
        "one of two results",
        body(QUESTION, model(use(), use("b")), user(result("b"))),
        body(QUESTION, model(use(), use("b")), user(result("b"), result())),
        "toolu_a",
    ),
    ("a result without a call", body(user(result())), body(*DONE), "unexpected `tool_use_id`"),
    ("a result twice", body(QUESTION, model(use()), user(result(), result())), body(*DONE), "single result"),
    (
        "a result behind text",
        body(QUESTION, model(use()), user(text("看"), result())),
        body(QUESTION, model(use()), user(result(), text("看"))),
        "must come before",
    ),
    (
        "an id twice",
        body(*DONE, model(use()), user(result())),
        body(*DONE, model(use("b")), user(result("b"))),
        "unique",
    ),
    (
        "an id of other letters",
        body(QUESTION, model(use("a.b")), user(result("a.b"))),
        body(*DONE),
        "tool_use.id",
    ),
    ("a result of other letters", body(user(result("a.b"))), body(*DONE), "tool_use_id"),
    (
        "a name of other letters",
        body(QUESTION, model(use(name="天气")), user(result())),
        body(*DONE),
        "tool_use.name",
    ),
    (
        "arguments that are no object",
        body(QUESTION, model(use(input="{}")), user(result())),
        body(*DONE),
        "valid dictionary",
    ),
    (
        "an empty text in a result",
        body(QUESTION, model(use()), user(result(content=[text("")]))),
        body(QUESTION, model(use()), user(result(content=""))),
        "non-empty",
    ),
    (
        "an image in a failure",
        body(QUESTION, model(use()), user(result(content=[PNG], is_error=True))),
        body(QUESTION, model(use()), user(result(content=[PNG]))),
        "is_error",
    ),
    (
        "a call in a result",
        body(QUESTION, model(use()), user(result(content=[use()]))),
        body(*DONE),
        "not expected",
    ),
    (
        "a thought without a signature",
        body(QUESTION, model({"type": "thinking", "thinking": "x"}, text("好")), QUESTION),
        {},
        "signature: Field required",
    ),
    (
        "a changed thought",
        body(
            QUESTION,
            model(thought("改", anthropic_signature("原")), text("好")),
            QUESTION,
            model="claude-opus-5",
        ),
        body(QUESTION, model(thought(), text("好")), QUESTION, model="claude-opus-5"),
        "Invalid `signature`",
    ),
    (
        "a hidden thought made up",
        body(QUESTION, model({"type": "redacted_thinking", "data": "x"}, text("好")), QUESTION),
        body(QUESTION, model({"type": "redacted_thinking", "data": REDACTED}, text("好")), QUESTION),
        "Invalid `data`",
    ),
    (
        "a thought elsewhere",
        body(QUESTION, model(thought(), text("好")), QUESTION),
        body(QUESTION, model(thought(), text("好")), QUESTION, thinking={"type": "adaptive", **DROP}, **BETA),
        "bound to a different conversation",
    ),
    (
        "a binding without its header",
        {"thinking": {"type": "adaptive", **DROP}},
        {"thinking": {"type": "adaptive", **DROP}, **BETA},
        "beta header",
    ),
    (
        "a binding of another kind",
        {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "x"}}, **BETA},
        {},
        "drop_block",
    ),
    (
        "no thought before a call",
        body(*DONE, thinking={"type": "enabled", "budget_tokens": 1024}),
        body(*DONE),
        "must start with a thinking block",
    ),
    (
        "no thought before the first call of a turn",
        body(QUESTION, model(thought(), use()), user(result(), text("还有呢？")), *MORE, **BUDGET),
        body(QUESTION, model(thought(), use()), user(result()), *MORE, **BUDGET),
        "must start with a thinking block",
    ),
    ("a kind of thinking", {"thinking": {"type": "hard"}}, {"thinking": {"type": "between_tools"}}, "hard"),
    (
        "a field of thinking",
        {"thinking": {"type": "adaptive", "depth": 3}},
        {"thinking": {"type": "adaptive", "display": "summarized"}},
        "depth",
    ),
    (
        "a small budget",
        {"thinking": {"type": "enabled", "budget_tokens": 5}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        "1024",
    ),
    (
        "a budget above the limit",
        {"thinking": {"type": "enabled", "budget_tokens": 4096}},
        {"thinking": {"type": "enabled", "budget_tokens": 4095}},
        "must be greater",
    ),
    (
        "a budget where there is none",
        {"thinking": {"type": "adaptive", "budget_tokens": 1024}},
        {},
        "budget_tokens",
    ),
    ("an effort", {"output_config": {"effort": "lots"}}, {"output_config": {"effort": "max"}}, "effort"),
    ("a field of the output", {"output_config": {"style": "x"}}, {}, "style: Extra inputs"),
    ("an open form", form(CITY), form(CLOSED), "additionalProperties"),
    (
        "a bounded form",
        form({**CLOSED, "properties": {"n": {"type": "integer", "minimum": 1}}}),
        form({**CLOSED, "properties": {"n": {"type": "integer"}}}),
        "'minimum'",
    ),
    (
        "a form of many",
        form({"type": "array", "items": {"type": "string"}, "minItems": 3}),
        form({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        "minItems",
    ),
    (
        "a form without a schema",
        {"output_config": {"format": {"type": "json_object"}}},
        {},
        "output_config.format",
    ),
    (
        "a forced tool while it thinks",
        {"tools": [tool()], "tool_choice": {"type": "any"}},
        {"tools": [tool()], "tool_choice": {"type": "any"}, **OFF},
        "forces tool use",
    ),
    (
        "a named tool while it thinks",
        {"tools": [tool()], "tool_choice": {"type": "tool", "name": "weather"}},
        {"tools": [tool()], "tool_choice": {"type": "tool", "name": "weather"}, **OFF},
        "forces tool use",
    ),
    (
        "a tool that is not there",
        {"tools": [tool()], "tool_choice": {"type": "tool", "name": "x"}, **OFF},
        {"tools": [tool()], "tool_choice": {"type": "none"}},
        "not found",
    ),
    (
        "a choice of an unknown kind",
        {"tools": [tool()], "tool_choice": {"type": "required"}},
        {"tools": [tool()], "tool_choice": {"type": "auto"}},
        "required",
    ),
    ("a choice without tools", {"tool_choice": {"type": "auto"}}, {}, "providing tools"),
    ("a tool of other letters", {"tools": [tool("天气")]}, {"tools": [tool("w" * 128)]}, "pattern"),
    ("two tools of one name", {"tools": [tool(), tool()]}, {"tools": [tool(), tool("time")]}, "unique"),
    (
        "a tool that takes no object",
        {"tools": [tool(schema={"type": "string"})]},
        {"tools": [tool()]},
        "object",
    ),
    (
        "a tool of alternatives",
        {"tools": [tool(schema={"type": "object", "anyOf": [CITY]})]},
        {"tools": [tool(schema={"type": "object", "properties": {"x": {"anyOf": [CITY]}}})]},
        "top level",
    ),
    (
        "a field of a tool",
        {"tools": [tool(parameters={})]},
        {"tools": [tool(strict=True)]},
        "parameters: Extra inputs",
    ),
    ("a blank stop", {"stop_sequences": ["\n"]}, {"stop_sequences": ["。"]}, "non-whitespace"),
    ("an unknown field", {"response_format": {}}, {"metadata": {}}, "response_format: Extra inputs"),
    (
        "a version",
        {"extra_headers": {"anthropic-version": "2020-01-01"}},
        {"extra_headers": {"anthropic-version": "2023-06-01"}},
        "anthropic-version",
    ),
    ("no model", {"model": 5}, {"model": "claude-opus-5-5"}, "model"),
]


async def ask(fake: FakeVendors, change: Body, *, key: str = "") -> Any:
    fields = {"model": "claude-sonnet-5-5", "messages": [QUESTION], "max_tokens": 4096, **change}
    headers = fields.pop("extra_headers", None)
    async with fake.http_client() as http_client:
        client = anthropic.AsyncAnthropic(
            base_url=fake.base_url("anthropic"),
            api_key=key or fake.key,
            http_client=http_client,
            max_retries=0,
        )
        fields = {name: value for name, value in fields.items() if value is not None}
        return await client.post(
            "/v1/messages", body=fields, cast_to=anthropic.types.Message, options={"headers": headers or {}}
        )


@pytest.mark.parametrize(("_name", "broken", "fine", "says"), CASES, ids=[name for name, *_ in CASES])
async def test_a_request_that_breaks_a_rule_is_refused_and_the_nearest_one_is_not(
    _name: str, broken: Body, fine: Body, says: str
):
    with pytest.raises(anthropic.BadRequestError) as error:
        await ask(FakeVendors(), broken)
    assert error.value.type == "invalid_request_error"
    assert says in error.value.response.json()["error"]["message"]
    assert (await ask(FakeVendors(), fine)).content


async def test_a_wrong_key_is_refused():
    with pytest.raises(anthropic.AuthenticationError) as error:
        await ask(FakeVendors(), {}, key="wrong")
    assert error.value.type == "authentication_error"


async def test_a_model_that_is_not_there_is_not_found():
    with pytest.raises(anthropic.NotFoundError):
        await ask(FakeVendors(), {"model": "claude-2"})


async def test_thoughts_before_calls_come_back_whole():
    fake = FakeVendors(
        [Turn(reasoning="先查。", redacted=True, calls=(Call("weather", {}),)), Turn(text="晴")]
    )
    tools = {"tools": [tool()]}
    said = (await ask(fake, tools)).model_dump(exclude_none=True)["content"]
    back = [{name: value for name, value in block.items() if name != "caller"} for block in said]
    assert [block["type"] for block in back] == ["thinking", "redacted_thinking", "tool_use"]
    answered = user(result(back[2]["id"]))
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        await ask(fake, body(QUESTION, model(back[0], back[2]), answered, **tools))
    with pytest.raises(anthropic.BadRequestError, match="different conversation"):
        await ask(fake, body(user(text("另一个问题")), model(*back), answered, **tools))
    assert (await ask(fake, body(QUESTION, model(*back), answered, **tools))).content[0].text == "晴"


async def test_tokens_are_counted_without_a_limit():
    fake = FakeVendors()
    async with fake.http_client() as http_client:
        client = anthropic.AsyncAnthropic(
            base_url=fake.base_url("anthropic"), api_key=fake.key, http_client=http_client, max_retries=0
        )
        counted = await client.messages.count_tokens(model="claude-sonnet-5-5", messages=[QUESTION])
        assert counted.input_tokens > 0
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            await client.messages.count_tokens(
                model="claude-sonnet-5-5", messages=[QUESTION], extra_body={"max_tokens": 5}
            )
