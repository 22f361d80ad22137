"""The snippets of the specifications run as they are written, but for their import lines.

What a snippet takes as given (a model, a knowledge base, keys, servers of others) is given here. What is no
program (outlines of classes, formats, drawings, Rust) is compared with what there is, or left out with a
reason. A snippet of which nothing is said here fails.
"""

from __future__ import annotations

import ast
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn

from loom_core import llm
from loom_core.agent import Agent
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.registry import create_embedder
from loom_core.embedding.remote_models.openai_compatible import OpenAIEmbeddingProvider
from loom_core.flow import FlowRouter, WorkflowOrchestrator
from loom_core.flow.config.models import FlowConfig, FlowFile
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import ExtractionConfig, GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.retrieval.patterns import MultiQueryRAG, RAGPattern
from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker
from loom_core.knowledge.sources.collections.config import CollectionConfig
from loom_core.knowledge.sources.collections.source import CollectionSource
from loom_core.knowledge.sources.context_retriever import ContextRetriever
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.search_tool import DocumentSearchTool
from loom_core.llm import LLMProvider, OpenAIProvider
from loom_core.llm.mock import MockProvider
from loom_core.mcp_client import HttpClient, MCPToolRegistry, StdioClient
from loom_core.observability import LoomMetrics, LoomTracer
from loom_core.plugins import PluginRegistry, create
from loom_core.tools import tool
from tests.docs import snippets
from tests.fixtures.vendors import FakeVendors

_ROOT = Path(__file__).parents[2]
_SPECIFICATIONS = _ROOT.parent / "shared" / "spec"
_LISTED = Path(__file__).parents[1] / "unit" / "mcp_client" / "listed_server.py"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^from (?:loom|app)[\w.]* import .*\n", re.MULTILINE)

_LEFT_OUT = {
    ("000", 0): "a tree of files",
    ("000", 4): "a drawing",
    ("000", 6): "a drawing",
    ("000", 8): "a drawing",
    ("000", 9): "a drawing",
    ("000", 10): "a drawing",
    ("000", 11): "a drawing",
    ("001", 0): "a drawing",
    ("001", 2): "the loop of an agent in pseudo-code",
    ("001", 3): "a tree of files",
    ("001", 5): "a tree of files",
    ("003", 0): "notes",
    ("003", 1): "a drawing",
    ("003", 3): "a drawing",
    ("003", 4): "a draft, which the fourteenth snippet replaces",
    ("003", 6): "a draft, which the fourteenth snippet replaces",
    ("003", 8): "comments only",
    ("003", 9): "a drawing",
    ("003", 11): "a part of the orchestrator here",
    ("004", 0): "Rust",
    ("004", 1): "Rust",
    ("004", 2): "Rust",
    ("004", 3): "Rust; `auth_style` is a setting of `create_provider`",
    ("004", 4): "a tree of files",
}


def _snippets() -> dict[tuple[str, int], str]:
    """All snippets: by the number of their specification, and their place in it."""
    if not _SPECIFICATIONS.is_dir():
        pytest.skip(f"The specifications are not at {_SPECIFICATIONS}.")
    return {
        (path.name[:3], place): text
        for path in sorted(_SPECIFICATIONS.glob("*.txt"))
        for place, (_, text) in enumerate(_BLOCK.findall(path.read_text("utf-8")))
    }


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a snippet without its import lines, with what they import and what it takes as given."""

    async def run(number: str, place: int, names: dict[str, Any], text: str | None = None) -> dict[str, Any]:
        text = _IMPORT.sub("", _snippets()[number, place] if text is None else text)
        await snippets.run_python(snippets.Snippet(f"{number}.txt", place, "python", text, ""), names)
        return names

    return run


@asynccontextmanager
async def _vendors() -> AsyncIterator[tuple[FakeVendors, str]]:
    """All vendors, as strict as they are, on this machine."""
    fake = FakeVendors()
    server = uvicorn.Server(uvicorn.Config(fake, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listening])
            try:
                yield fake, f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True


@pytest.fixture
async def bases() -> AsyncIterator[list[GraphRAGKnowledgeBase]]:
    """Knowledge bases of a tenant, with a model for `hyde` and `multi_query`."""
    model = MockProvider(lambda _: '{"texts": ["这个药物每日两次。", "用法用量", "禁忌"]}')
    made: list[GraphRAGKnowledgeBase] = []
    for name, text in (("kb_tech", "知识图谱是事实之网。"), ("kb_medical", "这个药物每日两次，孕妇禁用。")):
        base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=HashingEmbedder(),
            llm_provider=model,
            config=RAGConfig(extraction=ExtractionConfig(enabled=False)),
            name=name,
        )
        await base.add_texts([text], metadatas=[{"tenant_id": "tenant_001"}])
        made.append(base)
    yield made
    for base in made:
        base.close()


# -- 000: providers --------------------------------------------------------------------------------------


async def test_providers(run) -> None:
    names = {name: getattr(llm, name) for name in llm.__all__ if name.endswith("Provider")}
    made = await run("000", 2, names)
    assert (made["llm"].name, made["llm"].model) == ("openai_compatible", "my-model")


async def test_extraction_config(run) -> None:
    made = await run("000", 7, {"ExtractionConfig": ExtractionConfig, "RAGConfig": RAGConfig})
    assert made["config"].extraction.max_entities_per_chunk == 10


async def test_tracer_and_metrics(run, counted) -> None:
    names = {
        "LoomTracer": LoomTracer,
        "LoomMetrics": LoomMetrics,
        "GraphRAGKnowledgeBase": GraphRAGKnowledgeBase,
    }
    given = {"llm": MockProvider(lambda _: "{}"), "embedder": HashingEmbedder()}
    made = await run("000", 12, {**names, **given})
    made["kb"].close()


async def test_knowledge_base_in_an_agent(run) -> None:
    async with _vendors() as (fake, address):
        names = {
            "GraphRAGKnowledgeBase": GraphRAGKnowledgeBase,
            "RAGConfig": RAGConfig,
            "ExtractionConfig": ExtractionConfig,
            "Agent": Agent,
            "OpenAIProvider": partial(OpenAIProvider, base_url=f"{address}/openai/v1", api_key=fake.key),
            "OpenAIEmbeddingProvider": partial(
                OpenAIEmbeddingProvider, base_url=f"{address}/openai/v1", api_key=fake.key
            ),
        }
        made = await run("000", 13, names)
        assert "search_documents" in {each.name for each in made["agent"].parts.toolbox.tools()}
        assert {item.content for item in made["items"]} <= {"文档内容1", "文档内容2"}
        made["kb"].close()
        await made["agent"].aclose()


async def test_mcp_clients(run, tmp_path: Path) -> None:
    says = {"tools": [{"name": "tool_name", "description": "x", "inputSchema": {"type": "object"}}]}
    (tmp_path / "says.json").write_text(json.dumps(says), encoding="utf-8")
    signature(StdioClient).bind(command="npx", args=["-y", "mcp-server"])
    signature(HttpClient).bind(url="http://localhost:3000/mcp")
    ours = StdioClient(sys.executable, [str(_LISTED), str(tmp_path / "says.json")])
    async with ours:  # in place of the servers that the snippet names
        made = await run("000", 14, {"StdioClient": lambda **_: ours, "HttpClient": lambda **_: ours})
    assert [each.name for each in made["tools"]] == ["tool_name"]
    assert '"arg": "value"' in str(made["result"])


async def test_embedder(run) -> None:
    async with _vendors() as (fake, address):
        make = partial(OpenAIEmbeddingProvider, base_url=f"{address}/openai/v1", api_key=fake.key)
        made = await run("000", 15, {"OpenAIEmbeddingProvider": make})
    assert len(made["vectors"]) == 2


# -- 001: agents -----------------------------------------------------------------------------------------

_SAID_OTHERWISE = {
    "InMemoryRetriever()": 'InMemoryRetriever([TextDocument(text="A query asks for data.")], name="it")',
    "ContextRetriever(retriever=retriever": "ContextRetriever(retriever",
    "context_retriever=context_retriever": "knowledge=context_retriever",
    "RAGPattern(agent, retriever": 'RAGPattern(llm, create("retriever", "knowledge_base", [retriever])',
}
"""Names of the design, and those of today that docs/agent.md (Names used elsewhere) gives for them."""


async def test_three_layers_of_rag(run) -> None:
    @tool(read_only=True, open_world=False)
    def other_tools() -> str:
        """Another tool."""
        return ""

    text = _snippets()["001", 1]
    for there, here in _SAID_OTHERWISE.items():
        assert text.count(there) == 1
        text = text.replace(there, here)
    names = {
        "Agent": Agent,
        "InMemoryRetriever": DocumentsKnowledgeBase,
        "TextDocument": TextDocument,
        "ContextRetriever": ContextRetriever,
        "DocumentSearchTool": DocumentSearchTool,
        "RAGPattern": RAGPattern,
        "MultiQueryRAG": MultiQueryRAG,
        "create": create,
        "llm": MockProvider(lambda _: "A query asks for data [1]."),
        "other_tools": other_tools,
        "my_reranker": FeatureReranker(),
    }
    made = await run("001", 1, names, text)
    assert made["response"].answer == "A query asks for data [1]."


async def test_tools_of_mcp_servers(run, tmp_path: Path, monkeypatch, capsys) -> None:
    says = {"tools": [{"name": "list", "description": "x", "inputSchema": {"type": "object"}}]}
    (tmp_path / "says.json").write_text(json.dumps(says), encoding="utf-8")
    entry = {"command": sys.executable, "args": [str(_LISTED), str(tmp_path / "says.json")]}
    servers = {"mcpServers": {"filesystem": entry, "github": entry}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers), encoding="utf-8")
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    model = MockProvider(["Done."])
    made = await run(
        "001", 4, {"Agent": Agent, "MCPToolRegistry": MCPToolRegistry, "OpenAI": lambda api_key: model}
    )
    assert {each.name for each in made["tools"]} == {"filesystem:list", "github:list"}
    assert "Done." in capsys.readouterr().out


# -- 002: retrievers -------------------------------------------------------------------------------------


def _keys(place: int) -> set[str]:
    """The keys of a result, as a specification writes them."""
    return set(re.findall(r'^    "(\w+)":', _snippets()["002", place], re.MULTILINE))


async def test_retrievers(run, bases) -> None:
    names: dict[str, Any] = {"operator_registry": PluginRegistry(bases)}
    parts = re.split(r"\n\n(?=#)", _IMPORT.sub("", _snippets()["002", 0]).strip())
    found: list[Mapping[str, Any]] = []
    for part in parts:
        if "llama_dense" in part:
            settings = CollectionConfig(url="http://localhost:19530", collection="tech", embedding="hashing")
            stores = PluginRegistry([CollectionSource("milvus", settings, name="kb_tech")])
            made = await run("002", 0, {"operator_registry": stores}, part)
            assert made["retriever"].name == "llama_dense"
        else:
            found.append((await run("002", 0, names, part))["results"][0])
    hybrid, hyde, multi_query = found
    assert _keys(1) <= hybrid.keys()
    assert _keys(1) | _keys(2) <= hyde.keys()
    assert _keys(1) | _keys(3) <= multi_query.keys()
    assert set(re.findall(r'^            "(\w+)":', _snippets()["002", 3], re.MULTILINE)) <= {
        *multi_query["retrieval_details"][0]
    }


async def test_normalised_scores(run) -> None:
    made = await run("002", 4, {"score": 3.0, "min_score": 1.0, "max_score": 5.0})
    assert made["normalized_score"] == 0.5


async def test_an_embedder_that_is_chosen_with_the_retriever(run) -> None:
    settings = {"provider": "ollama", "model": "bge-m3", "base_url": "http://localhost:11434"}
    base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder(settings), llm_provider=MockProvider(), name="kb_tech"
    )
    made = await run("002", 5, {"operator_registry": PluginRegistry([base])})
    assert made["embedding_config"] == settings
    assert made["retriever"].name == "hyde"
    base.close()


# -- outlines of classes, configurations -----------------------------------------------------------------

_OUTLINES: Mapping[tuple[str, int], Mapping[str, type]] = {
    ("000", 1): {"LLMProvider": LLMProvider},
    ("000", 3): {"KnowledgeBaseProvider": KnowledgeBaseProvider},
    ("000", 5): {"KnowledgeItem": KnowledgeItem},
    ("003", 2): {"FlowDefinition": FlowConfig},
    ("003", 12): {"FlowRouter": FlowRouter},
    ("003", 13): {"WorkflowOrchestrator": WorkflowOrchestrator},
}


@pytest.mark.parametrize(("place", "ours"), _OUTLINES.items(), ids=lambda value: str(value))
def test_the_classes_of_an_outline_have_what_it_names(place, ours) -> None:
    outlined = [each for each in ast.walk(ast.parse(_snippets()[place])) if isinstance(each, ast.ClassDef)]
    assert {each.name for each in outlined} == ours.keys()
    for each in outlined:
        names = {one.name for one in each.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        names |= {str(one.target.id) for one in each.body if isinstance(one, ast.AnnAssign)}  # type: ignore[union-attr]
        has = {*dir(ours[each.name]), *getattr(ours[each.name], "__annotations__", {})}
        assert {name for name in names if not name.startswith("_")} <= has


@pytest.mark.parametrize("place", [5, 7, 10])
def test_a_flow_file_has_the_keys_that_are_named(place: int) -> None:
    text = _snippets()["003", place]
    assert set(re.findall(r'^  "(\w+)":', text, re.MULTILINE)) <= FlowFile.model_fields.keys()


def test_something_is_said_of_every_snippet() -> None:
    source = Path(__file__).read_text("utf-8")
    run = {(number, int(place)) for number, place in re.findall(r'"(\d{3})", (\d+)', source)}
    keys = {("002", 1), ("002", 2), ("002", 3), ("003", 5), ("003", 7), ("003", 10)}
    assert run | keys == {*_snippets()}
    assert not _OUTLINES.keys() & _LEFT_OUT.keys()
