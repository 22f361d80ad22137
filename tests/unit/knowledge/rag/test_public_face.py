"""A knowledge base by its name, in scripts and notebooks: made, filled and asked in a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import loom_core
from loom_core import Agent, KnowledgeBase
from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.sources.library import Library
from loom_core.llm.mock import MockProvider

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

pytestmark = pytest.mark.slow

SCRIPT = """
from loom_core import KnowledgeBase

with KnowledgeBase("notes", embedder="hashing") as kb:
    print(kb.add_sync("~/notes").counts)
    kb.add_texts_sync(["# 预算\\n\\n预算由王小明批准。"])
    print(kb.query_sync("Who approved the budget?")[0].content)
    print(kb.query_sync("谁批准了预算？")[0].content)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, with notes in it; Loom's is in it, too."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "budget.md").write_text("# Budget\n\nAnna Berg approved the budget.\n", "utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LOOM_HOME", str(tmp_path / ".loom"))
    return tmp_path


def in_memory() -> GraphRAGKnowledgeBase:
    return KnowledgeBase("notes", embedder="hashing", memory=True)


def test_both_names_are_the_same_class() -> None:
    assert KnowledgeBase is GraphRAGKnowledgeBase is loom_core.GraphRAGKnowledgeBase


def test_a_script_and_the_command_line_share_what_has_a_name(home: Path) -> None:
    script = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert script.stderr == ""
    assert script.stdout.split("\n")[0] == "{'added': 1}"
    assert "Anna Berg approved the budget." in script.stdout
    assert "预算由王小明批准。" in script.stdout
    listed = subprocess.run(
        [sys.executable, "-m", "loom_kb", "list", "--json"], capture_output=True, check=True, timeout=60
    )
    (source,) = json.loads(listed.stdout)["sources"]
    assert (source["name"], source["documents"]) == ("notes", 2)


async def test_a_name_in_any_script_is_the_one_that_servers_list(home: Path) -> None:
    with KnowledgeBase("会议 记录", embedder="hashing", description="会议") as kb:
        await kb.add(home / "notes" / "budget.md")
    library = Library(home / ".loom")
    (entry,) = library.list()
    assert (entry.name, entry.documents, entry.source.description) == ("会议 记录", 1, "会议")
    assert await (await library.get("会议 记录")).query("budget")
    library.close()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["", "a/b", "x" * 65])
def test_a_name_that_no_knowledge_base_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        KnowledgeBase(name)


@pytest.mark.usefixtures("home")
def test_the_embedder_that_made_the_vectors_is_found_again() -> None:
    with KnowledgeBase("notes", embedder="static"):
        pass
    with KnowledgeBase("notes") as kb:
        assert kb.embedder_id.startswith("wordllama")
    with pytest.raises(ConfigError, match="were made by"):
        KnowledgeBase("notes", embedder="hashing")


@pytest.mark.usefixtures("home")
def test_a_folder_of_ones_own_and_memory_leave_the_home_alone(home: Path) -> None:
    with KnowledgeBase("notes", embedder="hashing", path="~/own") as kb:
        kb.add_texts_sync(["A text."])
    assert (home / "own" / "record.db").exists()
    with in_memory() as kb:
        kb.add_texts_sync(["A text."])
    assert not (home / ".loom").exists()
    with pytest.raises(InvalidInputError, match="not in both"):
        KnowledgeBase("notes", path=home / "own", memory=True)


@pytest.mark.usefixtures("home")
async def test_the_synchronous_methods_work_where_an_event_loop_runs() -> None:
    for kb in (in_memory(), KnowledgeBase("notes", embedder="hashing")):
        for _ in range(2):
            kb.add_sync("~/notes")
            assert "Anna Berg" in kb.query_sync("Who approved the budget?", limit=1)[0].content
        await kb.add_texts(["The port was founded in 1974."])  # the async ones of the same object, in turn
        assert "1974" in (await kb.query("When was the port founded?"))[0].content
        assert "1974" in kb.search_sync("When was the port founded?", limit=1).items[0].content
        kb.close()


def test_threads_may_ask_and_add_at_once() -> None:
    with in_memory() as kb, ThreadPoolExecutor(4) as threads:
        texts = [f"Number {number} is a number." for number in range(8)]
        added = [threads.submit(kb.add_texts_sync, [text]) for text in texts]
        asked = [threads.submit(kb.query_sync, "Which number?") for _ in texts]
        assert all(call.result(timeout=60) is not None for call in [*added, *asked])
        assert kb.store.documents.counts()[0] == 8


async def test_errors_are_the_same_without_await() -> None:
    with in_memory() as kb:
        with pytest.raises(InvalidInputError) as awaited:
            await kb.query("")
        with pytest.raises(InvalidInputError) as waited:
            kb.query_sync("")
        assert (waited.value.message, waited.value.advice) == (awaited.value.message, awaited.value.advice)


async def test_a_synchronous_method_is_refused_while_the_event_loop_works_for_the_knowledge_base() -> None:
    with in_memory() as kb:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kb.work)
            while not kb.worker.is_running:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(InvalidInputError, match="while `work` runs"):
                kb.query_sync("Who?")
            tasks.cancel_scope.cancel()


async def test_files_folders_and_pages_are_added_as_one_job(home: Path, local_servers) -> None:
    server: LocalServer = local_servers()
    page = server.answers("/harbour", b"<h1>The harbour</h1><p>The harbour is old.</p>")
    with in_memory() as kb:
        job = await kb.add("~/notes", page, allow_net=["127.0.0.1"], metadata={"tags": ["mixed"]})
        assert (job.finished, job.counts) == (True, {"added": 2})
        found = (await kb.search("harbour budget", filters={"tags": "mixed"})).items
        assert {item.source for item in found} == {page, (home / "notes" / "budget.md").as_uri()}
        again = await kb.add(home / "notes" / "budget.md", metadata={"tags": ["mixed"]})
        assert again.counts == {"unchanged": 1}


@pytest.mark.parametrize(
    "source", ["~/none", "A text that is no path.\n" * 400, "织机是织布的机器。", "nul\0"]
)
async def test_what_is_no_path_is_refused_with_what_to_do(source: str) -> None:
    with in_memory() as kb:
        with pytest.raises(InvalidInputError, match="no file or folder") as caught:
            await kb.add(source)
        assert "add_texts" in caught.value.advice
        assert len(caught.value.message) < 200
        with pytest.raises(InvalidInputError, match="nothing to add"):
            await kb.add()
        assert kb.store.jobs.list(limit=1) == []


@pytest.mark.usefixtures("home")
async def test_an_agent_answers_without_await_again_and_again() -> None:
    with KnowledgeBase("notes", embedder="hashing") as kb:
        kb.add_sync("~/notes")
        agent = Agent(MockProvider(lambda request: request.messages[-1].text[:20]), knowledge_base=kb)
        for goal in ("Who approved it?", "谁批准了？"):
            assert agent.run_sync(goal).or_raise().status == "completed"
        assert (await agent.run("And now?")).status == "completed"
        with pytest.raises(InvalidInputError):
            agent.run_sync("")
        await agent.aclose()
