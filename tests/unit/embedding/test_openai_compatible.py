"""The real SDK of OpenAI against a strict server, in this process."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.embedding.remote_models.openai_compatible import (
    OpenAICompatibleEmbedder,
    OpenAIEmbeddingProvider,
)
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.net.retry import RetryPolicy
from tests.fixtures.embedding_server import EmbeddingServer, Refusal, vector_of

KEY = "sk-test-0123456789abcdef0123456789abcdef"


async def no_sleep(seconds: float) -> None:
    """The policy's waits take no time."""


QUICK = RetryPolicy(attempts=3, sleep=no_sleep)


@asynccontextmanager
async def asking(server: EmbeddingServer, **options: Any) -> AsyncIterator[OpenAICompatibleEmbedder]:
    """An embedder whose requests arrive at the server."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server)) as client:
        settings = {"model": "m", "base_url": "http://host/v1", "retry": QUICK, "rest": 0.0, **options}
        yield OpenAICompatibleEmbedder(http_client=client, **settings)


def unit(text: str, *, dimension: int = 4) -> np.ndarray:
    vector = np.array(vector_of(text, dimension=dimension))
    return vector / np.linalg.norm(vector)


async def test_rows_are_of_length_1_and_in_the_order_of_the_texts():
    server = EmbeddingServer(most_texts=2)
    texts = ["one", "厦门是一座城市", "three", "four", "5"]
    async with asking(server, max_texts=2) as embedder:
        vectors = await embedder.embed(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 4)
    np.testing.assert_allclose(vectors, [unit(text) for text in texts], atol=1e-6)
    assert sorted(len(request["input"]) for request in server.requests) == [1, 2, 2]


@settings(max_examples=40)
@given(
    texts=st.lists(st.text(st.sampled_from("ab 厦门\n\ud800"), max_size=40), max_size=20),
    max_texts=st.integers(1, 7),
    max_request_tokens=st.integers(1, 40),
    concurrency=st.integers(1, 4),
)
def test_any_texts_within_any_limits_give_each_its_own_row(
    texts: list[str], max_texts: int, max_request_tokens: int, concurrency: int
):
    server = EmbeddingServer(most_texts=max_texts)

    async def embedded() -> np.ndarray:
        limits = {"max_texts": max_texts, "max_request_tokens": max_request_tokens}
        async with asking(server, dimension=4, concurrency=concurrency, **limits) as embedder:
            return await embedder.embed(texts)

    vectors = anyio.run(embedded)
    for text, row in zip(texts, vectors, strict=True):
        sent = text.replace("\ud800", "?")
        np.testing.assert_allclose(row, unit(sent) if sent.strip() else np.zeros(4), atol=1e-6)
    assert len(server.texts) == sum(bool(text.strip()) for text in texts)


@pytest.mark.parametrize(
    "scramble",
    [
        lambda rows: rows[::-1],
        lambda rows: [{"embedding": row["embedding"]} for row in rows],
    ],
    ids=["in another order", "without indexes"],
)
async def test_rows_are_ordered_by_their_index_where_they_have_one(
    scramble: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
):
    server = EmbeddingServer(change=lambda answer: {**answer, "data": scramble(answer["data"])})
    async with asking(server) as embedder:
        vectors = await embedder.embed(["a", "bb", "ccc"])
    np.testing.assert_allclose(vectors, [unit("a"), unit("bb"), unit("ccc")], atol=1e-6)


def with_rows(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda answer: {**answer, "data": change(answer["data"])}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_rows(lambda rows: rows[:1]), "1 vectors for 2 texts"),
        (with_rows(lambda rows: [{**row, "index": 0} for row in rows]), "indexes"),
        (with_rows(lambda rows: [rows[0], {**rows[1], "index": None}]), "indexes"),
        (with_rows(lambda rows: [{**row, "embedding": [1, math.nan]} for row in rows]), "NaN or infinity"),
        (with_rows(lambda rows: [{**row, "embedding": [1, 1e300]} for row in rows]), "NaN or infinity"),
        (with_rows(lambda rows: [{**row, "embedding": [1] * (2 + row["index"])} for row in rows]), "lengths"),
        (with_rows(lambda rows: [{**row, "embedding": []} for row in rows]), "without numbers"),
        (with_rows(lambda rows: [{**row, "embedding": "?"} for row in rows]), "neither numbers nor base64"),
        (
            with_rows(lambda rows: [{**row, "embedding": "AAA="} for row in rows]),
            "neither numbers nor base64",
        ),
        (with_rows(lambda rows: [{**row, "embedding": None} for row in rows]), r"data\.0\.embedding"),
        (lambda answer: {"error": "no model"}, "data: Field required"),
        (lambda answer: b"<html>", "the whole: Invalid JSON"),
        (lambda answer: b"", "the whole: Invalid JSON"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_asked_for_again_and_then_told(
    change: Callable[[dict[str, Any]], object], reason: str
):
    server = EmbeddingServer(change=change)
    async with asking(server) as embedder:
        with pytest.raises(EmbeddingError, match=reason) as caught:
            await embedder.embed(["one", "two"])
    assert caught.value.failure == "unreadable"
    assert "base_url" in caught.value.advice
    assert len(server.requests) == 3


async def test_vectors_of_another_length_than_before_are_refused():
    server = EmbeddingServer()
    async with asking(server) as embedder:
        await embedder.embed(["one"])
        server.dimension = 5
        with pytest.raises(EmbeddingError, match=r"dimension 5 for m, not 4\..*rebuild all vectors"):
            await embedder.embed(["one"])
    assert len(server.requests) == 2


async def test_a_server_that_knows_no_base64_is_asked_for_numbers_from_then_on():
    server = EmbeddingServer(encodings=("float",))
    async with asking(server) as embedder:
        for _ in range(2):
            np.testing.assert_allclose(await embedder.embed(["one"]), [unit("one")], atol=1e-6)
    assert [request["encoding_format"] for request in server.requests] == ["float", "float"]
    assert len(server.headers) == 3


async def test_vendors_that_know_numbers_only_are_asked_for_them():
    server = EmbeddingServer(dimension=1024)
    async with asking(server, provider="qwen", api_key=KEY, model="") as embedder:
        await embedder.embed(["一"] * 23)
    assert {request["encoding_format"] for request in server.requests} == {"float"}
    assert sorted(len(request["input"]) for request in server.requests) == [3, 10, 10]


async def test_empty_texts_are_zeros_and_never_sent():
    server = EmbeddingServer()
    async with asking(server, dimension=4) as embedder:
        vectors = await embedder.embed(["", " \n", "\u3000"])
        assert (await embedder.embed([])).shape == (0, 4)
    assert vectors.tolist() == [[0.0] * 4] * 3
    assert server.headers == []


async def test_a_long_text_goes_in_windows_whose_mean_is_its_vector():
    server = EmbeddingServer(longest=400)
    async with asking(server, max_tokens=100) as embedder:
        [vector] = await embedder.embed(["x" * 1000])
    assert sorted(map(len, server.texts)) == [200, 400, 400]
    mean = 100 * unit("x" * 400) * 2 + 50 * unit("x" * 200)
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


async def test_what_the_server_finds_too_long_is_halved_until_it_fits_without_harm_to_its_neighbours():
    server = EmbeddingServer(longest=300)
    async with asking(server) as embedder:
        vectors = await embedder.embed(["one", "厦" * 1000, "two"])
        alone = await embedder.embed(["厦" * 1000])
    np.testing.assert_allclose(vectors[[0, 2]], [unit("one"), unit("two")], atol=1e-6)
    np.testing.assert_allclose(vectors[1], alone[0], atol=1e-6)
    assert max(map(len, server.texts)) == 250


async def test_a_server_for_which_everything_is_too_long_is_given_up():
    async with asking(EmbeddingServer(longest=1)) as embedder:
        with pytest.raises(EmbeddingError, match="too long") as caught:
            await embedder.embed(["word " * 100])
    assert caught.value.failure == "too_long"


async def test_a_busy_server_is_asked_again_after_the_time_it_names():
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    server = EmbeddingServer(refusals=[Refusal(429, headers={"retry-after": "7"}), Refusal(503)])
    async with asking(server, retry=RetryPolicy(attempts=3, sleep=sleep)) as embedder:
        np.testing.assert_allclose(await embedder.embed(["one"]), [unit("one")], atol=1e-6)
    assert waits[0] >= 7 > waits[1]


async def test_questions_are_tried_twice_and_passages_longer():
    async with asking(EmbeddingServer(refusals=[Refusal(503)] * 2), retry=None) as embedder:
        with pytest.raises(EmbeddingError, match="tried 2 times"):
            await embedder.embed(["why?"], kind="query")


@pytest.mark.parametrize(
    ("model", "key", "failure", "advice"),
    [
        ("missing", KEY, "not_found", "name of the model"),
        ("m", "sk-other-0123456789abcdef", "authentication", "key in THE_KEY"),
    ],
)
async def test_a_refusal_is_told_at_once_with_advice_and_without_the_key(
    model: str, key: str, failure: str, advice: str, caplog: pytest.LogCaptureFixture
):
    server = EmbeddingServer(key=KEY)
    async with asking(server, model=model, api_key=key, api_key_env="THE_KEY") as embedder:
        with caplog.at_level(logging.DEBUG), pytest.raises(EmbeddingError) as caught:
            await embedder.embed(["one"])
    assert caught.value.failure == failure
    assert advice in caught.value.advice
    assert len(server.headers) == 1
    assert key not in str(caught.value) + repr(caught.value) + caplog.text + repr(vars(embedder))


async def test_one_failed_batch_fails_the_call():
    server = EmbeddingServer(refusals=[Refusal(400, "no")])
    async with asking(server, max_texts=1, concurrency=2) as embedder:
        with pytest.raises(EmbeddingError, match="no"):
            await embedder.embed(["one", "two", "three"])


async def test_a_server_that_cannot_be_reached_is_left_alone_for_a_while():
    server = EmbeddingServer(down=True)
    async with asking(server, rest=60.0) as embedder:
        with pytest.raises(EmbeddingError, match="connection") as caught:
            await embedder.embed(["one"])
        assert caught.value.failure == "connection"
        server.down = False
        with pytest.raises(EmbeddingError, match=r"retrying in 60 s.*connection.*server runs") as caught:
            await embedder.embed(["one"], kind="query")
        assert caught.value.failure == "unavailable"
    assert server.headers == []


async def test_a_server_that_is_back_is_asked_again():
    server = EmbeddingServer(down=True)
    async with asking(server) as embedder:
        with pytest.raises(EmbeddingError):
            await embedder.embed(["one"])
        server.down = False
        assert (await embedder.embed(["one"])).shape == (1, 4)


async def test_a_silent_server_fails_in_time():
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await anyio.sleep_forever()

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(silent)) as client:
        embedder = OpenAICompatibleEmbedder(
            model="m", base_url="http://host", http_client=client, retry=RetryPolicy(deadline=0.05), rest=9.0
        )
        with pytest.raises(EmbeddingError, match="no answer within") as caught:
            await embedder.embed(["one"])
        assert caught.value.failure == "timeout"
        with pytest.raises(EmbeddingError, match="Circuit open"):
            await embedder.embed(["one"])


async def test_who_allows_a_request_more_time_allows_the_passages_more():
    full = Refusal(429, headers={"retry-after": "60"})
    async with asking(EmbeddingServer(refusals=[full] * 2), retry=None) as embedder:
        with pytest.raises(EmbeddingError, match="no time for more"):
            await embedder.embed(["one"])
    async with asking(EmbeddingServer(refusals=[full]), retry=None, timeout=300.0) as embedder:
        with anyio.move_on_after(0.1) as patience:
            await embedder.embed(["one"])
    assert patience.cancelled_caught  # it was waiting


async def test_kinds_are_told_by_prefixes_and_by_input_type():
    server = EmbeddingServer()
    types = {"query_input_type": "query", "passage_input_type": "document"}
    async with asking(server, model="intfloat/multilingual-e5-large", dimension=4, **types) as embedder:
        await embedder.embed(["厦门在哪里？"], kind="query")
        await embedder.embed(["厦门在福建。"])
    assert server.texts == ["query: 厦门在哪里？", "passage: 厦门在福建。"]
    assert [request["input_type"] for request in server.requests] == ["query", "document"]
    async with asking(server, query_prefix="Q ", passage_prefix="") as embedder:
        await embedder.embed(["a"], kind="query")
        await embedder.embed(["b"])
    assert server.texts[2:] == ["Q a", "b"]
    assert "input_type" not in server.requests[-1]


async def test_a_shorter_vector_is_asked_for_where_the_model_can_make_one():
    server = EmbeddingServer(dimension=1536, shortens=True)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server)) as client:
        short = OpenAIEmbeddingProvider(api_key=KEY, dimension=256, http_client=client)
        assert (await short.embed(["one"])).shape == (1, 256)
        usual = OpenAIEmbeddingProvider(api_key=KEY, http_client=client)
        assert (await usual.embed(["one"])).shape == (1, 1536)
    assert [request.get("dimensions") for request in server.requests] == [256, None]
    assert (short.id, usual.id) == (
        "api.openai.com/text-embedding-3-small/256",
        "api.openai.com/text-embedding-3-small/1536",
    )


async def test_a_dimension_that_no_one_knows_is_learnt_from_the_first_answer():
    server = EmbeddingServer(dimension=7)
    async with asking(server) as embedder:
        for ask in (lambda: embedder.dimension, lambda: embedder.id, lambda: embedder.config):
            with pytest.raises(ConfigError, match=r"not known before its first answer.*Set dimension"):
                ask()
        await embedder.prepare()
        await embedder.prepare()
        assert (embedder.dimension, embedder.id) == (7, "host/m/7")
    assert len(server.requests) == 1


def test_the_id_tells_hosts_models_dimensions_and_prefixes_apart():
    def id_(**options: Any) -> str:
        return OpenAICompatibleEmbedder(
            **{"model": "m", "base_url": "http://a/v1", "dimension": 4, **options}
        ).id

    ids = [
        id_(),
        id_(base_url="http://b/v1"),
        id_(base_url="http://a:81/v1"),
        id_(model="n"),
        id_(dimension=5),
        id_(query_prefix="q"),
        id_(passage_prefix="q"),
        id_(query_input_type="q"),
    ]
    assert len(set(ids)) == len(ids)
    assert id_(max_texts=3, timeout=1.0, base_url="http://a/v1/") == id_()


@pytest.mark.parametrize("authorization", ["Authorization", "authorization"])
async def test_nothing_of_openai_in_the_environment_goes_to_other_servers(
    authorization: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"{authorization}: Bearer secret\nX-Team: secret")
    server = EmbeddingServer()
    async with asking(server) as embedder, asking(server, api_key="sk-mine") as keyed:
        await embedder.embed(["one"])
        await keyed.embed(["one"])
    bare, with_key = server.headers
    assert not {"authorization", "openai-organization", "openai-project", "x-team"} & bare.keys()
    assert with_key["authorization"] == "Bearer sk-mine"
    assert not any("secret" in value or KEY in value for value in [*bare.values(), *with_key.values()])


async def test_openai_gets_the_headers_that_its_users_set_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other\nX-Team: team")
    server = EmbeddingServer(shortens=True)
    async with asking(
        server, provider="openai", model="text-embedding-3-small", dimension=4, api_key=KEY
    ) as embedder:
        await embedder.embed(["one"])
    [headers] = server.headers
    assert (headers["authorization"], headers["x-team"]) == (f"Bearer {KEY}", "team")


async def test_the_key_comes_from_the_named_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", KEY)
    server = EmbeddingServer(key=KEY)
    async with asking(server, api_key_env="MY_KEY") as embedder:
        await embedder.embed(["one"])
    assert KEY not in str(embedder.config)
    assert embedder.config["api_key_env"] == "MY_KEY"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "no key for Doubao.*environment variable ARK_API_KEY"),
        ("a key", "key from the environment.*Copy it"),
    ],
)
async def test_a_key_that_is_missing_or_none_is_told_with_advice(
    monkeypatch: pytest.MonkeyPatch, key: str, reason: str
):
    monkeypatch.setenv("ARK_API_KEY", key)
    with pytest.raises(EmbeddingError, match=reason) as caught:
        await OpenAICompatibleEmbedder(provider="doubao").embed(["one"])
    assert caught.value.failure == "authentication"


async def test_without_the_sdk_its_absence_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    async with asking(EmbeddingServer()) as embedder:
        with pytest.raises(EmbeddingError, match=r"package openai.*loom-mcp-core\[openai\]"):
            await embedder.embed(["one"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"base_url": ""}, "base_url of the embedding provider 'openai_compatible' is missing"),
        ({"base_url": "host:8000"}, "no address.*http"),
        ({"base_url": "http://me:pw@host"}, "no address.*no key"),
        ({"base_url": "http://host:port"}, "no address"),
        ({"base_url": "http://host?key=1"}, "no address"),
        ({"model": ""}, "has no model"),
        ({"dimension": 0}, "dimension .*is 0"),
        ({"max_texts": -1}, "max_texts"),
        ({"timeout": 0.0}, "timeout"),
        ({"api_key": "a\nb"}, "key from api_key"),
        ({"api_key_env": KEY}, r"api_key_env .* not the name .*such as EMBEDDING_API_KEY"),
        ({"provider": "acme"}, "no embedding provider 'acme'.*local, openai, qwen"),
        ({"provider": "ollama"}, "OllamaEmbedder"),
    ],
)
def test_options_that_fit_nothing_are_refused(options: dict[str, Any], reason: str):
    with pytest.raises(ConfigError, match=reason) as caught:
        OpenAICompatibleEmbedder(**{"model": "m", "base_url": "http://host/v1", **options})
    assert KEY not in str(caught.value)


def test_what_is_known_of_a_model_says_which_languages_it_covers():
    def embedder(model: str) -> OpenAICompatibleEmbedder:
        return OpenAICompatibleEmbedder(model=model, base_url="http://host/v1")

    english = embedder("BAAI/bge-small-en-v1.5")
    assert (english.languages, english.cross_lingual, english.dimension) == ({"en"}, False, 384)
    both = embedder("bge-m3:latest")
    assert (both.languages, both.cross_lingual, both.dimension) == (None, True, 1024)
    unknown = embedder("unknown-model")
    assert (unknown.languages, unknown.cross_lingual) == (None, True)


async def test_a_client_that_is_given_stays_open():
    async with asking(EmbeddingServer()) as embedder:
        for _ in range(2):
            assert (await embedder.embed(["one"])).shape == (1, 4)
            await embedder.aclose()


async def test_the_first_questions_may_come_together():
    server = EmbeddingServer()
    async with asking(server) as embedder, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(embedder.embed, [f"question {number}"])
    assert len(server.texts) == 4


def test_one_embedder_serves_several_event_loops():
    server = EmbeddingServer()
    embedder = OpenAICompatibleEmbedder(
        model="m",
        base_url="http://host/v1",
        http_client=httpx2.AsyncClient(transport=httpx2.ASGITransport(server)),
    )
    for _ in range(2):
        assert anyio.run(embedder.embed, ["one"]).shape == (1, 4)
