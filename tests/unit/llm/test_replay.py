from __future__ import annotations

import pytest

from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.replay import needs_filler, with_reasoning_to_replay
from loom_core.llm.vendors import DEEPSEEK, KIMI, OPENAI, ProviderSpec, Replay


def _spec(replay: Replay) -> ProviderSpec:
    return ProviderSpec(name="here", title="Here", replay=replay)


def _answer(thought: str, *, provider: str = "here", **more: object) -> AssistantMessage:
    opaque = {"signature": more["signature"]} if "signature" in more else {}
    return AssistantMessage((ReasoningPart(thought, "reasoning", opaque), TextPart("好")), provider=provider)


_TWO_TURNS: tuple[Message, ...] = (
    SystemMessage("规则"),
    UserMessage((TextPart("first"),)),
    _answer("one"),
    UserMessage((TextPart("second"),)),
    AssistantMessage((ReasoningPart("two"), ToolCallPart("c", "look")), provider="here"),
    ToolMessage("c", (TextPart("seen"),)),
    _answer("three"),
)


def _thoughts(messages: tuple[Message, ...]) -> list[str]:
    return [message.reasoning for message in messages if isinstance(message, AssistantMessage)]


@pytest.mark.parametrize(
    ("replay", "tools", "thoughts"),
    [
        ("never", True, ["", "", ""]),
        ("same_turn", False, ["", "two", "three"]),
        ("with_tools", False, ["", "", ""]),
        ("with_tools", True, ["one", "two", "three"]),
        ("always", False, ["one", "two", "three"]),
    ],
)
def test_reasoning_goes_back_as_the_vendor_wants_it(replay: Replay, tools: bool, thoughts: list[str]) -> None:
    kept = with_reasoning_to_replay(_TWO_TURNS, _spec(replay), tools=tools)

    assert _thoughts(kept) == thoughts
    assert len(kept) == len(_TWO_TURNS)
    assert [m.text for m in kept] == [m.text for m in _TWO_TURNS]


def test_without_a_user_message_the_whole_conversation_is_one_turn() -> None:
    assert _thoughts(with_reasoning_to_replay((_answer("one"),), _spec("same_turn"), tools=False)) == ["one"]


def test_what_goes_back_is_the_very_same_message() -> None:
    (kept,) = with_reasoning_to_replay(
        (message := _answer("signed", signature="s"),), _spec("always"), tools=False
    )

    assert kept is message


def test_reasoning_of_another_provider_never_goes_back() -> None:
    messages = (_answer("plain", provider="there"), _answer("signed", provider="there", signature="s"))

    assert _thoughts(with_reasoning_to_replay(messages, _spec("always"), tools=True)) == ["", ""]


def test_reasoning_written_by_hand_goes_back_unless_something_opaque_came_with_it() -> None:
    messages = (_answer("by hand", provider=""), _answer("whose?", provider="", signature="s"))

    assert _thoughts(with_reasoning_to_replay(messages, _spec("always"), tools=True)) == ["by hand", ""]


_PLAIN = AssistantMessage((TextPart("好"),))
_CALLING = AssistantMessage((ToolCallPart("c", "look"),))


@pytest.mark.parametrize(
    ("spec", "message", "tools", "needed"),
    [
        (DEEPSEEK, _PLAIN, True, True),
        (DEEPSEEK, _CALLING, True, True),
        (DEEPSEEK, _CALLING, False, False),
        (KIMI, _PLAIN, True, False),
        (KIMI, _CALLING, True, True),
        (KIMI, _CALLING, False, True),
        (OPENAI, _CALLING, True, False),
    ],
)
def test_a_lack_of_reasoning_is_said_where_the_vendor_asks_for_it(
    spec: ProviderSpec, message: AssistantMessage, tools: bool, needed: bool
) -> None:
    assert needs_filler(message, spec, tools=tools) is needed
