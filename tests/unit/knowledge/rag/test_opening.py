"""A knowledge base in a folder: opened again, by another process, after damage, with another embedder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, StoreError
from loom_core.knowledge.indexes import ChromaDenseSearch
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.indexes.vectors import VectorIndexes
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.rag.requests import DocumentsRequest, text_drafts
from loom_core.knowledge.retrieval.config import WaitSettings
from loom_core.knowledge.retrieval.searcher import SearchAnswer
from tests.fixtures import processes

pytestmark = pytest.mark.slow

TEXTS = {
    "Zell": "Zell is a town in Austria. Anna Berg was born there.",
    "Anna Berg": "Anna Berg painted the sea. She lived in Lübeck.",
    "厦门": "厦门是福建省的海滨城市，有鼓浪屿。",
}
QUESTIONS = ("Where was the painter of the sea born?", "厦门有什么？", "Zell")


def opened(path: Path, *, embedder: str = "hashing") -> GraphRAGKnowledgeBase:
    return GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder(embedder) if embedder else None, path=path
    )


async def filled(path: Path, *, embedder: str = "hashing") -> GraphRAGKnowledgeBase:
    knowledge_base = opened(path, embedder=embedder)
    await knowledge_base.add_texts(list(TEXTS.values()), titles=list(TEXTS))
    return knowledge_base


async def answers(knowledge_base: GraphRAGKnowledgeBase) -> list[list[tuple[str, str]]]:
    return [
        [(item.id, item.content) for item in (await knowledge_base.search(question)).items]
        for question in QUESTIONS
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are seen on Linux only")
@pytest.mark.parametrize("on_disk", [False, True])
async def test_the_processes_that_prepare_documents_end_when_it_is_closed(tmp_path: Path, *, on_disk):
    began = processes.clock_ticks()
    path = tmp_path / "kb" if on_disk else None
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=path
    )
    await knowledge_base.add_texts([f"Text number {n}." for n in range(100)])  # many: prepared in children
    assert on_disk or processes.started_since(began)
    knowledge_base.close()
    assert not processes.left_after(5.0, lambda: processes.started_since(began))


async def test_a_knowledge_base_that_is_opened_again_answers_the_same(tmp_path: Path):
    knowledge_base = await filled(tmp_path / "kb")
    before = await answers(knowledge_base)
    assert all(before)
    knowledge_base.close()
    knowledge_base = opened(tmp_path / "kb")
    assert await answers(knowledge_base) == before
    assert knowledge_base.index_lag() == {"words": 0, "graph": 0, "vectors": 0}
    knowledge_base.close()


async def test_a_folder_and_memory_answer_the_same(tmp_path: Path):
    on_disk, in_memory = await filled(tmp_path / "kb"), opened(None)
    await in_memory.add_texts(list(TEXTS.values()), titles=list(TEXTS))
    assert [set(a) for a in await answers(on_disk)] == [set(a) for a in await answers(in_memory)]
    on_disk.close()
    in_memory.close()


async def test_what_a_knowledge_base_is_said_to_hold_is_remembered(tmp_path: Path):
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        path=tmp_path / "kb",
        name="places",
        description="Towns.",
        search_hints=["towns", "who was born where"],
    )
    knowledge_base.close()
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=tmp_path / "kb")
    assert knowledge_base.name == "default"
    assert knowledge_base.description == "Towns."
    assert list(knowledge_base.search_hints) == ["towns", "who was born where"]
    knowledge_base.close()


async def test_vectors_of_two_embedders_are_never_mixed(tmp_path: Path):
    (await filled(tmp_path / "kb")).close()
    with pytest.raises(ConfigError, match="hashing/512-1") as caught:
        opened(tmp_path / "kb", embedder="static")
    assert "same embedder" in caught.value.advice
    (opened(tmp_path / "kb")).close()


@pytest.mark.slow
async def test_without_its_embedder_a_knowledge_base_answers_by_words_and_graph(tmp_path: Path):
    (await filled(tmp_path / "kb")).close()
    knowledge_base = opened(tmp_path / "kb", embedder="")
    await knowledge_base.add_texts(["A new town called Basel."])
    answer = await knowledge_base.search("Basel")
    assert (answer.strategy, answer.embedded, answer.chunks) == ("graph_only", 3, 4)
    assert answer.items[0].content == "A new town called Basel."
    knowledge_base.close()
    knowledge_base = opened(tmp_path / "kb")
    await knowledge_base.worker.drain()
    assert knowledge_base.coverage() == (4, 4)
    assert knowledge_base.index_lag()["vectors"] == 0
    knowledge_base.close()


async def test_the_first_embedder_of_a_knowledge_base_embeds_what_is_there(tmp_path: Path):
    (await filled(tmp_path / "kb", embedder="")).close()
    assert not list((tmp_path / "kb").glob("vectors-*"))
    knowledge_base = opened(tmp_path / "kb")
    await knowledge_base.worker.drain()
    assert knowledge_base.coverage() == (3, 3)
    knowledge_base.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    with pytest.raises(ConfigError, match="cannot be made") as caught:
        opened(tmp_path / "file" / "kb")
    assert caught.value.advice


def test_a_record_that_is_no_database_is_told(tmp_path: Path):
    (tmp_path / "record.db").write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match="not a database"):
        opened(tmp_path)


@pytest.mark.slow
async def test_a_damaged_index_costs_one_rebuild_and_no_answer(tmp_path: Path):
    knowledge_base = await filled(tmp_path)
    before = await answers(knowledge_base)
    knowledge_base.close()
    for file in (tmp_path / "words-1").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    knowledge_base = opened(tmp_path)
    assert [set(found) for found in await answers(knowledge_base)] == [set(found) for found in before]
    await knowledge_base.add_texts(["A new town called Basel."])
    assert (await knowledge_base.query("Basel", 1))[0].content == "A new town called Basel."
    assert knowledge_base.store.changes.state("words").generation == 2
    knowledge_base.close()


async def gone_while_others_ask(knowledge_base: GraphRAGKnowledgeBase, index: Path) -> SearchAnswer:
    """Return the results of a question to an index that has just gone, which the worker is to rebuild."""
    before = await answers(knowledge_base)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(60):
            await knowledge_base.worker.drain()
            async with knowledge_base.worker._turn:  # the worker is at something else for a while
                knowledge_base.worker.release()
                shutil.rmtree(index)
                found = await knowledge_base.search("Zell")
            await knowledge_base.worker.drain()
        assert await answers(knowledge_base) == before
        tasks.cancel_scope.cancel()
    return found


async def test_a_word_index_that_is_gone_is_rebuilt_while_others_ask(tmp_path: Path):
    knowledge_base = await filled(tmp_path)
    found = await gone_while_others_ask(knowledge_base, tmp_path / "words-1")
    assert found.notes == ("the index of words is being rebuilt: ask again in a moment",)
    knowledge_base.close()


@pytest.mark.slow
async def test_chroma_answers_where_it_is_asked_for_and_the_flat_index_while_it_cannot(tmp_path: Path):
    (await filled(tmp_path)).close()
    exact, chroma = (
        GraphRAGKnowledgeBase.from_config(
            embedding_provider=create_embedder("hashing"),
            path=tmp_path,
            config=RAGConfig(vectors=choice),
        )
        for choice in ("exact", "chroma")
    )
    before = await answers(exact)
    assert isinstance(exact._vectors.current(), LanguageVectors)
    await chroma.worker.drain()
    assert chroma.worker.acquire()
    assert isinstance(chroma._vectors.current(), LanguageVectors)  # it is opened by the next step
    while chroma._vectors.sync():
        pass
    assert isinstance(chroma._vectors.current(), ChromaDenseSearch)
    assert await answers(chroma) == before
    indexes = chroma._vectors._select_chroma().searcher()
    index = indexes["alphabetic"]
    index._client.delete_collection(index._collection.name)
    assert await answers(chroma) == before  # the question that finds the damage is answered as well
    assert isinstance(chroma._vectors.current(), LanguageVectors)
    while chroma._vectors.sync():
        pass
    assert chroma.store.changes.state("chroma").generation == 2
    assert isinstance(chroma._vectors.current(), ChromaDenseSearch)
    assert await answers(chroma) == before
    chroma.close()
    assert (tmp_path / "chroma-2").is_dir()
    exact.move(vectors="exact")
    await exact.worker.drain()
    assert not (tmp_path / "chroma-2").exists()
    exact.close()


@pytest.mark.slow
async def test_chroma_is_built_above_a_number_of_vectors_and_removed_well_below_it(tmp_path: Path):
    knowledge_base = await filled(tmp_path)
    store = knowledge_base.store
    count = store.vectors.coverage()[0]

    def follow(exact_up_to: int) -> list[str]:
        vectors = VectorIndexes(store, folder=tmp_path, lock=None, exact_up_to=exact_up_to)
        while vectors.sync():
            pass
        names = [index.name for index in vectors.maintained]
        assert vectors.lag() == 0
        vectors.close()
        return names

    assert follow(count) == ["vectors"]
    assert follow(count - 1) == ["vectors", "chroma"]
    assert (tmp_path / "chroma-1").is_dir()
    assert follow(count) == ["vectors", "chroma"]
    assert follow(2 * count) == ["vectors"]
    assert not (tmp_path / "chroma-1").exists()
    knowledge_base.close()


async def test_a_question_is_answered_without_vectors_while_they_are_reindexed(tmp_path: Path):
    knowledge_base = await filled(tmp_path)
    found = await gone_while_others_ask(knowledge_base, tmp_path / "vectors-1")
    assert found.notes == ("the index of vectors is being rebuilt: ask again in a moment",)
    assert found.items
    assert knowledge_base.store.changes.state("vectors").generation == 2
    knowledge_base.close()


async def test_names_that_were_still_to_be_looked_for_survive_a_damaged_index(tmp_path: Path):
    knowledge_base = await filled(tmp_path)
    links = "SELECT COUNT(*) AS n FROM mentions WHERE method = 'title'"
    before = knowledge_base.store.database.rows(links)[0]["n"]
    with knowledge_base.store.database.write() as db:  # as a process leaves it that dies before looking
        db.execute("DELETE FROM mentions WHERE method = 'title'")
        db.execute(
            "INSERT INTO new_names (entity) SELECT DISTINCT entity FROM abouts WHERE source != 'first_phrase'"
        )
    for file in (tmp_path / "words-1").glob("*.*"):
        if file.name != "meta.json":
            file.write_bytes(b"")
    await knowledge_base.worker.drain()
    assert knowledge_base.store.database.rows(links)[0]["n"] == before
    assert knowledge_base.store.graph.new_names() == []
    assert knowledge_base.store.changes.state("words").generation == 2
    knowledge_base.close()


def limit_pages(knowledge_base: GraphRAGKnowledgeBase, *, more: int) -> None:
    with knowledge_base.store.database.read() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + more}")


async def test_a_disk_that_is_full_stops_the_work_and_loses_nothing():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    job = knowledge_base.submit(DocumentsRequest(text_drafts(["A town called Zell. " * 500, "The end."])))
    limit_pages(knowledge_base, more=2)
    with pytest.raises(StoreError, match="full"):
        await knowledge_base.worker.drain()
    assert knowledge_base.job(job).counts == {"pending": 2}
    limit_pages(knowledge_base, more=10_000)
    await knowledge_base.worker.drain()
    assert knowledge_base.job(job).counts == {"added": 2}
    knowledge_base.close()


async def test_work_in_the_background_waits_for_a_full_disk_and_tells_so():
    config = RAGConfig(waits=WaitSettings(work=0.01, retry=0.01))
    knowledge_base = GraphRAGKnowledgeBase.from_config(config=config)
    await knowledge_base.add_texts(["The river Anna."])
    job = knowledge_base.submit(DocumentsRequest(text_drafts(["A town called Zell. " * 500])))
    limit_pages(knowledge_base, more=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(30):
            while not knowledge_base.worker.problem:  # noqa: ASYNC110 - no one sets an event for tests
                await anyio.sleep(0.01)
            assert "full" in (await knowledge_base.search("river")).notes[0]
            limit_pages(knowledge_base, more=10_000)
            while not knowledge_base.job(job).finished or knowledge_base.worker.problem:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert (await knowledge_base.search("river")).notes == ()
        tasks.cancel_scope.cancel()
    knowledge_base.close()


async def test_work_in_the_background_waits_for_a_lock_that_cannot_be_written(tmp_path: Path):
    config = RAGConfig(waits=WaitSettings(work=0.01, retry=0.01))
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=tmp_path, config=config)
    (tmp_path / "lock").unlink(missing_ok=True)
    (tmp_path / "lock").mkdir()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(30):
            while "lock" not in knowledge_base.worker.problem:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.01)
            (tmp_path / "lock").rmdir()
            while not knowledge_base.worker.is_owner:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    knowledge_base.close()


HOLDER = """
import sys
import anyio
from pathlib import Path
from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

async def main():
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=Path(sys.argv[1])
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        await knowledge_base.add_texts(["The first process wrote about Zell."])
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        print([item.content for item in await knowledge_base.query("Lübeck", 1)], flush=True)
        tasks.cancel_scope.cancel()
    knowledge_base.close()

anyio.run(main)
"""


def start(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
    )


@pytest.mark.slow
async def test_two_processes_share_a_folder(tmp_path: Path):
    path = tmp_path / "kb"
    holder = start(HOLDER, path)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline().strip() == "ready"
        knowledge_base = opened(path)
        assert not knowledge_base.worker.acquire()
        (item,) = await knowledge_base.query("Zell", 1)
        assert "first process" in item.content
        with anyio.fail_after(60):
            await knowledge_base.add_texts(["The second process wrote about Lübeck."])
        assert not knowledge_base.worker.is_owner
        with anyio.fail_after(60):
            (item,) = await knowledge_base.query("Lübeck", 1)
            while "vector" not in item.metadata["scores"]:  # it is embedded after it is found by words
                (item,) = await knowledge_base.query("Lübeck", 1)
        assert "second process" in item.content
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline().strip() == "['The second process wrote about Lübeck.']"
        assert holder.wait(timeout=60) == 0
    finally:
        holder.kill()
        holder.communicate()
    await knowledge_base.add_texts(["Now the second process works itself, in Basel."])
    assert "Basel" in (await knowledge_base.query("Basel", 1))[0].content
    assert knowledge_base.index_lag() == {"words": 0, "graph": 0, "vectors": 0}
    knowledge_base.close()
