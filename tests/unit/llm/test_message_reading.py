from __future__ import annotations

import base64

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.message_reading import as_messages, read_tool_call
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)


def test_messages_of_the_well_known_form_are_understood():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "图"}'}}
    found = as_messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "你好"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
        ]
    )
    assert found == (
        SystemMessage("Be brief."),
        UserMessage((TextPart("你好"),)),
        AssistantMessage(
            (ReasoningPart("Hm.", came_in="reasoning_content"), ToolCallPart("c1", "look", {"at": "图"}))
        ),
        ToolMessage("c1", (TextPart("nothing"),)),
    )
    assert as_messages(found) == found


def test_images_are_taken_by_address_and_by_their_bytes():
    data = base64.b64encode(b"GIF89a").decode()
    (message,) = as_messages(
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{data}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                ],
            }
        ]
    )
    assert isinstance(message, UserMessage)
    assert message.parts[1:] == (
        ImagePart(b"GIF89a", "image/gif"),
        ImagePart(url="https://example.org/a.png"),
    )
    assert message.text == "What is this?"


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", "{}", {}])
def test_a_call_without_arguments_has_none(arguments: object):
    call = {"id": "c", "function": {"name": "now", "arguments": arguments}}
    (message,) = as_messages([{"role": "assistant", "tool_calls": [call]}])
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls == (ToolCallPart("c", "now"),)


@pytest.mark.parametrize("arguments", ['{"at": ', "[1]", '"text"', "12", "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_as_they_are(arguments: str):
    call = {"id": "c", "function": {"name": "now", "arguments": arguments}}
    (message,) = as_messages([{"role": "assistant", "tool_calls": [call]}])
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls == (ToolCallPart("c", "now", unreadable=arguments),)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"content": "x"}, "its role is None"),
        ({"role": "owner", "content": "x"}, "its role is 'owner'"),
        ({"role": "user", "content": 7}, "its content is of type int"),
        ({"role": "user", "content": [7]}, "a part of its content is of type int"),
        ({"role": "user", "content": [{"type": "video"}]}, "of type 'video'"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,x"}}]},
            "base64",
        ),
        (
            {
                "role": "system",
                "content": [{"type": "image_url", "image_url": {"url": "https://example.org"}}],
            },
            "only users and tools",
        ),
        ({"role": "tool", "content": "x"}, "'tool_call_id' is missing"),
        ({"role": "tool", "content": "x", "tool_call_id": None}, "its tool_call_id is of type NoneType"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "the text of its content is of type"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "https://example.org"}]},
            "its image_url is of type str, not an object",
        ),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "'function' is missing"),
        ({"role": "assistant", "tool_calls": {"id": "c"}}, "its tool_calls are not a list"),
        ({"role": "assistant", "tool_calls": ["c"]}, "a tool call is of type str, not an object"),
    ],
)
def test_a_message_that_cannot_be_used_is_named(message: dict[str, object], why: str):
    with pytest.raises(InvalidInputError, match=why) as error:
        as_messages([{"role": "user", "content": "fine"}, message])
    assert error.value.message.startswith("Message 2 ")


@pytest.mark.parametrize("message", ["你好", None, 7, ("user", "你好"), object()])
def test_what_is_no_message_at_all_is_named(message: object):
    with pytest.raises(InvalidInputError, match=r"Message 1 .*, not an object"):
        as_messages([message])  # type: ignore[list-item]


@pytest.mark.parametrize("messages", ["你好", {"role": "user", "content": "你好"}])
def test_a_single_text_or_message_is_no_conversation(messages: object):
    with pytest.raises(InvalidInputError, match="not a list of messages"):
        as_messages(messages)  # type: ignore[arg-type]


def test_numbers_that_are_not_in_json_become_texts() -> None:
    call = read_tool_call("c1", "f", '{"a": NaN, "b": [-Infinity, 1e999, 1.5]}')
    assert call.arguments == {"a": "NaN", "b": ["-Infinity", "1e999", 1.5]}


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize("depth", [150, 600, 100_000])
def test_arguments_that_are_nested_too_deeply_to_go_back_are_unreadable(depth: int):
    text = '{"a": ' + "[" * depth + "]" * depth + "}"
    assert read_tool_call("c", "f", text) == ToolCallPart("c", "f", unreadable=text)
