"""How long a vendor says to wait, in its headers or in its body."""

from __future__ import annotations

import httpx2
import openai
import pytest

from tests.fixtures.vendor_errors import told_of


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
    told = told_of(openai.RateLimitError("…", response=response, body=None))
    assert told.retry_after == seconds
    assert ("Try again in a moment" in told.advice) == (seconds is None)


def test_the_time_to_wait_may_stand_in_the_body():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "23.5s"}]
    response = httpx2.Response(429, request=httpx2.Request("POST", "http://fake"))
    error = openai.RateLimitError("…", response=response, body=[{"error": {"details": details}}])
    assert told_of(error).retry_after == 23.5
    error = openai.RateLimitError("…", response=response, body={"retryDelay": "soon"})
    assert told_of(error).retry_after is None
