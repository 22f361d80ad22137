"""Ollama's own interface, asked over a real HTTP client in this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import keyring
import numpy as np
import pytest
from keyring.backend import KeyringBackend

from loom_core.embedding.remote_models.ollama import OllamaEmbedder
from loom_core.errors import EmbeddingError
from loom_core.net.retry import RetryPolicy
from tests.fixtures.embedding_server import EmbeddingServer, Refusal, vector_of


async def no_sleep(seconds: float) -> None:
    """The policy's waits take no time."""


@asynccontextmanager
async def asking(server: EmbeddingServer, **options: Any) -> AsyncIterator[OllamaEmbedder]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server)) as client:
        quick = RetryPolicy(attempts=2, sleep=no_sleep)
        yield OllamaEmbedder(**{"model": "m", "http_client": client, "retry": quick, "rest": 0.0, **options})


def unit(text: str) -> np.ndarray:
    vector = np.array(vector_of(text))
    return vector / np.linalg.norm(vector)


async def test_texts_become_unit_rows_in_order():
    server = EmbeddingServer(most_texts=32)
    texts = [f"第{number}段" for number in range(70)]
    async with asking(server) as embedder:
        vectors = await embedder.embed(texts)
    np.testing.assert_allclose(vectors, [unit(text) for text in texts], atol=1e-6)
    assert all(request["truncate"] is False for request in server.requests)


async def test_an_address_with_v1_is_understood():
    server = EmbeddingServer()
    async with asking(server, base_url="http://box:11434/v1/") as embedder:
        assert (await embedder.embed(["one"])).shape == (1, 4)
    assert embedder.config["base_url"] == "http://box:11434"


class Noting(KeyringBackend):
    """A keyring that has nothing, and notes what it is asked for."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get_password(self, service: str, username: str) -> None:
        self.asked.append(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "asked"), [({}, []), ({"api_key_env": "LOOM_TEST_KEY"}, ["LOOM_TEST_KEY"])]
)
async def test_the_keyring_is_asked_only_for_a_key_that_someone_names(
    options: dict[str, str], asked: list[str], monkeypatch: pytest.MonkeyPatch
):
    for variable in ("OLLAMA_API_KEY", "LOOM_TEST_KEY"):
        monkeypatch.delenv(variable, raising=False)
    before, noting = keyring.get_keyring(), Noting()
    keyring.set_keyring(noting)
    try:
        async with asking(EmbeddingServer(), **options) as embedder:
            await embedder.embed(["one"])
    finally:
        keyring.set_keyring(before)
    assert noting.asked == asked


async def test_what_ollama_finds_too_long_is_halved_and_not_cut_off():
    server = EmbeddingServer(longest=300)
    async with asking(server) as embedder:
        await embedder.embed(["厦" * 1000])
    assert "".join(server.texts) == "厦" * 1000


async def test_questions_have_the_prefix_that_the_model_wants():
    server = EmbeddingServer(dimension=768)
    async with asking(server, model="nomic-embed-text:latest") as embedder:
        await embedder.embed(["why?"], kind="query")
        await embedder.embed(["so."])
    assert server.texts == ["search_query: why?", "search_document: so."]
    assert (embedder.languages, embedder.cross_lingual) == ({"en"}, False)


async def test_a_shorter_vector_is_asked_for():
    server = EmbeddingServer(shortens=True)
    async with asking(server, model="embeddinggemma", dimension=128) as embedder:
        assert (await embedder.embed(["one"])).shape == (1, 128)
    assert server.requests[0]["dimensions"] == 128


async def test_the_first_answer_is_waited_for_as_long_as_the_model_may_take_to_load():
    async def load(scope: Any, receive: Any, send: Any) -> None:
        await anyio.sleep_forever()

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(load)) as client:
        embedder = OllamaEmbedder(model="新模型", http_client=client, timeout=0.05)
        with pytest.raises(EmbeddingError, match=r"gave no answer within 0\.1 s") as caught:
            await embedder.prepare()
    assert caught.value.failure == "timeout"
    assert "may still be loading the model" in caught.value.advice
    usual = OllamaEmbedder(model="bge-m3")
    assert "timeout" not in usual.config  # five minutes, as Ollama gives itself
    assert OllamaEmbedder(model="bge-m3", timeout=300).config == usual.config
    assert OllamaEmbedder(model="bge-m3", timeout=30).config["timeout"] == "30"


@pytest.mark.slow
async def test_who_waits_for_the_first_answer_is_told_so(caplog: pytest.LogCaptureFixture):
    server, told = EmbeddingServer(), anyio.Event()

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def load(scope: Any, receive: Any, send: Any) -> None:
        await told.wait()
        await server(scope, receive, send)

    handler, logger = Telling(logging.WARNING), logging.getLogger("loom_core.embedding")
    logger.addHandler(handler)
    try:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(load)) as client:
            embedder = OllamaEmbedder(model="新模型", http_client=client)
            with anyio.fail_after(30):
                await embedder.prepare()
    finally:
        logger.removeHandler(handler)
    assert embedder.dimension == 4
    assert "Ollama has not answered with 新模型 yet, and may be loading it" in caplog.text


async def test_the_key_of_a_server_that_wants_one_is_sent():
    server = EmbeddingServer(key="secret-key")
    async with asking(server, api_key="secret-key") as embedder:
        await embedder.embed(["one"])
    async with asking(server, api_key="other-key-1234567890") as embedder:
        with pytest.raises(EmbeddingError, match="HTTP 401") as caught:
            await embedder.embed(["one"])
    assert "other-key" not in str(caught.value)
    assert caught.value.failure == "authentication"


async def test_a_model_that_has_not_been_pulled_is_told_with_the_command():
    async with asking(EmbeddingServer(), model="missing") as embedder:
        with pytest.raises(EmbeddingError, match=r"HTTP 404.*ollama pull missing"):
            await embedder.embed(["one"])


async def test_a_proxy_that_sends_elsewhere_is_followed():
    moved = Refusal(308, headers={"location": "http://host/api/embed"})
    async with asking(EmbeddingServer(refusals=[moved]), retry=RetryPolicy(attempts=1)) as embedder:
        assert (await embedder.embed(["一", "two"])).shape == (2, 4)


async def test_ollama_that_starts_is_asked_again_and_one_that_does_not_run_is_told():
    async with asking(EmbeddingServer(refusals=[Refusal(503)])) as embedder:
        assert (await embedder.embed(["one"])).shape == (1, 4)
    async with asking(EmbeddingServer(down=True)) as embedder:
        with pytest.raises(EmbeddingError, match=r"connection to Ollama failed.*tried 2 times") as caught:
            await embedder.embed(["one"])
    assert caught.value.failure == "connection"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda answer: {**answer, "embeddings": answer["embeddings"][:1]}, "1 vectors for 2 texts"),
        (lambda answer: {"embedding": [1.0]}, "embeddings: Field required"),
        (lambda answer: b"404 page", "the whole: Invalid JSON"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_told(change: Callable[[dict[str, Any]], object], reason: str):
    async with asking(EmbeddingServer(change=change)) as embedder:
        with pytest.raises(EmbeddingError, match=reason):
            await embedder.embed(["one", "two"])


async def test_its_own_connections_are_closed_and_opened_again():
    embedder = OllamaEmbedder(
        model="m", base_url="http://127.0.0.1:9", rest=0.0, retry=RetryPolicy(attempts=1)
    )
    for _ in range(2):
        with pytest.raises(EmbeddingError, match="connection to Ollama failed"):
            await embedder.embed(["one"])
        await embedder.aclose()
    await embedder.aclose()
