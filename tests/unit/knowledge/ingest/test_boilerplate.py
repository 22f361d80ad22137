"""Passages that many documents have alike at their beginning or end are boilerplate, as long as they do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.knowledge.ingest.boilerplate import judge_pending
from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.near_duplicates import compare_pending
from loom_core.knowledge.ingest.pipeline import Pipeline
from loom_core.knowledge.maintenance.check import check_record
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage import Database
from tests.fixtures.record_content import content

NOTICE = "This e-mail is confidential. If it reached you by mistake, delete it.\n\nExample Ltd, High Street"
IMPRINT = "本文件仅供内部使用，未经许可不得转载。\n\n示例公司，北京市中山路一号。"
PIPELINE = Pipeline(
    create_chunker("structure", min_tokens=5, target_tokens=20, max_tokens=40),
    chunker_id="structure",
    extractor=None,
)


def body(number: int) -> str:
    """A text of several passages that no other document has."""
    words = ("ab", "cd", "ef", "gh")
    return "\n\n".join(f"Item {word} of report {number} is about {word * 3}." for word in words)


def report(number: int, notice: str = NOTICE) -> str:
    return f"{body(number)}\n\n{notice}"


def put(store: KnowledgeStore, texts: Mapping[str, str]) -> None:
    drafts = [DocumentDraft(uri=f"text:{name}", text=text) for name, text in texts.items()]
    store.documents.upsert_all(asyncio.run(PIPELINE.prepare(drafts)))


def remove(store: KnowledgeStore, name: str) -> None:
    document = store.documents.get(f"text:{name}")
    if document is not None:
        store.documents.remove(document.key)


def settle(store: KnowledgeStore) -> None:
    while compare_pending(store) or judge_pending(store):
        pass


def boilerplate(store: KnowledgeStore) -> list[str]:
    """The texts of all boilerplate passages, each once."""
    return sorted(
        {row["text"] for row in store.database.rows("SELECT text FROM chunks WHERE key IN boilerplate")}
    )


@pytest.fixture
def store() -> Iterator[KnowledgeStore]:
    store = KnowledgeStore(None)
    yield store
    store.close()


@pytest.mark.parametrize("notice", [NOTICE, IMPRINT])
@pytest.mark.parametrize("at_end", [True, False])
def test_what_ten_documents_repeat_at_their_edge_is_boilerplate(store, notice: str, at_end: bool):
    parts = [(body(number), notice)[:: 1 if at_end else -1] for number in range(10)]
    put(store, {str(n): "\n\n".join(part) for n, part in enumerate(parts[:9])})
    settle(store)
    assert not boilerplate(store)
    put(store, {"9": "\n\n".join(parts[9])})
    settle(store)
    assert store.boilerplate.count() >= 10
    assert all(text in notice for text in boilerplate(store))


def test_removing_a_document_takes_the_judgement_back(store):
    put(store, {str(n): report(n) for n in range(10)})
    settle(store)
    assert store.boilerplate.count() >= 10
    remove(store, "3")
    settle(store)
    assert store.boilerplate.count() == 0


def test_changing_a_document_takes_the_judgement_back(store):
    put(store, {str(n): report(n) for n in range(10)})
    settle(store)
    put(store, {"3": body(3)})
    settle(store)
    assert store.boilerplate.count() == 0


def test_versions_of_one_document_are_content(store):
    manual = "\n\n".join(f"Chapter {n} of the manual tells how to do {n}." for n in range(60))
    put(store, {f"v{n}": f"{manual}\n\nVersion {n} adds nothing but {n * 7919}." for n in range(12)})
    settle(store)
    assert not boilerplate(store)


def test_what_is_repeated_within_documents_is_content(store):
    middle = "The same clause is in each of these contracts, and decides what applies."
    put(
        store,
        {
            str(n): "\n\n".join(
                [
                    *(f"Opening {k} of contract {n}." for k in range(25)),
                    middle,
                    *(f"Closing {k} of contract {n}." for k in range(25)),
                ]
            )
            for n in range(12)
        },
    )
    settle(store)
    assert not boilerplate(store)


def test_a_check_finds_nothing_and_knows_what_is_still_to_be_judged(store):
    put(store, {str(n): report(n) for n in range(10)})
    assert not check_record(store, PIPELINE.hash).findings
    settle(store)
    assert not check_record(store, PIPELINE.hash).findings


def test_an_older_knowledge_base_is_judged_in_the_background(tmp_path: Path):
    old = KnowledgeStore(None)
    put(old, {str(n): report(n) for n in range(10)})
    database = Database(tmp_path / "record.db", schema=SCHEMA[:4])
    with database.write() as db:
        for table in ("documents", "chunks"):
            rows = [tuple(row) for row in old.database.rows(f"SELECT * FROM {table}")]
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        db.execute("DELETE FROM uncompared")
    database.close()
    old.close()
    store = KnowledgeStore(tmp_path / "record.db")
    settle(store)
    assert store.boilerplate.count() >= 10
    store.close()


_NAMES = [str(number) for number in range(14)]
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(_NAMES), st.sampled_from(["", "plain", "notice", "imprint", "same"]), st.booleans()
    ),
    min_size=1,
    max_size=30,
)


def _text(name: str, kind: str) -> str:
    number = int(name)
    return {
        "plain": body(number),
        "notice": report(number),
        "imprint": report(number, IMPRINT),
        "same": report(0),
    }[kind]


@settings(deadline=None, max_examples=25)
@given(_CHANGES)
def test_only_the_documents_that_are_there_decide_not_their_history(changes: list[tuple[str, str, bool]]):
    start = dict.fromkeys(_NAMES, "notice")
    store, now = KnowledgeStore(None), dict(start)
    put(store, {name: _text(name, kind) for name, kind in start.items()})
    for name, kind, settles in changes:
        if kind:
            put(store, {name: _text(name, kind)})
            now[name] = kind
        else:
            remove(store, name)
            now.pop(name, None)
        if settles:
            settle(store)
    settle(store)
    fresh = KnowledgeStore(None)
    put(fresh, {name: _text(name, kind) for name, kind in sorted(now.items(), reverse=True)})
    settle(fresh)
    for table in ("edge lines", "boilerplate"):
        assert content(store)[table] == content(fresh)[table]
    assert not check_record(store, PIPELINE.hash).findings
    store.close()
    fresh.close()


@pytest.fixture
def reports() -> Iterator[GraphRAGKnowledgeBase]:
    """Twelve e-mails with one notice; the title of each is in the index of all its passages."""
    config = RAGConfig(chunker_options={"min_tokens": 5, "target_tokens": 60, "max_tokens": 90})
    places = "York Leeds Hull Bath Ely Truro Wells Ripon Derby Exeter Oxford Durham".split()
    with GraphRAGKnowledgeBase("reports", embedder="hashing", memory=True, config=config) as knowledge_base:
        knowledge_base.add_texts_sync(
            [
                "## Report\n\n"
                + "\n\n".join(f"Its engineers built arch {k} of {place} in {k + n} years." for k in range(6))
                + f"\n\n## Notice\n\n{NOTICE}"
                for n, place in enumerate(places)
            ],
            titles=[f"The bridge of {place}" for place in places],
        )
        yield knowledge_base


def test_boilerplate_ranks_below_content_but_is_found_by_its_own_words(reports):
    assert reports.store.boilerplate.count() == 12
    (first, *_) = reports.query_sync("the bridge of York")
    assert "engineers" in first.content
    (first, *_) = reports.query_sync("whom does a confidential e-mail reach by mistake?")
    assert "confidential" in first.content


def test_boilerplate_mentions_nothing_and_citations_stay_exact(reports):
    store = reports.store
    flagged = {row["chunk"] for row in store.database.rows("SELECT chunk FROM boilerplate")}
    assert flagged.isdisjoint(chunk for chunk, _ in store.graph.recognised())
    entities = store.graph.keys()
    for read in (store.graph.mentions_of, store.graph.abouts_of):
        for edges in read(entities, limit=99).values():
            assert flagged.isdisjoint(chunk for chunk, _ in edges)
    for row in store.database.rows("SELECT key FROM documents"):
        text = store.documents.text(row["key"])
        assert all(text[c.start : c.end] == c.text for c in store.documents.chunks_of(row["key"]))
