from __future__ import annotations

from loom_core.agent.compaction.compaction import blob_address, clear_old_results
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

_ADDRESS = "loom://runs/run_abcdefghij012345/blobs/7"


def _result(text: str, *, failed: bool = False) -> ToolMessage:
    return ToolMessage("c", (TextPart(text),), failed=failed)


def test_a_long_result_keeps_its_beginning_and_says_how_much_is_gone():
    long = "第一行很重要\n" + "后面的内容" * 1000

    (message,) = clear_old_results([_result(long, failed=True)], until=1)

    assert isinstance(message, ToolMessage)
    assert message.text.startswith("第一行很重要\n")
    assert len(message.text) < 600
    assert "4,707 of 5,007 characters were taken out" in message.text
    assert "Call the tool again" in message.text
    assert (message.call_id, message.failed) == ("c", True)


def test_where_the_whole_is_stays_known():
    (message,) = clear_old_results([_result("x" * 5000 + f"\n[The whole is at {_ADDRESS}.]")], until=1)

    assert isinstance(message, ToolMessage)
    assert blob_address(message.text) == _ADDRESS


def test_images_are_taken_out():
    (message,) = clear_old_results(
        [ToolMessage("c", (TextPart("a chart"), ImagePart(b"png"), ImagePart(b"png")))], until=1
    )

    assert isinstance(message, ToolMessage)
    assert message.text.startswith("a chart\n\n[This is an old result: 2 images were taken out")
    assert all(isinstance(part, TextPart) for part in message.parts)
    (bare,) = clear_old_results([ToolMessage("c", (ImagePart(b"png"),))], until=1)
    assert isinstance(bare, ToolMessage)
    assert bare.text.startswith("[This is an old result: 1 image")


def test_everything_else_is_the_same_object():
    history = (
        UserMessage((TextPart("长" * 5000),)),
        AssistantMessage((TextPart("y" * 5000), ToolCallPart("c", "read", {"text": "z" * 5000}))),
        _result("short"),
        _result("n" * 5000),
    )

    shorter = clear_old_results(history, until=3)

    assert all(new is old for new, old in zip(shorter, history, strict=True))


def test_clearing_twice_changes_nothing_more():
    once = clear_old_results([_result("x" * 5000), ToolMessage("d", (ImagePart(b"png"),))], until=2)

    assert all(new is old for new, old in zip(clear_old_results(once, until=2), once, strict=True))


def test_a_result_without_an_address_has_none():
    assert blob_address("see https://example.com/blobs/1 or loom://runs/x") == ""
