"""`loom-kb serve --http`: the endpoint itself, and what it keeps out."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx2
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "server/discover",
}


@pytest.mark.hostile("HTTP requests")
def test_it_answers_and_keeps_foreign_hosts_and_origins_out(http_url):
    def ask(**headers):
        return httpx2.post(http_url, json=DISCOVER, headers={**HEADERS, **headers}).status_code

    assert ask() == 200
    assert ask(Origin="http://localhost:3000") == 200
    assert ask(Origin="https://evil.example") == 403
    assert ask(Host="evil.example") == 421
    assert httpx2.get(http_url.replace("/mcp", "/nothing")).status_code == 404


def test_blanks_around_the_value_of_a_header_do_not_count(http_url):
    params = {"name": "sources", "arguments": {}, "_meta": DISCOVER["params"]["_meta"]}
    body = json.dumps({**DISCOVER, "method": "tools/call", "params": params})
    named = {"Mcp-Method": "tools/call", "Mcp-Name": "  sources  ", "Content-Type": "application/json"}
    url = urlsplit(http_url)
    with closing(HTTPConnection(url.netloc, timeout=20)) as connection:  # which sends them as they are
        connection.request("POST", url.path, body, {**HEADERS, **named})
        assert connection.getresponse().status == 200


def test_no_part_of_an_answer_waits_for_the_client_to_acknowledge_another(http_url):
    took: list[float] = []
    with closing(HTTPConnection(urlsplit(http_url).netloc, timeout=20)) as connection:
        for _ in range(60):
            began = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            took.append(time.perf_counter() - began)
    assert min(took[-30:]) < 0.035  # Linux acknowledges after 40 ms, but the first few at once


def test_healthz_says_who_it_is_to_local_callers_only(http_url):
    health = http_url.replace("/mcp", "/healthz")
    answer = httpx2.get(health)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["name"] == "loom-kb"
    assert httpx2.get(health, headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [("--host", "0.0.0.0", "without authentication"), ("--port", "99999", "not a TCP port")],
)
def test_an_address_that_is_not_safe_or_none_is_refused(option, value, reason, loom_kb):
    done = loom_kb("serve", "--http", option, value)
    assert done.returncode == 1
    assert reason in done.stderr.decode()
    assert b"Traceback" not in done.stderr
