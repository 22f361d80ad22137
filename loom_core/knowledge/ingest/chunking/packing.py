"""Filling passages with the pieces of one section."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.chunking.pieces import cut_piece
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.ingest.chunking.pieces import Piece

__all__ = ["Budget", "pack"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Sizes of passages in tokens: what they aim at, must not exceed and should not fall below."""

    target: int
    max: int
    min: int

    @property
    def grain(self) -> int:
        """Size down to which a sentence is cut: fine enough to fill a passage well."""
        return max(1, self.target // 4 - 1)


class _Passage:
    """A passage being filled.

    Attributes:
        start: offset of its first character.
        end: offset after its last so far.
        tokens: about how many tokens it holds, white space between pieces included.
        first: number of its first block.
        last: number of its last block.
        bare: it holds nothing but headings.
        defines: it holds code that defines something.
        unit: it holds a definition large enough to be a passage of its own.
    """

    __slots__ = ("bare", "defines", "end", "first", "last", "start", "tokens", "unit")

    def __init__(self, piece: Piece) -> None:
        self.start = piece.start
        self.end = piece.end
        self.tokens = piece.tokens
        self.first = self.last = piece.block
        self.bare = piece.kind == "heading"
        self.defines = piece.defines
        self.unit = piece.unit

    def add(self, piece: Piece, tokens: int) -> None:
        self.end = piece.end
        self.tokens = tokens
        self.last = piece.block
        self.bare = self.bare and piece.kind == "heading"
        self.defines = self.defines or piece.defines
        self.unit = self.unit or piece.unit

    def parts_from(self, piece: Piece) -> bool:
        """Whether a definition begins or ends between this passage and a piece after it."""
        return not self.bare and piece.block != self.last and (piece.unit or self.unit)


def pack(text: str, pieces: Iterable[Piece], budget: Budget) -> list[tuple[int, int]]:
    """Offsets (start, end) of passages made of pieces in order.

    A heading stays with what follows it. A piece is cut if it is larger than the maximum, or if a
    passage would otherwise stay below the minimum. A definition of code is a passage of its own.
    No passage is below the minimum if it can join a neighbour within the maximum, definitions apart.
    """
    queue = deque(pieces)
    filled: list[_Passage] = []
    while queue:
        piece = queue.popleft()
        passage = filled[-1] if filled else None
        total = _total(text, passage, piece, budget)
        if passage is not None and _accepts(passage, piece, total, budget):
            passage.add(piece, total)
        elif parts := _cut(text, passage, piece, budget):
            queue.extendleft(reversed(parts))
        else:
            filled.append(_Passage(piece))
    return [(passage.start, passage.end) for passage in _without_fragments(text, filled, budget)]


def _total(text: str, passage: _Passage | None, piece: Piece, budget: Budget) -> int:
    """Tokens of a passage with a piece put to it."""
    if passage is None:
        return piece.tokens
    total = passage.tokens + estimate_tokens(text[passage.end : piece.start]) + piece.tokens
    if total > budget.target and piece.tokens <= budget.max:
        # Each part of the sum was rounded up; it counts only where it would close the passage.
        return estimate_tokens(text[passage.start : piece.end])
    return total


def _accepts(passage: _Passage, piece: Piece, total: int, budget: Budget) -> bool:
    if passage.parts_from(piece):
        return False
    roomy = passage.bare or passage.tokens < budget.min
    return total <= (budget.max if roomy else budget.target)


def _cut(text: str, passage: _Passage | None, piece: Piece, budget: Budget) -> list[Piece]:
    """The parts of a piece that does not fit, if cutting it is better than to begin a new passage."""
    if piece.tokens > budget.max:
        return cut_piece(text, piece, grain=budget.grain)
    if passage is None or piece.kind == "heading" or passage.parts_from(piece):
        return []
    if passage.bare:
        return cut_piece(text, piece, grain=budget.grain)
    if passage.tokens < budget.min and not piece.rigid:
        return cut_piece(text, piece, grain=budget.grain, between_sentences=True)
    return []


def _without_fragments(text: str, filled: list[_Passage], budget: Budget) -> list[_Passage]:
    kept: list[_Passage] = []
    for passage in filled:
        before = kept[-1] if kept else None
        if before is not None and _belong_together(before, passage, budget):
            tokens = estimate_tokens(text[before.start : passage.end])
            if tokens <= budget.max:
                before.end, before.last, before.tokens = passage.end, passage.last, tokens
                before.defines = before.defines or passage.defines
                continue
        kept.append(passage)
    return kept


def _belong_together(before: _Passage, passage: _Passage, budget: Budget) -> bool:
    """Whether one of two neighbours is too small to stand alone; a whole definition never is."""
    if before.last == passage.first:
        return min(before.tokens, passage.tokens) < budget.min
    return any(side.tokens < budget.min and not side.defines for side in (before, passage))
