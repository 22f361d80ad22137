"""Directories of indexes that were damaged or exchanged while no one looked: found out, and rebuilt."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.store.changes import IndexName
from tests.fixtures.record_content import check_indexes

pytestmark = pytest.mark.slow

TOWNS = [f"# Visby{n}\n\nVisby{n} lies on the island Gotland{n}, near Klinte{n}." for n in range(12)]
FILMS = [f"# 静港{n}\n\n《静港{n}》是一部电影，由林若曦{n}执导，在厦门拍摄。" for n in range(12)]


def build(path: Path, texts: list[str], *, config: RAGConfig | None = None) -> None:
    knowledge_base = opened(path, config=config)
    asyncio.run(knowledge_base.add_texts(texts))
    asyncio.run(knowledge_base.worker.drain())
    knowledge_base.close()


def opened(path: Path, *, config: RAGConfig | None = None) -> GraphRAGKnowledgeBase:
    return GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=path, config=config
    )


async def serve_until_rebuilt(knowledge_base: GraphRAGKnowledgeBase, name: IndexName) -> None:
    """Work as a server does, whose graph is asked, until an index was rebuilt and all is done."""
    state = knowledge_base.store.changes.state
    (key,) = knowledge_base.store.graph.keys(limit=1)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(knowledge_base.work)
            while state(name).generation == 1 or any(knowledge_base.index_lag().values()):
                await to_thread.run_sync(
                    lambda: knowledge_base.ask_graph(lambda store: store.get([key]), around=[key], hops=1)
                )
                knowledge_base.worker.wake()
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()


def index(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"{name}-*")
    return path


@pytest.mark.parametrize("name", ["words", "vectors", "graph"])
def test_an_index_of_another_knowledge_base_is_found_out(name: IndexName, tmp_path: Path) -> None:
    build(tmp_path / "towns", TOWNS)
    build(tmp_path / "films", FILMS)
    ours, other = index(tmp_path / "towns", name), index(tmp_path / "films", name)
    ours.rename(tmp_path / "kept")
    other.rename(ours)
    knowledge_base = opened(tmp_path / "towns")
    asyncio.run(serve_until_rebuilt(knowledge_base, name))
    answer = asyncio.run(knowledge_base.search("Where is Visby7?"))
    assert "Gotland7" in answer.items[0].content
    check_indexes(knowledge_base)
    assert asyncio.run(knowledge_base.check()).findings == []
    knowledge_base.close()


def test_an_index_that_another_process_went_on_with_is_not_taken_for_damaged(tmp_path: Path) -> None:
    build(tmp_path / "kb", TOWNS[:6])
    peer = opened(tmp_path / "kb")
    assert asyncio.run(peer.search("Where is Visby1?")).items  # from now on it has the index open
    build(tmp_path / "kb", TOWNS[6:])
    asyncio.run(peer.worker.drain())
    assert peer.store.changes.state("words").generation == 1
    assert "Gotland7" in asyncio.run(peer.search("Where is Visby7?")).items[0].content
    peer.close()


@pytest.mark.parametrize("name", ["words", "vectors", "graph"])
@pytest.mark.parametrize("damage", ["emptied", "truncated", "gone"])
def test_damaged_files_do_not_keep_a_question_from_its_answer(
    name: IndexName, damage: str, tmp_path: Path
) -> None:
    build(tmp_path / "kb", TOWNS)
    path = index(tmp_path / "kb", name)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        if damage == "gone":
            file.unlink()
        else:
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    knowledge_base = opened(tmp_path / "kb")
    answer = asyncio.run(knowledge_base.search("Where is Visby7?"))
    assert "Gotland7" in answer.items[0].content
    asyncio.run(serve_until_rebuilt(knowledge_base, name))
    assert asyncio.run(knowledge_base.check()).findings == []
    knowledge_base.close()


# -- Chroma -----------------------------------------------------------------------------------------

CHROMA = RAGConfig(vectors="chroma")


async def ask_until_chroma_is_rebuilt(knowledge_base: GraphRAGKnowledgeBase) -> None:
    """Work as a server does that is asked, and see that every question is answered meanwhile."""
    state = knowledge_base.store.changes.state
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(knowledge_base.work)
            while state("chroma").generation == 1 or any(knowledge_base.index_lag().values()):
                answer = await knowledge_base.search("Where is Visby7?")
                assert "Gotland7" in answer.items[0].content
                knowledge_base.worker.wake()
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()


def exchange(ours: Path, other: Path) -> None:
    shutil.rmtree(ours)
    shutil.copytree(other, ours)


def truncate(ours: Path, other: Path) -> None:
    for file in ours.rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [exchange, truncate])
def test_damage_of_chroma_is_told_by_a_check_found_at_work_and_mended(
    damage: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    build(tmp_path / "towns", TOWNS, config=CHROMA)
    build(tmp_path / "others", [text.replace("Visby", "Borgholm") for text in TOWNS], config=CHROMA)
    damage(index(tmp_path / "towns", "chroma"), index(tmp_path / "others", "chroma"))
    knowledge_base = opened(tmp_path / "towns", config=CHROMA)
    (finding,) = asyncio.run(knowledge_base.check()).findings
    assert finding.keys == ("chroma",)
    asyncio.run(ask_until_chroma_is_rebuilt(knowledge_base))
    report = asyncio.run(knowledge_base.check())
    assert report.findings == []
    assert report.checked[-1] == "indexes: words, vectors, links, graph, chroma"
    knowledge_base.close()


def test_a_check_finds_vectors_that_chroma_lacks_has_too_many_of_or_has_otherwise(tmp_path: Path) -> None:
    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex

    build(tmp_path / "kb", TOWNS, config=CHROMA)
    path = index(tmp_path / "kb", "chroma")
    knowledge_base = opened(tmp_path / "kb", config=CHROMA)
    keys = knowledge_base.store.documents.chunk_keys()
    _, vectors = knowledge_base.store.vectors.of(keys)
    chroma = ChromaVectorIndex(path, dimension=vectors.shape[1], group="alphabetic")
    chroma.delete(keys[:1])
    chroma.upsert([10_000], vectors[:1])
    chroma.upsert(keys[1:3], vectors[2:4])
    chroma.close()
    found = [finding.text for finding in asyncio.run(knowledge_base.check()).findings]
    assert found == [
        "1 of 12 passages are not in the index 'chroma'",
        "the index 'chroma' has 1 passages that are gone, or there twice",
        "the index 'chroma' has other vectors for 2 of 11 passages examined",
    ]
    assert asyncio.run(knowledge_base.check(repair=True)).sound
    assert knowledge_base.store.changes.state("chroma").generation == 2
    knowledge_base.close()


# -- something else in an index's place --------------------------------------------------------------


def put_file(place: Path, base: Path) -> None:
    place.write_text("a file", encoding="utf-8")


def put_dangling_link(place: Path, base: Path) -> None:
    place.symlink_to(base / "nowhere" / "at all")


def put_link_elsewhere(place: Path, base: Path) -> None:
    (base / "precious").mkdir()
    (base / "precious" / "file").write_text("precious", encoding="utf-8")
    place.symlink_to(base / "precious")


def put_pipe(place: Path, base: Path) -> None:
    os.mkfifo(place)


def put_another_index(place: Path, base: Path) -> None:
    other = index(place.parent, "vectors" if place.name.startswith("words") else "words")
    shutil.copytree(other, place)


@pytest.mark.parametrize("name", ["words", "vectors", "graph"])
@pytest.mark.parametrize(
    "put", [put_file, put_dangling_link, put_link_elsewhere, put_pipe, put_another_index]
)
def test_whatever_is_in_the_place_of_an_index_it_is_rebuilt(
    name: IndexName, put: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    build(tmp_path / "kb", TOWNS)
    place = index(tmp_path / "kb", name)
    place.unlink() if place.is_file() else shutil.rmtree(place)
    put(place, tmp_path)
    knowledge_base = opened(tmp_path / "kb")
    answer = asyncio.run(knowledge_base.search("Where is Visby7?"))
    assert "Gotland7" in answer.items[0].content
    asyncio.run(serve_until_rebuilt(knowledge_base, name))
    assert asyncio.run(knowledge_base.check()).findings == []
    assert not os.path.lexists(place)
    if put is put_link_elsewhere:
        assert (tmp_path / "precious" / "file").read_text(encoding="utf-8") == "precious"
    knowledge_base.close()
