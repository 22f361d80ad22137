"""Repair of the store after a check."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.stored_documents import load_draft
from loom_core.knowledge.maintenance.check import (
    COUNTED_NAMES,
    MISJUDGED,
    UNEMBEDDED,
    UNSUPPORTED,
    references,
)
from loom_core.knowledge.store.changes import IndexName
from loom_core.knowledge.store.fields import field_rows
from loom_core.knowledge.uris import path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.maintenance.finding import CheckFinding, Repair
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.storage.sql import SQLConnection

__all__ = ["repair"]

_ORDER: tuple[Repair, ...] = (
    "rows",
    "stray_chunks",
    "documents",
    "lost_texts",
    "fields",
    "links",
    "vectors",
    "queue",
    "jobs",
    "index",
)

_GRAPH: frozenset[Repair] = frozenset({"rows", "stray_chunks", "documents", "graph"})
"""After these repairs the indexes of the graph and of links may not match the next changes: rebuild them."""


def repair(store: KnowledgeStore, findings: Iterable[CheckFinding]) -> None:
    """Repair findings in the store, as one transaction. Blocks.

    Longer repairs become a job, or an index to rebuild: the worker does both.

    Args:
        store: the store that was checked.
        findings: the defects; for a damaged file see `salvage`.
    """
    todo: defaultdict[Repair, list[int | str]] = defaultdict(list)
    for finding in findings:
        if finding.repair is not None:
            todo[finding.repair] += finding.keys
    with store.database.write() as db:
        for kind in _ORDER:
            if kind in todo:
                _repair_kind(store, db, kind, todo[kind])
        store.boilerplate.read_again(cast("Sequence[int]", todo.pop("boilerplate", ())))
        _recount(store, db)  # other defects may have made the counts wrong, too
        if todo.keys() & _GRAPH:
            _rebuild_indexes(store, ["graph", "links"])


def _repair_kind(store: KnowledgeStore, db: SQLConnection, kind: Repair, keys: Sequence[int | str]) -> None:
    match kind:
        case "stray_chunks":
            for key in cast("Sequence[int]", keys):
                store.documents.remove(key)
        case "documents":
            _rechunk(store, cast("Sequence[int]", keys))
        case "lost_texts":
            _reload(store, cast("Sequence[int]", keys))
        case "rows":
            _drop_rows(store, db, cast("Sequence[str]", keys))
        case "fields":
            _write_fields(store, db, cast("Sequence[int]", keys))
        case "links":
            store.graph.advance_link_watermark(0)
        case "vectors":
            db.executemany(
                "DELETE FROM vectors WHERE hash = ?", [(bytes.fromhex(str(hash_)),) for hash_ in keys]
            )
        case "queue":
            _rebuild_queue(db, linked=store.graph.link_watermark())
        case "jobs":
            db.executemany(
                "UPDATE jobs SET state = 'running', finished_at = NULL WHERE key = ?",
                [(key,) for key in keys],
            )
        case "index":
            _rebuild_indexes(store, cast("Sequence[IndexName]", keys))
        case _:
            pass  # names and entities are recounted in any case


def _rebuild_queue(db: SQLConnection, *, linked: int) -> None:
    """Rebuild the queue of chunks to embed, and its count."""
    db.execute("DELETE FROM unembedded")
    db.execute(f"INSERT INTO unembedded {UNEMBEDDED}")
    db.execute("DELETE FROM coverage")
    db.execute(
        "INSERT INTO coverage SELECT (SELECT COUNT(*) FROM chunks), (SELECT COUNT(*) FROM unembedded), ?",
        (linked,),
    )


def _rechunk(store: KnowledgeStore, keys: Sequence[int]) -> None:
    """Chunk documents and extract from them again, by a job, from their stored texts."""
    uris = [row.uri for row in store.documents.by_key(sorted(set(keys))).values()]
    for key in set(keys):
        store.documents.remove_chunks(key)
    if uris:
        store.jobs.submit({"stored": uris})


def _reload(store: KnowledgeStore, keys: Sequence[int]) -> None:
    """Load documents again, by a job, from their original files, if these exist."""
    paths: list[str] = []
    for key, row in store.documents.by_key(sorted(set(keys))).items():
        if row.uri.startswith("file:") and (path := Path(path_of(row.uri))).is_file():
            store.documents.remove_chunks(key)
            paths.append(str(path))
    if paths:
        store.jobs.submit({"paths": paths, "include": [], "exclude": [], "metadata": {}})


def _drop_rows(store: KnowledgeStore, db: SQLConnection, tables: Collection[str]) -> None:
    for table, column, parent, key in references():
        if table in tables:
            db.execute(
                f"DELETE FROM {table} WHERE {column} IS NOT NULL AND NOT EXISTS "
                f"(SELECT 1 FROM {parent} WHERE {parent}.{key} = {table}.{column})"
            )


def _write_fields(store: KnowledgeStore, db: SQLConnection, keys: Sequence[int]) -> None:
    for key, row in store.documents.by_key(sorted(set(keys))).items():
        try:
            draft = load_draft(store.database, row.uri)
        except DocumentError:
            continue  # the damaged text is a separate finding
        if draft is None:
            continue
        db.execute("DELETE FROM fields WHERE document = ?", (key,))
        db.executemany(
            "INSERT INTO fields (document, name, value, number, local, instant) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(key, *values) for values in field_rows(draft, language=row.language)],
        )
        store.changes.note("document", [key])


def _recount(store: KnowledgeStore, db: SQLConnection) -> None:
    """Recount names, drop unsupported entities, and regroup the others."""
    wrong = (
        f"SELECT entity FROM (SELECT * FROM names EXCEPT {COUNTED_NAMES}) AS more "
        f"UNION SELECT entity FROM ({COUNTED_NAMES} EXCEPT SELECT * FROM names) AS less"
    )
    entities = {row["entity"] for row in db.execute(wrong)}
    db.executemany("DELETE FROM names WHERE entity = ?", [(entity,) for entity in entities])
    db.executemany(
        f"INSERT INTO names SELECT * FROM ({COUNTED_NAMES}) AS counted WHERE entity = ? "
        "AND EXISTS (SELECT 1 FROM entities WHERE key = entity)",
        [(entity,) for entity in entities],
    )
    unsupported = [row["key"] for row in db.execute(UNSUPPORTED)]
    db.executemany("DELETE FROM entities WHERE key = ?", [(key,) for key in unsupported])
    misjudged = [row["key"] for row in db.execute(MISJUDGED)]
    store.graph.judge(misjudged)
    regrouped = store.aliases.regroup(store.aliases.find_misgrouped())
    store.changes.note("entity", sorted(entities.union(unsupported, misjudged, regrouped)))
    # Links to their names may be lost: search for these again.
    db.executemany(
        "INSERT INTO new_names (entity, newest) VALUES (?, ?) "
        "ON CONFLICT (entity) DO UPDATE SET newest = excluded.newest",
        [(entity, store.documents.last_chunk()) for entity in store.graph.still_subjects(sorted(entities))],
    )


def _rebuild_indexes(store: KnowledgeStore, names: Iterable[IndexName]) -> None:
    for name in set(names).intersection(get_args(IndexName)):
        store.changes.mark_damaged(name, generation=store.changes.state(name).generation)
