"""Clearing of old tool results, of which only the beginning stays: the cheapest form of compaction."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.llm.messages import TextPart, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message

__all__ = ["blob_address", "clear_old_results"]

_HEAD = 300  # characters that are kept of a result
_SHORTEST = 1000  # characters: a result up to this length is unchanged
_BLOB = re.compile(r"loom://[^\s\"'<>()\[\]]*/blobs/\d+")


def clear_old_results(history: Sequence[Message], *, until: int) -> tuple[Message, ...]:
    """Clear the long tool results of a history, up to an index.

    A note says how much was removed, and the address of the whole result, if it was stored. Images are
    removed. All other messages are unchanged.

    Args:
        history: the conversation, oldest first.
        until: index of the first unchanged message.
    """
    return tuple(
        _clear_result(message) if place < until and isinstance(message, ToolMessage) else message
        for place, message in enumerate(history)
    )


def blob_address(text: str) -> str:
    """Return the address of the whole result in a truncated one (`loom://runs/…/blobs/1`), or empty."""
    found = _BLOB.findall(text)
    return found[-1] if found else ""


def _clear_result(message: ToolMessage) -> ToolMessage:
    text = message.text
    images = sum(not isinstance(part, TextPart) for part in message.parts)
    if len(text) <= _SHORTEST and not images:
        return message
    head = text if len(text) <= _SHORTEST else text[:_HEAD].rstrip()
    out: list[str] = []
    if len(text) > _SHORTEST:
        out.append(f"{len(text) - len(head):,} of {len(text):,} characters")
    if images:
        out.append(f"{images} image{'s' * (images > 1)}")
    address = blob_address(text[len(head) :])
    where = f" The whole is at {address}." if address else ""
    note = (
        f"[This is an old result: {' and '.join(out)} were taken out to make room.{where} "
        "Call the tool again if you need them.]"
    )
    return replace(message, parts=(TextPart(f"{head}\n\n{note}" if head else note),))
