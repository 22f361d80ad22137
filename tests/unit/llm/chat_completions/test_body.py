from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.anthropic_messages.body import messages_body
from loom_core.llm.chat_completions.body import chat_body
from loom_core.llm.interface import ChatRequest, OutputSchema, ToolSpec
from loom_core.llm.json_body import encode_body
from loom_core.llm.message_reading import as_messages
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.llm.text import compact_json
from loom_core.llm.vendors import DEEPSEEK, GEMINI, KIMI, MINIMAX, OPENAI, QWEN, VLLM, ZHIPU, ProviderSpec

_PLAIN = ProviderSpec(name="here", title="Here")
_LOOK = ToolSpec("look", "看", {"type": "object", "properties": {"q": {"type": "string"}}})
_FIND = ToolSpec("find")
_CITY = OutputSchema(
    "city",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "一个城市",
)


def _request(**options: Any) -> ChatRequest:
    return ChatRequest(**{"messages": (UserMessage((TextPart("你好"),)),), **options})


def _body(spec: ProviderSpec = _PLAIN, *, stream: bool = False, **options: Any) -> dict[str, Any]:
    return json.loads(encode_body(chat_body(_request(**options), spec, model="m", stream=stream)[0]))


def test_a_plain_request_has_nothing_that_was_not_asked_for() -> None:
    assert _body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "你好"}],
        "max_tokens": 4096,
    }
    assert "max_tokens" not in _body(max_tokens=None)
    assert _body(replace(_PLAIN, max_tokens_required=True), max_tokens=None)["max_tokens"] == 4096
    assert _body(OPENAI, max_tokens=7)["max_completion_tokens"] == 7
    assert _body(stop=("。", "end"))["stop"] == ["。", "end"]


_MARKED: list[dict[str, Any]] = [
    {"role": "system", "content": "简短"},
    {"role": "user", "content": "你好"},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "好"},
]


@pytest.mark.parametrize("encode", [chat_body, messages_body])
def test_no_vendor_gets_the_metadata_of_messages(encode: Any) -> None:
    def body(**more: object) -> bytes:
        messages = as_messages([{**message, **more} for message in _MARKED])
        assert [dict(message.metadata) for message in messages] == [more.get("metadata", {})] * 4
        return encode_body(encode(ChatRequest(messages=messages), _PLAIN, model="m")[0])

    assert body(metadata={"ticket": "内部-7"}) == body()


def test_a_stream_asks_for_its_usage_where_the_vendor_takes_that() -> None:
    assert _body(stream=True)["stream_options"] == {"include_usage": True}
    silent = _body(replace(_PLAIN, stream_usage=False), stream=True)
    assert silent["stream"] is True
    assert "stream_options" not in silent


@pytest.mark.parametrize(
    ("spec", "effort", "temperature"),
    [(_PLAIN, None, 1.5), (KIMI, None, None), (OPENAI, None, None), (OPENAI, "off", 1.5)],
)
def test_temperature_is_left_out_where_it_would_be_refused(
    spec: ProviderSpec, effort: Any, temperature: float | None
) -> None:
    assert _body(spec, effort=effort, temperature=1.5).get("temperature") == temperature


def test_a_temperature_that_is_too_low_becomes_the_lowest_that_the_vendor_takes() -> None:
    assert _body(MINIMAX, temperature=0.0)["temperature"] == 0.01
    assert _body(MINIMAX, temperature=0.7)["temperature"] == 0.7
    assert _body(_PLAIN, temperature=0.0)["temperature"] == 0.0


def test_an_effort_is_said_as_the_vendor_wants_it_said() -> None:
    assert _body(DEEPSEEK, effort="off")["thinking"] == {"type": "disabled"}
    assert _body(DEEPSEEK, effort="medium")["reasoning_effort"] == "high"
    assert _body(KIMI, effort="off")["reasoning_effort"] == "low"
    assert _body(QWEN, effort="low")["enable_thinking"] is True
    assert "reasoning_effort" not in _body(_PLAIN, effort="high")


def test_openai_does_not_think_in_a_request_with_tools() -> None:
    assert _body(OPENAI, effort="high", tools=(_LOOK,))["reasoning_effort"] == "none"
    assert _body(OPENAI, effort="high")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in _body(OPENAI.for_model("gpt-4.1"), effort="high", tools=(_LOOK,))


def test_tools_are_described_in_the_dialect_of_the_vendor_and_never_strict() -> None:
    nested = ToolSpec(
        "n",
        "",
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}},
    )

    assert _body(OPENAI, tools=(_LOOK,))["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "看", "parameters": _LOOK.parameters},
        }
    ]
    (tool,) = _body(ZHIPU, tools=(nested,))["tools"]
    assert tool["function"]["parameters"] == {"type": "object", "properties": {"x": {"type": "string"}}}


_NAMED = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("spec", "tools", "choice", "sent"),
    [
        (_PLAIN, (_LOOK, _FIND), "auto", None),
        (_PLAIN, (_LOOK, _FIND), "none", "none"),
        (_PLAIN, (_LOOK, _FIND), "required", "required"),
        (_PLAIN, (_LOOK, _FIND), "look", _NAMED),
        (_PLAIN, (), "required", None),
        (KIMI, (_LOOK, _FIND), "required", None),
        (DEEPSEEK, (_LOOK, _FIND), "look", None),
        (replace(QWEN, thinks=False), (_LOOK,), "required", _NAMED),
    ],
)
def test_a_choice_of_tools_is_sent_as_far_as_the_vendor_takes_it(
    spec: ProviderSpec, tools: tuple[ToolSpec, ...], choice: str, sent: object
) -> None:
    assert _body(spec, tools=tools, tool_choice=choice).get("tool_choice") == sent


def test_no_tools_are_sent_where_none_may_be_called_and_the_vendor_cannot_be_told() -> None:
    assert "tools" not in _body(ZHIPU, tools=(_LOOK,), tool_choice="none")


def test_a_tool_that_is_not_there_cannot_be_chosen() -> None:
    with pytest.raises(InvalidInputError, match="The tool choice 'fly'"):
        _body(tools=(_LOOK,), tool_choice="fly")


def test_a_form_is_asked_for_by_a_strict_schema_where_that_can_be_said() -> None:
    named = _body(OPENAI, output=_CITY)["response_format"]["json_schema"]
    assert (named["name"], named["description"], named["strict"]) == ("city", "一个城市", True)
    assert named["schema"]["required"] == ["name", "size"]

    loose = OutputSchema("any thing", {"type": "object", "additionalProperties": {"type": "string"}})
    named = _body(OPENAI, output=loose)["response_format"]["json_schema"]
    assert "strict" not in named
    assert named["name"] == "any_thing"
    assert named["schema"] == loose.schema

    assert "additionalProperties" not in json.dumps(_body(GEMINI, output=_CITY))
    assert _body(VLLM, output=_CITY)["response_format"]["json_schema"]["schema"] == _CITY.schema


def test_a_form_is_told_in_words_where_the_vendor_knows_no_schema() -> None:
    body = _body(DEEPSEEK, output=_CITY)
    assert body["response_format"] == {"type": "json_object"}
    system = body["messages"][0]["content"]
    assert "JSON 对象（一个城市）" in system  # in the language of the conversation
    assert compact_json(_CITY.schema) in system
    described = replace(_CITY, is_described=True)
    assert _body(DEEPSEEK, output=described)["messages"] == _body(DEEPSEEK)["messages"]

    body = _body(QWEN, output=_CITY)  # which takes no form while it thinks
    assert "response_format" not in body
    assert "JSON Schema" in body["messages"][0]["content"]


def test_a_form_is_asked_for_by_a_tool_that_has_to_be_called() -> None:
    body, supported = chat_body(_request(output=_CITY), replace(_PLAIN, json_mode="tool"), model="m")

    assert supported.output_tool == "city"
    assert body["tool_choice"]["function"]["name"] == "city"
    assert body["tools"][0]["function"]["parameters"] == _CITY.schema
    assert [message["role"] for message in body["messages"]] == ["user"]

    strict = _body(
        replace(_PLAIN, json_mode="tool", strict_tools=True), output=OutputSchema("x", _CITY.schema)
    )
    assert strict["tools"][0]["function"]["strict"] is True
    assert strict["tools"][0]["function"]["description"] == "Give the answer."


def test_a_tool_that_cannot_be_forced_is_asked_for_in_words() -> None:
    body = _body(replace(ZHIPU, json_mode="tool"), output=_CITY)

    assert "tool_choice" not in body
    assert body["messages"][0]["content"] == "请调用工具 `city` 给出回答。"


def test_extra_fields_have_the_last_word_and_go_into_objects_that_are_there() -> None:
    spec = replace(_PLAIN, body={"options": {"a": 1, "b": 2}, "top_k": 5})

    body = _body(spec, extra={"options": {"b": 3}, "top_k": None, "max_tokens": 9, "new": {"x": 1}})

    assert body["options"] == {"a": 1, "b": 3}
    assert (body["top_k"], body["max_tokens"], body["new"]) == (None, 9, {"x": 1})
    assert spec.body["options"] == {"a": 1, "b": 2}


@pytest.mark.hostile("answers of models")
def test_half_a_surrogate_pair_does_not_make_a_request_impossible() -> None:
    body = _body(messages=(UserMessage((TextPart("好\ud83d!"),)),), extra={"tags": ("\udc00",)})

    assert body["messages"][0]["content"] == "好?!"
    assert body["tags"] == ["?"]
    json.dumps(body, ensure_ascii=False).encode()


def test_texts_that_end_the_answer_are_left_out_where_they_are_refused() -> None:
    assert "stop" not in _body(OPENAI.for_model("o4-mini"), stop=("。",))
    assert _body(OPENAI.for_model("o1"), stop=("。",))["stop"] == ["。"]


def test_a_field_that_is_no_json_is_named_before_it_is_sent() -> None:
    with pytest.raises(InvalidInputError, match=r"'metadata' .* JSON has no set"):
        _body(extra={"metadata": {"tags": {"a"}}})
