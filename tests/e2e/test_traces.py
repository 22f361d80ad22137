"""One trace through processes: the real exporter of each, and a collector of the test's own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace

from loom_core.observability.spans import MCP_CLIENT, MCP_SERVER, SPANS, SpanForm
from loom_core.paths import audit_path, token_path
from loom_core.server.auth.tokens import TokenFile
from loom_core.tools.auditing.file import read_entries
from tests.fixtures.collector import Collected, Collector
from tests.fixtures.commands import run_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("spans"),  # the client's program has an SDK, too
]

_KB = [sys.executable, "-m", "loom_kb"]
_QUESTION = "Who is the master of Port Aster? 港长是谁？"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with closing(Collector()) as made:
        yield made


@pytest.fixture(scope="module")
def kb_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a knowledge base of two documents."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "aster.md").write_text("# Port Aster\n\nIts master is Ada Brown.", encoding="utf-8")
    (folder / "青岛.md").write_text("# 青岛港\n\n青岛港的港长是李明。", encoding="utf-8")
    home = tmp_path_factory.mktemp("kb-home")
    run_command("loom_kb", "add", "--home", home, "--embedder", "hashing", folder, check=True)
    return home


def kb_entry(kb_home: Path, collector: Collector) -> dict[str, Any]:
    """loom-kb as a server of `mcp.json`, which sends its spans, too."""
    options = ["serve", "--home", str(kb_home), "--embedder", "hashing"]
    return {"command": _KB[0], "args": [*_KB[1:], *options], "env": collector.environment}


def stdio(module: str, *options: str | Path, environment: dict[str, str]) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", module, *map(str, options)], env={**os.environ, **environment}
    )


def the(spans: list[Collected], name: str, service: str = "") -> Collected:
    found = [span for span in spans if span.name == name and service in {"", span.service}]
    assert len(found) == 1, (name, service, sorted((span.service, span.name) for span in spans))
    return found[0]


def form_of(span: Collected) -> SpanForm:
    """Return the row of the documented table that describes a span."""
    if span.scope == "mcp-python-sdk":
        return MCP_SERVER if span.kind == "server" else MCP_CLIENT
    found = [form for form in SPANS if not form.by_sdk and span.name.split(" ")[0] == form.name]
    assert len(found) == 1, f"no form has the name {span.name}"
    return found[0]


def check_forms(spans: Sequence[Collected]) -> None:
    """See that spans are what the table says, and nothing else."""
    for span in spans:
        form = form_of(span)
        assert (span.scope, span.kind) == (form.scope, form.kind), span.name
        assert set(span.attributes) <= set(form.attributes), span.name
        if form.target in span.attributes:
            assert form.by_sdk or span.name == f"{form.name} {span.attributes[form.target]}"


def chain_of(spans: list[Collected], innermost: Collected) -> list[tuple[str, str]]:
    """Service and name of a span and of all that it is part of, from the outside in."""
    by_id = {span.id: span for span in spans}
    chain: list[tuple[str, str]] = []
    current: Collected | None = innermost
    while current is not None:
        chain.insert(0, (current.service, current.name))
        current = by_id.get(current.parent)
    return chain


async def test_a_run_is_one_trace_from_the_client_to_the_knowledge_base_also_when_its_request_is_over(
    tmp_path: Path, kb_home: Path, collector: Collector, spans, until
) -> None:
    entry = {"mcpServers": {"kb": kb_entry(kb_home, collector)}}
    (tmp_path / "mcp.json").write_text(json.dumps(entry), encoding="utf-8")
    profile = {"model": "mock"}
    (tmp_path / "agent.json").write_text(json.dumps({"profiles": {"default": profile}}), encoding="utf-8")
    goal = "use kb__query " + json.dumps({"query": _QUESTION}, ensure_ascii=False)
    agent = stdio("loom_agent", "--home", tmp_path, environment=collector.environment)
    async with Client(agent) as client:
        with trace.get_tracer("test").start_as_current_span("the user's program") as root:
            run = (await client.call_tool("agent_run", {"goal": goal})).structured_content
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        decided = {"run_id": run["run_id"], "decisions": decisions}
        with trace.get_tracer("test").start_as_current_span("the user's decision") as decision:
            run = (await client.call_tool("agent_decide", decided)).structured_content
        assert "Ada Brown" in run["output"]
    trace_id = f"{root.get_span_context().trace_id:032x}"
    until(
        lambda: [s for s in collector.of_trace(trace_id) if s.name == "invoke_agent default"], what="a span"
    )
    came = collector.of_trace(trace_id)
    sent = next(span for span in spans if span.name == "MCP send tools/call agent_run")
    request = the(came, "tools/call agent_run", "loom-agent-server")
    assert request.parent == f"{sent.context.span_id:016x}"
    assert sent.parent.span_id == root.get_span_context().span_id
    assert chain_of(came, the(came, "KNOWLEDGE_SEARCH", "loom-kb")) == [
        ("loom-agent-server", "tools/call agent_run"),
        ("loom-agent-server", "invoke_agent default"),
        ("loom-agent-server", "execute_tool kb:query"),
        ("loom-agent-server", "MCP send tools/call query"),
        ("loom-kb", "tools/call query"),
        ("loom-kb", "KNOWLEDGE_SEARCH"),
    ]
    run = the(came, "invoke_agent default")
    chats = [span for span in came if span.name == "chat demonstration"]
    assert len(chats) == run.attributes["loom.run.iterations"] == 2
    assert {chat.parent for chat in chats} == {run.id}
    assert run.attributes["loom.run.status"] == "completed"
    assert request.attributes["network.transport"] == "pipe"
    assert the(came, "MCP send tools/call query").attributes["loom.mcp.server"] == "kb"
    assert not [span.name for span in came if span.failed]
    other = collector.of_trace(f"{decision.get_span_context().trace_id:032x}")
    assert [span.name for span in other] == ["tools/call agent_decide"]
    assert "Aster" not in str(came), "what was asked is in the trace"
    check_forms(collector.spans)


async def test_flows_and_the_knowledge_they_ask_over_http_are_one_trace(
    tmp_path: Path, kb_home: Path, collector: Collector, served, until, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in collector.environment.items():
        monkeypatch.setenv(name, value)
    kb = [*_KB, "serve", "--home", str(kb_home), "--embedder", "hashing"]
    flow = [sys.executable, "-m", "loom_flow", "serve", "--home", str(tmp_path)]
    with served(kb, "loom-kb") as kb_url:
        steps = [{"stepId": "问候", "outputs": {"text": "$message"}}]
        config = {
            "knowledge": {"kind": "mcp", "server": {"url": kb_url}},
            "flows": [{"flow_id": "hello", "description": "Says hello.", "steps": steps}],
        }
        (tmp_path / "flow.json").write_text(json.dumps(config), encoding="utf-8")
        with served(flow, "loom-flow-server") as url:
            async with Client(url) as client:
                with trace.get_tracer("test").start_as_current_span("the user's program") as root:
                    reply = await client.call_tool("flow_chat", {"message": _QUESTION})
                    await client.call_tool("flow_run", {"flow_id": "hello"})
                assert "李明" in str(reply.structured_content)
    came = collector.of_trace(f"{root.get_span_context().trace_id:032x}")
    chain = chain_of(came, the(came, "KNOWLEDGE_SEARCH", "loom-kb"))
    assert chain == [
        ("loom-flow-server", "tools/call flow_chat"),
        ("loom-flow-server", "flow_message"),
        ("loom-flow-server", "flow_knowledge"),
        ("loom-flow-server", "MCP send tools/call query"),
        ("loom-kb", "tools/call query"),
        ("loom-kb", "KNOWLEDGE_SEARCH"),
    ]
    assert chain_of(came, the(came, "flow_step 问候")) == [
        ("loom-flow-server", "tools/call flow_run"),
        ("loom-flow-server", "flow_message"),
        ("loom-flow-server", "invoke_workflow hello"),
        ("loom-flow-server", "flow_step 问候"),
    ]
    sent, request = the(came, "MCP send tools/call query"), the(came, "tools/call query")
    assert sent.attributes["network.transport"] == request.attributes["network.transport"] == "tcp"
    assert sent.attributes["server.port"] == int(kb_url.split(":")[2].partition("/")[0])
    assert request.attributes["mcp.protocol.version"] == sent.attributes["mcp.protocol.version"]
    check_forms(collector.spans)


async def test_a_run_over_http_is_one_trace_of_four_processes_and_the_audit_says_whose(
    tmp_path: Path, kb_home: Path, collector: Collector, served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in collector.environment.items():
        monkeypatch.setenv(name, value)

    def token(home: Path, program: str, name: str) -> dict[str, str]:
        made = TokenFile(token_path(home, program)).create(name, scopes=("read", "write"))[1]
        return {"Authorization": f"Bearer {made.get_secret_value()}"}

    def serving(module: str, home: Path, *options: str) -> AbstractContextManager[str]:
        program = {"loom_kb": "loom-kb", "loom_query": "loom-query-server"}.get(module, "loom-agent-server")
        command = [sys.executable, "-m", module, "serve", "--home", str(home), "--tokens", *options]
        return served(command, program)

    queries = tmp_path / "query"
    queries.mkdir()
    with ExitStack() as servers:
        to_kb = token(kb_home, "loom-kb", "问答")
        kb = servers.enter_context(serving("loom_kb", kb_home, "--embedder", "hashing"))
        source = {"kind": "mcp", "server": {"url": kb, "headers": to_kb}}
        (queries / "query.json").write_text(json.dumps({"sources": {"port": source}}), encoding="utf-8")
        to_query = token(queries, "loom-query-server", "助手")
        query = servers.enter_context(serving("loom_query", queries))
        entry = {"mcpServers": {"q": {"url": query, "headers": to_query}}}
        (tmp_path / "mcp.json").write_text(json.dumps(entry), encoding="utf-8")
        profile = {"model": "mock", "approvals": {"via_tool": "on"}}
        (tmp_path / "agent.json").write_text(json.dumps({"profiles": {"default": profile}}), encoding="utf-8")
        people = {name: token(tmp_path, "loom-agent-server", name) for name in ("alice", "小波")}
        agent = servers.enter_context(serving("loom_agent", tmp_path))
        goal = "use q__query " + json.dumps({"query": _QUESTION}, ensure_ascii=False)
        runs: dict[str, str] = {}
        traces: list[str] = []
        for name, headers in people.items():
            web = httpx2.AsyncClient(headers=headers, timeout=60)
            async with web, Client(streamable_http_client(agent, http_client=web)) as client:
                with trace.get_tracer("test").start_as_current_span("the user's program") as root:
                    run = (await client.call_tool("agent_run", {"goal": goal})).structured_content
                traces.append(f"{root.get_span_context().trace_id:032x}")
                decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
                decided = {"run_id": run["run_id"], "decisions": decisions}
                run = (await client.call_tool("agent_decide", decided)).structured_content
                assert "Ada Brown" in run["output"]
                runs[run["run_id"]] = name
    for trace_id in traces:
        came = collector.of_trace(trace_id)  # all of it: the servers have ended
        assert chain_of(came, the(came, "KNOWLEDGE_SEARCH", "loom-kb")) == [
            ("loom-agent-server", "tools/call agent_run"),
            ("loom-agent-server", "invoke_agent default"),
            ("loom-agent-server", "execute_tool q:query"),
            ("loom-agent-server", "MCP send tools/call query"),
            ("loom-query-server", "tools/call query"),
            ("loom-query-server", "MCP send tools/call query"),
            ("loom-kb", "tools/call query"),
            ("loom-kb", "KNOWLEDGE_SEARCH"),
        ]
    check_forms(collector.spans)

    entries = list(read_entries(audit_path(tmp_path)))
    assert {entry["caller_id"] for entry in entries if entry["caller"] == "alice"}.isdisjoint(
        {entry["caller_id"] for entry in entries if entry["caller"] == "小波"}
    )
    told = {
        (entry["kind"], entry["tool"], entry["caller"], runs.get(entry.get("run", ""))) for entry in entries
    }
    for name in people:
        assert {each for each in told if each[2] == name} == {
            ("start", "agent_run", name, None),
            ("decision", "q:query", name, name),
            ("start", "q:query", name, name),
            ("end", "q:query", name, name),
            ("end", "agent_run", name, name),
            ("start", "agent_decide", name, None),
            ("end", "agent_decide", name, name),
        }
    assert {entry["by"] for entry in entries if entry["kind"] == "decision"} == {"rules", *people}
    asked = next(entry for entry in entries if entry.get("decision") == "ask")
    assert (asked["reason"], asked.get("rule")) == ("It has not been approved yet.", None)


async def test_the_query_server_and_what_it_asks_are_one_trace(
    tmp_path: Path, kb_home: Path, collector: Collector, until
) -> None:
    sources = {"港口": {"kind": "mcp", "server": kb_entry(kb_home, collector)}}
    (tmp_path / "query.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    server = stdio("loom_query", "serve", "--home", tmp_path, environment=collector.environment)
    async with Client(server) as client:
        with trace.get_tracer("test").start_as_current_span("the user's program") as root:
            found = await client.call_tool("query", {"query": _QUESTION})
        assert "Ada Brown" in found.content[0].text
    trace_id = f"{root.get_span_context().trace_id:032x}"
    until(lambda: len(collector.of_trace(trace_id)) >= 4, what="all spans")
    came = collector.of_trace(trace_id)
    assert chain_of(came, the(came, "KNOWLEDGE_SEARCH")) == [
        ("loom-query-server", "tools/call query"),
        ("loom-query-server", "MCP send tools/call query"),
        ("loom-kb", "tools/call query"),
        ("loom-kb", "KNOWLEDGE_SEARCH"),
    ]


async def test_documents_that_are_put_in_after_the_request_belong_to_its_trace(
    tmp_path: Path, collector: Collector, until
) -> None:
    server = stdio("loom_kb", "--home", tmp_path, "--embedder", "hashing", environment=collector.environment)
    async with Client(server) as client:
        with trace.get_tracer("test").start_as_current_span("the user's program") as root:
            document = {"text": "# 灯塔\n\nThe light shines.", "title": "灯塔"}
            added = await client.call_tool("add", document)
        assert not added.is_error, added
        trace_id = f"{root.get_span_context().trace_id:032x}"
        until(
            lambda: [s for s in collector.of_trace(trace_id) if s.name == "KNOWLEDGE_INGEST"], what="the job"
        )
    came = collector.of_trace(trace_id)
    job = the(came, "KNOWLEDGE_INGEST", "loom-kb")
    assert job.parent == the(came, "tools/call add").id
    assert job.attributes["loom.job.state"] == "done"
    assert job.attributes["loom.job.documents"] == 1
    check_forms(collector.spans)


@pytest.mark.parametrize("kind", ["refuses", "is silent"])
async def test_a_collector_that_does_not_answer_slows_nothing(
    tmp_path: Path, kb_home: Path, kind: str
) -> None:
    with closing(Collector(silent=True)) as dead:
        if kind == "refuses":
            dead.close()
        environment = {**os.environ, **dead.environment}
        command = [*_KB, "serve", "--home", str(kb_home), "--embedder", "hashing"]
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
        async with Client(parameters) as client:
            await client.call_tool("query", {"query": _QUESTION})
            took: list[float] = []
            for _ in range(20):
                began = time.monotonic()
                found = await client.call_tool("query", {"query": _QUESTION})
                took.append(time.monotonic() - began)
            assert "Ada Brown" in found.content[0].text
            ending = time.monotonic()
        assert sorted(took)[10] < 2, "requests waited for the collector"
        assert time.monotonic() - ending < 5, "the server had to be ended by force"
