"""Documents before they are written: the item of a job, the prepared document, the outcome.

A prepared document is ready to be written: only the transaction is left.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast, get_args

from loom_core.knowledge.model import Block, BlockKind
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from loom_core.knowledge.model import AliasKind, Chunk, Extraction, TitleSource
    from loom_core.knowledge.store.fields import FieldRow

__all__ = [
    "AboutColumns",
    "AliasColumns",
    "ExtractionColumns",
    "ItemOutcome",
    "ItemState",
    "JobItem",
    "MentionColumns",
    "Prepared",
    "PreparedChunk",
    "PreparedDocument",
    "RelationColumns",
    "block_rows",
    "blocks_of_rows",
    "decode_blocks",
    "encode_blocks",
    "extraction_columns",
]


ItemState = Literal[
    "pending", "leaving", "added", "updated", "moved", "unchanged", "removed", "skipped", "failed"
]
"""`leaving`: a document whose file is gone, until it is `removed`; `moved`: only its address changed."""


@dataclass(frozen=True, slots=True)
class JobItem:
    """A document of a job, and the input of its preparation.

    Attributes:
        uri: the document's URI; without a payload, the `file://` URI that it is read from.
        payload: a document as `draft_payload` packs it, a page as `FetchedPage` does, or None for a file.
        metadata: fields that are added to its own.
        known: hash of the stored document at this URI; if it is the same again, nothing is to do.
        size: approximate size in bytes.
        roots: real paths of folders; where given, no file outside them is read.
        ordinal: its place in the job.
        state: its current state.
        reason: why it was left out or failed, or empty.
    """

    uri: str
    payload: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    known: bytes = b""
    size: int = 0
    roots: tuple[Path, ...] = ()
    ordinal: int = 0
    state: ItemState = "pending"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """Final state of an item that needs no preparation.

    Attributes:
        state: as the job counts it.
        reason: why there is no document, or empty.
        chunks: number of chunks of the document.
        hash: hash of a document found unchanged; the outcome is valid only while the store has this hash.
        by_content: whether a failure is due to the content and so is final; else a retry may succeed.
    """

    state: ItemState
    reason: str = ""
    chunks: int = 0
    hash: bytes = b""
    by_content: bool = False


class MentionColumns(NamedTuple):
    """The mentions of a chunk as columns, one per entity."""

    entity: tuple[str, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    name: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class AboutColumns(NamedTuple):
    """The subjects of a chunk as columns, one per entity and source."""

    entity: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class RelationColumns(NamedTuple):
    """The relations in a chunk as columns; the chunk mentions or is about both ends of each.

    They are used to find the relations of an entity.
    """

    subject: tuple[str, ...] = ()
    predicate: tuple[str, ...] = ()
    object: tuple[str, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    method: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class AliasColumns(NamedTuple):
    """Alias statements of a chunk as columns; the chunk mentions or is about both names.

    `entity` is the expansion of an acronym.
    """

    entity: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    kind: tuple[AliasKind, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()


class ExtractionColumns(NamedTuple):
    """Findings in a chunk as columns of the graph's tables, with entities by id.

    Rows are made only when they are written: zipping columns takes a fraction of the time.
    """

    mentions: MentionColumns = MentionColumns()
    abouts: AboutColumns = AboutColumns()
    relations: RelationColumns = RelationColumns()
    aliases: AliasColumns = AliasColumns()


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk ready to be written.

    Attributes:
        id: public id, unique in the knowledge base.
        found: its findings, for the graph.
        hash: hash of all that is indexed of the chunk; the same hash means the same chunk.
        vector_hash: hash of the text that is embedded.
        tokens: `index_tokens` of it, joined by spaces.
    """

    id: str
    chunk: Chunk
    found: ExtractionColumns
    hash: bytes
    vector_hash: bytes
    tokens: str


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be written.

    Attributes:
        id: public id, a function of the URI.
        metadata: JSON.
        hash: hash of the document and of the pipeline's settings; if it is unchanged, nothing is to do.
        length: length of the text, in code points.
        text: the text as UTF-8, deflated.
        blocks: structure of the text, see `encode_blocks`.
        fields: rows of the table `fields`, for filters.
        notes: notes on its preparation, one line each.
    """

    id: str
    uri: str
    title: str
    title_source: TitleSource
    mime: str
    language: str
    metadata: str
    hash: bytes
    length: int
    text: bytes
    blocks: bytes
    fields: tuple[FieldRow, ...]
    chunks: tuple[PreparedChunk, ...]
    notes: tuple[str, ...] = ()


Prepared: TypeAlias = PreparedDocument | ItemOutcome
"""Result of preparing an item: a document to write, or the outcome if there is none."""


def extraction_columns(extraction: Extraction) -> ExtractionColumns:
    """Convert an extraction to columns: without invalid names and duplicates.

    Of several mentions of an entity the surest one is kept, the first of equally sure ones: a passage that
    says a name twice is found, linked and counted like one that says it once.
    """
    mentions: dict[str, tuple[str, int, int, str, str, str, float]] = {}
    for name, start, end, type_, method, confidence in extraction.mentions:
        if id_ := name_key(name):
            kept = mentions.get(id_)
            if kept is None or (-confidence, start) < (-kept[-1], kept[1]):
                mentions[id_] = (id_, start, end, name, type_, method, confidence)
    abouts = {
        (id_, source): (id_, source, name, confidence)
        for name, source, confidence in reversed(extraction.abouts)
        if (id_ := name_key(name))
    }
    named = mentions.keys() | {id_ for id_, _ in abouts}
    relations: dict[tuple[str, str, str], tuple[str, str, str, int, int, str, float]] = {}
    for subject, predicate, object_, start, end, method, confidence in extraction.relations:
        one, two = name_key(subject), name_key(object_)
        if one and two:
            for id_, name in ((one, subject), (two, object_)):
                if id_ not in named:  # both ends of a relation count as mentions
                    named.add(id_)
                    mentions[id_] = (id_, start, end, name, "thing", method, confidence)
            relations.setdefault((one, predicate, two), (one, predicate, two, start, end, method, confidence))
    aliases: dict[tuple[str, str], tuple[str, str, AliasKind, int, int, float]] = {}
    for subject, other, kind, start, end, confidence in extraction.aliases:
        one, two = name_key(subject), name_key(other)
        if one and two and one != two:
            for id_, name in ((one, subject), (two, other)):
                if id_ not in named:
                    named.add(id_)
                    mentions[id_] = (id_, start, end, name, "thing", "alias", confidence)
            aliases.setdefault((one, two), (one, two, kind, start, end, confidence))
    return ExtractionColumns(
        MentionColumns(*zip(*mentions.values(), strict=True)),
        AboutColumns(*zip(*abouts.values(), strict=True)),
        RelationColumns(*zip(*relations.values(), strict=True)),
        AliasColumns(*zip(*aliases.values(), strict=True)),
    )


_KINDS = frozenset[str](get_args(BlockKind))


def block_rows(blocks: Iterable[Block]) -> list[list[object]]:
    """Convert blocks to JSON rows: kind, start, length, path, level, and optionally page and name.

    A start counts from the end of the block before, which keeps numbers small.
    """
    rows: list[list[object]] = []
    position = 0
    for block in blocks:
        row: list[object] = [
            block.kind,
            block.start - position,
            block.end - block.start,
            list(block.path),
            block.level,
        ]
        rows.append([*row, block.page, block.name] if block.name or block.page is not None else row)
        position = block.end
    return rows


def blocks_of_rows(rows: object, *, length: int) -> tuple[Block, ...]:
    """Restore blocks from their rows.

    Args:
        rows: what `block_rows` gave.
        length: of the text, in code points.

    Raises:
        ValueError: the rows are malformed, or the blocks are not consecutive in the text.
    """
    blocks: list[Block] = []
    position = 0
    try:
        for kind, gap, size, path, level, *rest in cast("Iterable[list[object]]", rows):
            page, name = rest or (None, "")
            if kind not in _KINDS or not (isinstance(gap, int) and isinstance(size, int)):
                raise ValueError(f"{kind!r} at {gap!r} is not a block")
            if gap < 0 or size < 1 or position + gap + size > length:
                raise ValueError("a block lies outside of its text")
            if not (isinstance(path, list) and isinstance(level, int) and isinstance(name, str)):
                raise ValueError("a block has an invalid description")
            if not (page is None or isinstance(page, int)):
                raise ValueError(f"{page!r} is not a page")
            names = tuple(map(str, cast("list[object]", path)))
            start, position = position + gap, position + gap + size
            blocks.append(Block(cast("BlockKind", kind), start, position, names, level, page, name))
    except TypeError as error:
        raise ValueError(f"these are not blocks: {error}") from error
    return tuple(blocks)


def encode_blocks(blocks: Sequence[Block]) -> bytes:
    """Pack blocks: their rows as deflated JSON, a few bytes a block."""
    rows = block_rows(blocks)
    return zlib.compress(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode(), 1)


def decode_blocks(packed: bytes, *, length: int) -> tuple[Block, ...]:
    """Unpack blocks of a text with a number of code points.

    Raises:
        ValueError: `encode_blocks` did not pack them, or not for this text.
    """
    try:
        return blocks_of_rows(json.loads(zlib.decompress(packed)), length=length)
    except zlib.error as error:
        raise ValueError(f"the structure of a text does not unpack: {error}") from error
