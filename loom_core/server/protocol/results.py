"""Tool results: text for the model, structured content, and a token cap."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.server.protocol.content import Content

__all__ = ["TOKEN_CAP", "TextBudget", "ToolReply", "estimate_tokens", "tool_result"]

TOKEN_CAP = 20_000
"""Maximum of estimated tokens in a tool's text; hosts truncate or refuse more than about 25,000."""

_CUT = " …"
_NOTE_TOKENS = 60  # reserved for the line about the truncation
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

ModelT = TypeVar("ModelT", bound=BaseModel)
ModelT_co = TypeVar("ModelT_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class ToolReply(Generic[ModelT_co]):
    """Return value of a tool. The model named in the annotation becomes the tool's output schema.

    Attributes:
        text: text for the language model; it must hold every fact, as most hosts show nothing else. It is the
            first part of the answer, and omitted if it is empty and there are other parts.
        structured: the same as data, for programs. Fields with their default value are not sent.
        contents: further parts: images, embedded resources, resource links.
    """

    text: str
    structured: ModelT_co
    contents: Sequence[Content] = ()


def tool_result(text: str, structured: ModelT, *contents: Content) -> ToolReply[ModelT]:
    """Build a tool's answer; its texts are truncated at `TOKEN_CAP`, with a last line that says so.

    Args:
        text: text for the language model.
        structured: the same as data.
        contents: further parts. Embedded content is not truncated: use links for long content.
    """
    text = _cap(text, TOKEN_CAP)
    if not contents:
        return ToolReply(text, structured)
    left = TOKEN_CAP - estimate_tokens(text)
    parts: list[Content] = []
    for content in contents:
        part = _cap(content, max(left, _NOTE_TOKENS)) if isinstance(content, str) else content
        left -= estimate_tokens(part) if isinstance(part, str) else 0
        parts.append(part)
    return ToolReply(text, structured, parts)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for each CJK character, one for four other characters."""
    return -(-_quarters(text) // 4)


class TextBudget:
    """Builder of a text from blocks, best first, within a token budget.

    The first block that does not fit ends the text, even if a later one would fit. Only the very first block
    is truncated, so that an answer is never empty.

    Attributes:
        shown: number of blocks in the text; return the same ones as structured data.
    """

    def __init__(self, tokens: int = TOKEN_CAP, *, narrow: str, separator: str = "\n\n") -> None:
        """Start an empty text.

        Args:
            tokens: the limit, 100 to `TOKEN_CAP`, including the line about the truncation.
            narrow: how to see the rest; completes "narrow with …".
            separator: the text between two blocks.
        """
        self._limit = 4 * (min(tokens, TOKEN_CAP) - _NOTE_TOKENS - estimate_tokens(narrow))
        self._narrow = narrow
        self._separator = separator
        self._blocks: list[str] = []
        self._used = 0
        self._offered = 0
        self._full = False
        self._cut = False
        self.shown = 0

    def add(self, block: str, *, end: str = "") -> bool:
        """Append a block; return False once the text is full.

        Args:
            block: the text.
            end: text after it, kept even if it is truncated.
        """
        self._offered += 1
        cost = _quarters(block) + _quarters(end) + _quarters(self._separator)
        if self._used + cost > self._limit and not self._full:
            self._full = True
            if not self._blocks:
                self._blocks.append(_prefix(block, self._limit - _quarters(end)) + _CUT + end)
                self._cut = True
                self.shown = 1
                return True
        if self._full:
            return False
        self._used += cost
        self._blocks.append(block + end)
        self.shown += 1
        return True

    def text(self, *, total: int | None = None) -> str:
        """Return the text, with a last line about the truncation if there is one.

        Args:
            total: total number of blocks, if more than were passed to `add`.
        """
        total = self._offered if total is None else total
        blocks = self._blocks
        if self.shown < total or self._cut:
            also = ", the first in part" if self._cut else ""
            blocks = [
                *blocks,
                f"[truncated: {self.shown} of {total} shown{also}; narrow with {self._narrow}]",
            ]
        return self._separator.join(blocks)


def _cap(text: str, tokens: int) -> str:
    if _quarters(text) <= 4 * tokens:
        return text
    start = _prefix(text, 4 * (tokens - _NOTE_TOKENS))
    return f"{start}{_CUT}\n\n[truncated: {len(start)} of {len(text)} characters shown; narrow the request]"


def _quarters(text: str) -> int:
    """Estimate tokens in quarters, which add up without rounding."""
    if text.isascii():
        return len(text)
    return len(text) + 3 * len(_CJK.findall(text))


def _prefix(text: str, quarters: int) -> str:
    text = text[: max(quarters, 0)]  # a character is a quarter or more
    length = bisect_right(range(1, len(text) + 1), quarters, key=lambda end: _quarters(text[:end]))
    return text[:length]
