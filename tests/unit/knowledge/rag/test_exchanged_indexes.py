"""Directories of indexes that were damaged or exchanged while nobody looked: found out, and built anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.record.changes import IndexName
from loom_core.testing.record_content import check_indexes

TOWNS = [f"# Visby{n}\n\nVisby{n} lies on the island Gotland{n}, near Klinte{n}." for n in range(12)]
FILMS = [f"# 静港{n}\n\n《静港{n}》是一部电影，由林若曦{n}执导，在厦门拍摄。" for n in range(12)]


def build(path: Path, texts: list[str]) -> None:
    knowledge_base = opened(path)
    asyncio.run(knowledge_base.add_texts(texts))
    knowledge_base.close()


def opened(path: Path) -> GraphRAGKnowledgeBase:
    return GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"), path=path)


async def serve_until_rebuilt(knowledge_base: GraphRAGKnowledgeBase, name: IndexName) -> None:
    """Work as a server does, whose graph is asked, until an index was built anew and all is done."""
    state = knowledge_base.record.changes.state
    (key,) = knowledge_base.record.graph.keys(limit=1)
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
