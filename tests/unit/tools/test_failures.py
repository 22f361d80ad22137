"""Errors of tools, in whatever library they arise, are told apart: some pass, of some nothing was done."""

from __future__ import annotations

from email.message import Message
from urllib.error import HTTPError, URLError

import httpx2
import pytest

from loom_core.errors import (
    InvalidInputError,
    LLMError,
    NetError,
    NetFailure,
    ServerError,
    StoreBusyError,
)
from loom_core.tools.failures import failure_of, failure_of_status
from loom_core.tools.interface import ToolFailure, ToolRetry


def _refused(status: int, **headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", "https://api.example.com")
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, headers=given, request=request)
    return httpx2.HTTPStatusError("no", request=request, response=response)


def _refused_by_urllib(status: int, **headers: str) -> HTTPError:
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return HTTPError("https://api.example.com", status, "no", message, None)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TimeoutError(), ToolFailure("timeout")),
        (ExceptionGroup("", [ConnectionRefusedError()]), ToolFailure("connection")),
        (httpx2.ConnectTimeout("late"), ToolFailure("timeout")),
        (httpx2.ConnectError("gone"), ToolFailure("connection")),
        (httpx2.RemoteProtocolError("broken"), ToolFailure("connection")),
        (URLError("gone"), ToolFailure("connection")),
        (_refused(503, Retry_After="7"), ToolFailure("unavailable", retry_after=7.0)),
        (_refused_by_urllib(429, Retry_After="2"), ToolFailure("unavailable", retry_after=2.0)),
        (_refused(504), ToolFailure("timeout")),
        (_refused(403), ToolFailure("unauthorized")),
        (StoreBusyError("busy"), ToolFailure("unavailable")),
        (ToolRetry("请给出日期。"), ToolFailure("arguments", nothing_done=True)),
        (_refused(500), None),
        (_refused(404), None),
        (httpx2.InvalidURL("?"), None),
        (InvalidInputError("no"), None),
        (LLMError("its provider has tried it again itself", failure="timeout"), None),
        (FileNotFoundError(), None),
        (ValueError(), None),
        (SystemExit(503), None),
    ],
)
def test_an_error_passes_or_does_not(error: BaseException, failure: ToolFailure | None) -> None:
    assert failure_of(error) == failure


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        ("connection", ToolFailure("connection", nothing_done=True)),
        ("interrupted", ToolFailure("connection")),
        ("timeout", ToolFailure("timeout")),
        ("refused", None),
        ("unusable", None),
    ],
)
def test_what_was_not_sent_did_nothing_if_it_was_all_of_the_call(
    failure: NetFailure, known: ToolFailure | None
) -> None:
    error = NetError("no", failure=failure)

    assert failure_of(error, whole_call=True) == known
    assert failure_of(error) == (known and ToolFailure(known.kind))


def test_a_server_says_whether_a_call_was_run() -> None:
    busy = ServerError("no", server="s", failure="busy", retry_after=3.0, not_run=True)
    gone = ServerError("no", server="s", failure="interrupted")
    closed = ServerError("no", server="s", failure="authentication", not_run=True)

    assert failure_of(busy, whole_call=True) == ToolFailure("unavailable", nothing_done=True, retry_after=3.0)
    assert failure_of(gone, whole_call=True) == ToolFailure("connection")
    assert failure_of(closed) == ToolFailure("unauthorized")


@pytest.mark.parametrize(
    ("status", "headers", "nothing_done"),
    [(429, {}, True), (503, {"retry-after": "1"}, True), (503, {}, False), (502, {}, False)],
)
def test_a_rate_limit_refuses_before_anything_is_done(
    status: int, headers: dict[str, str], nothing_done: bool
) -> None:
    failure = failure_of_status(status, headers, whole_call=True)

    assert failure is not None
    assert failure.is_transient
    assert failure.nothing_done == nothing_done
