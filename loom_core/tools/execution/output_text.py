"""What a model reads of a tool's output: plain, and no longer than it should be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from anyio.lowlevel import cancel_shielded_checkpoint

from loom_core.redaction import Redaction
from loom_core.tokens import estimate_tokens
from loom_core.tools.interface import ToolOutput
from loom_core.tools.plain_text import without_control

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["NO_OUTPUT", "Keep", "Shown", "shown"]

NO_OUTPUT = "(The tool has ended and gave no output.)"

_HEAD = 0.7  # of what is shown; the rest is the end, where results and errors are
_LINE = 200  # characters within which a cut looks for the end of a line
_TOKEN = 4  # characters that make a token at the most
_PIECE = 200_000  # characters that are looked through at once

Keep: TypeAlias = Callable[[str], Awaitable[str]]
"""Keeps a text and gives its address; empty if it cannot."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An output as a model reads it.

    Attributes:
        output: with the text that is shown.
        blob: where the whole text is; empty where all is shown, or nothing is kept.
    """

    output: ToolOutput
    blob: str = ""


async def shown(output: ToolOutput, *, most_tokens: int, keep: Keep) -> Shown:
    """An output without characters that act or hide, with its middle left out where it is too long.

    Secrets are taken out of it, too (`loom_core.redaction`): what a model reads is sent to its vendor, and is
    kept in the journal. What is marked `[secret]` is still there where the tool has found it.

    Args:
        output: what a tool answered.
        most_tokens: about so many of text are shown, the note on what is missing not counted.
        keep: keeps the whole text, where some of it is left out.
    """
    hidden = Redaction.now()
    text = await _plain(output.text, hidden)
    if output.structured is not None:
        output = replace(output, structured=cast("JsonValue", hidden.value(output.structured)))
    if not text.strip() and not output.parts:
        return Shown(replace(output, text=NO_OUTPUT))
    if len(text) <= most_tokens or (len(text) <= most_tokens * _TOKEN and _tokens(text) <= most_tokens):
        return Shown(output if text == output.text else replace(output, text=text))
    head = _beginning(text, int(most_tokens * _HEAD))
    tail = _ending(text, most_tokens - int(most_tokens * _HEAD))
    blob = await keep(text)
    missing = text[len(head) : len(text) - len(tail)]
    where = f"the whole is at {blob}" if blob else "it was not kept: ask the tool for less at once"
    size = f"{len(missing):,} characters (about {_tokens(missing):,} tokens)"
    note = f"[{size} are left out here; {where}]"
    return Shown(replace(output, text=f"{head.rstrip()}\n\n{note}\n\n{tail.lstrip()}"), blob)


async def _plain(text: str, hidden: Redaction) -> str:
    """A text without what must not be in it; a very long one in pieces, between which others run."""
    if len(text) <= _PIECE:
        return hidden.text(without_control(text))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _PIECE) + 1 or at + _PIECE
        pieces.append(hidden.text(without_control(text[at:end])))
        at = end
        await cancel_shielded_checkpoint()
    return "".join(pieces)


def _tokens(text: str) -> int:
    """How many there are; of a very long text, what its beginning lets expect."""
    if len(text) <= _PIECE:
        return estimate_tokens(text)
    return estimate_tokens(text[:_PIECE]) * len(text) // _PIECE


def _beginning(text: str, tokens: int) -> str:
    kept = text[: _fitting(text[: tokens * _TOKEN], tokens)]
    end = kept.rfind("\n", max(0, len(kept) - _LINE))
    return kept[: end + 1] if end > 0 else kept


def _ending(text: str, tokens: int) -> str:
    size = _fitting(text[-tokens * _TOKEN :][::-1], tokens)
    kept = text[len(text) - size :]
    start = kept.find("\n", 0, _LINE)
    return kept[start + 1 :] if 0 <= start < len(kept) - 1 else kept


def _fitting(text: str, tokens: int) -> int:
    """How many characters of a text's beginning make so many tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle - 1)
    return low
