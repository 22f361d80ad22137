"""loom-query-server as clients meet it, and a chain of three: client → loom-query-server → loom-kb."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.jsonrpc import StdioServer
from tests.fixtures.commands import run_command

_KB = [sys.executable, "-m", "loom_kb"]
_QUERY = [sys.executable, "-m", "loom_query"]
_HEAVY = {"numpy", "chromadb", "kuzu", "onnxruntime", "tantivy", "rjieba", "pypdfium2", "docx", "pptx"}
_FAQ = {
    "kind": "documents",
    "documents": [{"text": "# Opening\n\nThe office opens at nine.", "uri": "note:faq"}],
}


@pytest.fixture(scope="module")
def kb_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a knowledge base of two documents."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "aster.md").write_text(
        "# Port Aster\n\nThe master of Port Aster is Ada Brown.", encoding="utf-8"
    )
    (folder / "青岛.md").write_text("# 青岛港\n\n青岛港的港长是李明。", encoding="utf-8")
    home = tmp_path_factory.mktemp("kb-home")
    run_command("loom_kb", "add", "--home", home, "--embedder", "hashing", folder, check=True)
    return home


@pytest.fixture(scope="module")
def kb_url(kb_home: Path, served: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    with served([*_KB, "serve", "--home", str(kb_home), "--embedder", "hashing"], "loom-kb") as url:
        yield url


@pytest.fixture(scope="module")
def home(kb_home: Path, kb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The query server's home: loom-kb over stdio and over HTTP, texts, and a server that never answers."""
    home = tmp_path_factory.mktemp("query-home")
    hanging = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    servers = {"kb": {"command": _KB[0], "args": [*_KB[1:], "--home", str(kb_home)]}}
    sources = {
        "child": {"kind": "mcp", "server": "kb", "description": "港口资料"},
        "remote": {"kind": "mcp", "server": {"url": kb_url}},
        "faq": _FAQ,
        "silent": {"kind": "mcp", "server": hanging, "deadline": 1},
    }
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    (home / "query.json").write_text(json.dumps({"sources": sources}, ensure_ascii=False), encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def url(home: Path, served: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    with served([*_QUERY, "serve", "--home", str(home)], "loom-query-server") as url:
        yield url


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_tools_are_listed_before_anything_heavy_is_imported_or_any_server_started(era, stdio_server, home):
    command = [sys.executable, "-X", "importtime", "-m", "loom_query", "--home", str(home)]
    server = stdio_server(command, era=era)
    tools = {tool["name"]: tool for tool in server.request("tools/list")["tools"]}
    assert list(tools) == ["query", "fetch", "sources", "ask"]
    assert tools["query"]["inputSchema"]["properties"]["source"]["enum"] == [
        "child",
        "remote",
        "faq",
        "silent",
    ]
    assert "- child: 港口资料" in tools["query"]["description"]
    assert len(server.initialized["instructions"].encode()) <= 2048
    listed = server.call("sources")["structuredContent"]["sources"]
    assert [each["state"] for each in listed] == ["idle", "idle", "ready", "idle"]
    assert server.close_input() == 0
    imported = set(re.findall(r"\| +([\w.]+)$", server.stderr, re.MULTILINE))
    assert "loom_core.knowledge.sources.federation.federation" in imported
    assert not imported & _HEAVY


async def test_a_chain_of_three_answers_cites_and_reads_on_over_both_transports(url):
    async with Client(url) as client:
        asked = {"query": "Who is the master of Port Aster?", "limit": 10, "response_format": "detailed"}
        answer = await client.call_tool("query", asked)
        text, found = answer.content[0].text, answer.structured_content
        best = found["passages"][0]
        assert "Ada Brown" in best["text"]
        assert best["title"] == "Port Aster"
        assert best["uri"].startswith("file://")
        # Both ways lead to the same knowledge base: its passage comes once and says where else it is.
        assert {best["source"], best["also_in"][0].partition(":")[0]} == {"child", "remote"}
        outcomes = {each["source"]: each for each in found["sources"]}
        assert {name: each["state"] for name, each in outcomes.items()} == {
            "child": "answered",
            "remote": "answered",
            "faq": "answered",
            "silent": "starting",
        }
        assert outcomes["silent"]["seconds"] < 5
        assert "3 of 4 sources answered." in text
        for id_ in (best["id"], best["also_in"][0]):
            whole = await client.call_tool("fetch", {"id": id_})
            assert "# Port Aster" in whole.content[0].text
            assert whole.structured_content["uri"] == best["uri"]
        chinese = await client.call_tool(
            "query", {"query": "青岛港的港长是谁？", "source": "child", "limit": 1}
        )
        assert "李明" in chinese.content[0].text
        refused = await client.call_tool("ask", {"query": "青岛港的港长是谁？", "source": "remote"})
        assert refused.structured_content["answered"] is False
        assert "李明" in refused.content[0].text


@pytest.fixture
def token(home: Path) -> str:
    """A token for one of the sources."""
    line = ["token", "create", "desk", "--home", home, "--source", "faq"]
    return run_command("loom_query", *line, check=True).stdout.decode().strip()


async def test_a_token_opens_the_sources_that_it_is_bound_to_and_no_other(home, token, served):
    headers = {"Authorization": f"Bearer {token}"}
    with served([*_QUERY, "serve", "--home", str(home), "--tokens"], "loom-query-server") as url:
        assert httpx2.post(url, json={}).status_code == 401
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["query"].input_schema["properties"]["source"]["enum"] == ["faq"]
            asked = {"query": "When does the office open?", "response_format": "detailed"}
            answer = await client.call_tool("query", asked)
            assert [each["source"] for each in answer.structured_content["sources"]] == ["faq"]
            refused = await client.call_tool("query", {"query": "x", "source": "child"})
            assert refused.is_error


@pytest.mark.skipif(sys.platform == "win32", reason="asks ps")
def test_a_server_whose_input_ends_lets_go_of_its_children(home: Path):
    python, *query = _QUERY
    # -B: not by the fork server, which would be one of its children.
    server = StdioServer([python, "-B", *query, "--home", str(home)], era="modern", timeout=60.0)
    with closing(server):
        assert "Ada Brown" in str(server.call("query", query="master of Port Aster", source="child"))
        children = children_of(server.process.pid)
        assert children
        assert server.close_input() == 0
        assert not any(_runs(int(child)) for child in children)


def children_of(pid: int) -> list[str]:
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False).stdout.split()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
