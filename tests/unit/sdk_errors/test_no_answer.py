"""Errors that no vendor has sent: connections, pages of proxies, answers that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest

from loom_core.sdk_errors import NoAnswerError, model_error
from tests.fixtures.vendor_errors import KEY, app_of, by_anthropic, by_openai, told_of


async def test_json_that_cannot_be_read_is_unreadable():
    told = told_of(await by_openai(app_of(200, b"data: {nonsense\n\n", content_type="text/event-stream")))
    assert told.failure == "unreadable"


async def test_a_page_of_a_proxy_becomes_its_words():
    page = b"<html><style>b{color:red}</style><body><h1>502 Bad Gateway</h1>\n<hr>nginx</body></html>"
    told = told_of(await by_openai(app_of(502, page, content_type="text/html")))
    assert told.message == "Vendor failed while it ran model-x (HTTP 502): 502 Bad Gateway nginx."


async def test_connections_that_break_and_take_too_long_are_told_apart():
    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    assert told_of(await by_anthropic(breaks)).failure == "connection"

    class Late(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ReadTimeout("late", request=request)

    async with httpx2.AsyncClient(transport=Late()) as http_client:
        client = openai.AsyncOpenAI(
            api_key=KEY, base_url="http://fake", max_retries=0, http_client=http_client
        )
        with pytest.raises(openai.APITimeoutError) as caught:
            await client.models.list()
    assert told_of(caught.value).failure == "timeout"
    assert told_of(TimeoutError()).failure == "timeout"


def test_a_reason_that_the_error_repeats_is_told_once():
    error = httpx2.ConnectError("All attempts failed.")
    error.__cause__ = OSError("All attempts failed.")
    told = model_error(error, title="Ollama", provider="ollama", model="bge-m3")
    assert str(told).count("All attempts failed") == 1


async def test_an_address_that_is_none_is_not_found():
    async with httpx2.AsyncClient() as http_client:
        client = openai.AsyncOpenAI(
            api_key=KEY, base_url="localhost:1/v1", max_retries=0, http_client=http_client
        )
        with pytest.raises(openai.APIConnectionError) as caught:
            await client.models.list()
    told = told_of(caught.value)
    assert told.failure == "not_found"
    assert not told.is_transient


def test_what_is_raised_while_an_answer_is_read_has_its_failure():
    request = httpx2.Request("POST", "http://fake")
    response = httpx2.Response(200, request=request)
    with pytest.raises(pydantic.ValidationError) as invalid:
        pydantic.TypeAdapter(int).validate_python("x")
    failures = {
        told_of(error).failure: None
        for error in (
            openai.APIResponseValidationError(response, None),
            invalid.value,
            json.JSONDecodeError("no", "", 0),
            httpx2.DecodingError("no"),
            httpx2.SSEError("too long"),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        )
    }
    assert list(failures) == ["unreadable"]
    assert told_of(httpx2.ReadError("gone")).failure == "connection"
    assert told_of(httpx2.StreamClosed()).failure == "connection"
    assert told_of(anthropic.CredentialsError("none")).failure == "authentication"
    assert told_of(RuntimeError("什么")).failure == "other"
    assert told_of(RuntimeError("什么")).message == "Vendor gave no answer of model-x: 什么."
    assert told_of(NoAnswerError({"error": "no idea"})).failure == "server"
    assert told_of(NoAnswerError({"error": {"code": "1113"}})).failure == "quota"
