"""Data model of a knowledge base: document, chunk, entity, mention, about, relation, hit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "RELATED",
    "About",
    "AboutSource",
    "Alias",
    "AliasKind",
    "Block",
    "BlockKind",
    "Chunk",
    "DocumentDraft",
    "Extraction",
    "KnowledgeItem",
    "Mention",
    "QueryDetail",
    "Relation",
    "RetrievedPassage",
    "TitleSource",
]

BlockKind = Literal["heading", "paragraph", "list", "table", "row", "code", "slide", "page"]
TitleSource = Literal["given", "metadata", "heading", "filename", "none"]
AboutSource = Literal["title", "heading", "definition", "first_phrase"]
AliasKind = Literal["acronym", "also_called", "translation"]


@dataclass(frozen=True, slots=True)
class Block:
    """A span of a document's text that belongs together: a paragraph, a code unit, a table row.

    Blocks come in order and never overlap; between two blocks is only white space or markup.

    Attributes:
        kind: what it is.
        start: offset of its first character in the document's text, in code points.
        end: offset after its last character.
        path: headings above it, outermost first; for a heading block, without itself.
        level: 1 to 6 for a heading, 0 for all else.
        page: page or slide number counted from 1, or None where there are no pages.
        name: what the block defines, for code (`Record.open`), or the sheet's name for a row.
    """

    kind: BlockKind
    start: int
    end: int
    path: tuple[str, ...] = ()
    level: int = 0
    page: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    r"""A document as a loader gives it: its text, with structure as blocks over the text.

    Attributes:
        uri: where it came from: a `file://` URI, a URL, or `text:<id>`.
        text: the whole text, NFC, `\n` line ends, no NUL; every offset refers to it.
        title: the best title known, or empty.
        title_source: origin of the title, from the surest (`given` by the caller) down to `none`.
        blocks: structure; empty for plain text without any.
        mime: media type of the source.
        metadata: scalars worth filtering or showing by (author, date, tags as a list of strings…).
    """

    uri: str
    text: str
    title: str = ""
    title_source: TitleSource = "none"
    blocks: tuple[Block, ...] = ()
    mime: str = "text/plain"
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: the unit that is embedded, searched and cited.

    Attributes:
        text: exactly `document.text[start:end]`.
        start: offset in the document's text, in code points.
        end: offset after the last character.
        title: the document's title.
        title_source: origin of the title.
        heading_path: headings above the passage, outermost first, without the title itself.
        page: page or slide the passage begins on, from 1, or None.
        kind: kind of the blocks it is made of; `paragraph` where they are mixed.
        name: what a code passage defines, or empty.
        language: ISO 639-1 code of the prevailing language, `code` for source code, or `und`.
        keywords: identifiers and significant words, see `extract_chunk_keywords`.
    """

    text: str
    start: int
    end: int
    title: str = ""
    title_source: TitleSource = "none"
    heading_path: tuple[str, ...] = ()
    page: int | None = None
    kind: BlockKind = "paragraph"
    name: str = ""
    language: str = "und"
    keywords: tuple[str, ...] = ()


# Findings come by the million: named tuples are created in a quarter of the time of dataclasses.
class Mention(NamedTuple):
    """An entity named in a chunk.

    Attributes:
        name: the surface form, as written.
        start: offset in the chunk's text, in code points.
        end: offset after it.
        type: entity type such as `person`, `term`, `command` or `api`; `thing` if unknown.
        method: which rule or model found it.
        confidence: 0 to 1.
    """

    name: str
    start: int
    end: int
    type: str = "thing"
    method: str = "rule"
    confidence: float = 1.0


class About(NamedTuple):
    """An entity that a chunk, or its whole document, is about.

    Attributes:
        name: the subject, as written in the title, heading or definition.
        source: where it was read, which says how sure it is.
        confidence: 0 to 1.
    """

    name: str
    source: AboutSource
    confidence: float


RELATED = "related to"
"""Predicate of two names that are next to each other in a sentence which states no relation of theirs."""


class Relation(NamedTuple):
    """Two entities and how they are connected, supported by a span of one chunk.

    Attributes:
        subject: name of the first entity, as written.
        predicate: the connection, lower case: a verb phrase, `is a`, `part of`, `related to`.
        object: name of the second entity, as written.
        start: offset of the supporting span in the chunk's text.
        end: offset after it.
        method: which rule or model found it.
        confidence: 0 to 1.
    """

    subject: str
    predicate: str
    object: str
    start: int
    end: int
    method: str = "rule"
    confidence: float = 0.5


class Alias(NamedTuple):
    """A statement that two names are the same.

    Attributes:
        name: one name, as written; the expansion of an acronym.
        other: the other name; the acronym itself.
        kind: the kind of statement.
        start: offset of the statement in the chunk's text.
        end: offset after it.
        confidence: 0 to 1.
    """

    name: str
    other: str
    kind: AliasKind
    start: int
    end: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Extraction:
    """Findings of an extractor in one chunk.

    Attributes:
        mentions: entities that it names.
        abouts: entities that it is about.
        relations: between entities.
        aliases: statements that two names are the same.
        problem: why the extraction is incomplete, or empty; reported with the job.
    """

    mentions: tuple[Mention, ...] = ()
    abouts: tuple[About, ...] = ()
    relations: tuple[Relation, ...] = ()
    aliases: tuple[Alias, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KnowledgeItem:
    """A hit of a query.

    Attributes:
        id: id of the passage, for `get_by_id`.
        content: its text.
        source: URI of the document, or what the provider calls its source.
        relevance: 0 to 1, comparable within one answer; across answers where the source says so
            (`KnowledgeBaseProvider.relevance_is_absolute`).
        metadata: further fields; for Loom's own knowledge bases `title`, `heading_path`,
            `start`, `end`, `page`, `document_id`, `language`, `scores` (by channel), `why` (the path of
            evidence, a list of sentences) and, if one stands out, `answer_sentence` (the part of the content
            that probably answers), besides the document's own metadata.
    """

    id: str
    content: str
    source: str
    relevance: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def of_source(self, source: str, *, also_in: Sequence[tuple[str, str]] = ()) -> KnowledgeItem:
        """Return the item as one of several sources' items.

        Its id becomes its citation, `<source>:<id>`. `metadata` gains `knowledge_base` (the source) and,
        where other sources have the same passage or nearly, `also_in` (its citations there).

        Args:
            source: name of the source that has it.
            also_in: name of each other source that has it, with its id there.
        """
        metadata = {name: value for name, value in self.metadata.items() if name != "also_in"}
        metadata["knowledge_base"] = source
        if also_in:
            metadata["also_in"] = [f"{name}:{id_}" for name, id_ in also_in]
        return replace(self, id=f"{source}:{self.id}", metadata=metadata)


class QueryDetail(TypedDict):
    """Hits of one of several questions; part of what `multi_query` and `decomposition` return.

    Keys:
        query: the question.
        hits_count: how many passages it found.
        hits: those passages, best first, with `chunk_id`, `text` and `score`.
    """

    query: str
    hits_count: int
    hits: list[dict[str, Any]]


class RetrievedPassage(TypedDict):
    """One passage as a `Retriever` returns it.

    Keys:
        chunk_id: id of the passage, for `get_by_id`.
        text: its text.
        score: how relevant it is by this retriever; comparable within one result.
        metadata: as in `KnowledgeItem.metadata`, with `uri` for the document's address.
        knowledge_base_id: name of the knowledge base it is from.
        document_id: id of its document, or None where the store knows none.
        source: name of the retriever that found it (`dense`, `bm25`, `hyde`…).
        hyde_queries: the hypothetical documents that were generated (`hyde`).
        hyde_queries_count: how many (`hyde`).
        generated_queries: the variants (`multi_query`) or parts (`decomposition`) of the question.
        queries_count: how many (`multi_query`, `decomposition`).
        retrieval_details: what each question found on its own (`multi_query`, `decomposition`).
    """

    chunk_id: str
    text: str
    score: float
    metadata: dict[str, Any]
    knowledge_base_id: str
    document_id: str | None
    source: str
    hyde_queries: NotRequired[list[str]]
    hyde_queries_count: NotRequired[int]
    generated_queries: NotRequired[list[str]]
    queries_count: NotRequired[int]
    retrieval_details: NotRequired[list[QueryDetail]]
