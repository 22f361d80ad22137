"""From texts to requests: what is too long is cut, and what fits goes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Piece", "batches", "halves", "windows"]

_SEARCHED = 10
"""The last tenth of a window is looked through for a place between words."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text or a part of one.

    Attributes:
        row: which text it is of.
        text: what it says.
        tokens: about how long it is.
    """

    row: int
    text: str
    tokens: int


def windows(row: int, text: str, *, max_tokens: int) -> list[Piece]:
    """A text in pieces of at most `max_tokens` by estimate, which together are the text.

    A window ends behind white space if there is some in its last tenth.

    Args:
        row: which text it is.
        text: the text.
        max_tokens: at least 1.
    """
    pieces: list[Piece] = []
    start = 0
    while start < len(text):
        end = _end_of_window(text, start, max_tokens)
        window = text[start:end]
        pieces.append(Piece(row, window, estimate_tokens(window)))
        start = end
    return pieces


def halves(piece: Piece) -> list[Piece]:
    """A piece in two, by characters.

    Args:
        piece: of two characters or more.
    """
    middle = len(piece.text) // 2
    parts = (piece.text[:middle], piece.text[middle:])
    return [Piece(piece.row, part, estimate_tokens(part)) for part in parts]


def batches(pieces: Sequence[Piece], *, max_texts: int, max_tokens: int) -> Iterator[Sequence[Piece]]:
    """Neighbouring pieces that fit into one request, all of them, in order.

    Args:
        pieces: what is to be sent. A piece that is too long by itself is a request of its own.
        max_texts: how many pieces a request may hold.
        max_tokens: how many tokens they may have together, by estimate.
    """
    start = tokens = 0
    for end, piece in enumerate(pieces):
        if end > start and (end - start >= max_texts or tokens + piece.tokens > max_tokens):
            yield pieces[start:end]
            start, tokens = end, 0
        tokens += piece.tokens
    if start < len(pieces):
        yield pieces[start:]


def _end_of_window(text: str, start: int, max_tokens: int) -> int:
    """Where the window from `start` ends: found by halving, as a longer text never has fewer tokens."""
    shortest, longest = start + 1, min(len(text), start + 4 * max_tokens)  # no character is under 1/4 token
    if estimate_tokens(text[start:longest]) <= max_tokens:
        shortest = longest
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if estimate_tokens(text[start:middle]) <= max_tokens:
            shortest = middle
        else:
            longest = middle - 1
    if shortest == len(text):
        return shortest
    earliest = shortest - (shortest - start) // _SEARCHED
    return next((end for end in range(shortest, earliest, -1) if text[end - 1].isspace()), shortest)
