"""Quotes of a vendor's error text: one line of it, and never a key."""

from __future__ import annotations

import httpx2
import openai
import pytest

from tests.fixtures.vendor_errors import KEY, app_of, by_openai, told_of


@pytest.mark.hostile("answers of models")
@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        "sk-proj-abc*******xyz",
        "Bearer abcdefgh",
        "AIzaSyA1234567890abcdefghijk",
        "0123456789abcdef0123456789abcdef.AbCdEfGhIjKlMnOp",
        "3fa85f64-5717-4562-b3fc-2c963f66afa6",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2ln",
    ],
)
def test_what_looks_like_a_key_is_not_quoted(secret: str):
    response = httpx2.Response(401, request=httpx2.Request("POST", "http://fake"))
    body = {
        "error": {"message": f"密钥错误：Incorrect API key provided: {secret}. Find yours at https://x.y"}
    }
    told = told_of(
        openai.AuthenticationError("…", response=response, body=body), key_variable="VENDOR_API_KEY"
    )
    for piece in secret.replace("Bearer ", "").split("."):
        assert piece not in str(told)
    assert "Incorrect API key provided" in told.message
    assert "VENDOR_API_KEY" in told.advice


@pytest.mark.hostile("answers of models")
async def test_the_key_that_was_sent_is_not_quoted_whatever_it_looks_like():
    body = {"error": {"message": "The key 'my house' is wrong, as is my house."}}
    told = told_of(await by_openai(app_of(401, body), key="my house"))
    assert "my house" not in str(told)


@pytest.mark.hostile("answers of models")
async def test_a_key_that_no_header_can_hold_is_the_keys_fault_and_is_not_quoted():
    told = told_of(await by_openai(app_of(200, {}), key="密钥"))
    assert told.failure == "authentication"
    assert "密钥" not in str(told)


def test_words_are_one_line_of_300_letters_at_most():
    response = httpx2.Response(400, request=httpx2.Request("POST", "http://fake"))
    body = {"error": {"message": "第一行\n\t第二行\x00\u202e" + "很长" * 500}}
    told = told_of(openai.BadRequestError("…", response=response, body=body))
    quoted = told.message.partition(": ")[2]
    assert quoted.startswith("第一行 第二行很长")
    assert len(quoted) == 300
    assert quoted.endswith("…")


@pytest.mark.hostile("answers of models")
@pytest.mark.parametrize("word", ["a-", "<style", "长度"])
def test_words_without_end_are_read_up_to_a_limit(word: str):
    hostile = word * 2_000_000
    response = httpx2.Response(500, request=httpx2.Request("POST", "http://fake"))
    for body in (hostile, {"error": {"message": hostile}}):
        assert len(told_of(openai.APIStatusError("…", response=response, body=body)).message) < 400
