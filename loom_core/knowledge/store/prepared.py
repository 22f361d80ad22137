"""Documents ready to be written: all thinking is done, only the transaction is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from loom_core.knowledge.model import AliasKind, Chunk, Extraction, TitleSource
    from loom_core.knowledge.store.fields import FieldRow

__all__ = [
    "AboutColumns",
    "AliasColumns",
    "FoundColumns",
    "MentionColumns",
    "PreparedChunk",
    "PreparedDocument",
    "RelationColumns",
    "found_in",
]


class MentionColumns(NamedTuple):
    """The mentions of a chunk, one for an entity at a place."""

    entity: tuple[str, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    name: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class AboutColumns(NamedTuple):
    """What a chunk is about, one for an entity from a source."""

    entity: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class RelationColumns(NamedTuple):
    """The relations in a chunk, which has a mention or an about of both ends of each.

    By those the relations of an entity are found.
    """

    subject: tuple[str, ...] = ()
    predicate: tuple[str, ...] = ()
    object: tuple[str, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    method: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()


class AliasColumns(NamedTuple):
    """Names that a chunk says are of one entity, and has a mention or an about of.

    `entity` is what an acronym stands for.
    """

    entity: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    kind: tuple[AliasKind, ...] = ()
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()


class FoundColumns(NamedTuple):
    """What was found in a chunk, as columns of the graph's tables, with entities by id.

    Rows are many, and are only made where they are written: zipping columns takes a fraction of the time.
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
        found: what is written of it into the graph.
        hash: of all that is indexed of the chunk; a chunk with the same hash is the same chunk.
        vector_hash: of the text that is embedded.
        tokens: `index_tokens` of it, joined by spaces.
    """

    id: str
    chunk: Chunk
    found: FoundColumns
    hash: bytes
    vector_hash: bytes
    tokens: str


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be written.

    Attributes:
        id: public id, a function of the URI.
        metadata: JSON.
        hash: of the document and of the pipeline's settings; the same hash means nothing to do.
        length: of the text, in code points.
        text: UTF-8, deflated.
        blocks: structure of the text, see `encode_blocks`.
        fields: what filters find it by.
        notes: what is worth telling of how it was prepared, a line each.
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


def found_in(extraction: Extraction) -> FoundColumns:
    """An extraction as columns: names that are no names left out, and the same said twice only once."""
    mentions: dict[tuple[str, int], tuple[str, int, int, str, str, str, float]] = {}
    for name, start, end, type_, method, confidence in extraction.mentions:
        if id_ := name_key(name):
            mentions.setdefault((id_, start), (id_, start, end, name, type_, method, confidence))
    abouts = {
        (id_, source): (id_, source, name, confidence)
        for name, source, confidence in reversed(extraction.abouts)
        if (id_ := name_key(name))
    }
    named = {id_ for id_, _ in mentions}.union(id_ for id_, _ in abouts)
    relations: dict[tuple[str, str, str], tuple[str, str, str, int, int, str, float]] = {}
    for subject, predicate, object_, start, end, method, confidence in extraction.relations:
        one, two = name_key(subject), name_key(object_)
        if one and two:
            for id_, name in ((one, subject), (two, object_)):
                if id_ not in named:  # what a relation names is mentioned by it
                    named.add(id_)
                    mentions[id_, start] = (id_, start, end, name, "thing", method, confidence)
            relations.setdefault((one, predicate, two), (one, predicate, two, start, end, method, confidence))
    aliases: dict[tuple[str, str], tuple[str, str, AliasKind, int, int, float]] = {}
    for subject, other, kind, start, end, confidence in extraction.aliases:
        one, two = name_key(subject), name_key(other)
        if one and two and one != two:
            for id_, name in ((one, subject), (two, other)):
                if id_ not in named:
                    named.add(id_)
                    mentions[id_, start] = (id_, start, end, name, "thing", "alias", confidence)
            aliases.setdefault((one, two), (one, two, kind, start, end, confidence))
    return FoundColumns(
        MentionColumns(*zip(*mentions.values(), strict=True)),
        AboutColumns(*zip(*abouts.values(), strict=True)),
        RelationColumns(*zip(*relations.values(), strict=True)),
        AliasColumns(*zip(*aliases.values(), strict=True)),
    )
