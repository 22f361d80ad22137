"""Documents ready to be written: all thinking is done, only the transaction is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from loom_core.knowledge.text import name_key

if TYPE_CHECKING:
    from loom_core.knowledge.model import AliasKind, Chunk, Extraction, TitleSource
    from loom_core.knowledge.record.fields import FieldRow

    _MentionRow: TypeAlias = tuple[str, int, int, str, str, str, float]
    _AboutRow: TypeAlias = tuple[str, str, str, float]
    _RelationRow: TypeAlias = tuple[str, str, str, int, int, str, float]
    _AliasRow: TypeAlias = tuple[str, str, AliasKind, int, int, float]

__all__ = ["FoundRows", "PreparedChunk", "PreparedDocument", "found_in"]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What was found in a chunk, as rows of the graph's tables, with entities by id.

    Attributes:
        mentions: entity, start, end, name, type, method, confidence; one for an entity at a place.
        abouts: entity, source, name, confidence; one for an entity from a source.
        relations: subject, predicate, object, start, end, method, confidence. Of each the chunk has a
            mention or an about of both ends, by which the relations of an entity are found.
        aliases: entity, other, kind, start, end, confidence; of an acronym what it stands for comes first.
            The chunk has a mention or an about of both.
    """

    mentions: tuple[_MentionRow, ...] = ()
    abouts: tuple[_AboutRow, ...] = ()
    relations: tuple[_RelationRow, ...] = ()
    aliases: tuple[_AliasRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk ready to be written.

    Attributes:
        id: public id, unique in the knowledge base.
        found: what is written of it into the graph.
        hash: of all that is indexed of the chunk; a chunk with the same hash is the same chunk.
        vector_hash: of the text that is embedded.
        tokens: `index_tokens` of it, joined by spaces.
        keys: `surface_keys` of its text, joined by spaces.
    """

    id: str
    chunk: Chunk
    found: FoundRows
    hash: bytes
    vector_hash: bytes
    tokens: str
    keys: str


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


def found_in(extraction: Extraction) -> FoundRows:
    """An extraction as rows: names that are no names left out, and the same said twice only once."""
    mentions: dict[tuple[str, int], _MentionRow] = {}
    for name, start, end, type_, method, confidence in extraction.mentions:
        if id_ := name_key(name):
            mentions.setdefault((id_, start), (id_, start, end, name, type_, method, confidence))
    abouts: dict[tuple[str, str], _AboutRow] = {
        (id_, source): (id_, source, name, confidence)
        for name, source, confidence in reversed(extraction.abouts)
        if (id_ := name_key(name))
    }
    named = {id_ for id_, _ in mentions}.union(id_ for id_, _ in abouts)
    relations: dict[tuple[str, str, str], _RelationRow] = {}
    for subject, predicate, object_, start, end, method, confidence in extraction.relations:
        one, two = name_key(subject), name_key(object_)
        if one and two:
            for id_, name in ((one, subject), (two, object_)):
                if id_ not in named:  # what a relation names is mentioned by it
                    named.add(id_)
                    mentions[id_, start] = (id_, start, end, name, "thing", method, confidence)
            relations.setdefault((one, predicate, two), (one, predicate, two, start, end, method, confidence))
    aliases: dict[tuple[str, str], _AliasRow] = {}
    for subject, other, kind, start, end, confidence in extraction.aliases:
        one, two = name_key(subject), name_key(other)
        if one and two and one != two:
            for id_, name in ((one, subject), (two, other)):
                if id_ not in named:
                    named.add(id_)
                    mentions[id_, start] = (id_, start, end, name, "thing", "alias", confidence)
            aliases.setdefault((one, two), (one, two, kind, start, end, confidence))
    return FoundRows(
        tuple(mentions.values()),
        tuple(abouts.values()),
        tuple(relations.values()),
        tuple(aliases.values()),
    )
