"""Every server answers a handshake before it has loaded what its work needs, in whatever order it comes."""

from __future__ import annotations

import os
import sys

import httpx2
import pytest

from tests.e2e.jsonrpc import JsonRpcError

SERVERS = ["loom_kb", "loom_query", "loom_agent", "loom_flow"]

# What takes long to load; none of it is needed to tell who a server is.
HEAVY = [
    "anyio",
    "asyncio",
    "cryptography",
    "httpx2",
    "jsonschema",
    "mcp",
    "mcp_types",
    "numpy",
    "onnxruntime",
]
HEAVY += ["opentelemetry", "pydantic", "pydantic_core", "sqlite3", "starlette", "tantivy", "uvicorn"]

# Runs a server in which the first import of a heavy module waits until the test writes into a pipe.
HELD = """
import sys
class Hold:
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY:
            sys.meta_path.remove(self)
            open(PIPE).close()
sys.meta_path.insert(0, Hold())
from MODULE.__main__ import main
main()
"""

CLIENT = {"name": "测试", "version": "1"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


@pytest.fixture(params=SERVERS)
def held(request, stdio_server, home, tmp_path):
    """A server that is held before it loads anything heavy, and what lets it go on."""
    if sys.platform == "win32":
        pytest.skip("needs a named pipe")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = HELD.replace("HEAVY", repr(set(HEAVY))).replace("PIPE", repr(str(pipe)))
    command = [sys.executable, "-c", code.replace("MODULE", request.param), "serve", "--home", str(home)]
    writers = []
    yield stdio_server(command, connect=False), lambda: writers.append(os.open(pipe, os.O_RDWR))
    for writer in writers:
        os.close(writer)


def test_a_handshake_is_answered_while_everything_heavy_is_still_to_be_loaded(held):
    server, release = held
    server.era = "modern"
    found = server.request("server/discover")
    assert found["supportedVersions"] == ["2026-07-28"]
    again = server.send_request("server/discover")
    server.notify("notifications/cancelled", {"requestId": again, "reason": "超时"})
    server.wait(again)
    server.era = "legacy"
    told = server.connect()
    assert told["instructions"] == found["instructions"]
    release()
    assert server.request("tools/list")["tools"]
    assert server.close_input() == 0


def test_a_client_that_has_probed_goes_on_in_either_era_and_stays_there(stdio_server, home):
    command = [sys.executable, "-m", "loom_kb", "serve", "--home", str(home)]
    server = stdio_server(command, connect=False)
    server.era = "modern"
    probes = [server.send_request("server/discover") for _ in range(3)]  # all in one go, answered or not
    server.era = "legacy"
    opening = server.send_request("initialize", INITIALIZE)
    server.notify("notifications/initialized")
    listing = server.send_request("tools/list")
    for probe in probes:
        assert server.wait(probe)["supportedVersions"]
    assert server.wait(opening)["protocolVersion"] == "2025-11-25"
    assert server.wait(listing)["tools"]
    server.era = "modern"
    with pytest.raises(JsonRpcError, match="-32600"):
        server.request("server/discover")

    modern = stdio_server(command, connect=False)
    modern.era = "modern"
    assert modern.request("server/discover")["supportedVersions"]
    assert modern.request("tools/list")["tools"]
    modern.era = "legacy"
    with pytest.raises(JsonRpcError, match="-32022"):
        modern.request("initialize", INITIALIZE)


@pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")
def test_over_http_a_probe_leaves_the_choice_open_too(http_url):
    def post(id_, method, params, **headers):
        body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        accepted = {"Accept": "application/json, text/event-stream", **headers}
        return httpx2.post(http_url, json=body, headers=accepted, timeout=60)

    modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
    assert '"supportedVersions"' in post(1, "server/discover", {"_meta": ENVELOPE}, **modern).text
    opened = post(2, "initialize", INITIALIZE)
    assert '"protocolVersion":"2025-11-25"' in opened.text
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    assert '"inputSchema"' in post(3, "tools/list", {}, **session).text
    assert '"supportedVersions"' in post(4, "server/discover", {"_meta": ENVELOPE}, **modern).text
