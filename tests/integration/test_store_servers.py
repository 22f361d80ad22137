"""Real vector databases, killed while a knowledge base writes to them: in the end they equal the record."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import anyio
import numpy as np
import pytest

from loom_core.knowledge import KnowledgeBase, RAGConfig
from loom_core.knowledge.indexes.remote_vectors import RemoteVectors
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from tests.fixtures.store_servers import StoreServer
from tests.fixtures.store_servers.chroma import run_chroma
from tests.fixtures.store_servers.milvus import PASSWORD as MILVUS_PASSWORD
from tests.fixtures.store_servers.milvus import USER, run_milvus, skip_unless_wanted
from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres

_PASSAGES = 1100  # a database gets a thousand at a time


@pytest.fixture(
    params=["pgvector", "chroma", pytest.param("milvus", marks=pytest.mark.timeout(600))],
)
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[StoreServer, str]]:
    """A server, and the setting that names it."""
    if request.param == "pgvector":
        monkeypatch.setenv("LOOM_VECTORS_SECRET", PASSWORD)
        with run_postgres() as postgres:
            yield postgres, postgres.setting()
    elif request.param == "milvus":
        skip_unless_wanted()
        monkeypatch.setenv("LOOM_VECTORS_SECRET", MILVUS_PASSWORD)
        with run_milvus(tmp_path / "milvus") as milvus:
            yield milvus, f"milvus+http://{USER}@127.0.0.1:{milvus.port}"
    else:
        with run_chroma(tmp_path / "chroma") as chroma:
            yield chroma, f"chroma+http://127.0.0.1:{chroma.port}"


def opened(folder: Path, vectors: str = "") -> KnowledgeBase:
    config = RAGConfig(
        vectors=vectors,
        extraction=ExtractionConfig(enabled=False),
        chunker="simple",
        chunker_options={"chunk_size": 60},
    )
    return KnowledgeBase("notes", path=folder, embedder="hashing", config=config)


def text(first: int, count: int) -> str:
    return "\n\n".join(f"第 {n} 段：渔船 {n * 7919} leaves harbour {n}." for n in range(first, first + count))


def assert_equal(knowledge_base: KnowledgeBase, folder: Path) -> None:
    """Compare the database with the record, vector by vector."""
    store = knowledge_base.store
    keys = store.documents.chunk_keys(limit=1_000_000)
    assert store.vectors.coverage() == (len(keys), len(keys))
    index = RemoteVectors.known(store, folder)
    assert index is not None
    with closing(index):
        assert sorted(index.ask(lambda collection: collection.keys())) == keys
        held = index.ask(lambda collection: collection.vectors(keys))
    found, expected = store.vectors.of(keys)
    assert np.allclose(np.stack([held[key] for key in found]), expected, atol=2e-3)


async def catch_up(knowledge_base: KnowledgeBase) -> None:
    """Work until the database has everything; Milvus takes 40 s after a kill until it can be asked."""
    await knowledge_base.worker.drain()
    while knowledge_base.worker.problem:
        await anyio.sleep(0.5)
        await knowledge_base.worker.drain()


async def test_a_database_killed_while_it_is_written_to_equals_the_record_in_the_end(
    database: tuple[StoreServer, str], tmp_path: Path
):
    server, setting = database
    folder = tmp_path / "notes"
    knowledge_base = opened(folder, setting)
    source = tmp_path / "harbours.txt"
    source.write_text(text(0, _PASSAGES), encoding="utf-8")
    built: list[int] = []

    def kill_in_the_middle() -> None:
        done, last = knowledge_base.moving_progress()
        if 0 < done < last and not built:
            built.append(done)
            server.kill()

    await knowledge_base.add_paths([source], progress=kill_in_the_middle)
    assert built
    assert "cannot be asked" in knowledge_base.worker.problem
    assert (await knowledge_base.search("渔船 7919")).items
    knowledge_base.close()

    server.start()
    knowledge_base = opened(folder)
    await catch_up(knowledge_base)
    assert_equal(knowledge_base, folder)

    server.kill()  # and now it misses changes of a collection that is there
    await knowledge_base.add_texts([text(_PASSAGES, 300)])
    await knowledge_base.remove([(await knowledge_base.query("harbour 5", 1))[0].metadata["document_id"]])
    knowledge_base.close()
    server.start()
    knowledge_base = opened(folder)
    await catch_up(knowledge_base)
    assert_equal(knowledge_base, folder)
    assert (await knowledge_base.check()).sound
    knowledge_base.close()
