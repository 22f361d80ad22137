"""Classification of a tool's errors: which are transient, and whether the call may have had an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from loom_core.errors import (
    LoomError,
    NetError,
    ServerError,
    StoreBusyError,
    StoreUnavailableError,
    unwrap_group,
)
from loom_core.net.retry import retry_after
from loom_core.tools.interface import ToolFailure, ToolRetry

if TYPE_CHECKING:
    from loom_core.errors import NetFailure, ServerFailure
    from loom_core.tools.interface import ToolFailureKind

__all__ = ["failure_of", "failure_of_status"]

_NET: Mapping[NetFailure, ToolFailureKind] = {
    "connection": "connection",
    "interrupted": "connection",
    "timeout": "timeout",
    "unavailable": "unavailable",
}
_SERVER: Mapping[ServerFailure, ToolFailureKind] = {
    "connection": "connection",
    "interrupted": "connection",
    "timeout": "timeout",
    "busy": "unavailable",
    "authentication": "unauthorized",
}
_STATUS: Mapping[int, ToolFailureKind] = {
    401: "unauthorized",
    403: "unauthorized",
    407: "unauthorized",
    408: "timeout",
    425: "unavailable",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
}
_REFUSED = frozenset({425, 429})  # before anything was done
_UNAVAILABLE = 503
# Classes of httpx, requests, aiohttp and urllib.
_TIMEOUTS = frozenset({"TimeoutError", "TimeoutException", "Timeout"})
_CONNECTIONS = frozenset(
    {"ConnectionError", "NetworkError", "RemoteProtocolError", "ClientConnectionError", "URLError"}
)


def failure_of(error: BaseException, *, whole_call: bool = False) -> ToolFailure | None:
    """Classify an error of a tool; None if neither a retry nor an authorization would help.

    Errors of httpx, requests, aiohttp and urllib are recognized by their HTTP status or their class.

    Args:
        error: the error.
        whole_call: whether the failed request is all that the call does, so that the call had no effect if
            the request was not carried out.
    """
    error = unwrap_group(error) if isinstance(error, Exception) else error
    match error:
        case ToolRetry():
            return ToolFailure("arguments", nothing_done=True)
        case NetError():
            return _failure(
                _NET.get(error.failure), nothing_done=whole_call and error.failure == "connection"
            )
        case ServerError():
            kind = _SERVER.get(error.failure)
            return _failure(kind, nothing_done=whole_call and error.not_run, wait=error.retry_after)
        case StoreBusyError() | StoreUnavailableError():
            return ToolFailure("unavailable")
        case LoomError():
            return None
        case Exception():
            return _failure_of_library(error, whole_call=whole_call)
        case _:
            return None


def failure_of_status(
    status: int, headers: Mapping[str, str], *, whole_call: bool = False
) -> ToolFailure | None:
    """Classify an HTTP status; None as in `failure_of`.

    A rate limit refuses a request before it is carried out, and so does a 503 that says when to come back.

    Args:
        status: the status.
        headers: of the response; names in lower case, or a mapping that ignores case.
        whole_call: as for `failure_of`.
    """
    wait = retry_after(headers)
    refused = status in _REFUSED or (status == _UNAVAILABLE and wait is not None)
    return _failure(_STATUS.get(status), nothing_done=whole_call and refused, wait=wait)


def _failure(
    kind: ToolFailureKind | None, *, nothing_done: bool, wait: float | None = None
) -> ToolFailure | None:
    return None if kind is None else ToolFailure(kind, nothing_done, wait)


def _failure_of_library(error: Exception, *, whole_call: bool) -> ToolFailure | None:
    response: object = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (error, "status"), (error, "code")):
        status: object = getattr(holder, name, None)
        if isinstance(status, int) and status in _STATUS:
            headers: object = getattr(response, "headers", None) or getattr(error, "headers", None)
            known = cast("Mapping[str, str] | None", headers)
            return failure_of_status(status, known or {}, whole_call=whole_call)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _TIMEOUTS:
        return ToolFailure("timeout")
    return ToolFailure("connection") if names & _CONNECTIONS else None
