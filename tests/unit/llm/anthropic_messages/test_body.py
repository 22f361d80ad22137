from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.anthropic_messages.body import messages_body, output_schema
from loom_core.llm.interface import ChatRequest, OutputSchema, ToolSpec
from loom_core.llm.json_body import encode_body
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, ProviderSpec

_PNG = ImagePart(b"\x89PNG")
_SCHEMA = {"type": "object", "properties": {"名": {"type": "string"}}, "required": ["名"]}


def _user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def _claude(*parts: Any, provider: str = "anthropic") -> AssistantMessage:
    return AssistantMessage(parts, provider, "claude-sonnet-5-5")


def _thought(text: str, signature: str = "sig") -> ReasoningPart:
    return ReasoningPart(text, "thinking", {"signature": signature})


def _body(
    *messages: Message, model: str = "claude-sonnet-5-5", spec: ProviderSpec = ANTHROPIC, **options: Any
) -> dict[str, Any]:
    body, _ = messages_body(ChatRequest(messages=messages, **options), spec.for_model(model), model=model)
    return json.loads(encode_body(body))


def _messages(*messages: Message, **options: Any) -> list[tuple[str, list[Any]]]:
    return [(each["role"], each["content"]) for each in _body(*messages, **options)["messages"]]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _result(id_: str, *content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": list(content), **more}


def test_system_messages_become_one_text_wherever_they_stand():
    body = _body(SystemMessage("你是助手。"), _user("hi"), SystemMessage(" \n"), SystemMessage("Be brief."))
    assert body["system"] == "你是助手。\n\nBe brief."
    assert body["messages"] == [{"role": "user", "content": [_text("hi")]}]
    assert "system" not in _body(_user("hi"))


def test_messages_of_one_role_become_one_and_empty_ones_vanish():
    assert _messages(
        _user("一"),
        _user("二"),
        _user(" "),
        _claude(TextPart("a"), TextPart(" ")),
        _claude(TextPart("b")),
        _user("c"),
    ) == [
        ("user", [_text("一"), _text("二")]),
        ("assistant", [_text("a"), _text("b")]),
        ("user", [_text("c")]),
    ]


def test_the_user_speaks_first_and_last():
    assert _messages(_claude(TextPart("hi"))) == [
        ("user", [_text("(The beginning of this conversation is left out.)")]),
        ("assistant", [_text("hi")]),
        ("user", [_text("Go on.")]),
    ]
    assert _messages(SystemMessage("Write a poem.")) == [("user", [_text("Go on.")])]


def test_a_conversation_without_anything_is_refused():
    with pytest.raises(InvalidInputError, match="no message that a model could answer"):
        _body(_user(""))


def test_results_of_tools_come_in_one_message_before_what_the_user_says():
    calls = (ToolCallPart("a", "t", {"城市": "北京"}), ToolCallPart("b", "t"))
    assert _messages(
        _user("天气？"),
        _claude(TextPart("我看看"), *calls),
        _user("and now?"),
        ToolMessage("b", (TextPart("no"),), failed=True),
        ToolMessage("a", (TextPart("晴"), _PNG)),
    )[1:] == [
        (
            "assistant",
            [
                _text("我看看"),
                {"type": "tool_use", "id": "a", "name": "t", "input": {"城市": "北京"}},
                {"type": "tool_use", "id": "b", "name": "t", "input": {}},
            ],
        ),
        (
            "user",
            [
                _result("a", _text("晴"), _image()),
                _result("b", _text("no"), is_error=True),
                _text("and now?"),
            ],
        ),
    ]


def _image() -> dict[str, Any]:
    data = b64encode(b"\x89PNG").decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_images_of_tools_follow_where_results_cannot_hold_them():
    history = (_user("x"), _claude(ToolCallPart("a", "t")))
    follows = [_result("a", _text("(an image: it follows)")), _image()]
    no_images = {"spec": replace(ANTHROPIC, tool_images=False, models=())}
    assert _messages(*history, ToolMessage("a", (_PNG,)), **no_images)[-1] == ("user", follows)
    failed = [_result("a", _text("(an image: it follows)"), is_error=True), _image()]
    assert _messages(*history, ToolMessage("a", (_PNG,), failed=True))[-1] == ("user", failed)
    unseen = [_result("a", _text("(an image, which you cannot be shown)"))]
    for image, options in (
        (ImagePart(b"x", "image/tiff"), {}),
        (ImagePart(), {}),
        (_PNG, {"spec": replace(ANTHROPIC, images=False, models=())}),
    ):
        assert _messages(*history, ToolMessage("a", (image,)), **options)[-1] == ("user", unseen)
    assert _messages(*history, ToolMessage("a", (TextPart(" "),)))[-1][1] == [
        _result("a", _text("(no output)"))
    ]


def test_users_send_images_by_bytes_and_by_address():
    by_url = {"type": "image", "source": {"type": "url", "url": "https://例子.cn/a.png"}}
    message = UserMessage((TextPart("看"), _PNG, ImagePart(url="https://例子.cn/a.png")))
    assert _messages(message) == [("user", [_text("看"), _image(), by_url])]


@pytest.mark.parametrize(
    ("image", "changes", "why"),
    [
        (_PNG, {"images": False}, "model m of Anthropic takes no images"),
        (ImagePart(b"x", "image/tiff"), {}, "takes no images of the type image/tiff"),
        (ImagePart(url="https://x"), {"image_urls": False}, "takes images as bytes"),
        (ImagePart(), {}, "is empty"),
    ],
)
def test_images_that_cannot_be_shown_are_refused_with_the_reason(
    image: ImagePart, changes: dict[str, Any], why: str
):
    with pytest.raises(InvalidInputError, match=why):
        _body(UserMessage((image,)), model="m", spec=replace(ANTHROPIC, **changes))


def test_ids_and_names_of_others_become_plain_and_stay_the_same():
    call = ToolCallPart("functions.查询:0", "我的.tool", {"x": float("nan")}, opaque={"extra_content": {}})
    history = (_user("x"), _claude(call, provider="gemini"), ToolMessage(call.id, (TextPart("y"),)))
    blocks = [message[1][0] for message in _messages(*history)]
    assert blocks[1]["id"] == blocks[2]["tool_use_id"]
    assert blocks[1]["id"].removeprefix("call_").isalnum()
    assert (blocks[1]["name"], blocks[1]["input"]) == ("___tool", {"x": "nan"})
    assert _messages(*history, _user("z"))[1][1] == [blocks[1]]


def test_arguments_that_were_no_object_are_shown_as_they_were():
    call = ToolCallPart("a", "", unreadable='{"a": \ud800')
    block = _messages(_user("x"), _claude(call))[1][1][0]
    assert (block["name"], block["input"]) == ("unnamed", {"unreadable": '{"a": ?'})


def test_what_utf_8_cannot_hold_is_replaced_everywhere():
    call = ToolCallPart("a", "t", {"\ud800": ["\udfff", ("甲", 1.5, None, True)]})
    body = _body(SystemMessage("\ud800"), _user("半\ud83d"), _claude(call))
    assert body["system"] == "?"
    assert body["messages"][0]["content"] == [_text("半?")]
    assert body["messages"][1]["content"][0]["input"] == {"?": ["?", ["甲", 1.5, None, True]]}


def test_what_json_cannot_hold_is_replaced_in_tools_and_fields_too():
    half = "半\ud83d"
    schema = {"type": "object", "properties": {"x": {"type": "number", "description": half}}}
    output = OutputSchema("o", {**_SCHEMA, "additionalProperties": {"type": "string"}}, half)
    body = _body(
        _user("x"),
        tools=(ToolSpec("t", half, schema),),
        stop=(half,),
        output=output,
        extra={"metadata": {"user_id": half, "weight": float("nan")}},
    )
    assert body["tools"][0]["description"] == "半?"
    assert body["tools"][0]["input_schema"]["properties"]["x"]["description"] == "半?"
    assert body["stop_sequences"] == ["半?"]
    assert "半?" in body["system"]
    assert body["metadata"] == {"user_id": "半?", "weight": "nan"}


def test_texts_that_end_the_answer_are_left_out_where_they_are_refused():
    assert "stop_sequences" not in _body(_user("x"), spec=replace(ANTHROPIC, stops=False), stop=("。",))


def test_thinking_goes_back_unchanged_in_its_place():
    secret = ReasoningPart("", "redacted_thinking", {"data": "=="})
    parts = (_thought("先想", "s1"), secret, TextPart("好"), _thought("", "s2"), ToolCallPart("a", "t"))
    assert _messages(_user("x"), _claude(*parts), ToolMessage("a", (TextPart("y"),)))[1] == (
        "assistant",
        [
            {"type": "thinking", "thinking": "先想", "signature": "s1"},
            {"type": "redacted_thinking", "data": "=="},
            _text("好"),
            {"type": "thinking", "thinking": "", "signature": "s2"},
            {"type": "tool_use", "id": "a", "name": "t", "input": {}},
        ],
    )


def test_thinking_of_others_does_not_go_back():
    for provider in ("deepseek", ""):
        message = _claude(ReasoningPart("想", "reasoning_content"), TextPart("a"), provider=provider)
        assert _messages(_user("x"), message)[1] == ("assistant", [_text("a")])


def test_thinking_that_was_cut_off_does_not_end_a_message():
    cut = _claude(TextPart("a"), _thought("b"), ReasoningPart("c", "thinking"))
    assert _messages(_user("x"), cut)[1] == ("assistant", [_text("a")])
    assert _messages(_user("x"), _claude(_thought("b"))) == [("user", [_text("x")])]


def test_a_vendor_that_wants_thinking_in_every_answer_gets_an_empty_one():
    spec = replace(DEEPSEEK, wire="anthropic_messages", base_url="https://api.deepseek.com/anthropic")
    history = (_user("x"), _claude(TextPart("a"), provider="openai"), _user("y"))
    empty = {"type": "thinking", "thinking": "", "signature": ""}
    assert _messages(*history, spec=spec, tools=(ToolSpec("t"),))[1] == ("assistant", [empty, _text("a")])
    assert _messages(*history, spec=spec)[1] == ("assistant", [_text("a")])
    own = _claude(ReasoningPart("想", "reasoning_content"), TextPart("a"), provider="deepseek")
    thinking = {"type": "thinking", "thinking": "想"}
    assert _messages(_user("x"), own, _user("y"), spec=spec, tools=(ToolSpec("t"),))[1][1][0] == thinking


def test_the_limit_of_an_answer_is_always_said():
    assert _body(_user("x"))["max_tokens"] == 4096
    assert _body(_user("x"), max_tokens=7)["max_tokens"] == 7
    assert _body(_user("x"), max_tokens=None)["max_tokens"] == 32_000


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "said"),
    [
        ("claude-sonnet-5-5", None, "adaptive", None),
        ("claude-sonnet-5-5", "high", "adaptive", "high"),
        ("claude-sonnet-5-5", "off", "adaptive", "low"),
        ("claude-opus-5-5", "off", "adaptive", "low"),
        ("claude-fable-5-2", "off", "adaptive", "low"),
        ("claude-haiku-5-5", "off", "disabled", None),
        ("claude-opus-5", "off", "disabled", None),
        ("claude-sonnet-5-20260601", "max", "adaptive", "max"),
        ("claude-opus-4-8", None, None, None),
        ("claude-sonnet-4-6", "low", "adaptive", "low"),
        ("claude-haiku-4-5-20251001", None, None, None),
        ("claude-haiku-4-5", "low", "enabled", None),
        ("claude-opus-4-1", "off", "disabled", None),
        ("claude-3-7-sonnet-latest", "high", "enabled", None),
        ("claude-3-5-haiku-latest", "high", None, None),
    ],
)
def test_each_model_is_told_how_much_to_think_in_its_own_way(
    model: str, effort: Any, thinking: str | None, said: str | None
):
    body = _body(_user("x"), model=model, effort=effort)
    assert body.get("thinking", {}).get("type") == thinking
    assert body.get("output_config", {}).get("effort") == said


def test_thinking_whose_beginning_has_changed_is_to_be_dropped_where_models_check_it():
    bound = {"prefix_mismatch_behavior": "drop_block"}
    for model in ("claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-1", "claude-haiku-5-5"):
        assert _body(_user("x"), model=model)["thinking"]["block_binding"] == bound
        assert _body(_user("x"), model=model, effort="max")["thinking"]["block_binding"] == bound
    assert "block_binding" not in _body(_user("x"), model="claude-opus-5")["thinking"]


def test_a_model_that_checks_thoughts_and_is_told_not_to_think_gets_none_back():
    def kinds(model: str, effort: Any) -> list[str]:
        history = (_user("x"), _claude(_thought("y"), TextPart("a")), _user("and?"))
        body = _body(*history, model=model, effort=effort)
        return [block["type"] for block in body["messages"][1]["content"]]

    assert kinds("claude-haiku-5-5", "off") == ["text"]
    assert kinds("claude-haiku-5-5", "low") == ["thinking", "text"]
    assert kinds("claude-opus-5", "off") == ["thinking", "text"]


@pytest.mark.parametrize(
    ("limit", "budget"), [(100_000, 16384), (8192, 4096), (2048, 1024), (2047, None), (1, None)]
)
def test_a_budget_of_thinking_leaves_half_of_the_answer(limit: int, budget: int | None):
    thinking = _body(_user("x"), model="claude-sonnet-4-5", effort="high", max_tokens=limit)["thinking"]
    assert thinking == ({"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"})


def test_a_model_with_a_budget_does_not_think_on_in_a_turn_that_it_did_not_begin():
    def thinking(*messages: Message) -> str:
        return _body(*messages, model="claude-sonnet-4-5", effort="high")["thinking"]["type"]

    call, result = ToolCallPart("a", "t"), ToolMessage("a", (TextPart("y"),))
    second, second_result = ToolCallPart("b", "t"), ToolMessage("b", (TextPart("y"),))
    foreign, own = _claude(call, provider="openai"), _claude(_thought("x"), call)
    assert thinking(_user("x"), foreign, result) == "disabled"
    assert thinking(_user("x"), foreign, result, _user("and?")) == "disabled"
    assert thinking(_user("x"), own, result) == "enabled"
    assert thinking(_user("x"), own, result, _claude(second), second_result) == "enabled"
    assert thinking(_user("x"), foreign, result, _claude(TextPart("a")), _user("new")) == "enabled"
    # What stands beside a result begins a turn for the API.
    aside = (_user("x"), own, result, _user("and?"))
    assert thinking(*aside) == "enabled"
    assert thinking(*aside, _claude(second, provider="openai"), second_result) == "disabled"
    assert thinking(*aside, _claude(_thought("z"), second), second_result) == "enabled"


def test_tools_have_an_input_schema_of_one_form():
    tool = ToolSpec("look_up", "查", {"properties": {"q": {"anyOf": [{}]}}, "anyOf": [{"required": ["q"]}]})
    assert _body(_user("x"), tools=(tool,))["tools"] == [
        {
            "name": "look_up",
            "input_schema": {"type": "object", "properties": {"q": {"anyOf": [{}]}}},
            "description": "查",
        }
    ]
    assert "tools" not in _body(_user("x"))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("a", {"type": "tool", "name": "a"}),
    ],
)
def test_choices_of_tools_are_said_where_the_model_does_not_think(choice: str, said: object):
    tools = (ToolSpec("a"), ToolSpec("b"))
    body = _body(_user("x"), model="claude-opus-5", effort="off", tools=tools, tool_choice=choice)
    assert body.get("tool_choice") == said
    thinking = _body(_user("x"), tools=tools, tool_choice=choice)
    assert thinking.get("tool_choice") == (said if choice == "none" else None)


def test_a_vendor_without_the_choice_of_no_tool_is_not_asked_for_it():
    spec = replace(ANTHROPIC, tool_choices=frozenset({"auto"}), models=())
    body = _body(_user("x"), spec=spec, tools=(ToolSpec("a"),), tool_choice="none")
    assert "tool_choice" not in body


def test_a_conversation_with_calls_has_tools_even_if_none_may_be_called():
    calls = (ToolCallPart("a", "t"), ToolCallPart("b", "t"), ToolCallPart("c", "u"))
    body = _body(_user("x"), _claude(*calls))
    assert [tool["name"] for tool in body["tools"]] == ["t", "u"]
    assert body["tool_choice"] == {"type": "none"}


def test_the_form_of_an_answer_is_said_by_its_schema():
    format_ = {"type": "json_schema", "schema": {**_SCHEMA, "additionalProperties": False}}
    body = _body(_user("x"), output=OutputSchema("e", _SCHEMA), effort="high")
    assert body["output_config"] == {"format": format_, "effort": "high"}


def test_a_form_that_the_api_cannot_say_is_told_to_the_model():
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    body = _body(SystemMessage("你好"), _user("x"), output=OutputSchema("e", schema))
    assert "output_config" not in body
    assert body["system"].startswith("你好\n\n只用一个 JSON 对象回答，")
    body = _body(SystemMessage("Be brief."), _user("你好"), output=OutputSchema("e", schema))
    assert body["system"].startswith("Be brief.\n\nAnswer with one JSON object")


def test_older_models_give_an_answer_of_a_form_by_a_tool_or_by_being_told():
    output = OutputSchema("e", _SCHEMA, "实体")
    body = _body(_user("x"), model="claude-opus-4-1", output=output)
    assert body["tools"] == [{"name": "e", "input_schema": _SCHEMA, "description": "实体"}]
    assert body["tool_choice"] == {"type": "tool", "name": "e"}
    told = _body(_user("x"), model="claude-opus-4-1", output=output, effort="high")
    assert "(实体)" in told["system"]
    assert "tools" not in told


def test_stops_are_sent_but_those_of_white_space():
    assert _body(_user("x"), stop=("###", "\n", "完"))["stop_sequences"] == ["###", "完"]
    assert "stop_sequences" not in _body(_user("x"), stop=("\n",))


def test_a_temperature_is_sent_where_the_vendor_takes_it():
    assert "temperature" not in _body(_user("x"), temperature=0.0)
    spec = replace(DEEPSEEK, wire="anthropic_messages")
    assert _body(_user("x"), spec=spec, temperature=0.0, effort="off")["temperature"] == 0.0


def test_extra_fields_have_the_last_word():
    extra = {"thinking": {"type": "disabled"}, "output_config": {"effort": "xhigh"}, "service_tier": "auto"}
    body = _body(_user("x"), effort="low", output=OutputSchema("e", _SCHEMA), extra=extra)
    assert body["thinking"] == {"type": "disabled"}
    assert body["service_tier"] == "auto"
    assert body["output_config"]["effort"] == "xhigh"
    assert body["output_config"]["format"]["type"] == "json_schema"


def test_limits_are_left_out_and_objects_are_closed():
    schema = {
        "type": "object",
        "title": "实体",
        "properties": {
            "名称": {"type": "string", "minLength": 1, "pattern": "^a", "description": "名字"},
            "when": {"type": ["string", "null"], "format": "date"},
            "how": {"type": "string", "format": "phone"},
            "kind": {"enum": ["a", "b"]},
            "score": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
            "tags": {
                "type": "array",
                "items": {"type": "integer", "maximum": 9},
                "minItems": 1,
                "maxItems": 5,
            },
            "pairs": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "inner": {"allOf": [{"type": "object", "properties": {"x": {"const": 1}}}]},
        },
        "required": ["名称"],
    }
    assert output_schema(schema) == {
        "type": "object",
        "title": "实体",
        "properties": {
            "名称": {"type": "string", "description": "名字"},
            "when": {"type": ["string", "null"], "format": "date"},
            "how": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "pairs": {"type": "array", "items": {"type": "string"}},
            "inner": {
                "allOf": [
                    {"type": "object", "properties": {"x": {"const": 1}}, "additionalProperties": False}
                ]
            },
        },
        "required": ["名称"],
        "additionalProperties": False,
    }


def test_references_are_written_out_and_forms_that_contain_themselves_are_cut_off():
    tree = {"type": "object", "properties": {"sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    schema = output_schema({**tree, "$defs": {"tree": tree}})
    assert schema is not None
    assert "$ref" not in str(schema)
    assert schema["properties"]["sub"]["items"]["type"] == "object"
    assert schema["properties"]["sub"]["items"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"any": {}}},
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_what_the_api_cannot_say_is_no_schema(schema: dict[str, object]):
    assert output_schema(schema) is None
