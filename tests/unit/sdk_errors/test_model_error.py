"""Which failure a vendor means: by the status of its answer, by its own codes, by its words."""

from __future__ import annotations

import json

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import EmbeddingError
from loom_core.sdk_errors import NoAnswerError, model_error
from tests.fixtures.vendor_errors import app_of, by_anthropic, by_openai, told_of


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (400, "invalid_request"),
        (401, "authentication"),
        (402, "quota"),
        (403, "authentication"),
        (404, "not_found"),
        (405, "not_found"),
        (408, "timeout"),
        (409, "server"),
        (413, "too_long"),
        (418, "invalid_request"),
        (422, "invalid_request"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
        (599, "server"),
    ],
)
async def test_a_status_alone_tells_the_failure_with_both_sdks(status: int, failure: str):
    for error in (await by_openai(app_of(status, {})), await by_anthropic(app_of(status, {}))):
        told = told_of(error)
        assert (told.failure, told.status, told.provider) == (failure, status, "vendor")
        assert "Vendor" in told.message
        assert "model-x" in told.message
        assert told.advice


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (
            429,
            {"error": {"message": "x", "type": "insufficient_quota", "code": "insufficient_quota"}},
            "quota",
        ),
        (
            400,
            {"error": {"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"}},
            "too_long",
        ),
        (400, {"error": {"message": "此模型的最大上下文长度", "code": "content_filter"}}, "refused"),
        (500, {"error": {"code": "1113", "message": "您的账户已欠费，请充值后重试"}}, "quota"),
        (
            400,
            {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}},
            "refused",
        ),
        (400, {"error": {"code": "1261", "message": "Prompt 超长"}}, "too_long"),
        (429, {"error": {"code": "1305", "message": "当前API请求过多，请稍后重试。"}}, "overloaded"),
        (400, {"error": {"code": "1211", "message": "模型不存在"}}, "not_found"),
        (
            400,
            {"code": "Arrearage", "message": "Access denied, make sure your account is in good standing."},
            "quota",
        ),
        (429, {"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}, "rate_limit"),
        (
            429,
            {
                "error": {
                    "code": "insufficient_quota",
                    "message": "You exceeded your current quota. For details, see: …/error-code#token-limit",
                }
            },
            "rate_limit",
        ),
        (
            400,
            {"error": {"code": "data_inspection_failed", "message": "Input data may contain …"}},
            "refused",
        ),
        (
            400,
            {
                "error": {
                    "code": "invalid_parameter_error",
                    "message": "Range of input length should be [1, 98304]",
                }
            },
            "too_long",
        ),
        (403, {"error": {"code": "AccountOverdueError", "type": "Forbidden", "message": "overdue"}}, "quota"),
        (
            429,
            {"error": {"code": "SetLimitExceeded", "type": "TooManyRequests", "message": "limit"}},
            "quota",
        ),
        (
            429,
            {"error": {"code": "RateLimitExceeded.EndpointTPMExceeded", "message": "TPM"}},
            "rate_limit",
        ),
        (400, {"error": {"code": "InputTextSensitiveContentDetected.Violence", "message": "x"}}, "refused"),
        (429, {"error": {"type": "exceeded_current_quota_error", "message": "suspended"}}, "quota"),
        (429, {"error": {"type": "engine_overloaded_error", "message": "try later"}}, "overloaded"),
        (
            400,
            {
                "error": {
                    "type": "invalid_request_error",
                    "message": "Invalid request: Your request exceeded model token limit: 8192",
                }
            },
            "too_long",
        ),
        (402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}, "quota"),
        (
            400,
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid. Please pass a valid API key.",
                        "status": "INVALID_ARGUMENT",
                        "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
                    }
                }
            ],
            "authentication",
        ),
        (
            429,
            [{"error": {"code": 429, "message": "You exceeded your quota", "status": "RESOURCE_EXHAUSTED"}}],
            "rate_limit",
        ),
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 4096 tokens. However, you requested 5000",
                "type": "BadRequestError",
                "code": 400,
            },
            "too_long",
        ),
        (
            400,
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 3 > 2"},
            },
            "too_long",
        ),
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "Your credit balance is too low to access the Anthropic API.",
                },
            },
            "quota",
        ),
        (500, {"error": {"message": "输入内容超过了模型的最大长度"}}, "too_long"),
        (400, {"error": {"message": "上下文过长"}}, "too_long"),
        (429, {"error": {"message": "余额不足，请充值"}}, "quota"),
        (429, {"error": {"message": "context length of all requests in a minute"}}, "rate_limit"),
        (200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "quota"),
        (
            400,
            {"error": {"message": "library/gemma:2b does not support tools", "type": "api_error"}},
            "invalid_request",
        ),
        (400, {"detail": "max_tokens must be at least 1"}, "invalid_request"),
    ],
)
def test_a_vendors_own_code_or_words_count_more_than_the_status(status: int, body: object, failure: str):
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://fake"))
    error = openai.APIStatusError("…", response=response, body=body)
    assert told_of(error).failure == failure


async def test_codes_are_found_in_what_the_sdks_make_of_a_body():
    of_openai = {"error": {"message": "No.", "type": "invalid_request_error", "code": "model_not_found"}}
    assert told_of(await by_openai(app_of(400, of_openai))).failure == "not_found"
    of_anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert told_of(await by_anthropic(app_of(400, of_anthropic))).failure == "overloaded"
    of_gemini = [{"error": {"code": 400, "message": "no", "status": "PERMISSION_DENIED"}}]
    assert told_of(await by_openai(app_of(400, of_gemini))).failure == "authentication"


async def test_an_error_in_a_stream_has_no_status():
    event = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    told = told_of(await by_anthropic(app_of(200, event, content_type="text/event-stream")))
    assert (told.failure, told.status) == ("overloaded", None)
    assert told.message == "Vendor is overloaded and cannot run model-x now: Overloaded."

    event = 'data: {"error": {"message": "内部错误", "code": "server_error"}}\n\n'.encode()
    told = told_of(await by_openai(app_of(200, event, content_type="text/event-stream")))
    assert (told.failure, told.status) == ("server", None)
    assert "内部错误" in told.message


_CODES_LIKE_STATUSES = [
    (401, "authentication"),
    (402, "quota"),
    (404, "not_found"),
    (429, "rate_limit"),
    (500, "server"),
    (503, "overloaded"),
]


@pytest.mark.parametrize(("code", "failure"), _CODES_LIKE_STATUSES)
@pytest.mark.parametrize("form", [int, str])
async def test_a_code_inside_an_answer_counts_as_the_status_that_it_looks_like(
    code: int, failure: str, form: type[int | str]
):
    fields = {"error": {"code": form(code), "message": "请稍后再试"}}
    event = f"data: {json.dumps(fields)}\n\n".encode()
    for error in (
        NoAnswerError(fields),
        NoAnswerError({"object": "error", "code": form(code), "message": "请稍后再试"}),
        await by_openai(app_of(200, event, content_type="text/event-stream")),
    ):
        told = told_of(error)
        assert (told.failure, told.status) == (failure, code)
        assert f"(HTTP {code}): 请稍后再试." in told.message


@pytest.mark.parametrize("code", [200, 1113, "42", "4290", "٤٢٩", 429.5, True, None, [429]])
def test_other_codes_inside_an_answer_are_no_status(code: object):
    assert told_of(NoAnswerError({"error": {"code": code}})).status is None


def test_words_and_names_tell_more_than_a_code_that_looks_like_a_status():
    empty = {"error": {"code": 429, "message": "余额不足，请充值"}}
    assert told_of(NoAnswerError(empty)).failure == "quota"
    long = {"error": {"code": 400, "message": "maximum context length is 4096 tokens"}}
    assert told_of(NoAnswerError(long)).failure == "too_long"
    busy = {"error": {"code": 500, "type": "overloaded_error"}}
    assert told_of(NoAnswerError(busy)).failure == "overloaded"


def test_the_status_of_a_refusal_counts_more_than_a_code_in_its_body():
    response = httpx2.Response(401, request=httpx2.Request("POST", "http://fake"))
    told = told_of(openai.AuthenticationError("…", response=response, body={"code": 429}))
    assert (told.failure, told.status) == ("authentication", 401)


@pytest.mark.hostile("answers of models")
@pytest.mark.parametrize("title", ["your own vendor", "DeepSeek", "通义千问", ""])
def test_a_message_begins_with_a_capital_letter_whatever_the_vendor_is_called(title: str):
    for code in (401, 402, 404, 429, 500, 503):
        told = model_error(NoAnswerError({"code": code}), title=title, provider="p", model="m")
        assert not told.message[:1].islower()
        assert title in told.message or title.capitalize() in told.message


def test_embedding_models_have_errors_of_their_own():
    error = model_error(TimeoutError(), kind=EmbeddingError, title="Ollama", provider="ollama", model="")
    assert type(error) is EmbeddingError
    assert error.message == "Ollama timed out while it ran the model: TimeoutError."


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "status", "details", "retryDelay", "msg", "detail"]
            )
            | st.text(),
            inner,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@pytest.mark.hostile("answers of models")
@settings(max_examples=50)
@given(st.sampled_from([200, 400, 401, 404, 429, 500, 529]), _json_values, st.text())
def test_whatever_a_vendor_sends_becomes_an_error(status: int, body: object, retry_after: str):
    headers = [(b"retry-after", retry_after.encode("utf-8", "replace"))]
    response = httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "http://fake"))
    told = told_of(openai.APIStatusError("…", response=response, body=body))
    assert told.retry_after is None or told.retry_after >= 0
    assert "\n" not in told.message
    assert len(told.message) < 500


@pytest.mark.hostile("answers of models")
def test_a_body_that_is_nested_without_end_is_an_error_like_any_other():
    deeper: object = {"code": "1113"}
    for _ in range(100):
        deeper = [deeper]
    response = httpx2.Response(500, request=httpx2.Request("POST", "http://fake"))
    for deep in ("[" * 100_000, deeper):
        assert told_of(openai.APIStatusError("…", response=response, body=deep)).failure == "server"
