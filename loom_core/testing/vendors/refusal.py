"""How each vendor says no."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["Refused", "error_body", "error_of_turn"]


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure of this program
    """A request that the vendor does not take.

    Attributes:
        message: why, in the vendor's words.
        status: the HTTP status.
        code: the vendor's code; empty for its usual one for this status.
        openai_code: OpenAI's code, of rules that others have too, with their own.
        param: the field of the request that is wrong, where the vendor says so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "",
        openai_code: str = "",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.openai_code = openai_code
        self.param = param


Json: TypeAlias = dict[str, Any]
_OPENAI_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    404: "not_found_error",
    429: "rate_limit_error",
}
_OPENAI_CODES = {401: "invalid_api_key", 402: "insufficient_quota", 404: "model_not_found"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_DOUBAO_CODES = {
    400: "InvalidParameter",
    401: "AuthenticationError",
    404: "InvalidEndpointOrModel.NotFound",
    429: "RateLimitExceeded.EndpointRPMExceeded",
    500: "InternalServiceError",
    503: "ServerOverloaded",
}
_DOUBAO_TYPES = {400: "BadRequest", 401: "Unauthorized", 404: "NotFound", 429: "TooManyRequests"}
_ZHIPU_CODES = {400: "1214", 401: "1001", 404: "1211", 429: "1302", 500: "1234"}
_GEMINI_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_MINIMAX_CODES = {400: "2013", 401: "1004", 429: "1002", 500: "1000", 503: "2064"}
_VLLM_TYPES = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError"}


def _openai(refused: Refused) -> Json:
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    code = refused.code or refused.openai_code or _OPENAI_CODES.get(refused.status)
    kind = _OPENAI_TYPES.get(refused.status, kind)
    return {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": code}}


def _deepseek(refused: Refused) -> Json:
    error: Json = _openai(refused)["error"]
    return {"error": {**error, "code": refused.code or "invalid_request_error"}}


def _qwen(refused: Refused) -> Json:
    code = refused.code or {401: "invalid_api_key", 404: "model_not_found"}.get(
        refused.status, "invalid_parameter_error"
    )
    message = refused.message
    if refused.status == 400:
        message = f"<400> InternalError.Algo.InvalidParameter: {message}"
    error = {"code": code, "param": refused.param, "message": message, "type": "invalid_request_error"}
    return {"error": error, "request_id": "fake"}


def _gemini(refused: Refused) -> list[Json]:
    status = refused.code or _GEMINI_STATUS.get(refused.status, "UNKNOWN")
    return [{"error": {"code": refused.status, "message": refused.message, "status": status}}]


def _kimi(refused: Refused) -> Json:
    kinds = {
        401: "invalid_authentication_error",
        404: "resource_not_found_error",
        429: "rate_limit_reached_error",
    }
    return {
        "error": {
            "message": refused.message,
            "type": refused.code or kinds.get(refused.status, "invalid_request_error"),
        }
    }


def _doubao(refused: Refused) -> Json:
    kind = _DOUBAO_TYPES.get(refused.status, "InternalServerError")
    code = refused.code or _DOUBAO_CODES.get(refused.status, "InternalServiceError")
    message = f"{refused.message} Request id: fake"
    return {"error": {"code": code, "message": message, "param": refused.param or "", "type": kind}}


def _zhipu(refused: Refused) -> Json:
    code = refused.code or _ZHIPU_CODES.get(refused.status, "500")
    return {"error": {"code": code, "message": refused.message}}


def _minimax(refused: Refused) -> Json:
    code = refused.code or _MINIMAX_CODES.get(refused.status, "1000")
    kinds = {400: "bad_request_error", 401: "authorized_error", 429: "rate_limit_error"}
    error = {
        "type": kinds.get(refused.status, "server_error"),
        "message": f"{refused.message} ({code})",
        "http_code": str(refused.status),
    }
    return {"type": "error", "error": error, "request_id": "fake"}


def _ollama(refused: Refused) -> Json:
    kind = {404: "not_found_error", 400: "invalid_request_error"}.get(refused.status, "api_error")
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": None}}


def _vllm(refused: Refused) -> Json:
    kind = _VLLM_TYPES.get(refused.status, "InternalServerError")
    return {
        "error": {
            "message": refused.message,
            "type": kind,
            "param": refused.param,
            "code": refused.status,
        }
    }


def _anthropic(refused: Refused) -> Json:
    kind = refused.code or _ANTHROPIC_TYPES.get(refused.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": refused.message},
        "request_id": "req_fake",
    }


_FORMS: Mapping[str, Callable[[Refused], Json | list[Json]]] = {
    "openai": _openai,
    "openai_compatible": _openai,
    "custom": _openai,
    "anthropic": _anthropic,
    "deepseek": _deepseek,
    "qwen": _qwen,
    "gemini": _gemini,
    "kimi": _kimi,
    "doubao": _doubao,
    "zhipu": _zhipu,
    "minimax": _minimax,
    "ollama": _ollama,
    "vllm": _vllm,
    "gpustack": _vllm,
}
_MESSAGES = {
    401: "Incorrect API key provided.",
    402: "Insufficient balance.",
    403: "You may not do this.",
    404: "There is no such model.",
    408: "Request timed out.",
    429: "Rate limit reached, slow down.",
    500: "Internal server error.",
    503: "The server is overloaded.",
    529: "Overloaded",
}


def error_body(vendor: str, refused: Refused) -> Json | list[Json]:
    """The body of a vendor's answer that says no."""
    return _FORMS[vendor](refused)


def error_of_turn(status: int, *, code: str = "", message: str = "") -> Refused:
    """The error that a script asks for."""
    return Refused(message or _MESSAGES.get(status, "Something went wrong."), status=status, code=code)
