"""The embedder's configuration goes with the data, and makes the embedder again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx2
import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.embedding.remote_models.openai_compatible import OpenAICompatibleEmbedder
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import RAGConfig, WaitSettings
from loom_core.net.retry import RetryPolicy
from tests.fixtures.embedding_server import EmbeddingServer

pytestmark = pytest.mark.slow

CONFIG = {"provider": "local", "model": "hashing/512-1"}


class ElsewhereEmbedder(EmbeddingProvider):
    """Makes vectors somewhere else."""

    id = "elsewhere"
    dimension = 4

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def config(self) -> dict[str, str]:
        return {
            "provider": "elsewhere",
            "model": "m",
            "base_url": self._url,
            "api_key_env": "ELSEWHERE_KEY",
        }

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        return np.tile(np.float32([1, 0, 0, 0]), (len(texts), 1))


def test_a_knowledge_base_without_an_embedder_has_no_configuration():
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider="stored")
    assert (knowledge_base.embedding_config, knowledge_base.strategy) == ({}, "graph_only")
    knowledge_base.close()


async def test_the_stored_embedder_answers_as_the_one_before(tmp_path: Path):
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        path=tmp_path, embedding_provider=create_embedder("hashing")
    )
    await knowledge_base.add_texts(["Zell is a town in Austria.", "厦门是城市。"])
    assert knowledge_base.embedding_config == CONFIG
    assert create_embedder(knowledge_base.embedding_config).id == knowledge_base.embedder_id
    before = await knowledge_base.ask("dense", "a town", limit=2)
    knowledge_base.close()
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=tmp_path, embedding_provider="stored")
    assert await knowledge_base.ask("dense", "a town", limit=2) == before
    assert knowledge_base.strategy == "hybrid"
    knowledge_base.close()
    without = GraphRAGKnowledgeBase.from_config(path=tmp_path)
    assert (without.embedding_config, without.embedder_id) == (CONFIG, "hashing/512-1")
    without.close()


def test_the_same_vectors_may_come_from_another_place(tmp_path: Path):
    for url in ("http://one", "http://two"):
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            path=tmp_path, embedding_provider=ElsewhereEmbedder(url)
        )
        assert knowledge_base.embedding_config["base_url"] == url
        knowledge_base.close()
    with pytest.raises(ConfigError, match="provider 'elsewhere'"):
        GraphRAGKnowledgeBase.from_config(path=tmp_path, embedding_provider="stored")
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=tmp_path)  # the failure left nothing open
    assert knowledge_base.embedding_config["api_key_env"] == "ELSEWHERE_KEY"
    knowledge_base.close()


async def test_a_server_takes_over_from_a_model_of_this_process_once_it_answers(tmp_path: Path):
    server = EmbeddingServer(down=True)
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        path=tmp_path,
        embedding_provider=create_embedder("hashing"),
        config=RAGConfig(waits=WaitSettings(vectors=0.0)),
    )
    await knowledge_base.add_texts(["Zell is a town in Austria.", "厦门是城市。"])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server)) as client:
        remote = OpenAICompatibleEmbedder(
            model="m",
            base_url="http://host/v1",
            api_key="a-secret-key",
            retry=RetryPolicy(attempts=1),
            rest=0.0,
            http_client=client,
        )
        with pytest.raises(EmbeddingError, match="connection"):
            await knowledge_base.change_embedder(remote)  # it cannot even say how long its vectors are
        server.down = False
        await remote.prepare()
        server.down = True
        with pytest.raises(EmbeddingError, match=r"has stopped for now.*connection"):
            await knowledge_base.change_embedder(remote)
        assert knowledge_base.embedder_id == "hashing/512-1"
        server.down = False
        await knowledge_base.change_embedder(remote)
        assert knowledge_base.embedder_id == "host/m/4"
        assert len(await knowledge_base.ask("dense", "厦门", limit=2)) == 2
    knowledge_base.close()
    stored = (tmp_path / "record.db").read_bytes()
    assert b"openai_compatible" in stored
    assert b"a-secret-key" not in stored
    again = GraphRAGKnowledgeBase.from_config(path=tmp_path, embedding_provider="stored")
    assert again.embedder_id == "host/m/4"
    again.close()
