"""Splitting of a knowledge base into shards, by the ordinary ingest: its documents are added to them.

Texts, metadata, dates, vectors and users' decisions are taken along; passages and graph are made again from
the texts by the same rules. Each step finds in the stores what a killed process has done. Only when all is
verified does the store of the whole name its shards, in one transaction; its own documents stay.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anyio import to_thread

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError, StoreError
from loom_core.knowledge.ingest.stored_documents import iterate_drafts, load_draft, pack_draft
from loom_core.knowledge.maintenance.archive import DECISIONS, take_decisions
from loom_core.knowledge.maintenance.store_copy import owned_store
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store.job_upload import JobUpload, discard_unacknowledged
from loom_core.knowledge.store.opening import has_store
from loom_core.knowledge.store.shard import Shard, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.sources.library import Library
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.place import StorePlace

__all__ = ["SplitStep", "delete_original", "split_into_shards"]

SplitStep = Literal["copying", "building", "comparing"]
"""Copying documents and vectors to the shards; building passages and graph; comparing."""

_MOST = 1000  # shards
_PORTION = 200  # documents

_VECTORS = """
SELECT DISTINCT v.hash, v.vector FROM documents AS d JOIN chunks AS c ON c.document = d.key
JOIN vectors AS v ON v.hash = c.vector_hash WHERE d.uri IN ({})
"""
_DATES = "SELECT added_at, updated_at, uri FROM documents WHERE uri IN ({})"
_FILES = """
SELECT f.settings, f.size, f.mtime_ns, f.ctime_ns, f.content, d.uri FROM documents AS d
JOIN files AS f ON f.document = d.key AND f.hash = d.hash WHERE d.uri IN ({})
"""
_SAVE_DATES = "UPDATE documents SET added_at = ?, updated_at = ? WHERE uri = ?"
_SAVE_FILE = """
INSERT INTO files (document, hash, settings, size, mtime_ns, ctime_ns, content)
SELECT key, hash, ?, ?, ?, ?, ? FROM documents WHERE uri = ? ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class _Progress:
    """Reports the progress of a step over the documents."""

    tell: Callable[[SplitStep, int, int], object]
    total: int

    def over(self, step: SplitStep, drafts: Iterable[DocumentDraft]) -> Iterator[list[DocumentDraft]]:
        """Yield documents in portions, and report each."""
        done, portion = 0, list[DocumentDraft]()
        for draft in drafts:
            portion.append(draft)
            if len(portion) == _PORTION:
                yield portion
                done, portion = done + len(portion), []
                self.tell(step, done, self.total)
        yield portion
        self.tell(step, self.total, self.total)


async def split_into_shards(
    library: Library,
    name: str,
    *,
    count: int,
    databases: Sequence[str] = (),
    progress: Callable[[SplitStep, int, int], object] = lambda _step, _done, _total: None,
) -> list[str]:
    """Split a knowledge base into shards, by the hashes of its documents' addresses, and verify them.

    A call after one that was interrupted goes on where that stopped. No other process may use the knowledge
    base meanwhile.

    Args:
        library: the library that has it; it may not work in the background.
        name: its name.
        count: number of shards, 2 to 1,000.
        databases: URLs of the PostgreSQL databases that get the shards, in turn; none for where it is now.
        progress: called with the step, and with the numbers of documents done and of all.

    Returns:
        The names of the shards.

    Raises:
        NotFoundError: there is no such knowledge base.
        InvalidInputError: it is split already, or has unfinished jobs; or the number is out of range, or a
            shard has the name of another knowledge base.
        ConfigError: a language model extracted from its documents, and the library has none.
        StoreBusyError: another process works for it.
        StoreError: a document cannot be read, or is not in its shard in the end.
    """
    if not 2 <= count <= _MOST:
        raise InvalidInputError(f"{count} is no number of shards.", advice=f"Use 2 to {_MOST:,}.")
    place = library.catalogue.place(name)
    if not await to_thread.run_sync(has_store, place):
        raise NotFoundError(f"There is no knowledge base {name!r}.", advice="Check the name.")
    urls = [databases[n % len(databases)] if databases else "" for n in range(count)]
    shards = [Shard(name, n, count) for n in range(1, count + 1)]
    with owned_store(place) as source:
        await to_thread.run_sync(_check_source, source, name, library)
        bases = {
            shard: await _open(library, shard, library.catalogue.shard_place(shard, url), source)
            for shard, url in zip(shards, urls, strict=True)
        }
        stores = {shard: base.store for shard, base in bases.items()}
        told = _Progress(progress, source.documents.counts()[0])
        await to_thread.run_sync(_upload, source, stores, told)
        for base in bases.values():
            await _build(base, list(stores.values()), told)
        await to_thread.run_sync(_finish, source, stores, told)
        await to_thread.run_sync(source.set, "shards", json.dumps(urls))
    return [shard.name for shard in shards]


def delete_original(place: StorePlace) -> None:
    """Delete the documents that a split knowledge base had itself, and its indexes. Blocks.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: it is not split.
        StoreBusyError: another process works for it.
    """
    if not has_store(place):
        raise NotFoundError(f"There is no knowledge base in {place}.", advice="Check the name.")
    with owned_store(place) as store:
        if not store.get("shards"):
            raise InvalidInputError(
                f"The knowledge base in {place} is not split.", advice="Nothing was deleted."
            )
        while rows := store.documents.list(limit=_PORTION):
            with store.database.write():
                for row in rows:
                    store.documents.remove(row.key)
        for path in place.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
    if not place.database:
        with closing(sqlite3.connect(place.file)) as database:
            database.execute("VACUUM")


def _check_source(source: KnowledgeStore, name: str, library: Library) -> None:
    if source.get("shards"):
        raise InvalidInputError(
            f"The knowledge base {name!r} is split already.", advice="The number of its shards stays."
        )
    if shard := read_shard(source):
        raise InvalidInputError(f"{name!r} is a shard of {shard.of!r}.", advice="Shards cannot be split.")
    if source.jobs.next() is not None:
        raise InvalidInputError(
            f"The knowledge base {name!r} has unfinished jobs.",
            advice="Finish them with `loom-kb add`, or cancel them; then split it.",
        )
    model = source.get("llm")
    if model and library.language_model() is None:
        raise ConfigError(
            f"The language model {model} read the documents of {name!r}, and would have to read them again.",
            advice="Give it with --llm; --llm none is for rules alone.",
        )


async def _open(
    library: Library, shard: Shard, place: StorePlace, source: KnowledgeStore
) -> GraphRAGKnowledgeBase:
    """Open a shard to be filled, and create it if it does not exist."""
    base = await library.open_shard(shard, place, create=True)

    def is_other() -> bool:
        known = base.shard
        # An empty one may be ours: the process was killed before it could say so.
        return known != shard if known is not None else bool(base.documents.list(limit=1) or base.jobs.list())

    if await to_thread.run_sync(is_other):
        raise InvalidInputError(
            f"There is another knowledge base {shard.name!r} already, or a shard of another splitting.",
            advice=f"Remove it if you do not need it: `loom-kb remove --all --kb {shard.name}`.",
        )

    def describe() -> None:
        with base.store.database.write():
            base.store.set("shard", shard.to_json())
        base.move(vectors=source.get("vectors"), lexical=source.get("lexical"), graph=source.get("graph"))

    await to_thread.run_sync(describe)
    return base


def _drafts(source: KnowledgeStore) -> Iterator[DocumentDraft]:
    for _, draft in iterate_drafts(source.database):
        if not isinstance(draft, DocumentDraft):
            raise StoreError(str(draft), advice="`loom-kb check --repair` may help.")
        yield draft


def _upload(source: KnowledgeStore, stores: dict[Shard, KnowledgeStore], told: _Progress) -> None:
    """Submit to each shard a job with its documents, and give it their vectors, unless it has that job."""
    uploads: dict[Shard, JobUpload] = {}
    for shard, store in stores.items():
        discard_unacknowledged(store.database)  # remains of a killed process
        if not store.jobs.list(limit=1):
            uploads[shard] = JobUpload(store.database, {"shard": shard.number, "confirmed": True})
    for portion in told.over("copying", _drafts(source) if uploads else ()):
        for shard, upload in uploads.items():
            store = stores[shard]
            mine = [draft for draft in portion if shard.holds(draft.uri)]
            with store.database.write():
                upload.append([(draft.uri, json.dumps(pack_draft(draft)).encode()) for draft in mine])
                if store.get("embedder") == source.get("embedder"):
                    rows = source.database.rows_in(_VECTORS, [draft.uri for draft in mine])
                    store.imported_vectors.store([(row["hash"], row["vector"]) for row in rows])
    for upload in uploads.values():
        upload.acknowledge()


async def _build(base: GraphRAGKnowledgeBase, stores: Sequence[KnowledgeStore], told: _Progress) -> None:
    """Carry out the job of a shard, and all that follows."""

    def tell() -> None:
        told.tell("building", sum(store.documents.counts()[0] for store in stores), told.total)

    await base.worker.drain(progress=tell)
    if base.worker.problem:
        raise StoreError(base.worker.problem, advice="Call the command again when that is over.")


def _finish(source: KnowledgeStore, stores: dict[Shard, KnowledgeStore], told: _Progress) -> None:
    """Take over dates, states of files and decisions, and verify that each document is in its shard alone."""
    for table, columns in DECISIONS.values():
        rows = [tuple(row) for row in source.database.rows(f"SELECT {', '.join(columns)} FROM {table}")]
        for store in stores.values():
            take_decisions(store, table, columns, rows)
    for portion in told.over("comparing", _drafts(source)):
        for shard, store in stores.items():
            mine = [draft for draft in portion if shard.holds(draft.uri)]
            for draft in mine:
                _compare(draft, load_draft(store.database, draft.uri), shard, store)
            uris = [draft.uri for draft in mine]
            with store.database.write() as db:
                db.executemany(_SAVE_DATES, [tuple(row) for row in source.database.rows_in(_DATES, uris)])
                db.executemany(_SAVE_FILE, [tuple(row) for row in source.database.rows_in(_FILES, uris)])
    found = sum(store.documents.counts()[0] for store in stores.values())
    if found != told.total:
        raise StoreError(
            f"There are {found:,} documents in the shards, and {told.total:,} in the whole.",
            advice="Something has written to one of them: remove the shards, and split it again.",
        )


def _compare(draft: DocumentDraft, found: DocumentDraft | None, shard: Shard, store: KnowledgeStore) -> None:
    """Compare a document with that of its shard.

    Raises:
        StoreError: it is not there, or different.
    """
    kept = (found.text, found.title, found.mime, found.metadata) if found is not None else None
    if kept != (draft.text, draft.title, draft.mime, draft.metadata):
        job = store.jobs.list(limit=1)[0]
        failed = next(
            (f" ({i.reason})" for i in store.jobs.report(job, ["failed"]) if i.uri == draft.uri), ""
        )
        raise StoreError(
            f"{draft.uri} is not the same in {shard.name}{failed}.",
            advice="Remove the shards, and split it again.",
        )
