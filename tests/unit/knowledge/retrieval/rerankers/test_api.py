from __future__ import annotations

import json
import logging
import socket
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loom_core.errors import ConfigError, LLMError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.rerankers.api import APIReranker
from loom_core.plugins import create

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

KEY = "sk-very-secret"
TEXTS = ("red", "green and red", "blue", "red red green")


class Endpoint:
    """A rerank endpoint that takes nothing but what it knows, and ranks by the question's words."""

    def __init__(
        self, *answers: Response | Callable[[dict[str, Any]], Response], limit: str = "top_n"
    ) -> None:
        self.answers = list(answers)
        self.limit = limit
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.app = Starlette(routes=[Route("/v1/rerank", self.rerank, methods=["POST"])])

    async def rerank(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization"))
        if request.headers["content-type"] != "application/json" or set(body) != {
            "model",
            "query",
            "documents",
            self.limit,
        }:
            return JSONResponse({"message": f"unknown field among {sorted(body)}"}, status_code=422)
        if self.answers:
            answer = self.answers.pop(0)
            return answer if isinstance(answer, Response) else answer(body)
        words = body["query"].split()
        scores = [sum(text.split().count(word) for word in words) / 10 for text in body["documents"]]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])[: body[self.limit]]
        return JSONResponse(
            {"results": [{"index": place, "relevance_score": scores[place]} for place in order]}
        )

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app))

    def reranker(self, **options: Any) -> APIReranker:
        given = {"base_url": "http://rerank.test/v1", "model": "toy", "client": self.client(), "api_key": KEY}
        return APIReranker(**(given | options))


def passages(*texts: str) -> list[KnowledgeItem]:
    return [KnowledgeItem(id=chr(97 + n), content=text, source="x") for n, text in enumerate(texts or TEXTS)]


def ids(items: list[KnowledgeItem]) -> list[str]:
    return [item.id for item in items]


def ranking(**fields: object) -> JSONResponse:
    return JSONResponse(fields)


async def test_passages_come_in_the_order_of_their_scores():
    endpoint = Endpoint()
    found = await endpoint.reranker().rerank("red green", passages(), limit=3)
    assert ids(found) == ["d", "b", "a"]
    assert [item.relevance for item in found] == [0.3, 0.2, 0.1]
    assert found[0].metadata["scores"] == {"rerank": 0.3}
    (request,) = endpoint.requests
    assert request == {"model": "toy", "query": "red green", "documents": list(TEXTS), "top_n": 3}
    assert endpoint.keys == [f"Bearer {KEY}"]


async def test_it_is_made_by_its_name_and_without_a_key():
    endpoint = Endpoint()
    reranker = create(
        "reranker", "api", base_url="http://rerank.test/v1/rerank/", model="m", client=endpoint.client()
    )
    assert ids(await reranker.rerank("blue", passages(), limit=1)) == ["c"]
    assert endpoint.keys == [None]


@pytest.mark.parametrize(
    "payload",
    [
        {
            "results": [{"index": 2, "relevance_score": 0.9, "document": {"text": "blue"}}],
            "id": "x",
            "meta": {},
        },
        {"data": [{"index": 2, "relevance_score": 0.9}], "object": "list"},
        {"results": [{"index": 2, "score": 0.9}, {"index": 2, "score": 0.1}]},
        [{"index": 2, "score": 0.9}],
    ],
)
async def test_every_form_of_the_answer_is_read_and_what_did_not_come_back_follows(payload: object):
    found = await Endpoint(JSONResponse(payload)).reranker().rerank("q", passages(), limit=3)
    assert [(item.id, item.relevance) for item in found] == [("c", 0.9), ("a", 0.0), ("b", 0.0)]


async def test_scores_on_an_open_scale_are_logits():
    endpoint = Endpoint(ranking(results=[{"index": 0, "score": -4.5}, {"index": 1, "score": 0.0}]))
    found = await endpoint.reranker().rerank("q", passages("x", "y"), limit=2)
    assert ids(found) == ["b", "a"]
    assert [round(item.relevance, 3) for item in found] == [0.5, 0.011]
    assert found[1].metadata["scores"]["rerank"] == -4.5


async def test_the_field_for_the_limit_can_be_that_of_voyage():
    endpoint = Endpoint(limit="top_k")
    found = await endpoint.reranker(limit_field="top_k").rerank("blue", passages(), limit=1)
    assert ids(found) == ["c"]
    with pytest.raises(LLMError, match=r"422 .*unknown field .*limit_field"):
        await endpoint.reranker().rerank("blue", passages(), limit=1)


async def test_only_the_first_passages_are_sent_with_what_stands_above_them():
    endpoint = Endpoint()
    items = [KnowledgeItem("a", "正文", "x", metadata={"title": "手册"}), *passages("red", "red")]
    found = await endpoint.reranker(max_passages=2).rerank("red \ud800", items, limit=9)
    assert endpoint.requests[0]["documents"] == ["手册\n正文", "red"]
    assert endpoint.requests[0]["query"] == "red ?"
    assert ids(found) == ["a", "a", "b"]
    assert [item.content for item in found] == ["red", "正文", "red"]


async def test_nothing_is_sent_for_nothing():
    endpoint = Endpoint()
    assert await endpoint.reranker().rerank("q", [], limit=3) == []
    assert await endpoint.reranker().rerank("q", passages(), limit=0) == []
    assert endpoint.requests == []


# -- what goes wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_once(status: int):
    busy = [Response(status_code=status, headers={"Retry-After": "0"}) for _ in range(2)]
    endpoint = Endpoint(busy[0])
    assert ids(await endpoint.reranker().rerank("blue", passages(), limit=1)) == ["c"]
    endpoint = Endpoint(*busy)
    with pytest.raises(LLMError, match=f"answered {status}"):
        await endpoint.reranker().rerank("blue", passages(), limit=1)
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "wait", ["3600", formatdate(time.time() + 3600, usegmt=True)], ids=["seconds", "date"]
)
async def test_a_server_that_asks_for_more_time_than_there_is_is_not_waited_for(wait: str):
    endpoint = Endpoint(Response(status_code=429, headers={"Retry-After": wait}))
    with pytest.raises(LLMError, match="rate limit"):
        await endpoint.reranker().rerank("blue", passages(), limit=1)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("wait", ["soon", formatdate(time.time() - 60, usegmt=True)], ids=["word", "date"])
async def test_a_wait_that_cannot_be_read_or_is_over_is_short(wait: str):
    endpoint = Endpoint(Response(status_code=503, headers={"Retry-After": wait}))
    assert ids(await endpoint.reranker().rerank("blue", passages(), limit=1)) == ["c"]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "model's name"),
        (401, "API key"),
        (404, "base_url"),
        (413, "max_passages"),
        (500, "later"),
        (302, "base_url"),
    ],
)
async def test_a_refusal_is_told_with_what_to_do(status: int, advice: str):
    endpoint = Endpoint(JSONResponse({"message": "not today"}, status_code=status))
    with pytest.raises(LLMError, match=rf"answered {status} .*not today") as raised:
        await endpoint.reranker().rerank("blue", passages(), limit=1)
    assert advice in raised.value.advice
    assert len(endpoint.requests) == 1


async def test_the_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    endpoint = Endpoint(Response(f"bad key {KEY} {KEY[:5]}", status_code=401))
    reranker = endpoint.reranker()
    with pytest.raises(LLMError) as raised:
        await reranker.rerank("blue", passages(), limit=1)
    assert "bad key [secret]" in str(raised.value)
    assert KEY not in str(raised.value) + caplog.text + repr(reranker)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b'{"error": "x"}', "results: Field required"),
        (b'"results"', "the whole"),
        (b'{"results": [{"index": 4, "score": 1}]}', "ranks passage 4 of 4"),
        (b'{"results": [{"index": -1, "score": 1}]}', r"results\.0\.index"),
        (b'{"results": [{"index": 0}]}', r"results\.0\.relevance_score: Field required"),
        (b'{"results": [{"index": 0, "score": NaN}]}', "finite number"),
        (b'{"results": [{"index": 0, "score": 1e999}]}', "finite number"),
        (b'{"results": [{"index": 0, "score": "high"}]}', "number"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error(body: bytes, why: str):
    with pytest.raises(LLMError, match=rf"cannot be read: .*{why}"):
        await Endpoint(Response(body)).reranker().rerank("q", passages(), limit=4)


async def test_an_endpoint_that_is_not_there_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but no one listens
        reranker = APIReranker(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", model="m")
        with pytest.raises(LLMError, match="cannot be reached"):
            await reranker.rerank("q", passages(), limit=1)


async def test_an_address_that_no_client_takes_is_an_error():
    with pytest.raises(LLMError, match="cannot be reached"):
        await APIReranker(base_url="http://a b/", model="m").rerank("q", passages(), limit=1)


async def test_an_endpoint_that_is_silent_is_not_waited_for_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LLMError, match=r"did not answer within 0.2 s"):
            await APIReranker(base_url=address, model="m", timeout=0.2).rerank("q", passages(), limit=1)


async def test_a_real_server_is_asked_over_a_real_connection():
    endpoint = Endpoint()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(endpoint.app, log_config=None, lifespan="off"))
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            found = await APIReranker(base_url=base_url, model="m", api_key=KEY).rerank(
                "blue", passages(), limit=2
            )
            server.should_exit = True
    assert ids(found) == ["c", "a"]
    assert endpoint.keys == [f"Bearer {KEY}"]


# -- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "rerank.test",
        "ftp://rerank.test",
        "http://",
        "https://user:pw@host",
        "http://[::g",
        "http://h:x",
        "http://h?k=v",
    ],
)
def test_an_address_that_is_none_is_refused(base_url: str):
    with pytest.raises(ConfigError, match="base_url"):
        APIReranker(base_url=base_url, model="m")


@pytest.mark.parametrize("options", [{"model": ""}, {"timeout": 0}, {"max_passages": 0}])
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(options))):
        APIReranker(**({"base_url": "http://h", "model": "m"} | options))


async def test_the_key_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOY_KEY", KEY)
    endpoint = Endpoint()
    await endpoint.reranker(api_key=None, api_key_env="TOY_KEY").rerank("q", passages(), limit=1)
    assert endpoint.keys == [f"Bearer {KEY}"]
    monkeypatch.delenv("TOY_KEY")
    with pytest.raises(ConfigError, match="TOY_KEY is not set"):
        endpoint.reranker(api_key=None, api_key_env="TOY_KEY")
    with pytest.raises(ConfigError, match="Set one of them"):
        endpoint.reranker(api_key_env="TOY_KEY")


@pytest.mark.parametrize("key", ["a\nb", "Bearer x", "钥匙", "x\x00"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key: str):
    with pytest.raises(ConfigError, match="api_key of the reranker api holds characters") as raised:
        APIReranker(base_url="http://h", model="m", api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("misplaced", [KEY, "sk-live 123", "gsk_4fQz81LmN0pRs7TuVw92", "密钥", "a-b", ""])
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated(misplaced: str):
    with pytest.raises(ConfigError, match="api_key_env of the reranker api is not the name") as raised:
        APIReranker(base_url="http://h", model="m", api_key_env=misplaced)
    assert not misplaced or misplaced not in str(raised.value)


_ENTRY = st.fixed_dictionaries(
    {"index": st.integers(-2, 6) | st.none()},
    optional={"score": st.floats() | st.text(max_size=3), "relevance_score": st.floats(0, 1)},
)


@pytest.mark.hostile("HTTP answers")
@given(
    st.lists(_ENTRY | st.none() | st.integers(), max_size=6), st.sampled_from(["results", "data", "other"])
)
async def test_whatever_is_answered_nothing_is_made_up(entries: list[object], name: str):
    endpoint = Endpoint(Response(json.dumps({name: entries})))
    items = passages()
    try:
        found = await endpoint.reranker().rerank("q", items, limit=4)
    except LLMError:
        return
    assert sorted((item.id, item.content) for item in found) == [(item.id, item.content) for item in items]
    assert all(0 <= item.relevance <= 1 for item in found)
