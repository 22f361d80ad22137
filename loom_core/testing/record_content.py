"""All that a knowledge base knows, without keys and times: two that know the same are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.indexes.language_vectors import LanguageVectors

if TYPE_CHECKING:
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import Record

__all__ = ["QUERIES", "Content", "check_indexes", "content"]

Content = dict[str, list[tuple[object, ...]]]

QUERIES = {
    "documents": (
        "SELECT id, uri, title, title_source, mime, language, text, length, hash, metadata FROM documents"
    ),
    "fields": "SELECT d.id, name, value FROM fields JOIN documents AS d ON d.key = document",
    "chunks": (
        "SELECT c.id, d.id, ordinal, start, end, page, kind, name, heading_path, c.language, keywords, "
        "c.hash, vector_hash, c.text FROM chunks AS c JOIN documents AS d ON d.key = document"
    ),
    "vectors": "SELECT hash, vector FROM vectors",
    "entities": "SELECT id FROM entities",
    "names": "SELECT id, name, type, uses FROM names JOIN entities ON key = entity",
    "mentions": (
        "SELECT c.id, e.id, m.start, m.end, m.name, m.type, m.method, m.confidence FROM mentions AS m "
        "JOIN chunks AS c ON c.key = m.chunk JOIN entities AS e ON e.key = m.entity"
    ),
    "abouts": (
        "SELECT c.id, e.id, a.source, a.name, a.confidence FROM abouts AS a "
        "JOIN chunks AS c ON c.key = a.chunk JOIN entities AS e ON e.key = a.entity"
    ),
    "relations": (
        "SELECT c.id, s.id, predicate, o.id, r.start, r.end, method, confidence FROM relations AS r "
        "JOIN chunks AS c ON c.key = r.chunk JOIN entities AS s ON s.key = r.subject "
        "JOIN entities AS o ON o.key = r.object"
    ),
    "new names": "SELECT id FROM new_names JOIN entities ON key = entity",
    "alias statements": (
        "SELECT c.id, e.id, o.id, s.kind, s.start, s.end, s.confidence FROM alias_statements AS s "
        "JOIN chunks AS c ON c.key = s.chunk JOIN entities AS e ON e.key = s.entity "
        "JOIN entities AS o ON o.key = s.other"
    ),
    "name likenesses": (
        "SELECT MIN(e.id, o.id), MAX(e.id, o.id), cosine FROM name_likenesses AS l "
        "JOIN entities AS e ON e.key = l.entity JOIN entities AS o ON o.key = l.other"
    ),
    "aliases": (
        "SELECT e.id, o.id FROM aliases AS a JOIN entities AS e ON e.key = a.entity "
        "JOIN entities AS o ON o.key = a.canonical"
    ),
    "copies": (
        "SELECT d.id, t.hash FROM copies JOIN documents AS d ON d.key = document "
        "JOIN texts AS t ON t.key = copies.text"
    ),
    "likenesses": (
        "SELECT MIN(a.hash, b.hash), MAX(a.hash, b.hash), likeness FROM likenesses AS l "
        "JOIN texts AS a ON a.key = l.text JOIN texts AS b ON b.key = l.other"
    ),
    "texts": "SELECT hash FROM texts",
    "bands": "SELECT band, hash FROM bands JOIN texts ON key = text",
}


def content(record: Record) -> Content:
    """All that a record says, in an order that does not depend on how it came to be."""
    return {name: sorted(map(tuple, record.database.rows(sql)), key=repr) for name, sql in QUERIES.items()}


def check_indexes(knowledge_base: GraphRAGKnowledgeBase) -> None:
    """Check that the derived indexes hold what the record holds, and nothing else.

    Raises:
        AssertionError: one of them does not.
    """
    record = knowledge_base.record
    keys = record.documents.chunk_keys(limit=1_000_000)
    words = knowledge_base._words.searcher()  # pyright: ignore[reportPrivateUsage]
    assert (words.count() if words else 0) == len(keys)
    graph = knowledge_base._graph.store()  # pyright: ignore[reportPrivateUsage]
    entities = record.graph.keys()
    if graph is not None:
        assert graph.counts() == (len(entities), record.graph.counts()[1])
        assert sorted(graph.get(entities), key=lambda node: node.key) == sorted(
            record.graph.nodes(entities), key=lambda node: node.key
        )
    vectors = knowledge_base._vectors.current()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(vectors, LanguageVectors | None)
    assert (vectors.count() if vectors else 0) == record.vectors.coverage()[0]
