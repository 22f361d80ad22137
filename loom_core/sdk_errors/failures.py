"""Classification of SDK errors to failures: by the vendor's error code, the status, and the error class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from loom_core.sdk_errors.response_body import fields_of

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure

__all__ = ["TOOLS_REFUSED", "failure_of"]

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

TOOLS_REFUSED = re.compile(r"does not support (?:tools|function call)", re.IGNORECASE)
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
    ("invalid_request", TOOLS_REFUSED),
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


def failure_of(error: Exception, *, status: int | None, body: object, words: str) -> ModelFailure:
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
    fields = list(fields_of(body))
    for wanted in ("error_code", "reason", "code", "status_code", "type", "status", "error"):
        for name, value in fields:
            if name == wanted and isinstance(value, str | int):
                yield str(value).casefold()
