"""Pieces of text to make passages of, and how one too large is cut into smaller ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.chunking.boundaries import cut_near, sentence_ends
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loom_core.knowledge.model import Block, BlockKind

__all__ = ["Piece", "block_piece", "cut_piece"]

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_LIST_ITEM = re.compile(
    r"\n[^\S\n]*(?=(?:[-*+•·‣◦]|\d{1,3}[.)])\s|(?:\d{1,3}|[一二三四五六七八九十]{1,3})、)"
)
_LINE = re.compile(r"\n\s*")
_CODE_LINE = re.compile(r"\n(?P<blank>\s*\n)?(?P<indent>[^\S\n]*)(?=[^\s)\]}])")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text that goes into one passage, unless it is cut first.

    Attributes:
        start: offset of its first character.
        end: offset after its last.
        tokens: about how many tokens it is.
        kind: kind of the block it is from.
        block: number of that block.
        defines: the block is code that defines something.
        unit: it defines something and is large enough to be a passage of its own.
        cuts: how many of the kind's ways to cut it have been used up.
    """

    start: int
    end: int
    tokens: int
    kind: BlockKind
    block: int
    defines: bool = False
    unit: bool = False
    cuts: int = 0

    @property
    def rigid(self) -> bool:
        """Whether it is cut only if there is no other way: a row, a table, code."""
        return self.kind in {"row", "table", "code"}


def block_piece(text: str, block: Block, *, number: int, min_tokens: int) -> Piece:
    """A whole block as a piece."""
    tokens = estimate_tokens(text[block.start : block.end])
    defines = block.kind == "code" and bool(block.name)
    unit = defines and tokens >= min_tokens
    return Piece(block.start, block.end, tokens, block.kind, number, defines, unit)


def cut_piece(text: str, piece: Piece, *, grain: int, between_sentences: bool = False) -> list[Piece]:
    """Cut a piece in the best way that parts it: two pieces or more, or none where it cannot be cut.

    Prose is cut between paragraphs, then sentences; lists between items, then lines; tables between
    lines; code at blank lines and the least indentation first. What has none of these is cut between
    clauses or words every so many tokens.

    Args:
        text: the document's text.
        piece: what to cut.
        grain: size in tokens down to which a sentence or line may be cut.
        between_sentences: leave sentences and lines whole.
    """
    ways = _WAYS.get(piece.kind, _PROSE)
    for used in range(piece.cuts, len(ways)):
        parts = _parts(
            text, piece, ways[used](text, piece.start, piece.end), cuts_used=used + 1, least=grain // 2
        )
        if len(parts) > 1:
            return parts
    if between_sentences or piece.tokens <= grain:
        return []
    parts = _parts(text, piece, _every(text, piece, grain), cuts_used=len(ways), least=1)
    return parts if len(parts) > 1 else []


def _parts(text: str, piece: Piece, cuts: Iterable[int], *, cuts_used: int, least: int) -> list[Piece]:
    """What lies between cuts, in parts of `least` characters or more: smaller ones help nobody."""
    parts: list[Piece] = []
    start = piece.start
    for cut in (*cuts, piece.end):
        if cut - start < least and cut != piece.end:
            continue
        part = text[start:cut]
        first = start + len(part) - len(part.lstrip())
        if part := part.strip():
            tokens = estimate_tokens(part)
            last = first + len(part)
            parts.append(
                Piece(first, last, tokens, piece.kind, piece.block, piece.defines, piece.unit, cuts_used)
            )
        start = cut
    return parts


def _every(text: str, piece: Piece, grain: int) -> Iterator[int]:
    """Cuts about every `grain` tokens, at the best boundary near by."""
    size = max(1, (piece.end - piece.start) * grain // piece.tokens)
    cut = piece.start
    while cut + size < piece.end:
        cut = cut_near(text, cut + size // 2, cut + size)
        yield cut


def _blank_lines(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _BLANK_LINES.finditer(text, start, end))


def _closed_lines(text: str, start: int, end: int) -> Iterator[int]:
    """Line ends that end a sentence: paragraphs, in texts that put no blank line between them."""
    if "\n" not in text[start:end]:
        return iter(())
    return (cut for cut in sentence_ends(text, start, end) if text[cut : cut + 1] == "\n")


def _list_items(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _LIST_ITEM.finditer(text, start, end))


def _lines(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _LINE.finditer(text, start, end))


def _statements(text: str, start: int, end: int) -> Iterator[int]:
    """Lines of the least indentation below the first line, closing brackets apart."""
    return (line.end() for line in _least_indented(text, start, end))


def _statement_groups(text: str, start: int, end: int) -> Iterator[int]:
    """Those of them that follow a blank line."""
    return (line.end() for line in _least_indented(text, start, end) if line["blank"])


def _least_indented(text: str, start: int, end: int) -> list[re.Match[str]]:
    lines = list(_CODE_LINE.finditer(text, start, end))
    least = min((len(line["indent"]) for line in lines), default=0)
    return [line for line in lines if len(line["indent"]) == least]


_PROSE = (_blank_lines, _closed_lines, sentence_ends)
_LISTED = (_list_items, _blank_lines, _lines, sentence_ends)
_TABULAR = (_lines, sentence_ends)
_CODE = (_statement_groups, _blank_lines, _statements, _lines)
_WAYS: dict[BlockKind, tuple[Callable[[str, int, int], Iterator[int]], ...]] = {
    "list": _LISTED,
    "table": _TABULAR,
    "row": _TABULAR,
    "code": _CODE,
}
