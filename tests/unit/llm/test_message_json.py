"""`message_to_json`: what is written down is what is read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.llm.message_json import message_from_json, message_to_json
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

# Models write half surrogates, too.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["北京今天天气如何？", "\ud83d"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
TEXT_PARTS = st.builds(TextPart, TEXTS)
IMAGES = st.builds(ImagePart, st.binary(max_size=30), media_type=TEXTS, url=TEXTS)
REASONING = st.builds(ReasoningPart, TEXTS, came_in=TEXTS, opaque=OBJECTS)
CALLS = st.builds(ToolCallPart, TEXTS, TEXTS, OBJECTS, unreadable=TEXTS, opaque=OBJECTS)
USER_PARTS = st.lists(TEXT_PARTS | IMAGES, max_size=3).map(tuple)
MESSAGES = st.one_of(
    st.builds(SystemMessage, TEXTS, metadata=OBJECTS),
    st.builds(UserMessage, USER_PARTS, metadata=OBJECTS),
    st.builds(
        AssistantMessage,
        st.lists(TEXT_PARTS | REASONING | CALLS, max_size=3).map(tuple),
        provider=TEXTS,
        model=TEXTS,
        metadata=OBJECTS,
    ),
    st.builds(ToolMessage, TEXTS, USER_PARTS, failed=st.booleans(), metadata=OBJECTS),
)


@given(MESSAGES)
def test_a_message_that_is_written_and_read_is_the_same(message: Message):
    read = message_from_json(json.loads(json.dumps(message_to_json(message))))
    assert read == message
    assert read.metadata == message.metadata


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "NoneType where an object"),
        ({}, "'role' is missing"),
        ({"role": "owner"}, "its role is 'owner'"),
        ({"role": "system", "text": 1}, "int where a text"),
        ({"role": "user", "parts": {}}, "its parts are not a list"),
        ({"role": "user", "parts": [{"type": "video"}]}, "of type 'video'"),
        ({"role": "user", "parts": [{"type": "tool_call"}]}, "of type 'tool_call'"),
        ({"role": "assistant", "parts": [{"type": "image"}]}, "of type 'image'"),
        ({"role": "user", "parts": [{"type": "image", "media_type": "image/png", "data": "§"}]}, "ASCII"),
        ({"role": "tool", "parts": []}, "'call_id' is missing"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(data: object, reason: str):
    with pytest.raises(InvalidInputError, match=reason):
        message_from_json(data)
