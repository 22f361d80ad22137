"""Another embedder takes over when there are all its vectors, and not before."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.embedding.interface import EmbeddingKind
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from tests.fixtures.fork_server import starts_quickly

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

pytestmark = pytest.mark.slow


class Broken(HashingEmbedder):
    """An embedder of another name that fails, until it is mended."""

    broken = True

    @property
    def id(self) -> str:
        return "broken/512"

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        if self.broken:
            raise EmbeddingError("It is broken.")
        return await super().embed(texts, kind=kind)


STATIC = create_embedder("static").id
HASHING = create_embedder("hashing").id


def vectors_found(knowledge_base: GraphRAGKnowledgeBase) -> bool:
    answer = asyncio.run(knowledge_base.search("the capital of France"))
    return answer.items[0].metadata["scores"].get("vector", 0.0) > 0


async def steps(knowledge_base: GraphRAGKnowledgeBase, count: int) -> None:
    assert knowledge_base.worker.acquire()
    for _ in range(count):
        await knowledge_base.worker._step()


def test_the_vectors_are_those_of_the_new_embedder_afterwards(filled, open_kb, tmp_path: Path):
    asyncio.run(filled.change_embedder(create_embedder("static")))
    assert filled.embedder_id == filled.store.get("embedder") == STATIC
    assert filled.store.get("dimension") == "256"
    assert vectors_found(filled)
    assert asyncio.run(filled.check()).sound
    other = open_kb(tmp_path / "other", embedder="static")
    asyncio.run(
        other.add_texts(
            [filled.store.documents.text(row.key) for row in filled.store.documents.list()],
            uris=[row.uri for row in filled.store.documents.list()],
        )
    )
    sql = "SELECT hash, vector FROM vectors ORDER BY hash"
    assert list(map(tuple, filled.store.database.rows(sql))) == list(
        map(tuple, other.store.database.rows(sql))
    )


def test_until_then_questions_are_answered_by_the_old_one(filled):
    filled.submit_embedder(create_embedder("static"))
    assert filled.store.next_vectors.target_embedder() == STATIC
    assert filled.embedder_id == HASHING
    assert vectors_found(filled)


def test_documents_that_come_meanwhile_have_vectors_before_and_after(filled):
    filled.submit_embedder(create_embedder("static"))
    asyncio.run(steps(filled, 1))
    assert filled.reembedding_progress()[0] > 0
    filled.submit(DocumentsRequest([]))
    asyncio.run(filled.add_texts(["# Rome\n\nA new note about Rome."]))
    assert filled.embedder_id == STATIC
    assert filled.coverage()[0] == filled.coverage()[1]
    assert asyncio.run(filled.check()).sound


def test_changing_back_calls_it_off(filled):
    filled.submit_embedder(create_embedder("static"))
    asyncio.run(steps(filled, 1))
    filled.submit_embedder(create_embedder("hashing"))
    assert filled.store.next_vectors.target_embedder() == ""
    asyncio.run(filled.worker.drain())
    assert filled.embedder_id == HASHING
    assert filled.store.database.rows("SELECT * FROM next_vectors") == []


def test_an_embedder_that_fails_leaves_the_old_one_in_charge_and_goes_on_when_mended(filled):
    embedder = Broken()
    with pytest.raises(EmbeddingError, match="It is broken"):
        asyncio.run(filled.change_embedder(embedder))
    assert filled.embedder_id == HASHING
    assert vectors_found(filled)
    embedder.broken = False
    filled.worker._reembedding._retry_at = 0.0
    asyncio.run(filled.change_embedder(embedder))
    assert filled.embedder_id == "broken/512"


def test_another_process_that_was_open_notices_and_does_not_mix(filled, open_kb):
    second = open_kb()
    assert vectors_found(second)
    asyncio.run(filled.change_embedder(create_embedder("static")))
    assert vectors_found(second)
    assert second.embedder_id == STATIC


CHILD = """
import sys
import anyio
from pathlib import Path
from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

async def main(folder, after):
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider="stored", path=Path(folder))
    knowledge_base.submit_embedder(create_embedder("static"))
    steps = 0

    def progress():
        nonlocal steps
        steps += 1
        if steps == int(after):
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)

    await knowledge_base.worker.drain(progress=progress)

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_change_that_was_killed_goes_on(filled, open_kb, folder: Path, after: int):
    filled.close()
    done = subprocess.run([sys.executable, "-c", starts_quickly(CHILD), str(folder), str(after)], check=False)
    assert done.returncode == -signal.SIGKILL
    again = GraphRAGKnowledgeBase.from_config(embedding_provider="stored", path=folder)
    asyncio.run(again.worker.drain())
    assert again.store.get("embedder") == STATIC
    assert vectors_found(again)
    assert asyncio.run(again.check()).sound
    again.close()


def test_without_the_old_embedder_words_and_graph_answer_until_it_is_done(filled, folder: Path):
    filled.store.set("embedder", "gone/1")
    filled.store.set("embedding_config", '{"provider": "local", "model": "gone"}')
    answer = asyncio.run(filled.search("the capital of France"))
    assert answer.items
    assert any("gone/1" in note for note in answer.notes)
    asyncio.run(filled.change_embedder(create_embedder("static")))
    assert filled.embedder_id == STATIC
    assert vectors_found(filled)


def test_a_knowledge_base_opened_without_an_embedder_changes_none(filled, folder: Path):
    plain = GraphRAGKnowledgeBase.from_config(path=folder)
    with pytest.raises(ConfigError, match="without an embedder"):
        plain.submit_embedder(create_embedder("static"))
    plain.close()
