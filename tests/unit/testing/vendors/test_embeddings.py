from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.embeddings import vector
from tests.fixtures.vendors.script import Turn

TEXTS = ["知识图谱", "graphs", "知识图谱"]


async def embed(fake: FakeVendors, vendor: str, given: Any, **more: Any) -> Any:
    models = {"openai": "text-embedding-3-small", "qwen": "text-embedding-v4", "ollama": "bge-m3"}
    async with fake.http_client() as http_client:
        client = openai.AsyncOpenAI(
            base_url=fake.base_url(vendor), api_key=fake.key, http_client=http_client, max_retries=0
        )
        return await client.embeddings.create(**{"model": models[vendor], "input": given, **more})


async def ollama(fake: FakeVendors, body: dict[str, Any]) -> tuple[int, Any]:
    async with fake.http_client() as client:
        response = await client.post("http://fake/ollama/api/embed", json=body)
        return response.status_code, response.json()


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_vectors_follow_from_the_texts_and_say_which_is_whose(encoding: str):
    answer = await embed(FakeVendors(), "openai", TEXTS, dimensions=64, encoding_format=encoding)
    assert [item.index for item in answer.data] == [2, 1, 0]
    if encoding == "float":
        assert [item.embedding for item in answer.data] == [vector(text, 64) for text in TEXTS[::-1]]
        assert answer.data[0].embedding == answer.data[2].embedding != answer.data[1].embedding
        assert sum(value * value for value in answer.data[0].embedding) == pytest.approx(1)


async def test_the_sdks_own_encoding_is_read():
    answer = await embed(FakeVendors(), "openai", "one")
    assert answer.data[0].embedding == pytest.approx(vector("one", 1536), abs=1e-6)


@pytest.mark.parametrize(
    ("vendor", "given", "more", "says"),
    [
        ("openai", [], {}, "not empty"),
        ("openai", ["a", ""], {}, "empty string"),
        ("openai", [1, 2], {}, "list of texts"),
        ("openai", ["a"] * 2049, {}, "2048"),
        ("openai", "a", {"dimensions": 5000}, "dimensions"),
        ("openai", "a", {"encoding_format": "hex"}, "encoding_format"),
        ("openai", "a", {"extra_body": {"truncate": True}}, "truncate"),
        ("qwen", ["a"] * 11, {}, "not be larger than 10"),
    ],
)
async def test_what_a_vendor_does_not_take_is_refused(
    vendor: str, given: Any, more: dict[str, Any], says: str
):
    with pytest.raises(openai.BadRequestError, match=says):
        await embed(FakeVendors(), vendor, given, **more)


async def test_a_model_that_is_not_there_is_not_found():
    with pytest.raises(openai.NotFoundError):
        await embed(FakeVendors(), "openai", "a", model="gpt-5.5")
    assert (await ollama(FakeVendors(), {"model": "none", "input": "a"}))[0] == 404


async def test_ollama_answers_in_its_own_form():
    status, answer = await ollama(FakeVendors(), {"model": "bge-m3", "input": TEXTS, "truncate": False})
    assert status == 200
    assert answer["embeddings"] == [vector(text, 1024) for text in TEXTS]
    assert answer["prompt_eval_count"] == 10
    assert (await ollama(FakeVendors(), {"model": "bge-m3", "input": ""}))[1]["embeddings"] == []
    assert (await ollama(FakeVendors(), {"model": "bge-m3", "prompt": "x"}))[0] == 400
    assert (await ollama(FakeVendors(), {"model": "bge-m3"}))[0] == 400


async def test_faults_are_for_embeddings_too_and_refusals_take_no_turn():
    fake = FakeVendors([Turn(status=503), Turn(usage=None), Turn(body=b"{}")])
    with pytest.raises(openai.BadRequestError):
        await embed(fake, "qwen", "")
    with pytest.raises(openai.InternalServerError):
        await embed(fake, "qwen", "a")
    assert (await embed(fake, "qwen", "a")).usage is None
    assert (await ollama(fake, {"model": "bge-m3", "input": "a"}))[1] == {}
    assert (
        "prompt_eval_count"
        not in (await ollama(FakeVendors([Turn(usage=None)]), {"model": "bge-m3", "input": "a"}))[1]
    )
