from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import EmbeddingError, LLMError
from loom_core.sdk_errors import NoAnswerError, model_error
from loom_core.testing.streaming_transport import StreamingASGITransport

_KEY = "sk-zh-0123456789abcdef0123456789abcdef"


def _app(
    status: int,
    body: object,
    *,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Callable[..., Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    lines = {"content-type": content_type, **(headers or {})}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        head = [(name.encode(), value.encode()) for name, value in lines.items()]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": raw})

    return app


async def _by_openai(app: Callable[..., Any], *, key: str = _KEY) -> Exception:
    async with httpx2.AsyncClient(transport=StreamingASGITransport(app)) as http_client:
        client = openai.AsyncOpenAI(
            api_key=key, base_url="http://fake/v1", max_retries=0, http_client=http_client
        )
        try:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "你好"}], stream=True
            )
            async for _ in stream:
                pass
        except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:
            return error
    raise AssertionError("there was an answer")


async def _by_anthropic(app: Callable[..., Any], *, base_url: str = "http://fake") -> Exception:
    async with httpx2.AsyncClient(transport=StreamingASGITransport(app)) as http_client:
        client = anthropic.AsyncAnthropic(
            api_key=_KEY, base_url=base_url, max_retries=0, http_client=http_client
        )
        try:
            stream = await client.messages.create(
                model="m", max_tokens=1, messages=[{"role": "user", "content": "你好"}], stream=True
            )
            async for _ in stream:
                pass
        except (anthropic.AnthropicError, httpx2.HTTPError, ValueError) as error:
            return error
    raise AssertionError("there was an answer")


def _told(error: Exception, *, key_variable: str = "") -> LLMError:
    return model_error(error, title="Vendor", provider="vendor", model="model-x", key_variable=key_variable)


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
    for error in (await _by_openai(_app(status, {})), await _by_anthropic(_app(status, {}))):
        told = _told(error)
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
        (400, {"detail": "max_tokens must be at least 1"}, "invalid_request"),
    ],
)
def test_a_vendors_own_code_or_words_count_more_than_the_status(status: int, body: object, failure: str):
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://fake"))
    error = openai.APIStatusError("…", response=response, body=body)
    assert _told(error).failure == failure


async def test_codes_are_found_in_what_the_sdks_make_of_a_body():
    of_openai = {"error": {"message": "No.", "type": "invalid_request_error", "code": "model_not_found"}}
    assert _told(await _by_openai(_app(400, of_openai))).failure == "not_found"
    of_anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert _told(await _by_anthropic(_app(400, of_anthropic))).failure == "overloaded"
    of_gemini = [{"error": {"code": 400, "message": "no", "status": "PERMISSION_DENIED"}}]
    assert _told(await _by_openai(_app(400, of_gemini))).failure == "authentication"


async def test_an_error_in_a_stream_has_no_status():
    event = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    told = _told(await _by_anthropic(_app(200, event, content_type="text/event-stream")))
    assert (told.failure, told.status) == ("overloaded", None)
    assert told.message == "Vendor has no room for model-x now: Overloaded."

    event = 'data: {"error": {"message": "内部错误", "code": "server_error"}}\n\n'.encode()
    told = _told(await _by_openai(_app(200, event, content_type="text/event-stream")))
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
        await _by_openai(_app(200, event, content_type="text/event-stream")),
    ):
        told = _told(error)
        assert (told.failure, told.status) == (failure, code)
        assert f"(HTTP {code}): 请稍后再试." in told.message


@pytest.mark.parametrize("code", [200, 1113, "42", "4290", "٤٢٩", 429.5, True, None, [429]])
def test_other_codes_inside_an_answer_are_no_status(code: object):
    assert _told(NoAnswerError({"error": {"code": code}})).status is None


def test_words_and_names_tell_more_than_a_code_that_looks_like_a_status():
    empty = {"error": {"code": 429, "message": "余额不足，请充值"}}
    assert _told(NoAnswerError(empty)).failure == "quota"
    long = {"error": {"code": 400, "message": "maximum context length is 4096 tokens"}}
    assert _told(NoAnswerError(long)).failure == "too_long"
    busy = {"error": {"code": 500, "type": "overloaded_error"}}
    assert _told(NoAnswerError(busy)).failure == "overloaded"


def test_the_status_of_a_refusal_counts_more_than_a_code_in_its_body():
    response = httpx2.Response(401, request=httpx2.Request("POST", "http://fake"))
    told = _told(openai.AuthenticationError("…", response=response, body={"code": 429}))
    assert (told.failure, told.status) == ("authentication", 401)


@pytest.mark.parametrize("title", ["your own vendor", "DeepSeek", "通义千问", ""])
def test_a_message_begins_with_a_capital_letter_whatever_the_vendor_is_called(title: str):
    for code in (401, 402, 404, 429, 500, 503):
        told = model_error(NoAnswerError({"code": code}), title=title, provider="p", model="m")
        assert not told.message[:1].islower()
        assert title in told.message or title.capitalize() in told.message


async def test_json_that_cannot_be_read_is_unreadable():
    told = _told(await _by_openai(_app(200, b"data: {nonsense\n\n", content_type="text/event-stream")))
    assert told.failure == "unreadable"


async def test_a_page_of_a_proxy_becomes_its_words():
    page = b"<html><style>b{color:red}</style><body><h1>502 Bad Gateway</h1>\n<hr>nginx</body></html>"
    told = _told(await _by_openai(_app(502, page, content_type="text/html")))
    assert told.message == "Vendor failed while it ran model-x (HTTP 502): 502 Bad Gateway nginx."


async def test_connections_that_break_and_take_too_long_are_told_apart():
    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    assert _told(await _by_anthropic(breaks)).failure == "connection"

    class Late(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ReadTimeout("late", request=request)

    async with httpx2.AsyncClient(transport=Late()) as http_client:
        client = openai.AsyncOpenAI(
            api_key=_KEY, base_url="http://fake", max_retries=0, http_client=http_client
        )
        with pytest.raises(openai.APITimeoutError) as caught:
            await client.models.list()
    assert _told(caught.value).failure == "timeout"
    assert _told(TimeoutError()).failure == "timeout"


def test_a_reason_that_the_error_repeats_is_told_once():
    error = httpx2.ConnectError("All attempts failed.")
    error.__cause__ = OSError("All attempts failed.")
    told = model_error(error, title="Ollama", provider="ollama", model="bge-m3")
    assert str(told).count("All attempts failed") == 1


async def test_an_address_that_is_none_is_not_found():
    async with httpx2.AsyncClient() as http_client:
        client = openai.AsyncOpenAI(
            api_key=_KEY, base_url="localhost:1/v1", max_retries=0, http_client=http_client
        )
        with pytest.raises(openai.APIConnectionError) as caught:
            await client.models.list()
    told = _told(caught.value)
    assert told.failure == "not_found"
    assert not told.passing


def test_what_is_raised_while_an_answer_is_read_has_its_failure():
    request = httpx2.Request("POST", "http://fake")
    response = httpx2.Response(200, request=request)
    with pytest.raises(pydantic.ValidationError) as invalid:
        pydantic.TypeAdapter(int).validate_python("x")
    failures = {
        _told(error).failure: None
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
    assert _told(httpx2.ReadError("gone")).failure == "connection"
    assert _told(httpx2.StreamClosed()).failure == "connection"
    assert _told(anthropic.CredentialsError("none")).failure == "authentication"
    assert _told(RuntimeError("什么")).failure == "other"
    assert _told(RuntimeError("什么")).message == "Vendor gave no answer of model-x: 什么."
    assert _told(NoAnswerError({"error": "no idea"})).failure == "server"
    assert _told(NoAnswerError({"error": {"code": "1113"}})).failure == "quota"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            30.0,
        ),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:28:30 -0000", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            30.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None):
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    response = httpx2.Response(429, headers=encoded, request=httpx2.Request("POST", "http://fake"))
    told = _told(openai.RateLimitError("…", response=response, body=None))
    assert told.retry_after == seconds
    assert ("Try again in a moment" in told.advice) == (seconds is None)


def test_the_time_to_wait_may_stand_in_the_body():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "23.5s"}]
    response = httpx2.Response(429, request=httpx2.Request("POST", "http://fake"))
    error = openai.RateLimitError("…", response=response, body=[{"error": {"details": details}}])
    assert _told(error).retry_after == 23.5
    error = openai.RateLimitError("…", response=response, body={"retryDelay": "soon"})
    assert _told(error).retry_after is None


@pytest.mark.parametrize(
    "secret",
    [
        _KEY,
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
    told = _told(openai.AuthenticationError("…", response=response, body=body), key_variable="VENDOR_API_KEY")
    for piece in secret.replace("Bearer ", "").split("."):
        assert piece not in str(told)
    assert "Incorrect API key provided" in told.message
    assert "VENDOR_API_KEY" in told.advice


async def test_the_key_that_was_sent_is_not_quoted_whatever_it_looks_like():
    body = {"error": {"message": "The key 'my house' is wrong, as is my house."}}
    told = _told(await _by_openai(_app(401, body), key="my house"))
    assert "my house" not in str(told)


async def test_a_key_that_no_header_can_hold_is_the_keys_fault_and_is_not_quoted():
    told = _told(await _by_openai(_app(200, {}), key="密钥"))
    assert told.failure == "authentication"
    assert "密钥" not in str(told)


def test_words_are_one_line_of_300_letters_at_most():
    response = httpx2.Response(400, request=httpx2.Request("POST", "http://fake"))
    body = {"error": {"message": "第一行\n\t第二行\x00\u202e" + "很长" * 500}}
    told = _told(openai.BadRequestError("…", response=response, body=body))
    quoted = told.message.partition(": ")[2]
    assert quoted.startswith("第一行 第二行很长")
    assert len(quoted) == 300
    assert quoted.endswith("…")


@pytest.mark.parametrize("hostile", ["a-" * 2_000_000, "<style" * 1_000_000, "长度" * 2_000_000])
def test_words_without_end_are_read_up_to_a_limit(hostile: str):
    response = httpx2.Response(500, request=httpx2.Request("POST", "http://fake"))
    for body in (hostile, {"error": {"message": hostile}}):
        assert len(_told(openai.APIStatusError("…", response=response, body=body)).message) < 400


def test_embedding_models_have_errors_of_their_own():
    error = model_error(TimeoutError(), kind=EmbeddingError, title="Ollama", provider="ollama", model="")
    assert type(error) is EmbeddingError
    assert error.message == "Ollama took too long to answer with the model: TimeoutError."


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


@settings(max_examples=50)
@given(st.sampled_from([200, 400, 401, 404, 429, 500, 529]), _json_values, st.text())
def test_whatever_a_vendor_sends_becomes_an_error(status: int, body: object, retry_after: str):
    headers = [(b"retry-after", retry_after.encode("utf-8", "replace"))]
    response = httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "http://fake"))
    told = _told(openai.APIStatusError("…", response=response, body=body))
    assert told.retry_after is None or told.retry_after >= 0
    assert "\n" not in told.message
    assert len(told.message) < 500


def test_a_body_that_is_nested_without_end_is_an_error_like_any_other():
    deeper: object = {"code": "1113"}
    for _ in range(100):
        deeper = [deeper]
    response = httpx2.Response(500, request=httpx2.Request("POST", "http://fake"))
    for deep in ("[" * 100_000, deeper):
        assert _told(openai.APIStatusError("…", response=response, body=deep)).failure == "server"
