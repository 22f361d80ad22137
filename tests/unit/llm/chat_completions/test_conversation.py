from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.chat_completions.body import safe_name, wire_messages
from loom_core.llm.chat_completions.thinking import CAME_IN_TAGS
from loom_core.llm.messages import (
    AssistantMessage,
    AssistantPart,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    UserPart,
)
from loom_core.llm.transport.replay import NO_RESULT
from loom_core.llm.vendors import DEEPSEEK, GEMINI, KIMI, MINIMAX, VLLM, ZHIPU, ProviderSpec

_HERE = ProviderSpec(name="here", title="Here", replay="always", replay_field="reasoning_content")


def _user(*parts: UserPart | str) -> UserMessage:
    return UserMessage(tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def _answer(*parts: AssistantPart, provider: str = "here") -> AssistantMessage:
    return AssistantMessage(parts, provider=provider, model="m")


def _result(id_: str, *parts: UserPart) -> ToolMessage:
    return ToolMessage(id_, parts)


def _wire(*messages: Message, spec: ProviderSpec = _HERE, **options: Any) -> list[dict[str, Any]]:
    return wire_messages(messages, spec, model="m", **options)


_PNG = ImagePart(b"\x89PNG", "image/png")
_DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def test_system_messages_become_one_in_front() -> None:
    assert _wire(SystemMessage("一"), _user("hi"), SystemMessage("two"), SystemMessage(" ")) == [
        {"role": "system", "content": "一\n\ntwo"},
        {"role": "user", "content": "hi"},
    ]


def test_system_messages_stay_where_they_are_if_the_vendor_takes_that() -> None:
    spec = replace(_HERE, systems=True)

    wire = _wire(SystemMessage("一"), _user("hi"), SystemMessage("two"), spec=spec, instructions="JSON")

    assert [(message["role"], message["content"]) for message in wire] == [
        ("system", "一"),
        ("system", "JSON"),
        ("user", "hi"),
        ("system", "two"),
    ]


def test_instructions_stand_behind_what_the_program_says() -> None:
    assert _wire(SystemMessage("一"), _user("hi"), instructions="JSON")[0]["content"] == "一\n\nJSON"
    assert _wire(_user("hi"), instructions="JSON")[0] == {"role": "system", "content": "JSON"}


@pytest.mark.parametrize("messages", [(), (SystemMessage("s"),), (_answer(ReasoningPart("x")),)])
def test_a_conversation_with_nothing_to_answer_is_refused(messages: tuple[Message, ...]) -> None:
    with pytest.raises(InvalidInputError, match="no message that a model could answer"):
        _wire(*messages)


def test_text_alone_is_sent_as_a_text_and_with_an_image_as_blocks() -> None:
    assert _wire(_user("看", "这"))[0]["content"] == "看这"
    assert _wire(_user("看", _PNG, "  "))[0]["content"] == [{"type": "text", "text": "看"}, _DATA]


def test_an_image_may_be_sent_by_its_address_where_the_vendor_fetches_it() -> None:
    there = ImagePart(url="https://example.org/猫.png")

    assert _wire(_user(there))[0]["content"] == [{"type": "image_url", "image_url": {"url": there.url}}]
    with pytest.raises(InvalidInputError, match="Gemini takes images as bytes"):
        _wire(_user(there), spec=GEMINI)


def test_an_image_that_the_model_cannot_be_shown_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="The model m of DeepSeek takes no images"):
        _wire(_user(_PNG), spec=DEEPSEEK)
    with pytest.raises(InvalidInputError, match="is empty"):
        _wire(_user(ImagePart()))


def test_empty_messages_say_that_they_are_empty() -> None:
    wire = _wire(_user(), _answer(ToolCallPart("c", "f")), _result("c"))

    assert [message["content"] for message in wire] == ["(empty)", None, "(no output)"]


def test_answers_without_text_and_calls_are_left_out() -> None:
    assert _wire(_user("a"), _answer(ReasoningPart("cut off")), _user("b")) == [
        {"role": "user", "content": "a\n\nb"}
    ]


def test_messages_of_one_role_in_a_row_become_one() -> None:
    assert _wire(_user("a"), _user("b", _PNG), _answer(TextPart("c")), _answer(TextPart("d"))) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, _DATA],
        },
        {"role": "assistant", "content": "c\n\nd"},
    ]


def test_answers_with_reasoning_or_calls_stay_apart() -> None:
    call = ToolCallPart("c", "f")

    wire = _wire(_user("a"), _answer(ReasoningPart("r"), TextPart("b")), _answer(TextPart("c"), call))

    assert [message["role"] for message in wire] == ["user", "assistant", "assistant", "tool"]


def test_calls_and_results_are_written_as_the_format_has_them() -> None:
    wire = _wire(
        _user("a"),
        _answer(TextPart("看"), ToolCallPart("c", "look", {"q": "猫"})),
        _result("c", TextPart("有")),
    )

    assert wire[1:] == [
        {
            "role": "assistant",
            "content": "看",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"q": "猫"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "有"},
    ]


def test_a_call_without_a_result_gets_one() -> None:
    assert _wire(_user("a"), _answer(ToolCallPart("c", "f")))[-1] == {
        "role": "tool",
        "tool_call_id": "c",
        "content": NO_RESULT,
    }


@pytest.mark.parametrize("own", [True, False])
def test_ids_of_others_become_short_ones_of_plain_letters(own: bool) -> None:
    long = "call_" + "思" * 60
    messages = (
        _user("a"),
        _answer(
            ToolCallPart(long, "f"), ToolCallPart("functions.f:1", "f"), provider="here" if own else "there"
        ),
    )

    wire = _wire(*messages)

    ids = [call["id"] for call in wire[1]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in wire[2:]]
    assert ids[1] == "functions.f:1"
    assert (ids[0] == long) is own
    assert own or (ids[0].isascii() and len(ids[0]) <= 40)
    assert _wire(*messages) == wire


def test_names_that_models_invent_become_such_as_vendors_take() -> None:
    assert safe_name("get weather!", otherwise="x") == "get_weather_"
    assert safe_name("天气", otherwise="x") == "__"
    assert safe_name("", otherwise="unnamed") == "unnamed"
    assert len(safe_name("a" * 99, otherwise="x")) == 64


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (ToolCallPart("c", "f"), {}),
        (ToolCallPart("c", "f", unreadable='{"q": "猫'), {"unreadable": '{"q": "猫'}),
        (ToolCallPart("c", "f", {"x": float("nan")}), {"x": "nan"}),
    ],
)
def test_arguments_are_always_a_json_object(call: ToolCallPart, arguments: object) -> None:
    text = _wire(_user("a"), _answer(call))[1]["tool_calls"][0]["function"]["arguments"]

    assert json.loads(text) == arguments


def test_images_of_tools_follow_in_a_message_of_the_user() -> None:
    wire = _wire(
        _user("a"),
        _answer(ToolCallPart("c", "f"), ToolCallPart("d", "f")),
        _result("c", TextPart("图: "), _PNG),
        _result("d", TextPart("text")),
        _user("what is it?"),
    )

    assert [message["content"] for message in wire[2:4]] == [
        "图: (an image: it follows in the next message)",
        "text",
    ]
    assert wire[4]["content"] == [
        {"type": "text", "text": "Images from the tool results above:"},
        _DATA,
        {"type": "text", "text": "what is it?"},
    ]


def test_images_of_tools_follow_also_at_the_end() -> None:
    assert _wire(_user("a"), _answer(ToolCallPart("c", "f")), _result("c", _PNG))[-1]["role"] == "user"


def test_images_of_tools_stay_where_the_vendor_takes_them() -> None:
    spec = replace(_HERE, tool_images=True)
    calling = _answer(ToolCallPart("c", "f"))

    assert _wire(_user("a"), calling, _result("c", _PNG), spec=spec)[-1]["content"] == [_DATA]
    assert _wire(_user("a"), calling, _result("c", TextPart("t"), _PNG), spec=spec)[-1]["content"] == [
        {"type": "text", "text": "t"},
        _DATA,
    ]


def test_images_of_tools_that_cannot_be_shown_are_told_of() -> None:
    wire = _wire(_user("a"), _answer(ToolCallPart("c", "f")), _result("c", _PNG), spec=DEEPSEEK)

    assert wire[-1]["content"] == "(an image, which you cannot be shown)"


def _fields(
    spec: ProviderSpec, *parts: AssistantPart, tools: bool = True, provider: str = ""
) -> dict[str, Any]:
    """The fields of an answer besides its role, content and calls."""
    message = _answer(*parts, TextPart("好"), provider=provider or spec.name)
    wire = wire_messages((_user("a"), message), spec, model="m", tools=tools)[1]
    return {name: value for name, value in wire.items() if name not in {"role", "content", "tool_calls"}}


def test_reasoning_goes_back_in_the_field_that_the_vendor_wants() -> None:
    thought = ReasoningPart("想", "reasoning")

    assert _fields(KIMI, thought, thought) == {"reasoning_content": "想想"}
    assert _fields(VLLM, thought) == {"reasoning": "想"}
    assert _fields(VLLM, ReasoningPart("想", "reasoning_content")) == {"reasoning_content": "想"}
    assert _fields(VLLM, ReasoningPart("signed block", "thinking")) == {}


def test_deepseek_gets_the_field_in_every_answer_as_soon_as_there_are_tools() -> None:
    assert _fields(DEEPSEEK) == {"reasoning_content": ""}
    assert _fields(DEEPSEEK, ReasoningPart("x"), provider="openai") == {"reasoning_content": ""}
    assert _fields(DEEPSEEK, ReasoningPart("x"), tools=False) == {}


def test_kimi_gets_the_field_in_every_answer_with_calls() -> None:
    assert _fields(KIMI, ToolCallPart("c", "f")) == {"reasoning_content": " "}
    assert _fields(KIMI) == {}


def test_blocks_of_reasoning_go_back_as_they_came_and_to_nobody_else() -> None:
    blocks = [{"type": "reasoning.text", "text": "想", "id": "1"}]
    part = ReasoningPart("想", "reasoning_details", {"reasoning_details": blocks})

    assert _fields(MINIMAX, part) == {"reasoning_details": blocks}
    assert _fields(KIMI, part, provider="minimax") == {}


def test_reasoning_that_came_in_tags_goes_back_in_tags() -> None:
    answer = _answer(ReasoningPart("想", CAME_IN_TAGS), TextPart("答"), provider="vllm")

    assert _wire(_user("a"), answer, spec=VLLM)[1]["content"] == "<think>想</think>\n\n答"
    assert _wire(_user("a"), answer, _user("b"), spec=VLLM)[1]["content"] == "答"
    assert _wire(_user("a"), replace(answer, provider="zhipu"), spec=ZHIPU)[1]["content"] == "答"


_SIGNED = {"extra_content": {"google": {"thought_signature": "s"}}}
_DUMMY = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


@pytest.mark.parametrize(
    ("provider", "opaque", "signatures"),
    [
        ("gemini", _SIGNED, [_SIGNED, {}]),
        ("gemini", {}, [_DUMMY, {}]),
        ("openai", _SIGNED, [_DUMMY, {}]),
    ],
)
def test_gemini_gets_its_signature_back_and_a_stand_in_for_calls_of_others(
    provider: str, opaque: dict[str, Any], signatures: list[dict[str, Any]]
) -> None:
    answer = _answer(ToolCallPart("c", "f", opaque=opaque), ToolCallPart("d", "f"), provider=provider)

    calls = _wire(_user("a"), answer, spec=GEMINI)[1]["tool_calls"]

    assert [
        {name: value for name, value in call.items() if name == "extra_content"} for call in calls
    ] == signatures
    assert all("extra_content" not in call for call in _wire(_user("a"), answer)[1]["tool_calls"])
