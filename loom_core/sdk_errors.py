"""Errors of the vendors' SDKs, converted to errors of Loom.

The SDKs of OpenAI and Anthropic are made by one generator: their errors have the same class names and
attributes, so neither is imported here. Errors that they pass through, such as errors of `httpx2` in the
middle of a stream and of invalid JSON, are known by name, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import LLMError, ModelError, capitalise
from loom_core.net.retry import retry_after

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure

__all__ = ["NoAnswerError", "model_error"]

_E = TypeVar("_E", bound=ModelError)

_SAYS: Mapping[ModelFailure, str] = {
    "authentication": "{title} does not let this key use {model}",
    "not_found": "{title} has no model {model} at this address",
    "invalid_request": "{title} refused the request to {model}",
    "too_long": "The conversation is too long for {model} at {title}",
    "quota": "The account at {title} has no credit or quota left for {model}",
    "rate_limit": "{title} reports too many requests for {model}",
    "overloaded": "{title} is overloaded and cannot run {model} now",
    "server": "{title} failed while it ran {model}",
    "timeout": "{title} timed out while it ran {model}",
    "connection": "The connection to {title} failed during a request to {model}",
    "unreadable": "{title} sent an unreadable response of {model}",
    "refused": "{title} refuses to let {model} answer this",
}
_ADVICE: Mapping[ModelFailure, str] = {
    "authentication": "Check the key in {key}, and that it may use this model.",
    "not_found": "Check the name of the model, and the base URL.",
    "invalid_request": "A retry would fail again: change the request, or use another model.",
    "too_long": "Shorten the conversation, or use a model with a larger context window.",
    "quota": "Top the account up, raise its limit, or use another provider.",
    "rate_limit": "Try again {later}, or ask for less at once.",
    "overloaded": "Try again {later}, or use another model.",
    "server": "Try again {later}, or use another model.",
    "timeout": "Try again, or allow it more time.",
    "connection": "Try again, and check the network and the base URL.",
    "unreadable": "Try again; if the error persists, check the base URL.",
    "refused": "Ask in other words, or use another model.",
}

_TOOLS_REFUSED_ADVICE = "Set `supports_tools` to false in the model's `spec`: it then gets tools by prompt."


class NoAnswerError(Exception):
    """A response has an error instead of an answer.

    Attributes:
        body: the response body.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("The answer tells of an error.")
        self.body = body


def model_error(
    error: Exception,
    *,
    kind: type[_E] = LLMError,
    title: str,
    provider: str,
    model: str,
    key_variable: str = "",
) -> _E:
    """Convert an SDK's error so that people know what to do, and programs whether to try again.

    Raise it `from None`: the vendor's own message may quote the key, and would be logged with it.

    Args:
        error: an exception of an SDK, `httpx2`, or a response reader.
        kind: `LLMError` or `EmbeddingError`.
        title: the vendor's name for people.
        provider: the vendor's name in configurations.
        model: the model that was asked.
        key_variable: the environment variable that holds the key, for the advice.

    Returns:
        An error with `failure`, `status` and `retry_after`. Its message quotes the vendor in at most 300
        characters, on one line, without anything that looks like a key.
    """
    body = _body_of(error)
    words = _words_of(error, body)
    status = _status_of(error, body)
    failure = _failure_of(error, status=status, body=body, words=words)
    retry_after = _retry_after_of(error, body)
    says = _SAYS.get(failure, "{title} gave no answer of {model}").format(
        title=title, model=model or "the model"
    )
    advice = _TOOLS_REFUSED_ADVICE if _TOOLS_REFUSED.search(words) else _ADVICE.get(failure, "")
    heard = _quote_words(words, error)
    return kind(
        capitalise(says)
        + (f" (HTTP {status})" if status else "")
        + (f": {_as_sentence(heard)}" if heard else "."),
        advice=advice.format(
            key=key_variable or "the configuration",
            later="in a moment" if retry_after is None else f"in {retry_after:.0f} s",
        ),
        failure=failure,
        provider=provider,
        status=status,
        retry_after=retry_after,
    )


def _as_sentence(words: str) -> str:
    return words if words.endswith((*".!?…", *"。！？")) else f"{words}."


_LONGEST_WORDS = 300
_SHORTEST_KEY = 8

_SECRETS = re.compile(
    r"\bBearer\s+[^\s\"',;]+"
    r"|\b(?:sk|pk|rk|ak|gsk|xai|nvapi|hf)[-_][^\s\"',;)]{4,}"
    r"|\bAIza[\w-]{10,}"
    r"|(?<=[:=])\s*[\"']?(?=[\w./+-]*\d)[\w./+-]{20,}"
    r"|\b(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{32,}(?:\.[\w-]+)*",
    re.IGNORECASE | re.ASCII,
)
"""Pattern of a key: with a vendor's prefix, after `Bearer`, or long and of letters and digits."""


def _quote_words(words: str, error: Exception) -> str:
    """Return a message on one line, truncated, without the sent key and anything that looks like a key."""
    for key in _request_keys(error):
        words = words.replace(key, "…")
    line = " ".join(_SECRETS.sub("…", words).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= _LONGEST_WORDS else f"{line[: _LONGEST_WORDS - 1]}…"


def _request_keys(error: Exception) -> Iterator[str]:
    headers = cast("Mapping[str, Any]", getattr(_request(error), "headers", {}))
    for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key"):
        key = str(headers.get(name, "")).removeprefix("Bearer ").strip()
        if len(key) >= _SHORTEST_KEY:
            yield key


def _request(error: Exception) -> object:
    try:
        return getattr(error, "request", None)
    except RuntimeError:  # httpx2 raises it where an error has no request
        return None


_BY_STATUS: Mapping[int, ModelFailure] = {
    400: "invalid_request",
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "not_found",
    405: "not_found",
    408: "timeout",
    409: "server",
    410: "not_found",
    413: "too_long",
    422: "invalid_request",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

_CODES: Mapping[ModelFailure, str] = {
    "authentication": (
        "authentication_error permission_error"  # Anthropic
        " invalid_api_key unsupported_country_region_territory"  # OpenAI
        " api_key_invalid permission_denied unauthenticated"  # Gemini
        " invalid_authentication_error incorrect_api_key_error permission_denied_error"  # Moonshot
        " invalidapikey accessdenied accessdenied.unpurchased model.accessdenied"  # DashScope
        " authenticationerror modelnotopen"  # Ark
        " 1004 1110 1111 1112 1220"  # Zhipu
        " authorized_error 2049"  # MiniMax
    ),
    "not_found": (
        "not_found_error model_not_found not_found resource_not_found_error modelnotfound"
        " invalidendpointormodel.notfound invalidendpointormodel 1211 1212 1222"
    ),
    "too_long": (
        "request_too_large context_length_exceeded string_above_max_length exceed_context_size_error"
        " outofcontexterror 1261 1039"
    ),
    "quota": (
        "billing_error insufficient_quota billing_hard_limit_reached exceeded_current_quota_error"
        " arrearage prepaidbilloverdue postpaidbilloverdue commoditynotpurchased allocationquota.freetieronly"
        " accountoverdueerror setlimitexceeded quotaexceeded"
        " 1113 1308 1309 1310"
        " insufficient_balance_error 1008"
    ),
    "rate_limit": (
        "rate_limit_error rate_limit_exceeded rate_limit_reached_error resource_exhausted"
        " limit_requests limit_burst_rate accountratelimitexceeded requestbursttoofast"
        " modelaccountrpmratelimitexceeded modelaccounttpmratelimitexceeded inflightbatchsizeexceeded"
        " 1302 1303 1304"
    ),
    "overloaded": (
        "overloaded_error engine_overloaded_error unavailable serveroverloaded modelunavailable"
        " model_unavailable 1305 1312"
    ),
    "server": "api_error server_error internal internalerror internalerror.algo internalserviceerror",
    "timeout": "timeout_error deadline_exceeded requesttimeout internalerror.timeout 1234",
    "refused": (
        "content_filter content_policy_violation data_inspection_failed datainspectionfailed"
        " new_sensitive 1301 1026 1027"
    ),
    "invalid_request": "invalidparameter missingparameter invalid_argument",
}
"""Vendors' error codes, in small letters. Most say more than their status does: a 429 may be an
empty account, a 400 a wrong key, and an error in a stream has the status 200."""

_FAILURE_OF_CODE: Mapping[str, ModelFailure] = {
    code: failure for failure, codes in _CODES.items() for code in codes.split()
}

_FAILURE_OF_BEGINNING: Mapping[str, ModelFailure] = {
    "throttling": "rate_limit",
    "ratelimitexceeded": "rate_limit",
    "sensitivecontentdetected": "refused",
    "inputtextsensitivecontentdetected": "refused",
    "inputimagesensitivecontentdetected": "refused",
    "outputtextsensitivecontentdetected": "refused",
    "inputtextriskdetection": "refused",
    "inputimageriskdetection": "refused",
    "outputtextriskdetection": "refused",
    "invalidendpoint": "not_found",
}
"""Prefixes of codes, before a dot: `Throttling.RateQuota`, `RateLimitExceeded.EndpointTPMExceeded`."""

_VAGUE: frozenset[ModelFailure] = frozenset({"invalid_request", "server", "other"})
"""Failures for which the vendor's message says more than its code."""

_TOOLS_REFUSED = re.compile(r"does not support (?:tools|function call)", re.IGNORECASE)
"""Pattern of the message of a model, or its server, that takes no tools."""

_WORDS: tuple[tuple[ModelFailure, re.Pattern[str]], ...] = (
    (
        "too_long",
        re.compile(
            r"context[ _](?:length|window|size|limit)|max(?:imum)?[ _](?:context|model[ _]len)"
            r"|(?:prompt|input|request|conversation)\b.{0,40}\btoo (?:long|large)"
            r"|exceeded model token limit|input token count|maximum number of tokens|range of input length"
            r"|input length\b.{0,40}\bexceed|longer than the maximum"
            r"|超过.{0,30}长度|长度.{0,12}(?:超过|超出|超限)|超出.{0,20}长度|超长|(?:输入|内容|上下文)过长",
            re.IGNORECASE,
        ),
    ),
    (
        "quota",
        re.compile(
            r"insufficient.{0,10}(?:balance|funds|credit)|credit balance|余额不足|欠费", re.IGNORECASE
        ),
    ),
    (
        "authentication",
        re.compile(
            r"(?:invalid|incorrect|wrong) api[ _-]?key|api[ _-]?key (?:not|is not) valid", re.IGNORECASE
        ),
    ),
    # Ollama calls it an `api_error`, with status 400: a retry would fail again.
    ("invalid_request", _TOOLS_REFUSED),
    ("refused", re.compile(r"inappropriate content|content (?:policy|filter)|敏感|不安全", re.IGNORECASE)),
)

_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"})
_NO_ADDRESS = frozenset({"UnsupportedProtocol", "InvalidURL"})
_BROKEN = frozenset({"APIConnectionError", "TransportError", "StreamError", "OSError", "EOFError"})
_UNREADABLE = frozenset(
    """
    APIResponseValidationError DecodingError RecursionError SSEError ValueError
    """.split()
)
_NO_KEY = frozenset({"CredentialsError", "SubjectTokenProviderError", "UnicodeEncodeError"})
"""The last one: a key, or another header, with invalid characters."""


def _failure_of(error: Exception, *, status: int | None, body: object, words: str) -> ModelFailure:
    """Classify an error.

    Args:
        error: the exception.
        status: the HTTP status, or None.
        body: the vendor's response body, or None.
        words: the error message.
    """
    failure = _by_status(status) if status else _by_class(error)
    code = _by_code(body)
    if code and (not status or code not in _VAGUE or failure in _VAGUE):  # a 429 may be a `server_error`
        failure = code
    if failure == "quota" and "#token-limit" in words:  # Alibaba's form of a rate limit
        return "rate_limit"
    if failure in _VAGUE or (status == 429 and failure == "rate_limit"):
        for better, pattern in _WORDS:
            if (status != 429 or better == "quota") and pattern.search(words):
                return better
    return failure


def _by_code(body: object) -> ModelFailure | None:
    vague: ModelFailure | None = None
    for code in _codes(body):
        failure = _FAILURE_OF_CODE.get(code) or _FAILURE_OF_BEGINNING.get(code.partition(".")[0])
        if failure is not None and failure not in _VAGUE:
            return failure
        vague = vague or failure
    return vague


def _by_status(status: int) -> ModelFailure:
    return _BY_STATUS.get(status) or ("server" if status >= 500 else "invalid_request")


def _by_class(error: Exception) -> ModelFailure:
    names = {cls.__name__ for cls in type(error).__mro__}
    causes = {cls.__name__ for cls in type(error.__cause__).__mro__} if error.__cause__ else names
    if (names | causes) & _NO_ADDRESS:
        return "not_found"
    if names & _TIMEOUTS:
        return "timeout"
    if names & _NO_KEY:
        return "authentication"
    if names & _UNREADABLE:
        return "unreadable"
    if names & _BROKEN:
        return "connection"
    told = getattr(error, "body", None) is not None  # by the vendor, with an unknown message
    return "server" if told else "other"


def _codes(body: object) -> Iterator[str]:
    """Yield the vendor's error codes: the most precise first."""
    fields = list(_fields_of(body))
    for wanted in ("error_code", "reason", "code", "status_code", "type", "status", "error"):
        for name, value in fields:
            if name == wanted and isinstance(value, str | int):
                yield str(value).casefold()


_DEEPEST_BODY = 6
_MOST_OF_A_PAGE = 8000
_MOST_WORDS = 2000
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_STATUS_FIELDS = frozenset({"code", "status_code", "status"})
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def _status_of(error: Exception, body: object) -> int | None:
    """Return the HTTP status of an error.

    An error inside a stream comes with the status of the stream, which says nothing. Gateways and vLLM put
    the actual status into the error's code, as a number or a text.
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return status
    codes = (str(value) for name, value in _fields_of(body) if name in _STATUS_FIELDS)
    return next((int(code) for code in codes if _STATUS.fullmatch(code)), None)


def _body_of(error: Exception) -> object:
    """Return the vendor's body, parsed as JSON where it is JSON."""
    body: object = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def _fields_of(body: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Iterate over all fields of a body, outer before inner."""
    if depth > _DEEPEST_BODY:
        return
    if isinstance(body, Mapping):
        fields = cast("Mapping[object, object]", body)
        for name, value in fields.items():
            yield str(name), value
        for value in fields.values():
            yield from _fields_of(value, depth + 1)
    elif isinstance(body, list):
        for value in cast("list[object]", body):
            yield from _fields_of(value, depth + 1)


def _words_of(error: Exception, body: object) -> str:
    """Return the message for people: the vendor's, else the error's; the beginning of it, if it is long."""
    return (_vendors_words(body) or _own_words(error))[:_MOST_WORDS]


def _vendors_words(body: object) -> str:
    if isinstance(body, str):
        return re.sub(r"<style.*?</style>|<[^<>]*>", " ", body[:_MOST_OF_A_PAGE], flags=re.DOTALL)
    said = {
        name: value for name, value in reversed(list(_fields_of(body))) if isinstance(value, str) and value
    }
    for name in ("message", "status_msg", "msg", "detail", "error_description", "error"):
        if name in said:
            return said[name]
    return ""


def _own_words(error: Exception) -> str:
    """Return the error's own message; errors of connections tell the reason in their cause only."""
    cause = error.__cause__
    own = str(error).strip() or type(error).__name__
    reason = str(cause).strip() if isinstance(cause, Exception) else ""
    return own if reason in own else f"{own} {reason}"


def _retry_after_of(error: Exception, body: object) -> float | None:
    """Return the retry delay in seconds, from a header or the body; None if there is none."""
    headers = cast("Mapping[str, str]", getattr(getattr(error, "response", None), "headers", {}))
    if (seconds := retry_after(headers)) is not None:
        return seconds
    for name, value in _fields_of(body):
        if name == "retryDelay" and (delay := _DELAY.fullmatch(str(value))):  # Gemini: google.rpc.RetryInfo
            return float(delay[1])
    return None
