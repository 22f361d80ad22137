"""Knowledge bases that are split into shards, in files and in PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError, StoreBusyError, StoreError
from loom_core.knowledge import Federation, KnowledgeBase, Library, LocalKnowledgeBase, split_into_shards
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.requests import DocumentsRequest, FilesRequest, SyncRequest
from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase
from loom_core.knowledge.sources.splitting import SplitStep, delete_original
from loom_core.knowledge.store.opening import open_store
from loom_core.knowledge.store.shard import Shard, shard_number
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

pytestmark = pytest.mark.slow

TOPICS = {
    "lighthouse": "The lighthouse of Skagen is built of grey brick.",
    "marzipan": "Marzipan from Lübeck is made of almonds and sugar.",
    "loom": "The draw loom lifts each warp thread by itself.",
    "丝绸": "丝绸之路从长安出发,通向地中海。",
    "花机": "《天工开物》记载了花机的构造。",
    "zebra": "Zebras are striped horses of the savanna.",
    "glacier": "A glacier flows a few metres each year.",
    "copper": "Copper from Falun covered the roofs of Versailles.",
}
DRAFTS = [
    DocumentDraft(uri=f"test:{name}", text=text, title=name, metadata={"tags": ["old"], "number": n})
    for n, (name, text) in enumerate(TOPICS.items())
]
_numbers = count()


class StopError(Exception):
    """An interruption."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(params=["file", "postgres"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the knowledge bases of a test are: the URL of a database, or nothing for files."""
    if request.param == "file":
        return ""
    monkeypatch.setenv("LOOM_DATABASE_SECRET", PASSWORD)
    return request.getfixturevalue("server").url(f"?schema=s{next(_numbers)}")


@pytest.fixture
def library(tmp_path: Path, database: str) -> Iterator[Library]:
    """A library with the documents in the knowledge base `notes`, which is closed."""
    anyio.run(_fill, tmp_path, database)
    library = Library(tmp_path, database=database, embedder="hashing")
    yield library
    library.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Library]:
    """The same in files."""
    anyio.run(_fill, tmp_path, "")
    library = Library(tmp_path, embedder="hashing")
    yield library
    library.close()


async def _fill(home: Path, database: str) -> None:
    library = Library(home, database=database, embedder="hashing")
    try:
        await (await library.get("notes", create=True, description="Of all kinds")).add_documents(DRAFTS)
    finally:
        await to_thread.run_sync(library.close)


async def _opened(library: Library, name: str = "notes") -> ShardedKnowledgeBase:
    found = await library.open(name)
    assert isinstance(found, ShardedKnowledgeBase)
    return found


async def _work(library: Library) -> None:
    for part in await library.parts("notes"):
        await part.worker.drain()


async def _titles(library: Library) -> list[list[str]]:
    return [sorted(row.title for row in part.documents.list()) for part in await library.parts("notes")]


def test_a_document_its_id_and_its_passages_belong_to_the_same_shard():
    for draft in DRAFTS:
        holders = [n for n in range(1, 9) if Shard("x", n, 8).holds(draft.uri)]
        assert holders == [shard_number(draft.uri, 8)]
        id_ = document_id(draft.uri)
        assert {shard_number(id_, 8), shard_number(f"{id_}.0123456789ab", 8)} == set(holders)


async def test_a_name_stands_for_all_its_shards(library: Library):
    names = await split_into_shards(library, "notes", count=3)
    assert names == ["notes_shard_1", "notes_shard_2", "notes_shard_3"]
    (entry,) = library.list()
    assert (entry.name, entry.documents, entry.source.description) == ("notes", 8, "Of all kinds")
    assert "tags" in entry.source.supported_filters
    with pytest.raises(InvalidInputError, match="'notes' is split already"):
        await split_into_shards(library, "notes", count=2)
    whole = await _opened(library)
    titles = await _titles(library)
    assert sorted(title for each in titles for title in each) == sorted(TOPICS)
    assert len(list(filter(None, titles))) > 1
    for question, title in (("striped horses", "zebra"), ("花机的构造", "花机"), ("长安到地中海", "丝绸")):
        answer = await whole.search(question, limit=3)
        assert answer.items[0].metadata["title"] == title
        assert (answer.chunks, answer.embedded, answer.notes) == (8, 8, ())
        assert "knowledge_base" not in answer.items[0].metadata
        found = await whole.get_by_id(answer.items[0].id)
        assert found is not None
        assert found.content == answer.items[0].content


async def test_vectors_dates_and_decisions_are_taken_along(files: Library):
    base = await files.get("notes")
    await base.add_texts(["Ada met Byron.", "Byron met Shelley."], uris=["test:a", "test:b"])
    base.aliases.hide("Byron")
    with base.store.database.write() as db:
        db.execute("UPDATE documents SET added_at = 5, updated_at = 6 WHERE uri = 'test:zebra'")
        db.execute("UPDATE vectors SET vector = zeroblob(1024)")
    files.close()
    library = Library(files.catalogue.place("notes").folder.parents[1], embedder="hashing")
    await split_into_shards(library, "notes", count=2)
    zebra = await library.part("notes", "test:zebra")
    row = zebra.store.database.row("SELECT added_at, updated_at FROM documents WHERE uri = 'test:zebra'")
    assert tuple(row or ()) == (5, 6)
    for part in await library.parts("notes"):
        vectors = [row["vector"] for row in part.store.database.rows("SELECT vector FROM vectors")]
        assert all(vector == bytes(1024) for vector in vectors), "nothing was embedded again"
        assert part.store.database.row("SELECT COUNT(*) FROM alias_decisions")[0] == 1
    await to_thread.run_sync(library.close)


async def test_what_is_added_goes_to_its_shard_and_replaces_what_was_there(library: Library, tmp_path: Path):
    await split_into_shards(library, "notes", count=3)
    whole = await _opened(library)
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in "甲乙丙丁戊己庚辛":
        (folder / f"{name}.md").write_text(f"# {name}\n\n{name}字第一版。", encoding="utf-8")
    job = await whole.submit(FilesRequest([folder]))
    await _work(library)
    parts = await library.parts("notes")
    assert sum(part.job(job).counts.get("added", 0) for part in parts) == 8
    (folder / "丙.md").write_text("# 丙\n\n第二版,已经改了。", encoding="utf-8")
    (folder / "丁.md").unlink()
    await whole.submit(SyncRequest([folder]))
    await _work(library)
    titles = [title for each in await _titles(library) for title in each]
    assert sorted(titles) == sorted([*TOPICS, *"甲乙丙戊己庚辛"])
    assert (await whole.search("第二版", limit=1)).items[0].metadata["title"] == "丙"
    changed = DocumentDraft(uri="test:zebra", text="Quaggas are extinct.", title="quagga")
    await whole.submit(DocumentsRequest([changed]))
    await _work(library)
    assert not {"zebra"} & {title for each in await _titles(library) for title in each}
    removed = await whole.remove([document_id("test:zebra"), "test:copper", "test:nothing"])
    assert sorted(row.title for row in removed) == ["copper", "quagga"]


async def test_a_shard_takes_only_its_own_documents_when_it_is_named_itself(files: Library):
    await split_into_shards(files, "notes", count=4)
    part = await files.get("notes_shard_2")
    before = part.documents.counts()[0]
    await part.add_documents([DocumentDraft(uri=f"more:{n}", text=f"Text {n}.") for n in range(20)])
    added = part.documents.counts()[0] - before
    assert added == sum(shard_number(f"more:{n}", 4) == 2 for n in range(20))


@pytest.mark.parametrize("step", ["copying", "building", "comparing"])
async def test_an_interrupted_splitting_goes_on_where_it_stopped(
    library: Library, tmp_path: Path, database: str, step: SplitStep
):
    def stop(at: SplitStep, _done: int, _total: int) -> None:
        if at == step:
            raise StopError

    with pytest.raises((StopError, ExceptionGroup)):
        await split_into_shards(library, "notes", count=3, progress=stop)
    await to_thread.run_sync(library.close)
    assert [entry.name for entry in library.list()] == ["notes"], "unfinished shards are not listed"
    again = Library(tmp_path, database=database, embedder="hashing")
    assert (await (await again.open("notes")).query("striped horses", limit=1))[0].source == "test:zebra"
    await to_thread.run_sync(again.close)
    await split_into_shards(again, "notes", count=3)
    assert sorted(t for each in await _titles(again) for t in each) == sorted(TOPICS)
    await to_thread.run_sync(again.close)


async def test_shards_go_to_several_databases_in_turn(
    files: Library, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOM_DATABASE_SECRET", PASSWORD)
    urls = [server.url(f"?schema=s{next(_numbers)}") for _ in range(2)]
    await split_into_shards(files, "notes", count=3, databases=urls)
    places = [place.database for _, place in files.catalogue.shards("notes")]
    assert places == [urls[0], urls[1], urls[0]]
    (entry,) = files.list()
    assert (entry.documents, entry.place.database) == (8, "")
    assert (await (await _opened(files)).query("striped horses", limit=1))[0].source == "test:zebra"
    await files.delete("notes")
    assert files.list() == []
    with closing(Library(files.catalogue.place("x").folder.parents[1], database=urls[0])) as other:
        assert other.list() == []


async def test_an_answer_says_which_shard_is_missing(files: Library, tmp_path: Path):
    await split_into_shards(files, "notes", count=3)
    await to_thread.run_sync(files.close)
    missing = shard_number("test:copper", 3)
    (tmp_path / "kb" / f"notes_shard_{missing}" / "record.db").write_bytes(b"broken" * 1000)
    library = Library(tmp_path, embedder="hashing")
    whole = await _opened(library)
    there = next(name for name in TOPICS if shard_number(f"test:{name}", 3) != missing)
    answer = await whole.search(TOPICS[there], limit=2)
    assert answer.items[0].metadata["title"] == there
    assert answer.notes[0] == "2 of 3 shards of notes answered."
    assert answer.notes[1].startswith(f"notes_shard_{missing}: ")
    assert await whole.get_by_id(answer.items[0].id) is not None
    (entry,) = library.list()  # the damaged shard is among those that cannot be used
    source = LocalKnowledgeBase(library, entry.source)
    federated = await Federation([source]).query(TOPICS[there])
    assert federated.notes[0].startswith("notes: 2 of 3 shards of notes answered.")
    with pytest.raises(StoreError):
        await whole.submit(DocumentsRequest([DocumentDraft(uri="new:1", text="New.")]))
    await to_thread.run_sync(library.close)


async def test_a_shard_that_is_gone_is_not_made_anew_by_a_question(files: Library, tmp_path: Path):
    await split_into_shards(files, "notes", count=2)
    await to_thread.run_sync(files.close)
    record = tmp_path / "kb" / "notes_shard_1" / "record.db"
    record.unlink()
    library = Library(tmp_path, embedder="hashing")
    answer = await (await _opened(library)).search("striped horses")
    assert "notes_shard_1 is missing" in answer.notes[1]
    assert not record.exists()
    await to_thread.run_sync(library.close)


async def test_a_filter_that_only_some_shards_know_counts(files: Library):
    await split_into_shards(files, "notes", count=3)
    whole = await _opened(files)
    draft = DocumentDraft(uri="new:1", text="A comet came by.", title="comet", metadata={"planet": "Mars"})
    await whole.submit(DocumentsRequest([draft]))
    await _work(files)
    answer = await whole.search("comet", filters={"planet": "Mars"})
    assert ([item.metadata["title"] for item in answer.items], answer.notes) == (["comet"], ())
    with pytest.raises(InvalidInputError):
        await whole.search("comet", filters={"moon": "Io"})


async def test_what_works_with_one_knowledge_base_names_the_shards(library: Library, database: str):
    await split_into_shards(library, "notes", count=2)
    with pytest.raises(InvalidInputError, match="split into 2 shards") as refused:
        await library.get("notes")
    assert "notes_shard_1 to notes_shard_2" in refused.value.advice
    place = library.catalogue.place("notes")
    with pytest.raises(InvalidInputError, match="split into 2 shards"):
        KnowledgeBase("notes", embedder="hashing", path=place.folder, database=database)
    assert (await library.get("notes_shard_1")).documents.counts()[0] < 8
    with pytest.raises(InvalidInputError):
        await split_into_shards(library, "notes", count=3)


async def test_the_original_stays_until_it_is_deleted(library: Library):
    await split_into_shards(library, "notes", count=2)
    place = library.catalogue.place("notes")
    with closing(open_store(place)) as store:
        assert store.documents.counts()[0] == 8
    await to_thread.run_sync(delete_original, place)
    with closing(open_store(place)) as store:
        assert store.documents.counts()[0] == 0
    assert library.list()[0].documents == 8
    assert (await (await _opened(library)).query("striped horses", limit=1))[0].source == "test:zebra"
    with pytest.raises(NotFoundError):
        await to_thread.run_sync(delete_original, library.catalogue.place("other"))
    await library.delete("notes")
    assert library.list() == []
    with pytest.raises(NotFoundError):
        await library.open("notes")


async def test_nothing_is_split_that_may_not_be(files: Library, tmp_path: Path):
    with pytest.raises(InvalidInputError, match="no number of shards"):
        await split_into_shards(files, "notes", count=1)
    with pytest.raises(NotFoundError):
        await split_into_shards(files, "other", count=2)
    await (await files.get("notes_shard_2", create=True)).add_texts(["Mine."])
    with pytest.raises(InvalidInputError, match="another knowledge base 'notes_shard_2'"):
        await split_into_shards(files, "notes", count=2)
    await files.delete("notes_shard_2")
    owner = await files.get("notes")
    assert owner.worker.acquire()
    with pytest.raises(StoreBusyError):
        await split_into_shards(files, "notes", count=2)
    owner.submit(DocumentsRequest([DRAFTS[0]]))
    await to_thread.run_sync(files.close)
    with pytest.raises(InvalidInputError, match="unfinished jobs"):
        await split_into_shards(Library(tmp_path, embedder="hashing"), "notes", count=2)


async def test_a_document_that_differs_in_its_shard_stops_the_splitting(files: Library, tmp_path: Path):
    def change(step: SplitStep, done: int, total: int) -> None:
        if step == "building" and done == total:
            for record in (tmp_path / "kb").glob("notes_shard_*/record.db"):
                with closing(sqlite3.connect(record)) as db, db:
                    db.execute("UPDATE documents SET title = 'changed'")

    with pytest.raises(StoreError, match="is not the same in notes_shard_"):
        await split_into_shards(files, "notes", count=2, progress=change)
    assert not files.catalogue.shards("notes")
