"""Structural chunking: passages that follow sections, paragraphs, rows and units of code.

The blocks of a document become pieces; pieces that are too large are split, and adjacent ones are packed.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.boundaries import find_split, sentence_ends
from loom_core.knowledge.ingest.chunking.outline import Outline
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loom_core.knowledge.model import Block, BlockKind, Chunk, DocumentDraft

__all__ = ["StructureChunker"]


@dataclass(frozen=True, slots=True)
class StructureChunker:
    """Makes a passage of each section, or several of a long one; sizes are in tokens of an embedder.

    A passage never holds text of two sections, except tiny ones (below the minimum) that are neighbours
    under one parent: they are merged up to the target, with the headings they share. A short
    document with at most one heading is one passage. Slides are never merged; pages of running
    text are. Where the text has no structure, blank lines make its paragraphs.

    Attributes:
        target_tokens: size up to which paragraphs are packed.
        max_tokens: size above which anything is split; a section up to it stays whole.
        min_tokens: size below which a passage is joined to a neighbour if possible.

    Raises:
        ConfigError: not 0 ≤ min_tokens ≤ target_tokens ≤ max_tokens, or a target below 1.
    """

    target_tokens: int = 320
    _: KW_ONLY
    max_tokens: int = 500
    min_tokens: int = 60

    def __post_init__(self) -> None:
        if not (0 <= self.min_tokens <= self.target_tokens <= self.max_tokens and self.target_tokens > 0):
            raise ConfigError(
                f"Passages of {self.min_tokens} to {self.max_tokens} tokens that aim at {self.target_tokens} "
                "are not possible.",
                advice="Set min_tokens ≤ target_tokens ≤ max_tokens; 60, 320 and 500 are usual.",
            )

    def chunk(self, document: DocumentDraft) -> list[Chunk]:
        """Return passages in order, without overlap, that cover every block."""
        outline = Outline(document)
        budget = TokenBudget(self.target_tokens, self.max_tokens, self.min_tokens)
        return [outline.chunk(start, end) for start, end in _spans(outline, budget)]


@dataclass(frozen=True, slots=True)
class _Section:
    """A run of blocks under the same headings, led by the headings that open it.

    Attributes:
        blocks: their numbers in the outline.
        path: the headings above its text.
        tokens: estimated size in tokens.
    """

    blocks: range
    path: tuple[str, ...]
    tokens: int


def _spans(outline: Outline, budget: TokenBudget) -> Iterator[tuple[int, int]]:
    blocks = outline.blocks
    if not blocks:
        return
    slides = any(block.kind == "slide" for block in blocks)
    headings = sum(block.kind == "heading" for block in blocks)
    if headings <= 1 and not slides and _tokens(outline, range(len(blocks))) <= budget.max:
        yield blocks[0].start, blocks[-1].end
        return
    for group in _groups(outline, budget, slides=slides):
        numbers = range(group[0].blocks.start, group[-1].blocks.stop)
        yield from _passages(outline, numbers, budget)


def _passages(outline: Outline, numbers: range, budget: TokenBudget) -> list[tuple[int, int]]:
    blocks = outline.blocks
    pieces = [
        block_piece(outline.text, blocks[number], number=number, min_tokens=budget.min) for number in numbers
    ]
    if not any(piece.unit for piece in pieces) and _tokens(outline, numbers) <= budget.max:
        return [(pieces[0].start, pieces[-1].end)]
    return pack(outline.text, pieces, budget)


def _groups(outline: Outline, budget: TokenBudget, *, slides: bool) -> Iterator[list[_Section]]:
    """Group tiny sections; all others stay alone."""
    group: list[_Section] = []
    for section in _sections(outline, slides=slides):
        if group and _joins(outline, group, section, budget, slides=slides):
            group.append(section)
            continue
        if group:
            yield group
        group = [section]
    yield group


def _joins(
    outline: Outline, group: list[_Section], section: _Section, budget: TokenBudget, *, slides: bool
) -> bool:
    """Whether a tiny section may join a group: siblings of its first section, or sections below these."""
    if max(group[-1].tokens, section.tokens) >= budget.min:
        return False
    first, last = group[0].blocks.start, section.blocks.stop
    if slides and outline.blocks[first].page != outline.blocks[last - 1].page:
        return False
    path = group[0].path
    parents = max(len(path) - 1, 0)
    related = len(section.path) >= len(path) and section.path[:parents] == path[:parents]
    return related and _tokens(outline, range(first, last)) <= budget.target


def _sections(outline: Outline, *, slides: bool) -> Iterator[_Section]:
    blocks = outline.blocks
    bodies = [number for number, block in enumerate(blocks) if block.kind != "heading"]
    last_body = bodies[-1] if bodies else -1
    first = 0
    for number in range(1, len(blocks) + 1):
        if number == len(blocks) or _begins_section(outline, number, slides=slides, last_body=last_body):
            numbers = range(first, number)
            body = next((i for i in numbers if blocks[i].kind != "heading"), number - 1)
            yield _Section(numbers, outline.paths[body], _tokens(outline, numbers))
            first = number


def _begins_section(outline: Outline, number: int, *, slides: bool, last_body: int) -> bool:
    before, block = outline.blocks[number - 1], outline.blocks[number]
    if slides and block.page != before.page:
        return True
    if before.kind == "heading":
        return False
    if block.kind == "heading":
        # Headings at the end, with nothing below them, stay with what is above.
        return number < last_body
    return outline.paths[number] != outline.paths[number - 1]


def _tokens(outline: Outline, numbers: range) -> int:
    start, end = outline.blocks[numbers[0]].start, outline.blocks[numbers[-1]].end
    return estimate_tokens(outline.text[start:end])


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Token budget of passages: target, maximum and minimum size."""

    target: int
    max: int
    min: int

    @property
    def grain(self) -> int:
        """Size down to which a sentence is split: small enough to fill a passage well."""
        return max(1, self.target // 4 - 1)


class _Passage:
    """A passage being filled.

    Attributes:
        start: offset of its first character.
        end: offset after its last so far.
        tokens: estimated size in tokens, white space between pieces included.
        first: number of its first block.
        last: number of its last block.
        bare: whether it holds only headings.
        defines: whether it holds code that defines something.
        unit: whether it holds a definition large enough to be a separate passage.
    """

    __slots__ = ("bare", "defines", "end", "first", "last", "start", "tokens", "unit")

    def __init__(self, piece: TextPiece) -> None:
        self.start = piece.start
        self.end = piece.end
        self.tokens = piece.tokens
        self.first = self.last = piece.block
        self.bare = piece.kind == "heading"
        self.defines = piece.defines
        self.unit = piece.unit

    def add(self, piece: TextPiece, tokens: int) -> None:
        self.end = piece.end
        self.tokens = tokens
        self.last = piece.block
        self.bare = self.bare and piece.kind == "heading"
        self.defines = self.defines or piece.defines
        self.unit = self.unit or piece.unit

    def parts_from(self, piece: TextPiece) -> bool:
        """Whether a definition begins or ends between this passage and a piece after it."""
        return not self.bare and piece.block != self.last and (piece.unit or self.unit)


def pack(text: str, pieces: Iterable[TextPiece], budget: TokenBudget) -> list[tuple[int, int]]:
    """Return offsets (start, end) of passages made of pieces in order.

    A heading stays with what follows it. A piece is split if it is larger than the maximum, or if a
    passage would otherwise stay below the minimum. A definition of code is a separate passage.
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
        elif parts := _split(text, passage, piece, budget):
            queue.extendleft(reversed(parts))
        else:
            filled.append(_Passage(piece))
    return [(passage.start, passage.end) for passage in _without_fragments(text, filled, budget)]


def _total(text: str, passage: _Passage | None, piece: TextPiece, budget: TokenBudget) -> int:
    """Return the tokens of a passage with a piece added."""
    if passage is None:
        return piece.tokens
    total = passage.tokens + estimate_tokens(text[passage.end : piece.start]) + piece.tokens
    if total > budget.target and piece.tokens <= budget.max:
        # Each part of the sum was rounded up: estimate exactly where this decides.
        return estimate_tokens(text[passage.start : piece.end])
    return total


def _accepts(passage: _Passage, piece: TextPiece, total: int, budget: TokenBudget) -> bool:
    if passage.parts_from(piece):
        return False
    roomy = passage.bare or passage.tokens < budget.min
    return total <= (budget.max if roomy else budget.target)


def _split(text: str, passage: _Passage | None, piece: TextPiece, budget: TokenBudget) -> list[TextPiece]:
    """Split a piece that does not fit, if that is better than a new passage."""
    if piece.tokens > budget.max:
        return split_piece(text, piece, grain=budget.grain)
    if passage is None or piece.kind == "heading" or passage.parts_from(piece):
        return []
    if passage.bare:
        return split_piece(text, piece, grain=budget.grain)
    if passage.tokens < budget.min and not piece.rigid:
        return split_piece(text, piece, grain=budget.grain, between_sentences=True)
    return []


def _without_fragments(text: str, filled: list[_Passage], budget: TokenBudget) -> list[_Passage]:
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


def _belong_together(before: _Passage, passage: _Passage, budget: TokenBudget) -> bool:
    """Whether one of two neighbours is too small to be separate; a whole definition never is."""
    if before.last == passage.first:
        return min(before.tokens, passage.tokens) < budget.min
    return any(side.tokens < budget.min and not side.defines for side in (before, passage))


_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_LIST_ITEM = re.compile(
    r"\n[^\S\n]*(?=(?:[-*+•·‣◦]|\d{1,3}[.)])\s|(?:\d{1,3}|[一二三四五六七八九十]{1,3})、)"
)
_LINE = re.compile(r"\n\s*")
_CODE_LINE = re.compile(r"\n(?P<blank>\s*\n)?(?P<indent>[^\S\n]*)(?=[^\s)\]}])")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A span of text that goes into one passage, unless it is split first.

    Attributes:
        start: offset of its first character.
        end: offset after its last.
        tokens: estimated size in tokens.
        kind: kind of the block it is from.
        block: number of that block.
        defines: whether the block is code that defines something.
        unit: whether it is a definition large enough to be a separate passage.
        cuts: how many of the kind's splitting methods were used already.
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
        """Whether it is split only as a last resort: a row, a table, code."""
        return self.kind in {"row", "table", "code"}


def block_piece(text: str, block: Block, *, number: int, min_tokens: int) -> TextPiece:
    """Return a whole block as a piece."""
    tokens = estimate_tokens(text[block.start : block.end])
    defines = block.kind == "code" and bool(block.name)
    unit = defines and tokens >= min_tokens
    return TextPiece(block.start, block.end, tokens, block.kind, number, defines, unit)


def split_piece(
    text: str, piece: TextPiece, *, grain: int, between_sentences: bool = False
) -> list[TextPiece]:
    """Split a piece at its best kind of boundary: two pieces or more, or none if it cannot be split.

    Prose is split between paragraphs, then sentences; lists between items, then lines; tables between
    lines; code at blank lines and the least indentation first. A text without these is split between
    clauses or words about every `grain` tokens.

    Args:
        text: the document's text.
        piece: the piece to split.
        grain: size in tokens down to which a sentence or line may be cut.
        between_sentences: whether to keep sentences and lines whole.
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


def _parts(
    text: str, piece: TextPiece, cuts: Iterable[int], *, cuts_used: int, least: int
) -> list[TextPiece]:
    """Split a piece at cuts into parts of at least `least` characters."""
    parts: list[TextPiece] = []
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
                TextPiece(first, last, tokens, piece.kind, piece.block, piece.defines, piece.unit, cuts_used)
            )
        start = cut
    return parts


def _every(text: str, piece: TextPiece, grain: int) -> Iterator[int]:
    """Return cuts about every `grain` tokens, at the best boundary near by."""
    size = max(1, (piece.end - piece.start) * grain // piece.tokens)
    cut = piece.start
    while cut + size < piece.end:
        cut = find_split(text, cut + size // 2, cut + size)
        yield cut


def _blank_lines(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _BLANK_LINES.finditer(text, start, end))


def _sentence_lines(text: str, start: int, end: int) -> Iterator[int]:
    """Return the line ends that end a sentence: paragraphs, in texts without blank lines between them."""
    if "\n" not in text[start:end]:
        return iter(())
    return (cut for cut in sentence_ends(text, start, end) if text[cut : cut + 1] == "\n")


def _list_items(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _LIST_ITEM.finditer(text, start, end))


def _lines(text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in _LINE.finditer(text, start, end))


def _statements(text: str, start: int, end: int) -> Iterator[int]:
    """Return the lines of least indentation below the first line, except closing brackets."""
    return (line.end() for line in _least_indented(text, start, end))


def _statement_groups(text: str, start: int, end: int) -> Iterator[int]:
    """Return those of them that follow a blank line."""
    return (line.end() for line in _least_indented(text, start, end) if line["blank"])


def _least_indented(text: str, start: int, end: int) -> list[re.Match[str]]:
    lines = list(_CODE_LINE.finditer(text, start, end))
    least = min((len(line["indent"]) for line in lines), default=0)
    return [line for line in lines if len(line["indent"]) == least]


_PROSE = (_blank_lines, _sentence_lines, sentence_ends)
_LISTED = (_list_items, _blank_lines, _lines, sentence_ends)
_TABULAR = (_lines, sentence_ends)
_CODE = (_statement_groups, _blank_lines, _statements, _lines)
_WAYS: dict[BlockKind, tuple[Callable[[str, int, int], Iterator[int]], ...]] = {
    "list": _LISTED,
    "table": _TABULAR,
    "row": _TABULAR,
    "code": _CODE,
}
