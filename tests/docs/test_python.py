"""The blocks of Python on the pages run as they stand, one after the other, and do what the page says.

What a page takes as given (a model, a folder, knowledge bases) is given here. A page whose blocks no one runs
fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from loom_core import config, plugin_registry, plugins
from loom_core.agent.agent import Agent
from loom_core.knowledge import Library
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from tests.docs import snippets

_LISTED = Path(__file__).parents[1] / "unit" / "mcp_client" / "listed_server.py"
_ELSEWHERE = {
    "README.md": ("Who approved the budget?", "Anna Berg approved the budget."),
    "README.zh.md": ("谁批准了预算？", "预算由王小明批准。"),
    "docs/tutorial.md": ("什么是织机？", "织机是织布的机器。"),
    "docs/zh/tutorial.md": ("什么是织机？", "织机是织布的机器。"),
}
"""Pages that `test_the_beginning_in_a_program` runs, what they ask, and what they find."""

RunPage = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@pytest.fixture
def run_page() -> RunPage:
    """Runs the blocks of a page; gives every name that there is at the end."""

    async def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
        for snippet in snippets.snippets(page, "python"):
            if not snippet.skipped:
                await snippets.run_python(snippet, names)
        return names

    return run


@contextmanager
def _registered() -> Iterator[None]:
    """Whatever a block registers as a plugin is gone afterwards; Loom's own, which come when wanted, stay."""
    factories = plugin_registry._registry._factories
    before = set(factories)
    try:
        yield
    finally:
        for key, factory in list(factories.items()):
            if key not in before and not (factory.__module__ or "").startswith("loom_core."):
                del factories[key]


def _leave(request: ChatRequest) -> str | MockAnswer:
    """Act as a model: look up the days of leave, or delegate it, and then report them."""
    asked = max(at for at, message in enumerate(request.messages) if isinstance(message, UserMessage))
    question = request.messages[asked].text
    results = [each.text for each in request.messages[asked:] if isinstance(each, ToolMessage)]
    if request.output is not None:
        return '{"days": 28}'
    if results:
        return f"{results[-1].removesuffix(' 天。')} 天。"
    years = 5 if question.startswith("五年") else 3
    calls = {
        "leave_days": {"years": years},
        "people": {"goal": "三年后有多少天年假？"},
        "handoff_to_people": {"note": ""},
    }
    there = {tool.name for tool in request.tools}
    for name, arguments in calls.items():
        if name in there:
            return MockAnswer(calls=(ToolCallPart("c", name, arguments),))
    return f"{request.messages[-1].text}（此致）"


async def test_the_parts_of_the_flow_server(run_page: RunPage, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.chdir(Path(__file__).parents[2])
    await run_page("docs/flow.md", {"print": lambda *values: said.append(" ".join(map(str, values)))})
    flow, asked, route, prompt = said
    assert flow == "leave_request"
    assert asked == "请假申请还需要：从哪天开始。"
    assert route == "rules leave_request"
    assert "**leave_request** (请假申请 / Request for leave)" in prompt


async def test_agents(tmp_path: Path) -> None:
    said: list[tuple[object, ...]] = []
    names: dict[str, Any] = {
        "model": MockProvider(_leave),
        "small_model": MockProvider([]),
        "folder": tmp_path,
        "is_weekend": lambda: False,
        "print": lambda *values: said.append(values),
    }
    for snippet in snippets.snippets("docs/agent.md", "python"):
        await snippets.run_python(snippet, names)
        agent = names.pop("agent", None)
        if agent is not None:
            assert isinstance(agent, Agent)
            answer = await agent.run("工作三年后有多少天年假？")
            assert answer.or_raise().output == "28 天。"
            await agent.aclose()

    assert names["found"][0].id == names["same"].run_id
    assert [hit.message.text for hit in names["hits"]] == ["工作三年后有多少天年假？"]
    assert [" ".join(map(str, values)).partition(" Usage(")[0] for values in said] == [
        "28 天。",
        "30 天。",
        "leave_days success 28",
        "2 1.0 0.0",
        '{"资料":"28 天。","地址":{"to":"小王"}}（此致） 28 天。',
        "28 天。",
    ]
    assert names["answer"].output == "30 天。"
    assert [step.step for step in names["answer"].steps] == ["1 people"]


def _days_left(request: ChatRequest) -> str | MockAnswer:
    if any(isinstance(message, ToolMessage) for message in request.messages):
        return "还有十一天。"
    return MockAnswer(calls=(ToolCallPart("c", "days_of_leave", {"employee": "王小明"}),))


async def test_tools(run_page: RunPage, tmp_path: Path) -> None:
    given = {"model": MockProvider(_days_left), "folder": tmp_path, "shell_is_there": sys.platform != "win32"}
    with _registered():
        names = await run_page("docs/tools.md", given)
    await names["agent"].aclose()
    assert (names["archive"].name, names["archive"].needs_approval) == ("归档", True)


@pytest.mark.usefixtures("counted")
async def test_observability(run_page: RunPage) -> None:
    try:
        names = await run_page("docs/observability.md", {})
        names["knowledge_base"].close()
        assert "loom_knowledge_" in names["exposition"]
    finally:
        config.reset()


async def test_other_servers(run_page: RunPage, tmp_path: Path, monkeypatch, capsys) -> None:
    read = {"name": "read_file", "description": "读文件", "inputSchema": {"type": "object"}}
    (tmp_path / "says.json").write_text(json.dumps({"tools": [read]}))
    run = f"runpy.run_path({str(_LISTED)!r}, run_name='__main__')"
    (tmp_path / "server.py").write_text(f"import runpy, sys; sys.argv = ['', 'says.json']; {run}")
    entry = {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"files": entry}}))
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    await run_page("docs/mcp-client.md", {})

    shown = capsys.readouterr().out
    assert shown.count('"path": "README.md"') == 2
    assert "['read_file']" in shown


async def test_models(run_page: RunPage, monkeypatch, capsys) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "a-key-of-no-value")
    answers = MockProvider(["知识图谱是实体和关系的网络。", "它由三元组组成。", "杭州今天晴。"])
    names = await run_page("docs/models.md", {"scripted": answers})
    assert names["model"].name == "deepseek"
    shown = capsys.readouterr().out
    assert "知识图谱是实体和关系的网络。" in shown
    assert "它由三元组组成。" in shown
    assert "another-model ()\n你好\n" in shown
    assert (names["imitation"].spec.wire, names["imitation"].spec.auth_style) == (
        "anthropic_messages",
        "x-api-key",
    )


@asynccontextmanager
async def _base(name: str, *texts: str) -> AsyncIterator[GraphRAGKnowledgeBase]:
    from loom_core.embedding.local_models.hashing import HashingEmbedder

    base = GraphRAGKnowledgeBase.from_config(embedding_provider=HashingEmbedder(), name=name)
    try:
        await base.add_texts(list(texts))
        yield base
    finally:
        base.close()


async def test_retrievers(run_page: RunPage) -> None:
    answers = MockProvider(lambda _: "The warranty lasts two years [1].")
    async with (
        _base("handbook", "# Warranty\n\nThe warranty lasts two years.") as handbook,
        _base("wiki", "# 保修\n\n保修期为两年。") as wiki,
    ):
        with _registered():
            names = await run_page("docs/retrievers.md", {"handbook": handbook, "wiki": wiki, "llm": answers})
            assert plugins.create("retriever", "newest", [wiki]).name == "newest"
    assert "two years" in names["passages"][0]["text"]
    assert not names["answer"].notes
    assert names["answer"].items[0].id.startswith("handbook:")


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with notes, and Loom's in it."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "budget.md").write_text("# Budget\n\nAnna Berg approved the budget.", "utf-8")
    (notes / "预算.md").write_text("# 预算\n\n预算由王小明批准。", "utf-8")
    for variable, folder in {"HOME": "", "USERPROFILE": "", "LOOM_HOME": ".loom"}.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_knowledge_base_in_a_program(run_page: RunPage, user_home: Path) -> None:
    said: list[str] = []
    await run_page("docs/knowledge.md", {"print": lambda *values: said.append(" ".join(map(str, values)))})
    assert "Anna Berg approved the budget." in said[0]
    assert said[0].endswith("{'added': 2}")
    assert (user_home / ".loom" / "kb" / "notes" / "record.db").is_file()


async def test_a_knowledge_base_is_split_as_the_page_has_it(run_page: RunPage, tmp_path: Path) -> None:
    said: list[str] = []
    names = await run_page("docs/howto/scale.md", {"print": lambda *values: said.append(str(values))})
    with closing(Library(tmp_path, embedder="hashing")) as library:
        notes = await library.get("notes", create=True)
        await notes.add_texts(["Anna Berg approved the budget.", "安娜去了杭州。"])
        await to_thread.run_sync(library.close)
        await names["split_notes"](library)
    assert "Anna Berg approved" in said[0]


@pytest.mark.parametrize("page", ["docs/server.md"])
async def test_what_a_page_imports_is_there(run_page: RunPage, page: str) -> None:
    names = await run_page(page, {})
    assert {"LoomServer", "serve", "tool_result"} <= set(names)


@pytest.mark.parametrize("page", sorted(_ELSEWHERE))
@pytest.mark.usefixtures("user_home")
async def test_the_beginning_in_a_program(page: str) -> None:
    """As the page has it, but for the vendor: a scripted model answers, that needs no key."""
    question, fact = _ELSEWHERE[page]

    def answer(request: ChatRequest) -> str | MockAnswer:
        results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        if results:
            return f"答：{results[-1]}"
        search = request.tools[0].name
        return MockAnswer(calls=(ToolCallPart("c", search, {"query": question}),))

    said: list[str] = []
    names: dict[str, Any] = {
        "model": MockProvider(answer),
        "print": lambda *values: said.append(" ".join(map(str, values))),
    }
    for snippet in snippets.snippets(page, "python"):
        assert question in snippet.text
        asked = snippet.text.replace('Agent("deepseek"', "Agent(model")
        await snippets.run_python(snippets.Snippet(page, snippet.line, "python", asked, ""), names)
    await names["agent"].aclose()
    names["kb"].close()
    assert fact in said[0]
    assert said[-1].startswith("答：")
    assert fact in said[-1]


def test_every_page_with_python_is_run() -> None:
    sources = [Path(__file__), Path(__file__).with_name("test_joining.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert [page for page in snippets.with_python() if f'"{page}"' not in source] == []
