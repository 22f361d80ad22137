"""`loom-kb serve --http --tokens` among clients that mean no good: refused, logged, and nothing leaks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from tests.fixtures.commands import run_command

pytestmark = [
    pytest.mark.hostile("HTTP requests"),
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SECRET = "机密-Zweigelt-42"


class Server:
    """A server with two tenants, whose log can be read."""

    def __init__(self, url, log, tokens):
        self.url, self._log, self._tokens = url, log, tokens
        self.web = httpx2.Client(timeout=60)

    def headers(self, who):
        return {"Authorization": f"Bearer {self._tokens[who]}"} if who else {}

    def rpc(self, who, method, *, name="", **params):
        sent = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": params.get("uri", name)} if name or "uri" in params else {}),
            **self.headers(who),
        }
        named = {"name": name} if name else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **named, **params}}
        return self.web.post(self.url, json=body, headers=sent)

    def call(self, who, tool, **arguments):
        return self.rpc(who, "tools/call", name=tool, arguments=arguments)

    def log(self):
        return self._log.read_text(encoding="utf-8")

    def alive(self):
        return self.call("reader", "sources").status_code == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home, log = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("log") / "log.txt"
    command = [sys.executable, "-m", "loom_kb"]
    further = ["--home", str(home), "--embedder", "hashing"]

    def run(*arguments):
        return run_command("loom_kb", *arguments, *further, check=True).stdout.decode()

    tokens = {
        "alice": run(
            "token", "create", "alice", "--scope", "read", "--scope", "write", "--kb", "甲方"
        ).strip(),
        "bob": run("token", "create", "bob", "--scope", "read", "--scope", "write", "--kb", "bobs").strip(),
        "reader": run("token", "create", "reader", "--kb", "bobs").strip(),
        "gone": run("token", "create", "gone").strip(),
        "admin": run("token", "create", "admin", "--scope", "admin").strip(),
    }
    run("token", "revoke", "gone")
    with log.open("w", encoding="utf-8") as err:
        process = subprocess.Popen(
            [*command, "serve", "--http", "--tokens", "--host", "0.0.0.0", "--port", "0", *further],
            stderr=err,
        )
    try:
        url = ""
        while not url:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            lines = log.read_text(encoding="utf-8").splitlines()
            url = next((line.split()[2] for line in lines if line.startswith("loom-kb serves ")), "")
        port = urlsplit(url).port
        server = Server(f"http://127.0.0.1:{port}/mcp", log, tokens)
        with closing(server.web):
            for who, source, text in (
                ("alice", "甲方", f"# 秘密\n\n{SECRET} 的预算。"),
                ("bob", "bobs", "# Plain\n\nText."),
            ):
                assert not server.call(who, "add", text=text, source=source).json()["result"]["isError"]
            yield server
    finally:
        process.terminate()
        assert process.wait(30) == 0


def told(answer):
    """Return the text of an error response, with the letters of every script as they are."""
    return json.dumps(answer.json(), ensure_ascii=False)


def test_each_tenant_finds_their_own(server):
    assert SECRET in told(server.call("alice", "query", query="预算"))
    assert SECRET in told(server.call("alice", "query", query="预算", source="甲方"))
    assert "Plain" in told(server.call("bob", "query", query="plain text"))


def test_nothing_of_a_tenant_is_seen_by_another(server):
    added = server.call("alice", "add", text="# Zwei\n\nNochmal.", source="甲方").json()["result"]
    job = added["structuredContent"]["job"]["id"]
    passage = server.call("alice", "query", query="预算", response_format="detailed").json()["result"][
        "structuredContent"
    ]["passages"][0]
    answers = [
        server.rpc("bob", "tools/list"),
        server.rpc("bob", "resources/list"),
        server.rpc("bob", "resources/list", cursor="甲方:0"),
        server.call("bob", "sources"),
        server.call("bob", "sources", source="甲方"),
        server.call("bob", "query", query=SECRET),
        server.call("bob", "query", query="预算", source="甲方"),
        server.call("bob", "graph", entity=SECRET),
        server.call("bob", "graph", entity=SECRET, source="甲方"),
        server.call("bob", "fetch", id=passage["id"]),
        server.call("bob", "fetch", id=passage["document_id"]),
        server.call("bob", "fetch", id=passage["uri"]),
        server.call("bob", "fetch", id=passage["document_id"], source="甲方"),
        server.call("bob", "job", id=job),
        server.call("bob", "job_cancel", id=job),
        server.call("bob", "job"),
        server.call("bob", "remove", ids=[passage["document_id"]]),
        server.call("bob", "remove", ids=[passage["document_id"]], source="甲方"),
        server.call("bob", "add", text="Mine now.", source="甲方"),
        server.rpc("bob", "resources/read", uri=f"loom://{quote('甲方')}/{passage['document_id']}"),
    ]
    sent = {SECRET, "甲方", job, passage["id"], passage["document_id"], passage["uri"]}
    for answer in answers:
        said = told(answer)
        assert "秘密" not in said, said
        assert "预算。" not in said, said
        assert not json.loads(said).get("result", {}).get("structuredContent", {}).get("removed"), said
    for answer in answers[:4]:
        assert not [value for value in sent if value in told(answer)]
    assert SECRET in told(server.call("alice", "query", query="预算"))


@pytest.mark.parametrize(
    ("tool", "own", "foreign"),
    [
        ("query", {"query": "x", "source": "nothing"}, {"query": "x", "source": "甲方"}),
        ("sources", {"source": "nothing"}, {"source": "甲方"}),
        ("add", {"text": "x", "source": "nothing"}, {"text": "x", "source": "甲方"}),
        ("graph", {"entity": "x", "source": "nothing"}, {"entity": "x", "source": "甲方"}),
    ],
)
def test_what_is_anothers_is_as_if_it_did_not_exist(server, tool, own, foreign):
    missing, hidden = (server.call("bob", tool, **arguments) for arguments in (own, foreign))
    assert hidden.json()["result"]["isError"]
    assert told(hidden).replace("甲方", "nothing") == told(missing)


def test_what_is_wrong_with_a_token_is_all_that_is_said(server):
    for who in ("gone", ""):
        answer = server.call(who, "query", query="预算")
        assert answer.status_code == 401
        assert "甲方" not in told(answer)
        assert answer.headers["www-authenticate"].startswith('Bearer realm="loom-kb"')


def test_a_reader_cannot_write_in_either_era(server):
    assert server.call("reader", "add", text="x", source="bobs").status_code == 403
    session = open_session(server, "reader").headers["mcp-session-id"]
    body = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "remove", "arguments": {"ids": ["x"]}},
    }
    sent = {
        **server.headers("reader"),
        "mcp-session-id": session,
        "Accept": "application/json, text/event-stream",
    }
    answer = server.web.post(server.url, json=body, headers=sent)
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def open_session(server, who):
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    sent = {**server.headers(who), "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return server.web.post(server.url, json=body, headers=sent)


def test_a_thousand_abandoned_sessions_are_refused_in_time_and_hinder_no_one(server):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: open_session(server, "alice").status_code, range(1000)))
    assert 0 < answers.count(200) <= 100
    assert set(answers) <= {200, 429}
    assert open_session(server, "bob").status_code == 200
    assert server.alive()


@pytest.mark.parametrize(
    "header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/readyz", "/metrics"])
def test_a_page_that_has_rebound_its_name_gets_nothing_even_with_a_token(server, header, path):
    url = server.url.replace("/mcp", path)
    answer = server.web.get(url, headers={**server.headers("admin"), **header})
    assert answer.status_code in {403, 421}
    assert "loom" not in answer.text


def test_half_open_connections_do_not_keep_others_out(server):
    port = urlsplit(server.url).port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        for connection in silent[:100]:
            connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        assert server.alive()
        silent[0].settimeout(30)
        assert silent[0].recv(1) == b""
    except ConnectionResetError:
        pass  # that is how it is closed
    finally:
        for connection in silent:
            connection.close()
    assert "no request within" in server.log()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2_000_000,
        b'{"a":' * 300_000,
        b"[" * 50_000 + b"]" * 50_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query","arguments":{"filters":'
        + b'{"x":' * 20_000
        + b"1"
        + b"}" * 20_000
        + b"}}}",
        b"\xff\xfe" * 1000,
        b"",
    ],
    ids=["open", "objects", "deep", "arguments", "bytes", "empty"],
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("who", ["alice", "reader"])
def test_deep_and_broken_json_is_refused_by_a_server_that_goes_on(server, body, version, who):
    sent = {
        **server.headers(who),
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "query",
    }
    answer = server.web.post(server.url, content=body, headers=sent)
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert "Traceback" not in answer.text
    assert server.alive()


def test_oversized_bodies_and_arguments_are_refused(server):
    assert server.call("bob", "query", query="x" * (5 << 20)).status_code == 413
    shown = server.headers("bob")["Authorization"]
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {shown}\r\n"
    with closing(socket.create_connection(("127.0.0.1", urlsplit(server.url).port))) as connection:
        connection.settimeout(30)
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        for _ in range(5):
            connection.sendall(chunk)
        assert b"413" in connection.recv(100)
    answer = server.call("bob", "remove", ids=[str(i) for i in range(501)])
    assert answer.json()["result"]["isError"]


def test_headers_without_end_are_refused(server):
    with closing(socket.create_connection(("127.0.0.1", urlsplit(server.url).port))) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000)
        assert b"400" in connection.recv(100)


def test_the_log_tells_of_refusals_and_holds_neither_tokens_nor_documents(server):
    server.call("gone", "query", query="x")
    log = server.log()
    assert "(bad_token)" in log
    assert "(scope)" in log or server.call("reader", "add", text="x").status_code == 403
    assert "的预算" not in log
    for who in ("alice", "bob", "reader", "gone", "admin"):
        assert server.headers(who)["Authorization"].removeprefix("Bearer ") not in log
    assert "Traceback" not in log


def test_metrics_hold_no_names_of_tenants(server):
    answer = server.web.get(server.url.replace("/mcp", "/metrics"), headers=server.headers("admin"))
    assert answer.status_code == 200
    assert 'loom_mcp_calls_total{tool_name="query",status="success"}' in answer.text
    assert answer.text.isascii()
    assert not [who for who in ("alice", "bobs", "reader") if who in answer.text]
