"""A store goes from a file to PostgreSQL and back, with all that it holds, and goes on there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loom_core.errors import InvalidInputError, StoreError
from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.ingest.boilerplate import judge_pending
from loom_core.knowledge.ingest.entity_linker import EntityLinker
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.near_duplicates import compare_pending
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.maintenance.check import check_changes, check_documents, check_graph, check_vectors
from loom_core.knowledge.maintenance.store_copy import copy_knowledge_store
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import KnowledgeBase
from loom_core.knowledge.store import JobItem, KnowledgeStore
from loom_core.knowledge.store.aliases import AliasDecision
from loom_core.storage.postgres import PostgresDatabase
from loom_core.storage.sql import refuse_unfinished_copy
from tests.fixtures.record_content import content

PIPELINE = Pipeline.of(PipelineSpec("structure", {"min_tokens": 5, "target_tokens": 20}, RuleSettings()))
NOTICE = "Example Ltd, High Street 5, registered in Zell.\n\nThis report is confidential."
ONES = "SELECT 1 FROM {} LIMIT 1"
# Tables that have no rows while nothing is under way.
UNDER_WAY = """
INSERT INTO next_vectors SELECT hash, vector FROM vectors;
INSERT INTO offered_vectors SELECT hash, vector FROM vectors;
INSERT INTO files SELECT key, hash, hash, 7, -1, 1795000000000000001, hash FROM documents;
INSERT INTO job_paces (job, seconds, documents, chunks) SELECT key, 0.25, 1, 2 FROM jobs;
INSERT INTO job_notes (job, note) SELECT key, '没有作者' FROM jobs;
INSERT INTO job_spendings SELECT key, 5, 7, NULL FROM jobs;
INSERT INTO new_names SELECT MAX(key), 5 FROM entities;
INSERT INTO boilerplate SELECT MIN(key) FROM chunks;
INSERT INTO unjudged SELECT MIN(key) FROM documents;
INSERT INTO uncompared SELECT MAX(key) FROM documents
"""


def _put(store: KnowledgeStore, *drafts: DocumentDraft) -> None:
    store.documents.upsert_all([made for draft in drafts if (made := PIPELINE.prepare_one(draft))])


def _embed(store: KnowledgeStore, limit: int) -> None:
    hashes = list(dict.fromkeys(hash_ for _, hash_ in store.vectors.pending(limit)))
    store.vectors.store(hashes, np.full((len(hashes), 2), 0.5**0.5, np.float32))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeStore]:
    """A store with rows in every table, whose latest document and job are gone."""
    with closing(KnowledgeStore(tmp_path_factory.mktemp("original") / "record.db")) as store:
        store.set("dimension", "2")
        store.set("collection", '{"id": "of this folder"}')
        report = "\n\n".join(f"The report {n} on the works in {n} parishes of Zell." for n in range(20))
        texts = [f"Anna Berg met the World Health Organization (WHO) near Zell in 190{n}." for n in range(10)]
        texts += ["北京大学（简称北大）在杭州。李明是北大的校长。", report, report + " Once more."]
        _put(
            store,
            *[
                DocumentDraft(
                    f"text:{n}",
                    f"{text}\n\n{NOTICE}",
                    "WHO",
                    "given",
                    metadata={"年": n, "tags": ["\0", "ä"]},
                )
                for n, text in enumerate(texts)
            ],
            DocumentDraft("text:admin", "The system admin asks the systemadmin.", "system admin", "given"),
            DocumentDraft("text:杭州", "杭州在海边。", "杭州", "given"),
        )
        while EntityLinker(store, LexicalIndexes(store, None), chunks=99).link_some():
            pass
        while compare_pending(store) or judge_pending(store):
            pass
        _embed(store, 12)
        store.aliases.decide(AliasDecision("anna berg", "zell", True))
        store.aliases.regroup(list(store.graph.find(["anna berg", "zell"]).values()))
        for name in ("一", "二"):
            store.jobs.submit({"name": name}, [JobItem(f"text:{name}", b"\0" + name.encode())], listed=True)
        _put(store, DocumentDraft("text:last", "Ørsted saw it.", "Ørsted", "given"))
        last = store.documents.get("text:last")
        assert last is not None
        store.documents.remove(last.key)
        store.changes.restart("words", generation=3, watermark=7)
        with store.database.write() as db:
            for statement in UNDER_WAY.split(";"):
                db.execute(statement)
            db.execute("DELETE FROM jobs WHERE key = 2")
        yield store


@pytest.fixture
def file(tmp_path: Path) -> Iterator[KnowledgeStore]:
    with closing(KnowledgeStore(tmp_path / "record.db")) as store:
        yield store


def _tables(store: KnowledgeStore) -> list[str]:
    return [name for (name,) in store.database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _rows(store: KnowledgeStore, tables: list[str]) -> dict[str, list[tuple[object, ...]]]:
    database = store.database
    return {name: sorted(map(tuple, database.rows(f"SELECT * FROM {name}")), key=repr) for name in tables}


def test_a_store_goes_to_postgresql_and_back_with_every_row_and_goes_on_there(
    original: KnowledgeStore, empty_postgres: PostgresDatabase, file: KnowledgeStore
) -> None:
    tables = _tables(original)
    assert [name for name in tables if original.database.row(ONES.format(name)) is None] == []
    shared, told = KnowledgeStore(empty_postgres), list[tuple[int, int]]()
    copy_knowledge_store(original, shared, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    copy_knowledge_store(shared, file)
    before, after = _rows(original, tables), _rows(file, tables)
    assert before.pop("indexes")
    assert after.pop("indexes") == []
    assert set(before["meta"]) - set(after["meta"]) == {("collection", '{"id": "of this folder"}')}
    del before["meta"], after["meta"]
    assert after == before
    assert content(shared) == content(original)
    assert shared.changes.head() == original.changes.head()
    for store in (shared, file):
        _go_on(store)
    assert content(shared) == content(file)
    assert shared.changes.head() == file.changes.head()


def _go_on(store: KnowledgeStore) -> None:
    """Work on a copy: triggers do their work, and no key is assigned twice."""
    chunks = store.documents.last_chunk()
    document = store.database.row("SELECT seq FROM sqlite_sequence WHERE name = 'documents'")["seq"]
    _put(store, DocumentDraft("text:new", f"Ørsted met Anna Berg at Cape Alder.\n\n{NOTICE}", "新", "given"))
    new = store.documents.get("text:new")
    assert new is not None
    assert new.key == document + 1
    assert min(key for key in store.documents.chunk_keys() if key > chunks) == chunks + 1
    job = store.jobs.get(store.jobs.submit({"paths": ["/三"]}))
    assert job is not None
    assert job.key == 3
    while compare_pending(store) or judge_pending(store):
        pass
    _embed(store, 1000)
    found = [*check_documents(store, PIPELINE.hash).findings, *check_graph(store)]
    assert [*found, *check_vectors(store), *check_changes(store)] == []


class _KilledError(Exception):
    """Ends a copy in its midst."""


def _kill_after(rows: int) -> Callable[[int, int], None]:
    def progress(done: int, _total: int) -> None:
        if done > rows:
            raise _KilledError

    return progress


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_copy_that_was_ended_goes_on_where_it_stopped(
    kind: str, original: KnowledgeStore, request: pytest.FixtureRequest
) -> None:
    fixture = request.getfixturevalue("empty_postgres" if kind == "postgres" else "file")
    target = fixture if isinstance(fixture, KnowledgeStore) else KnowledgeStore(fixture)
    total = 0

    def measure(_done: int, all_: int) -> None:
        nonlocal total
        total = all_

    for part in range(1, 5):
        with pytest.raises(_KilledError):
            copy_knowledge_store(original, target, progress=_kill_after(part * 100))
        assert target.database.rows("SELECT 1 FROM documents LIMIT 1"), "what was copied is there"
        with pytest.raises(StoreError, match=r"there is an unfinished copy.*Call it again, and it goes on"):
            refuse_unfinished_copy(target.database, "there")
    copy_knowledge_store(original, target, progress=measure)
    assert total > 1000
    assert content(target) == content(original)
    copy_knowledge_store(original, target)
    refuse_unfinished_copy(target.database, "there")
    _go_on(target)


def test_a_knowledge_base_does_not_open_an_unfinished_copy(original: KnowledgeStore, tmp_path: Path) -> None:
    with closing(KnowledgeStore(tmp_path / "record.db")) as target, pytest.raises(_KilledError):
        copy_knowledge_store(original, target, progress=_kill_after(100))
    with pytest.raises(StoreError, match=f"{tmp_path.name} is an unfinished copy"):
        KnowledgeBase("there", path=tmp_path)


def test_a_target_that_holds_something_else_is_left_as_it_is(
    original: KnowledgeStore, empty_postgres: PostgresDatabase, file: KnowledgeStore
) -> None:
    for target in (KnowledgeStore(empty_postgres), file):
        _put(target, DocumentDraft("text:other", "Cape Alder is far.", "Other", "given"))
        before = content(target)
        with pytest.raises(StoreError, match=r"The row 1 \(\w+\) of the table documents is not the same"):
            copy_knowledge_store(original, target)
        assert content(target) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE mentions SET confidence = 0.125 WHERE chunk = 3", r"row 3, \d+, \d+ of the table mentions"),
        ("DELETE FROM vectors WHERE hash = (SELECT MAX(hash) FROM vectors)", r"row \w+ of the table vectors"),
        ("INSERT INTO meta VALUES ('zzz', '')", "row zzz of the table meta"),
        ("UPDATE coverage SET linked = -1", r"row \d+, \d+, -1 of the table coverage"),
    ],
)
def test_what_is_written_meanwhile_is_found(
    change: str, message: str, original: KnowledgeStore, file: KnowledgeStore
) -> None:
    def interfere(done: int, total: int) -> None:
        if 2 * done == total:
            with file.database.write() as db:
                db.execute(change)

    with pytest.raises(StoreError, match=message):
        copy_knowledge_store(original, file, progress=interfere)


def test_a_text_that_postgresql_cannot_store_is_named(
    empty_postgres: PostgresDatabase, file: KnowledgeStore
) -> None:
    _put(file, DocumentDraft("text:a", "Anna Berg.", "Anna", "given"))
    with file.database.write() as db:  # as earlier versions did
        db.execute("UPDATE documents SET title = ?", ("An\0na",))
    with pytest.raises(InvalidInputError, match=r"row 1 \(\w+\) of .* its title has .* U\+0000"):
        copy_knowledge_store(file, KnowledgeStore(empty_postgres))
