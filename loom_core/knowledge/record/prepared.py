"""Documents ready to be written: all thinking is done, only the transaction is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.text import name_key

if TYPE_CHECKING:
    from loom_core.knowledge.model import AliasKind, Chunk, Extraction, TitleSource
    from loom_core.knowledge.record.fields import FieldRow

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

    mentions: tuple[tuple[str, int, int, str, str, str, float], ...] = ()
    abouts: tuple[tuple[str, str, str, float], ...] = ()
    relations: tuple[tuple[str, str, str, int, int, str, float], ...] = ()
    aliases: tuple[tuple[str, str, AliasKind, int, int, float], ...] = ()


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
    mentions: dict[tuple[str, int], tuple[int, str, str, str, float]] = {}
    for m in extraction.mentions:
        if id_ := name_key(m.name):
            mentions.setdefault((id_, m.start), (m.end, m.name, m.type, m.method, m.confidence))
    abouts = {(id_, a.source): a for a in reversed(extraction.abouts) if (id_ := name_key(a.name))}
    named = {id_ for id_, _ in mentions} | {id_ for id_, _ in abouts}
    relations: dict[tuple[str, str, str], tuple[int, int, str, float]] = {}
    for r in extraction.relations:
        subject, object_ = name_key(r.subject), name_key(r.object)
        if subject and object_:
            for id_, name in ((subject, r.subject), (object_, r.object)):
                if id_ not in named:  # what a relation names is mentioned by it
                    named.add(id_)
                    mentions[id_, r.start] = (r.end, name, "thing", r.method, r.confidence)
            relations.setdefault((subject, r.predicate, object_), (r.start, r.end, r.method, r.confidence))
    aliases: dict[tuple[str, str], tuple[AliasKind, int, int, float]] = {}
    for alias in extraction.aliases:
        one, two = name_key(alias.name), name_key(alias.other)
        if one and two and one != two:
            for id_, name in ((one, alias.name), (two, alias.other)):
                if id_ not in named:
                    named.add(id_)
                    mentions[id_, alias.start] = (alias.end, name, "thing", "alias", alias.confidence)
            aliases.setdefault((one, two), (alias.kind, alias.start, alias.end, alias.confidence))
    return FoundRows(
        tuple((id_, start, *rest) for (id_, start), rest in mentions.items()),
        tuple((id_, source, a.name, a.confidence) for (id_, source), a in abouts.items()),
        tuple((*identity, *rest) for identity, rest in relations.items()),
        tuple((*identity, *rest) for identity, rest in aliases.items()),
    )
