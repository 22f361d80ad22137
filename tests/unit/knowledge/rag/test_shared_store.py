"""Knowledge bases whose store is in PostgreSQL, with a folder of indexes for each of several machines."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing
from itertools import count
from pathlib import Path

import anyio
import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from loom_core.embedding.interface import EmbeddingKind
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError, StoreBusyError, StoreError
from loom_core.knowledge.indexes.graph import GraphIndex
from loom_core.knowledge.maintenance.archive import ArchiveReader
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase, KnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.knowledge.retrieval.config import RAGConfig, WaitSettings
from loom_core.knowledge.sources.catalogue import Catalogue
from loom_core.knowledge.sources.library import Library
from loom_core.knowledge.store.node import LeaseLostError, Sharing, WorkLease
from loom_core.storage.postgres import PostgresDatabase
from tests.fixtures.record_content import content
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

TEXTS = [
    "Ada Lovelace wrote the first program for the Analytical Engine.",
    "宋应星写了《天工开物》,成书于1637年。",
]
_numbers = count()
Open = Callable[[str], GraphRAGKnowledgeBase]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of schemas that belong to one test."""
    monkeypatch.setenv("LOOM_DATABASE_SECRET", PASSWORD)
    return server.url(f"?schema=t{next(_numbers)}")


@pytest.fixture
def open_node(url: str, tmp_path: Path) -> Iterator[Open]:
    """Opens the knowledge base `手册` on a machine with a name."""
    opened: list[GraphRAGKnowledgeBase] = []

    def open_(machine: str) -> GraphRAGKnowledgeBase:
        opened.append(KnowledgeBase("手册", embedder="hashing", database=url, path=tmp_path / machine))
        return opened[-1]

    yield open_
    for knowledge_base in opened:
        knowledge_base.close()


def sharing_of(knowledge_base: GraphRAGKnowledgeBase) -> Sharing:
    sharing = knowledge_base.store.sharing
    assert sharing is not None
    return sharing


def database_of(knowledge_base: GraphRAGKnowledgeBase) -> PostgresDatabase:
    database = knowledge_base.store.database
    assert isinstance(database, PostgresDatabase)
    return database


async def best(knowledge_base: GraphRAGKnowledgeBase, question: str) -> str:
    items = await knowledge_base.query(question)
    return items[0].content if items else ""


async def test_what_one_machine_adds_another_finds_in_both_languages(open_node: Open):
    one, other = open_node("one"), open_node("other")
    await one.add_texts(TEXTS)
    assert "Ada" in await best(other, "Who wrote the first program?")
    assert "天工开物" in await best(other, "谁写了天工开物?")
    await other.add_texts(["Jacquard built a loom in Lyon."])
    await other.remove([row.id for row in one.documents.list() if "Ada" in one.documents.text(row.key)])
    assert "Jacquard" in await best(one, "Who built a loom?")
    assert "Ada" not in await best(one, "Who wrote the first program?")
    for knowledge_base in (one, other):
        await knowledge_base.worker.drain()
        assert set(knowledge_base.index_lag().values()) == {0}
        assert (await knowledge_base.check()).sound


async def test_only_one_machine_works_for_a_knowledge_base_and_another_takes_over(open_node: Open):
    one, other = open_node("one"), open_node("other")
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(one.work)
        tasks.start_soon(other.work)
        other.submit(DocumentsRequest([DocumentDraft(uri="text:1", text=TEXTS[0])]))
        with anyio.fail_after(60):
            while one.documents.counts()[0] == 0 or one.store.is_led == other.store.is_led:  # noqa: ASYNC110
                await anyio.sleep(0.05)
            leader, follower = (one, other) if one.store.is_led else (other, one)
            assert follower.worker.find_leader() == leader.worker.find_leader() != ""
            sharing_of(leader).lease.release(pause=3600)
            while not follower.store.is_led:  # noqa: ASYNC110 - it is in another process, as far as it knows
                await anyio.sleep(0.05)
        assert not leader.store.is_led
        tasks.cancel_scope.cancel()


async def test_a_process_that_lost_the_lease_writes_nothing_more(open_node: Open):
    late, other = open_node("one"), open_node("other")
    assert late.worker.acquire()
    with database_of(late).write() as db:  # it was not heard of, and cannot renew it any more
        db.execute("UPDATE worker SET holder = 'late', expires = 0")
    assert other.worker.acquire()
    lease = sharing_of(late).lease
    with (
        pytest.raises(LeaseLostError, match="not heard of"),
        lease.checked(),
        late.store.database.write() as db,
    ):
        db.execute("DELETE FROM identity")
    assert not lease.held
    assert late.store.database.row("SELECT COUNT(*) FROM identity")[0] == 1
    late.submit(DocumentsRequest([DocumentDraft(uri="text:1", text=TEXTS[0])]))  # anyone may
    await other.worker.drain()
    assert late.documents.counts()[0] == 1


def test_a_lease_from_before_the_clock_was_put_back_is_free(open_node: Open):
    killed, other = open_node("one"), open_node("other")
    assert killed.worker.acquire()
    with database_of(killed).write() as db:
        db.execute("UPDATE worker SET holder = 'killed', expires = expires + 3600")
    assert other.worker.acquire()


def test_a_lease_that_is_not_renewed_is_free_and_one_that_is_renewed_is_not(open_node: Open):
    knowledge_base = open_node("one")
    database = database_of(knowledge_base)
    lease, other = WorkLease(database, seconds=12.0), WorkLease(database, seconds=12.0)
    assert lease.acquire()
    first = database.row("SELECT holder, expires FROM worker")
    while (now := database.row("SELECT holder, expires FROM worker"))["expires"] == first["expires"]:
        time.sleep(0.05)
    assert now["holder"] == first["holder"]
    assert (other.acquire(), lease.acquire(), lease.taken) == (False, True, 1)
    lease.release()
    assert database.row("SELECT COUNT(*) FROM worker")[0] == 0


async def test_a_new_machine_goes_on_from_a_copy_of_the_folder_of_another_one(
    open_node: Open, tmp_path: Path
):
    one = open_node("one")
    await one.add_texts(TEXTS)
    one.close()
    shutil.copytree(tmp_path / "one", tmp_path / "new")
    built = {each.name: each.stat().st_ino for each in (tmp_path / "new").glob("*-1")}
    assert built
    open_node("other").submit(DocumentsRequest([DocumentDraft(uri="text:3", text="Jacquard lived in Lyon.")]))
    new = open_node("new")
    await new.worker.drain()
    assert "Jacquard" in await best(new, "Who lived in Lyon?")
    assert "Ada" in await best(new, "Who wrote the first program?")
    assert (await new.check()).sound
    assert {each.name: each.stat().st_ino for each in (tmp_path / "new").glob("*-1")} == built


async def test_a_machine_hears_of_changes_without_looking_for_them(url: str, tmp_path: Path):
    seldom = RAGConfig(waits=WaitSettings(work=3600.0))
    one = KnowledgeBase("手册", embedder="hashing", database=url, path=tmp_path / "one")
    other = KnowledgeBase("手册", embedder="hashing", database=url, path=tmp_path / "other", config=seldom)
    with closing(one), closing(other):
        await one.add_texts(TEXTS[:1])
        assert one.worker.acquire()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.work)
            with anyio.fail_after(60):
                while other.store.changes.state("words").watermark < 1:  # noqa: ASYNC110 - in files
                    await anyio.sleep(0.05)
                await one.add_texts(TEXTS[1:])
                head = one.store.changes.head()
                while other.store.changes.state("words").watermark < head:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()


async def test_a_machine_that_does_not_lead_embeds_and_gets_other_passages_than_the_one_that_does(
    open_node: Open,
):
    one, other = open_node("one"), open_node("other")
    await one.add_texts([*TEXTS, *(f"Loom number {n} was built in {1800 + n}." for n in range(6))])
    assert one.worker.acquire()  # and does nothing
    one.store.vectors.clear()
    vectors, others = one.store.vectors, other.store.vectors
    mine = vectors.claim(3)
    rest = others.claim(100)
    assert (len(mine), len(rest)) == (3, 5)
    assert {*mine, *rest} == {*vectors.pending(100)}
    assert (vectors.claim(100), others.is_any_claimed()) == ([], True)
    vectors.unclaim([key for key, _ in mine])
    assert others.claim(100) == mine
    with database_of(one).write() as db:  # the process that had claimed them was killed
        db.execute("UPDATE unembedded SET claimed = claimed - 30")
    assert not vectors.is_any_claimed()
    await other.worker.drain()
    assert (other.store.is_led, one.store.vectors.coverage()) == (False, (8, 8))


async def test_vectors_of_an_embedder_that_was_replaced_meanwhile_are_not_stored(url: str, tmp_path: Path):
    class Replaced(HashingEmbedder):
        async def embed(
            self, texts: Sequence[str], *, kind: EmbeddingKind = "passage"
        ) -> NDArray[np.float32]:
            knowledge_base.store.set("embedder", "another")
            return await super().embed(texts, kind=kind)

    knowledge_base = KnowledgeBase("手册", embedder=Replaced(), database=url, path=tmp_path)
    with closing(knowledge_base):
        await knowledge_base.add_texts(TEXTS)
        assert knowledge_base.store.vectors.coverage() == (0, 2)
        assert "another" in knowledge_base.worker.problem


async def test_a_change_of_embedder_is_done_by_all_machines_and_ended_by_the_one_that_leads(open_node: Open):
    one, other = open_node("one"), open_node("other")
    await one.add_texts(TEXTS)
    before, next_ = one.embedder_id, create_embedder("static")
    assert one.worker.acquire()
    one.store.next_vectors.begin(next_)
    await other.worker.drain()
    assert (one.store.next_vectors.coverage(), other.embedder_id) == ((2, 2), before)
    one.worker.release()
    await other.worker.drain()
    assert (one.store.get("embedder"), other.store.vectors.coverage()) == (next_.id, (2, 2))


async def test_a_job_with_files_waits_for_the_machine_that_has_them(open_node: Open, tmp_path: Path):
    knowledge_base = open_node("one")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "jacquard.md").write_text("# Jacquard\n\nHe built a loom in Lyon.", encoding="utf-8")
    job = await knowledge_base.add_paths([folder])
    assert (job.state, job.host) == ("done", knowledge_base.store.host)
    elsewhere: dict[str, object] = {
        "paths": [str(folder)],
        "include": [],
        "exclude": [],
        "metadata": {},
        "host": "elsewhere",
    }
    knowledge_base.store.jobs.submit(elsewhere, [], listed=False)
    assert len(await knowledge_base.add_texts([TEXTS[0]])) == 1
    waiting = knowledge_base.store.jobs.next()
    assert waiting is not None
    assert (waiting.state, waiting.host) == ("queued", "elsewhere")
    lease = WorkLease(database_of(knowledge_base))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(60):
            while not knowledge_base.store.is_led:  # noqa: ASYNC110 - a lease sends no event
                await anyio.sleep(0.02)
            with database_of(knowledge_base).write() as db:  # now that machine is heard of
                db.execute("INSERT INTO nodes VALUES ('elsewhere:/kb', 0, EXTRACT(EPOCH FROM now()) + 999)")
            while not await anyio.to_thread.run_sync(lease.acquire):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    lease.release()


async def test_a_machine_that_was_away_too_long_makes_its_indexes_from_scratch(open_node: Open):
    one, away = open_node("one"), open_node("away")
    await one.add_texts([TEXTS[0]])
    await away.worker.drain()
    assert "Ada" in await best(away, "first program")
    await one.add_texts([TEXTS[1], "Jacquard built a loom in Lyon."])
    await one.remove([row.id for row in one.documents.list()][:1])
    with one.store.database.write() as db:
        db.execute("DELETE FROM changes WHERE seq < ?", (one.store.changes.head(),))
    assert not one.store.changes.is_complete_since(away.store.changes.state("words").watermark)
    await away.worker.drain()
    assert "Jacquard" in await best(away, "Who built a loom?")
    assert "Ada" not in await best(away, "first program")
    assert (await away.check()).sound


async def test_changes_are_kept_for_a_machine_that_is_behind(open_node: Open):
    one, behind = open_node("one"), open_node("behind")
    await one.add_texts([TEXTS[0]])
    await behind.worker.drain()
    watermark = min(behind.store.changes.state(name).watermark for name in ("words", "vectors", "links"))
    await one.add_texts(["Jacquard built a loom in Lyon."])
    await one.worker.drain()
    assert one.store.changes.is_complete_since(watermark)
    generation = behind.store.changes.state("words").generation
    await behind.worker.drain()
    assert behind.store.changes.state("words").generation == generation
    assert "Jacquard" in await best(behind, "Who built a loom?")


async def test_indexes_of_another_store_of_that_name_are_not_used(open_node: Open):
    knowledge_base = open_node("one")
    await knowledge_base.add_texts(TEXTS)
    database_of(knowledge_base).drop()
    knowledge_base.close()
    fresh = open_node("one")
    assert await fresh.query("Who wrote the first program?") == []
    await fresh.add_texts(["Jacquard built a loom in Lyon."])
    assert "Jacquard" in await best(fresh, "Who built a loom?")
    assert (await fresh.check()).sound


async def test_the_settings_of_a_server_are_of_all_machines_and_indexes_of_each(open_node: Open):
    one, other = open_node("one"), open_node("other")
    await one.add_texts(TEXTS)
    one.store.changes.restart("remote", generation=7, watermark=3)
    assert other.store.changes.state("remote").generation == 7
    assert one.store.changes.state("words").built
    assert not other.store.changes.state("words").built


async def test_a_deleted_store_says_so(open_node: Open):
    knowledge_base = open_node("one")
    database_of(knowledge_base).drop()
    with pytest.raises(StoreError, match="is gone"):
        await knowledge_base.add_texts([TEXTS[0]])


def test_a_folder_with_a_store_of_its_own_is_refused(url: str, tmp_path: Path):
    KnowledgeBase("a", embedder=None, path=tmp_path).close()
    with pytest.raises(ConfigError, match="has a knowledge base of its own"):
        KnowledgeBase("a", embedder=None, path=tmp_path, database=url)


def test_a_database_and_memory_are_refused_together():
    with pytest.raises(InvalidInputError, match="in memory"):
        KnowledgeBase("a", database="postgresql://db.example/loom", memory=True)


async def test_a_home_has_the_knowledge_bases_of_its_database(url: str, tmp_path: Path):
    home, files = Library(tmp_path, database=url, embedder="hashing"), Catalogue(tmp_path)
    catalogue = home.catalogue
    assert (catalogue.list(), files.list()) == ([], [])
    before = catalogue.marks()
    for name, text in (("手册", TEXTS[1]), ("notes-2", TEXTS[0])):
        knowledge_base = await home.get(name, create=True, description=f"on {name}")
        await knowledge_base.add_texts([text], metadatas=[{"team": "red"}])
    assert catalogue.marks() != before
    assert (home.list(), files.list()) == (catalogue.list(), [])
    entries = {entry.name: entry for entry in home.list()}
    assert [(entry.documents, entry.chunks) for entry in entries.values()] == [(1, 1), (1, 1)]
    assert entries["手册"].source.description == "on 手册"
    assert "team" in entries["notes-2"].source.supported_filters
    assert entries["手册"].place == catalogue.place("手册")
    with database_of(knowledge_base).write() as db:
        db.execute("UPDATE format SET version = 99")
    assert [entry.name for entry in home.unusable()] == ["notes_2"] or home.unusable()[0].problem
    await home.delete("手册")
    assert "手册" not in {entry.name for entry in home.list()}
    with pytest.raises(NotFoundError):
        await home.get("手册")
    home.close()


async def test_a_knowledge_base_on_which_another_machine_works_is_not_deleted(url: str, tmp_path: Path):
    one = Library(tmp_path / "one", database=url, embedder="hashing")
    other = Library(tmp_path / "other", database=url, embedder="hashing")
    await one.get("a", create=True)
    assert (await other.get("a")).worker.acquire()
    with pytest.raises(StoreBusyError, match="pid"):
        await one.delete("a")
    other.close()
    await one.delete("a")
    one.close()


def test_a_server_that_does_not_answer_is_an_error_with_advice(tmp_path: Path, url: str):
    nowhere = "postgresql://loom@127.0.0.1:9/loom"
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9/loom cannot be asked"):
        Catalogue(tmp_path, database=nowhere).list()
    with pytest.raises(StoreError, match="cannot be asked"):
        KnowledgeBase("a", embedder=None, database=nowhere, path=tmp_path)


async def test_an_archive_goes_into_the_database_and_out_again(open_node: Open, tmp_path: Path):
    files = KnowledgeBase("a", embedder="hashing", path=tmp_path / "files")
    await files.add_texts(TEXTS, metadatas=[{"year": 1843}, {"year": 1637}])
    there = open_node("one")
    back = KnowledgeBase("b", embedder="hashing", path=tmp_path / "back")
    for source, target in ((files, there), (there, back)):
        archive = tmp_path / f"{source.name}.loomkb"
        await anyio.to_thread.run_sync(source.export, archive)
        with closing(ArchiveReader(archive)) as reader:
            await anyio.to_thread.run_sync(target.import_archive, reader)
        await target.worker.drain()
        assert content(target.store) == content(files.store)
        assert target.coverage() == (2, 2)
        assert (await target.check()).sound
    assert [
        item.metadata["year"] for item in await back.query("谁写了天工开物?", filters={"year": 1637})
    ] == [1637]
    files.close()
    back.close()


async def test_two_machines_import_at_the_same_time(open_node: Open, tmp_path: Path):
    one, other, archive = open_node("one"), open_node("other"), tmp_path / "a.loomkb"
    with closing(KnowledgeBase("a", embedder="hashing", path=tmp_path / "files")) as files:
        await files.add_texts(TEXTS)
        await anyio.to_thread.run_sync(files.export, archive)
    jobs: list[str] = []

    def import_on_the_other(_done: int, _total: int) -> None:
        with closing(ArchiveReader(archive)) as reader:
            jobs.append(other.import_archive(reader))

    with closing(ArchiveReader(archive)) as reader:
        jobs.append(one.import_archive(reader, progress=import_on_the_other))
    await one.worker.drain()
    assert [job.state for id_ in jobs if (job := one.store.jobs.get(id_))] == ["done", "done"]


async def test_another_embedder_takes_over_on_all_machines(open_node: Open):
    one, other = open_node("one"), open_node("other")
    await one.add_texts(TEXTS)
    await other.worker.drain()
    await one.change_embedder(create_embedder("static"))
    await other.worker.drain()
    assert other.embedder_id == one.embedder_id == create_embedder("static").id
    assert "天工开物" in await best(other, "谁写了天工开物?")
    assert (await other.check()).sound


async def test_damage_is_found_and_repaired(open_node: Open):
    knowledge_base = open_node("one")
    await knowledge_base.add_texts(TEXTS)
    damages = {
        "UPDATE chunks SET text = 'Something else.' WHERE key = 1": "does not match the text",
        "INSERT INTO entities (key, id) VALUES (99, 'unmentioned')": "entities are in no passage",
        "INSERT INTO boilerplate VALUES (99)": "refer to rows of 'chunks'",
        "UPDATE coverage SET unembedded = 7": "passages to embed",
    }
    with knowledge_base.store.database.write() as db:
        for statement in damages:
            db.execute(statement)
    found = "; ".join(finding.text for finding in (await knowledge_base.check()).findings)
    assert [text for text in damages.values() if text not in found] == []
    report = await knowledge_base.check(repair=True)
    assert (report.sound, len(report.repaired) >= len(damages)) == (True, True)
    assert "Ada" in await best(knowledge_base, "Who wrote the first program?")


async def test_a_large_graph_is_built_by_a_child_that_reads_the_database(open_node: Open):
    knowledge_base = open_node("one")
    await knowledge_base.add_texts(TEXTS)
    index = GraphIndex(knowledge_base.store, sharing_of(knowledge_base).place.folder, small=0)
    knowledge_base.store.changes.forget("graph")
    await anyio.to_thread.run_sync(index.sync_all)
    assert knowledge_base.store.changes.state("graph").built
    graph = index.graph_store() or (index.sync() or index.graph_store())
    assert graph is not None
    index.close()


async def test_a_machine_that_is_not_heard_of_for_a_day_is_not_waited_for(open_node: Open):
    one, away = open_node("one"), open_node("away")
    await one.add_texts([TEXTS[0]])
    await away.worker.drain()
    changes = one.store.changes
    with one.store.database.write() as db:
        db.execute("UPDATE nodes SET watermark = ?", (changes.head(),))
        db.execute("UPDATE nodes SET watermark = 0, seen = seen - 86000 WHERE id LIKE '%away'")
    assert not changes.prune()
    with one.store.database.write() as db:
        db.execute("UPDATE nodes SET seen = seen - 500 WHERE id LIKE '%away'")
    assert changes.prune()


@pytest.mark.slow
async def test_a_database_that_is_restarted_in_the_middle_loses_and_doubles_nothing(
    open_node: Open, server: PostgresServer
):
    nodes = [open_node("one"), open_node("other")]
    rest = "\n\n这一段不长。 It is as long as a batch needs." * 56  # several of them
    drafts = [DocumentDraft(uri=f"text:{n}", text=f"Ada wrote program {n}.{rest}") for n in range(60)]
    async with anyio.create_task_group() as tasks:
        for node in nodes:
            tasks.start_soon(node.work)
        job = nodes[0].submit(DocumentsRequest(drafts))
        with anyio.fail_after(120):
            while nodes[1].documents.counts()[0] == 0:  # noqa: ASYNC110 - the database sends no event
                await anyio.sleep(0.005)
            server.kill()
            with pytest.raises(StoreError, match="cannot be asked"):
                nodes[1].submit(
                    DocumentsRequest([DocumentDraft(uri="text:lost", text="Never acknowledged.")])
                )
            server.start()
            while not nodes[1].store.jobs.get(job).finished_at:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    for node in nodes:
        await node.worker.drain()
        assert sorted(row.uri for row in node.documents.list(limit=999)) == sorted(
            draft.uri for draft in drafts
        )
        assert (set(node.index_lag().values()), node.coverage()) == ({0}, (node.documents.counts()[1],) * 2)
        assert (await node.check()).sound
        assert "program 47" in await best(node, "Who wrote program 47?")


async def test_a_server_without_free_connections_says_so_and_all_goes_on_when_it_has_some(
    server: PostgresServer, url: str, tmp_path: Path
):
    with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE busy LOGIN PASSWORD '{PASSWORD}'".encode())
        administrator.execute("GRANT CREATE ON DATABASE postgres TO busy")
        theirs = url.replace("loom@", "busy@")
        with closing(
            KnowledgeBase("a", embedder="hashing", database=theirs, path=tmp_path)
        ) as knowledge_base:
            await knowledge_base.add_texts([TEXTS[0]])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(knowledge_base.work)
                administrator.execute("ALTER ROLE busy CONNECTION LIMIT 0")
                administrator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'busy'"
                )
                with pytest.raises(StoreError, match=r"too many connections.*Raise max_connections"):
                    await knowledge_base.add_texts([TEXTS[1]])
                with anyio.fail_after(60):
                    while "too many connections" not in knowledge_base.worker.problem:  # noqa: ASYNC110
                        await anyio.sleep(0.02)
                    administrator.execute("ALTER ROLE busy CONNECTION LIMIT 8")
                    await knowledge_base.add_texts([TEXTS[1]])
                    assert "天工开物" in await best(knowledge_base, "谁写了天工开物?")
                    while knowledge_base.worker.problem:  # noqa: ASYNC110
                        await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()
            assert knowledge_base.documents.counts()[0] == 2
            assert (await knowledge_base.check()).sound


async def test_the_character_0_is_treated_as_in_a_file(open_node: Open, tmp_path: Path):
    there, file = open_node("one"), KnowledgeBase("a", embedder="hashing", path=tmp_path / "file")
    answers: list[object] = []
    for knowledge_base in (there, file):
        metadata = {"te\0am": "red", "team": "re\0d", "title": "An\0other title"}
        await knowledge_base.add_texts(["Ada\0 wrote the first program.\0"], metadatas=[metadata])
        draft = DocumentDraft(uri="text:1", title="Tiangong\0 Kaiwu", text="\0宋应星写了《天工开物》。")
        knowledge_base.submit(DocumentsRequest([draft]))
        await knowledge_base.worker.drain()
        with pytest.raises(InvalidInputError, match="address of a document"):
            knowledge_base.submit(DocumentsRequest([DocumentDraft(uri="text:\0", text="Ada.")]))
        found = [
            await knowledge_base.query(question, filters=filters)
            for question, filters in (
                ("Who\0 wrote the first program?", None),
                ("\0", None),
                ("first program", {"team": "re\0d"}),
                ("first program", {"path": "a\0b"}),
            )
        ]
        rows = knowledge_base.documents.list()
        answers.append(
            (
                [(row.uri, row.title, row.metadata, knowledge_base.documents.text(row.key)) for row in rows],
                [[(item.id, item.content) for item in items] for items in found],
            )
        )
        assert (await knowledge_base.check()).sound
    assert answers[0] == answers[1]
    assert "\0" not in there.documents.text(1)
    assert await there.remove(["a\0b"]) == []
    file.close()


async def test_a_question_makes_at_most_eight_round_trips(server: PostgresServer, open_node: Open):
    with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as connection:
        connection.execute("ALTER ROLE loom SET log_statement = 'all'")
        try:
            node = open_node("one")
            await node.add_texts([f"{text} It is kept in Shelf {n}." for n, text in enumerate(TEXTS * 10)])
            question = "Where is the program by Ada Lovelace for the Analytical Engine?"
            assert "Ada" in await best(node, question)
            before = len(server.log)
            assert "Ada" in await best(node, question)
        finally:
            connection.execute("ALTER ROLE loom RESET log_statement")
    statements = re.findall(r"(?:statement|execute [^:]*): (.*)", server.log[before:])
    along = ("BEGIN", "COMMIT", "SELECT set_config")  # sent together with the statement of the transaction
    assert 4 <= len([each for each in statements if not each.startswith(along)]) <= 8, statements
