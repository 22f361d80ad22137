"""Secrets are planted at every entrance of all servers, and looked for in everything that they write.

Each canary is another text, so that one that is found says where it came in. `ALLOWED` are the places where
one has to be, as it is what someone has said, or what the server is to give back.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.fixtures.collector import Collector
from tests.fixtures.fork_server import starts_quickly

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer
    from tests.fixtures.local_server import Asked, LocalServer

pytestmark = [
    pytest.mark.hostile("secrets"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

CANARIES = {
    "a vendor's key in the environment": "canary1-KeyOfAVendor-7f3a",
    "another secret variable of the environment": "canary2-OtherVariable-9c1d",
    "a password in an address in the environment": "canary3-ProxyPassword-2b8e",
    "a literal in env of mcp.json": "canary4-McpEnvLiteral-4d6f",
    "a variable put into env of mcp.json": "canary5-McpEnvVariable-1a9b",
    "a header in mcp.json": "canary6-McpHeader-8e2c",
    "user and password in a URL of mcp.json": "canary7-McpUrlPassword-5f7d",
    "a secret of a flow file": "canary8-FlowSecret-3c4a",
    "a bearer token of HTTP that is let in": "",  # made by the server
    "a bearer token of HTTP that is refused": "canary10-ForeignBearer-6b5e",
    "a tool's argument that is called password": "canary11-ArgPassword-0d9f",
    "a tool's argument that is called token": "canary12-ArgToken-7e8a",
    "a key in a tool's result": "AKIACANARY13ZZZZZZZZ",
    "a key in an address that is to be read": "canary14-FetchPassword-4b3c",
    "a JSON web token in an error of a vendor": "eyJjYW5hcnkxNSI6MX0.eyJjYW5hcnkxNSI6Mn0.canary15_c",
    "a header of a collector of traces": "canary16-OtelHeader-2f1e",
    "a private key in what an argument says": "canary17PrivateKeyMaterial5a6b",
    "arguments with a wrong name": "canary18-StrayPassword-8c7d",
    "a token in a header of a knowledge API": "canary19-KnowledgeToken-3e9f",
    "a variable of a conversation that is called token": "canary20-ContextToken-6a1c",
    "an input of a flow that is called password": "canary21-FlowPassword-5d2b",
    "a key in what an API answers to a flow": "AKIACANARY22ZZZZZZZZ",
    "a variable that ends in _PASS": "canary23-PassVariable-1e5d",
    "a key in a connection string": "canary24-ConnectionKey-9b2a==",
    "a cookie in what an argument says": "canary25-Cookie-4c8f",
    "a token alone in an address": "canary26-TokenOfAddress-7d1b",
}
_VENDOR = CANARIES["a vendor's key in the environment"]
_JWT = CANARIES["a JSON web token in an error of a vendor"]
_PASSWORD, _TOKEN = (CANARIES[f"a tool's argument that is called {name}"] for name in ("password", "token"))
_MATERIAL = CANARIES["a private key in what an argument says"]
_PEM = f"-----BEGIN PRIVATE KEY-----\n{_MATERIAL}\n-----END PRIVATE KEY-----"
_COOKIE = CANARIES["a cookie in what an argument says"]
_VARIABLES = [CANARIES[name] for name in ("a variable that ends in _PASS", "a key in a connection string")]

DOCUMENT = "sk-document-0123456789abcdefghij"
"""Stands in a document: it is what the user has given to be found, and is given back as it is."""

_ANSWERED = CANARIES["a key in what an API answers to a flow"]
_CONTEXT = CANARIES["a variable of a conversation that is called token"]
_INPUT = CANARIES["an input of a flow that is called password"]
_SAID = frozenset({_PASSWORD, _TOKEN, _MATERIAL, _COOKIE})
ALLOWED: dict[str, frozenset[str]] = {
    # What the goal says, and what the model then calls its tools with, is the run: it has to go on with that
    # after a restart, and who approves a call has to see it. It is in the journal, which only the user may
    # read, and in the answers to who has said it; in no log, audit, metric or span.
    "agent/runs.db": _SAID,
    "answer of agent_run": _SAID,
    "answer of agent_decide": _SAID,
    # What an API answers, what people give and what their conversation has is what later steps are made of.
    "flow/runs.db": frozenset({_JWT, _ANSWERED, _CONTEXT, _INPUT}),
    # What comes of a flow is what the API has answered, here with the token that it was sent: who has begun
    # it gets that, and the page of the run shows it, without what has the form of a key.
    "answer of flow_resume": frozenset({_ANSWERED, _CONTEXT}),
    "answer of flow_status": frozenset({_ANSWERED, _CONTEXT}),
    "runs.html": frozenset({_CONTEXT}),
}

_QUESTION = {"query": "Which key is in the document?"}


@dataclass
class Written:
    """Everything that came out of the servers.

    Attributes:
        texts: by where it was.
    """

    texts: dict[str, bytes] = field(default_factory=dict)

    def add(self, place: str, text: str | bytes) -> None:
        self.texts[place] = self.texts.get(place, b"") + (text.encode() if isinstance(text, str) else text)

    def found(self) -> list[tuple[str, str]]:
        """Which canary was found where, but for where it may be."""
        return [
            (entrance, place)
            for place, text in self.texts.items()
            for entrance, canary in CANARIES.items()
            if canary.encode() in text
            and canary
            and canary not in ALLOWED.get(place.partition("-wal")[0], ())
        ]

    def lines_with(self, found: list[tuple[str, str]]) -> Iterator[str]:
        """The lines in which they were, for who looks for the cause."""
        for entrance, place in found:
            canary = CANARIES[entrance].encode()
            yield from (repr(line) for line in self.texts[place].splitlines() if canary in line)


@dataclass
class World:
    """A home with secrets in it, servers around, and what comes out.

    Attributes:
        home: Loom's folder.
        environment: of all processes.
        written: what came out so far.
    """

    home: Path
    environment: dict[str, str]
    written: Written = field(default_factory=Written)

    def run(self, module: str, *arguments: str) -> str:
        """Run a command; gives its standard output, which is looked through as well."""
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.written.add(f"{module} {arguments[0]}: standard error", done.stderr)
        return done.stdout


def _tool(result: dict[str, Any]) -> str:
    return json.dumps(result, ensure_ascii=False)


@pytest.fixture
def vendor(local_servers: Callable[..., LocalServer]) -> LocalServer:
    """A vendor, a business and a web server that quote what they are sent in their errors."""
    server = local_servers()

    def quoting(asked: Asked, connection: socket.socket) -> None:
        said = f"refused {asked.headers.get('authorization', '')} {asked.headers.get('x-key', '')} {_JWT}"
        body = json.dumps(
            {"error": {"message": said, "type": "invalid_request_error"}, "said": said}
        ).encode()
        connection.sendall(_head("401 Unauthorized", body) + body)

    for path in ("/v1/chat/completions", "/orders", "/mcp", "/page", "/.well-known/oauth-protected-resource"):
        server.routes[path] = quoting

    def welcoming(asked: Asked, connection: socket.socket) -> None:
        body = json.dumps({"welcome": asked.headers.get("x-token", ""), "key": _ANSWERED}).encode()
        connection.sendall(_head("200 OK", body) + body)

    server.routes["/login"] = welcoming
    return server


def _head(status: str, body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()


@pytest.fixture
def world(tmp_path: Path, vendor: LocalServer) -> Iterator[World]:
    collector = Collector()
    home = tmp_path / "home"
    home.mkdir()
    leaky = Path(__file__).parents[1] / "fixtures" / "leaky_server.py"
    address = f"http://user:{CANARIES['user and password in a URL of mcp.json']}@127.0.0.1:{vendor.port}/mcp"
    servers = {
        "leaky": {
            "command": sys.executable,
            "args": [starts_quickly(leaky)],
            "env": {
                "LEAKY_API_KEY": CANARIES["a literal in env of mcp.json"],
                "LEAKY_CLOUD": CANARIES["a key in a tool's result"],
                "LEAKY_SECRET": "${PLANTED_MCP_TOKEN}",
            },
        },
        "remote": {
            "url": address,
            "headers": {"Authorization": f"Bearer {CANARIES['a header in mcp.json']}"},
        },
    }
    profiles = {
        "default": {"model": "mock", "otherwise": "allow", "mcp": {"servers": "all"}},
        "broken": {
            "model": {"provider": "openai", "model": "m", "base_url": vendor.url("/v1")},
            "mcp": {"servers": []},
        },
    }
    orders = {
        "stepId": "send",
        "operation": {"method": "POST", "url": "/orders", "headers": {"X-Key": "env:PLANTED_FLOW_KEY"}},
    }
    asks = {
        "stepId": "ask",
        "operation": {
            "method": "POST",
            "url": "/login",
            "headers": {"X-Token": "{$context.apiToken}"},
            "body": {"password": "{$inputs.password}"},
        },
    }
    login = {
        "type": "object",
        "properties": {"password": {"type": "string"}},
        "required": ["password"],
    }
    flow = {
        "basic_settings": {"name": "小竹"},
        "model": {"provider": "openai", "model": "m", "base_url": vendor.url("/v1")},
        "retrieve_knowledge_url": {
            "url": "/page",
            "headers": {"Authorization": "Bearer env:PLANTED_KNOWLEDGE_TOKEN"},
        },
        "flow_url": vendor.url(""),
        "net": {"allow": ["127.0.0.1"]},
        "flows": [
            {"flow_id": "order", "name": "订单", "trigger_patterns": ["下单"], "steps": [orders]},
            {"flow_id": "login", "trigger_patterns": ["登录"], "input_schema": login, "steps": [asks]},
        ],
    }
    for name, content in (
        ("mcp.json", {"mcpServers": servers}),
        ("agent.json", {"profiles": profiles}),
        ("flow.json", flow),
    ):
        (home / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    environment = {
        **os.environ,
        **collector.environment,
        "LOOM_HOME": str(home),
        "LOOM_LOG_FORMAT": "json",
        "LOOM_LOG_LEVEL": "debug",
        "LOOM_TRACE_CONTENT": "1",
        "OPENAI_API_KEY": _VENDOR,
        "SHOP_DB_PASSWORD": CANARIES["another secret variable of the environment"],
        "SHOP_DATABASE": f"postgres://shop:{CANARIES['a password in an address in the environment']}@db/shop",
        "SHOP_PASS": _VARIABLES[0],
        "SHOP_STORAGE": f"AccountName=shop;AccountKey={_VARIABLES[1]};EndpointSuffix=x",
        "SHOP_MIRROR": f"https://{CANARIES['a token alone in an address']}@mirror.example/x",
        "PLANTED_MCP_TOKEN": CANARIES["a variable put into env of mcp.json"],
        "PLANTED_KNOWLEDGE_TOKEN": CANARIES["a token in a header of a knowledge API"],
        "PLANTED_FLOW_KEY": CANARIES["a secret of a flow file"],
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-token={CANARIES['a header of a collector of traces']}",
    }
    world = World(home, environment)
    document = tmp_path / "document.md"
    document.write_text(f"# A document\n\nThe key in the document is {DOCUMENT}.", encoding="utf-8")
    world.run("loom_kb", "add", "--embedder", "hashing", str(document))
    with closing(collector):
        yield world
        _look_through(world, collector)
        found = world.written.found()
        assert not found, "\n".join(map(str, [*found, *world.written.lines_with(found)]))


def _look_through(world: World, collector: Collector) -> None:
    """Add what is on the disk and what was sent to the collector."""
    given = {"mcp.json", "flow.json", "agent.json"}
    for path in world.home.rglob("*"):
        if path.is_file() and path.name not in given:
            world.written.add(str(path.relative_to(world.home)), path.read_bytes())
    for span in collector.spans:
        told = json.dumps(span.attributes, ensure_ascii=False)
        world.written.add(f"span {span.name}", f"{span.name} {told} {span.said}")


def test_over_stdio_no_planted_secret_is_written_anywhere(
    world: World, stdio_server: Callable[..., StdioServer]
) -> None:
    def start(module: str, *options: str) -> StdioServer:
        command = [sys.executable, "-m", module, "serve", *options]
        return stdio_server(command, era="modern", env=world.environment, timeout=60.0)

    def ended(module: str, server: StdioServer) -> None:
        assert server.close_input() == 0
        world.written.add(f"{module}: standard error", server.stderr)
        for line in server.stderr.splitlines():
            assert json.loads(line)["time"].endswith("Z")

    def called(server: StdioServer, tool: str, **arguments: Any) -> str:
        answer = _tool(server.call(tool, **arguments))
        world.written.add(f"answer of {tool}", answer)
        return answer

    def approved(agent: StdioServer, goal: str) -> str:
        run = json.loads(called(agent, "agent_run", goal=goal))["structuredContent"]
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        return called(agent, "agent_decide", run_id=run["run_id"], decisions=decisions)

    mirror = f"http://{CANARIES['a token alone in an address']}@127.0.0.1:9/page"
    secret_page = f"http://u:{CANARIES['a key in an address that is to be read']}@127.0.0.1:9/page"
    stray = {"password": CANARIES["arguments with a wrong name"]}
    kb = start("loom_kb", "--allow-urls", "--allow-net", "127.0.0.1")
    assert DOCUMENT in called(kb, "query", **_QUESTION)
    called(kb, "add", urls=[secret_page, mirror])
    called(kb, "query", **_QUESTION, **stray)
    called(kb, "fetch", id="token=abc123456 nothing")
    called(kb, "fetch", id=" ".join(_VARIABLES))
    ended("loom_kb", kb)

    query = start("loom_query")
    assert DOCUMENT in called(query, "query", **_QUESTION)
    called(query, "fetch", **stray)
    ended("loom_query", query)

    agent = start("loom_agent")
    arguments = json.dumps({"password": _PASSWORD, "note": f"{_PEM} Cookie: sid={_COOKIE}"})
    told = approved(agent, f"use leaky__connect {arguments}")
    assert '"status": "completed"' in told, told
    assert "connected, key [secret], cloud [secret]" in told
    told = approved(agent, f"use leaky__explode {json.dumps({'token': _TOKEN})}")
    assert "[secret] was refused" in told
    failed = called(agent, "agent_run", goal="say hello", profile="broken")
    assert '"status": "failed"' in failed
    assert "[secret]" in failed
    runs = json.loads(_tool(agent.call("agent_runs")))["structuredContent"]["runs"]
    for run in runs:
        agent.call("agent_events", run_id=run["run_id"])
    ended("loom_agent", agent)

    flow = start("loom_flow")
    said = called(flow, "flow_chat", message="下单")
    reply = json.loads(said)["structuredContent"]
    assert "没有办成" in reply["text"]  # why is for operators, who ask for the run
    stands = json.loads(called(flow, "flow_status", run_id=reply["run_id"], after_seq=0))["structuredContent"]
    assert "401" in stands["problem"]
    assert "[secret]" in json.dumps(stands)
    route = json.loads(called(flow, "flow_chat", message="你们几点开门？"))["structuredContent"]["route"]
    assert "[secret]" in route["problem"]
    called(flow, "flow_explain", message="你们几点开门？")
    called(flow, "flow_run", flow_id="order", **stray)
    asked = json.loads(called(flow, "flow_chat", message="登录", context={"apiToken": _CONTEXT}))
    login = asked["structuredContent"]["run_id"]
    called(flow, "flow_resume", run_id=login, action="answer", answer={"password": _INPUT})
    stands = json.loads(called(flow, "flow_status", run_id=login, after_seq=0))["structuredContent"]
    assert stands["status"] == "completed", stands
    ended("loom_flow", flow)
    page = world.home / "runs.html"
    world.run("loom_flow", "runs", "--html", str(page))
    assert login in page.read_text(encoding="utf-8")

    shown = json.loads(world.run("loom_kb", "audit", "show", "--json", "--limit", "0"))["entries"]
    world.written.add("audit show", json.dumps(shown, ensure_ascii=False))
    assert {entry["tool"] for entry in shown} >= {"add", "agent_run", "leaky:connect", "flow_chat"}
    assert any(entry["tool"].startswith("POST ") for entry in shown)
    assert "is intact" in world.run("loom_agent", "audit", "verify")
    world.written.add("mcp list", world.run("loom_agent", "mcp", "list", "--json"))


def test_over_http_no_planted_secret_is_written_anywhere(
    world: World, log_of_http: Callable[..., AbstractContextManager[tuple[str, list[str]]]]
) -> None:
    tools = {
        "loom_kb": ("loom-kb", "query", _QUESTION),
        "loom_query": ("loom-query-server", "query", _QUESTION),
        "loom_agent": ("loom-agent-server", "agent_run", {"goal": "say hello", "profile": "broken"}),
        "loom_flow": ("loom-flow-server", "flow_chat", {"message": "下单"}),
    }
    for module, (program, tool, arguments) in tools.items():
        scopes = [part for scope in ("read", "write", "admin") for part in ("--scope", scope)]
        token = world.run(module, "token", "create", "planted", *scopes).strip()
        CANARIES["a bearer token of HTTP that is let in"] = token
        with log_of_http(module, world.environment) as (url, log):
            foreign = CANARIES["a bearer token of HTTP that is refused"]
            refused = _post(url, foreign, tool, arguments)
            assert refused.status_code == 401
            let_in = _post(url, token, tool, arguments)
            assert let_in.status_code == 200, let_in.text
            place = url.rpartition("/")[0]
            numbers = httpx2.get(f"{place}/metrics", headers={"Authorization": f"Bearer {token}"})
            ready = httpx2.get(f"{place}/readyz")
            assert (numbers.status_code, ready.status_code) == (200, 200)
        for answer in (refused, let_in, numbers, ready):
            world.written.add(f"{program} over HTTP", answer.text + str(dict(answer.headers)))
        world.written.add(f"{module}: standard error", "".join(log))
        assert world.written.found() == []
    shown = json.loads(world.run("loom_kb", "audit", "show", "--json", "--limit", "0"))["entries"]
    refusals = [entry for entry in shown if entry["kind"] == "refused"]
    assert {entry["server"] for entry in refusals} == {program for program, _, _ in tools.values()}
    assert {(entry["outcome"], entry["source"]) for entry in refusals} == {("bad_token", "127.0.0.1")}
    callers = {
        entry["caller"] for entry in shown if entry["kind"] == "start" and entry.get("source") == "127.0.0.1"
    }
    assert callers == {"planted"}


def _post(url: str, token: str, tool: str, arguments: dict[str, Any]) -> httpx2.Response:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        "Authorization": f"Bearer {token}",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return httpx2.post(url, json=body, headers=headers, timeout=60.0)


@pytest.fixture
def log_of_http() -> Callable[..., AbstractContextManager[tuple[str, list[str]]]]:
    """Serves over HTTP with tokens; gives the URL, and the log, which is whole at the end of the block."""
    from contextlib import contextmanager
    from threading import Thread

    @contextmanager
    def serving(module: str, environment: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
        command = [sys.executable, "-m", module, "serve", "--http", "--port", "0", "--tokens"]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        log: list[str] = []
        try:
            for line in process.stderr:
                log.append(line)
                if found := re.search(r'"ready: (http://[^"]+)"', line):
                    break
            else:
                pytest.fail("it did not begin to serve: " + "".join(log))
            reader = Thread(target=lambda: log.extend(process.stderr), daemon=True)
            reader.start()
            yield found[1], log
            process.terminate()
            assert process.wait(20) == 0
            reader.join(10)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    return serving
