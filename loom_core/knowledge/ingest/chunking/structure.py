"""Passages that follow a document's own structure: sections, paragraphs, rows, units of code."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.outline import Outline
from loom_core.knowledge.ingest.chunking.packing import Budget, pack
from loom_core.knowledge.ingest.chunking.pieces import block_piece
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.model import Chunk, DocumentDraft

__all__ = ["StructureChunker"]


@dataclass(frozen=True, slots=True)
class StructureChunker:
    """Makes a passage of each section, or several of a long one, in tokens as an embedder counts them.

    A passage never holds text of two sections, except tiny ones (below the minimum) that are neighbours
    under one parent: they are put together up to the target, with the headings they share. A short
    document with at most one heading is one passage. Slides are never put together; pages of running
    text are. Where the text has no structure, blank lines make its paragraphs.

    Attributes:
        target_tokens: size up to which paragraphs are put together.
        max_tokens: size above which anything is cut; a section up to it stays whole.
        min_tokens: size below which a passage is joined to a neighbour where that is possible.

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
        """Passages in order, without overlap, that cover every block."""
        outline = Outline(document)
        budget = Budget(self.target_tokens, self.max_tokens, self.min_tokens)
        return [outline.chunk(start, end) for start, end in _spans(outline, budget)]


@dataclass(frozen=True, slots=True)
class _Section:
    """A run of blocks under the same headings, led by the headings that open it.

    Attributes:
        blocks: their numbers in the outline.
        path: the headings its text stands under.
        tokens: about how many tokens it is.
    """

    blocks: range
    path: tuple[str, ...]
    tokens: int


def _spans(outline: Outline, budget: Budget) -> Iterator[tuple[int, int]]:
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


def _passages(outline: Outline, numbers: range, budget: Budget) -> list[tuple[int, int]]:
    blocks = outline.blocks
    pieces = [
        block_piece(outline.text, blocks[number], number=number, min_tokens=budget.min) for number in numbers
    ]
    if not any(piece.unit for piece in pieces) and _tokens(outline, numbers) <= budget.max:
        return [(pieces[0].start, pieces[-1].end)]
    return pack(outline.text, pieces, budget)


def _groups(outline: Outline, budget: Budget, *, slides: bool) -> Iterator[list[_Section]]:
    """Sections, each alone or tiny ones together."""
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
    outline: Outline, group: list[_Section], section: _Section, budget: Budget, *, slides: bool
) -> bool:
    """Whether a tiny section may be put to others: siblings of the first of them, or below these."""
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
