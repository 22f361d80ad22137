"""A disk that is full, and one that is read only: a clear reason, nothing lost, and on it goes.

The disks are small file systems in memory, mounted in a namespace of their own that ends with the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres

MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]

FULL = """
import json, sys
import anyio
from pathlib import Path
from loom_core.embedding.registry import create_embedder
from loom_core.errors import LoomError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest

async def main(disk):
    ballast = Path(disk) / "ballast"
    ballast.write_bytes(bytes(94 << 20))
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=Path(disk) / "kb"
    )
    acknowledged, refusal, told = [], "", ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        for number in range(100_000):
            text = f"# Town{number}\\n\\n" + f"Town{number} lies on a river with many bridges. " * 300
            try:
                await anyio.to_thread.run_sync(
                    knowledge_base.submit,
                    DocumentsRequest([DocumentDraft(uri=f"text:{number}", text=text)]),
                )
            except LoomError as error:
                refusal = f"{type(error).__name__}: {error}"
                break
            acknowledged.append(f"text:{number}")
            knowledge_base.worker.wake()
            await anyio.sleep(0)
        with anyio.fail_after(60):
            while not (told := knowledge_base.worker.problem):
                await anyio.sleep(0.05)
        answer = await knowledge_base.search("Town0", strategy="bm25")
        notes = list(answer.notes)
        ballast.unlink()
        with anyio.fail_after(120):
            while knowledge_base.store.jobs.next() is not None or any(knowledge_base.index_lag().values()):
                await anyio.sleep(0.1)
        found = [uri for uri in acknowledged if knowledge_base.store.documents.get(uri) is not None]
        healthy = (await knowledge_base.search("Town1", strategy="bm25")).items[0].source
        tasks.cancel_scope.cancel()
    knowledge_base.close()
    json.dump(
        dict(
            acknowledged=acknowledged, refusal=refusal, told=told, notes=notes, found=found, healthy=healthy
        ),
        sys.stdout,
    )

anyio.run(main, sys.argv[1])
"""

READ_ONLY = """
import json, sys
from pathlib import Path
from loom_core.errors import LoomError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

try:
    GraphRAGKnowledgeBase.from_config(path=Path(sys.argv[1]) / "kb")
    refusal, advice = "", ""
except LoomError as error:
    refusal, advice = error.message, error.advice
json.dump(dict(refusal=refusal, advice=advice), sys.stdout)
"""

AGENT = """
import json, sys
import anyio
from collections import Counter
from pathlib import Path
from loom_core.agent.agent import Agent
from loom_core.runs.journal import Journal
from loom_core.runs.run import Budget
from loom_core.errors import StoreError
from loom_core.llm.messages import AssistantMessage, ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools.function_tool import tool

effects, full = Counter(), anyio.Event()

@tool(open_world=False)
async def send(number: int) -> str:
    "Send."
    effects[number] += 1
    return f"{number}：" + "山高水长" * 20_000

def script(request):
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if full.is_set():
        return "done"
    return MockAnswer(calls=tuple(
        ToolCallPart(f"c{number}", "send", {"number": number}) for number in (2 * turn, 2 * turn + 1)
    ))

async def look(pending):
    "A person who sees what was done."
    assert pending.kind == "unknown"
    return not effects[pending.arguments["number"]]

async def main(disk):
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(12 << 20))
    agent = Agent(
        MockProvider(script), tools=[send], journal=Journal(disk / "runs.db"), permissions="allow",
        approve=look, compaction=None, budget=Budget(iterations=10_000), loop_guard=None,
    )
    refusal = ""
    try:
        await agent.run("寄信")
    except StoreError as error:
        refusal = str(error)
    (run,) = await agent.journal.runs()
    try:
        await agent.resume(run.id)
        still = ""
    except StoreError as error:
        still = str(error)
    events = await agent.journal.events(run.id, limit=100_000)
    begun = {event.payload["call_id"] for event in events if event.type == "tool_start"}
    uncommitted = [number for number in effects if f"c{number}" not in begun]
    before = sum(effects.values())
    full.set()
    ballast.unlink()
    result = await agent.resume(run.id)
    events = await agent.journal.events(run.id, limit=100_000)
    ended = Counter(event.payload["call_id"] for event in events if event.type == "tool_result")
    await agent.aclose()
    json.dump(
        dict(
            refusal=refusal, left=run.status, still=still, uncommitted=uncommitted, before=before,
            status=result.status, output=result.output,
            twice=[n for n, times in effects.items() if times > 1],
            without=[n for n in effects if ended[f"c{n}"] != 1],
            gaps=[e.seq for e in events] != list(range(1, len(events) + 1)),
        ),
        sys.stdout,
    )

anyio.run(main, Path(sys.argv[1]))
"""

SHARED = """
import json, os, sys, tempfile
from contextlib import suppress
from pathlib import Path
import anyio
from loom_core import KnowledgeBase
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.requests import DocumentsRequest

def add(knowledge_base, number):
    draft = DocumentDraft(uri=f"text:{number}", text=f"Town{number}.")
    return knowledge_base.submit(DocumentsRequest([draft]))

async def until(holds):
    with anyio.fail_after(120):
        while not await anyio.to_thread.run_sync(holds):
            await anyio.sleep(0.05)

async def main(disk):
    place = dict(embedder="hashing", database=os.environ["LOOM_DATABASE"])
    full = KnowledgeBase("towns", path=disk / "kb", **place)
    other = KnowledgeBase("towns", path=tempfile.mkdtemp(), **place)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(full.work)
        await until(lambda: full.store.is_led)
        tasks.start_soon(other.work)
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 12)):
                pass
        jobs = [add(full, 1)]
        await until(lambda: full.worker.problem)
        told = full.worker.problem
        jobs.append(add(full, 2))
        await until(lambda: other.store.is_led)
        await until(lambda: all(other.store.jobs.get(job).state == "done" for job in jobs))
        (disk / "ballast").unlink()
        await until(lambda: not any(full.index_lag().values()))
        tasks.cancel_scope.cancel()
    sound = [(await each.check()).sound for each in (full, other)]
    documents = sorted(row.uri for row in full.documents.list())
    json.dump(dict(told=told, documents=documents, sound=sound), sys.stdout)
    full.close()
    other.close()

anyio.run(main, Path(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def may_mount() -> None:
    if shutil.which("unshare") is None or subprocess.run([*MOUNTS, "true"], check=False).returncode:
        pytest.skip("needs user and mount namespaces")


def run_on_disk(disk: Path, mount: str, code: str) -> Any:
    """Mount a file system on a folder, run code there and return the JSON that it prints."""
    shell = f'{mount} && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [*MOUNTS, "sh", "-c", shell, "sh", str(disk), sys.executable, code],
        capture_output=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert not done.returncode, done.stderr.decode()
    return json.loads(done.stdout)


def test_when_the_disk_is_full_the_reason_is_told_and_all_goes_on_with_room(tmp_path: Path) -> None:
    told = run_on_disk(tmp_path, 'mount -t tmpfs -o size=96m none "$1"', FULL)
    assert told["acknowledged"]
    assert "StoreError" in told["refusal"]
    assert "full" in told["refusal"]
    assert "full" in told["told"]
    assert any("full" in note for note in told["notes"])
    assert told["found"] == told["acknowledged"]
    assert told["healthy"] == "text:1"


def test_another_machine_works_while_the_disk_of_one_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_postgres() as server:
        monkeypatch.setenv("LOOM_DATABASE", server.url())
        monkeypatch.setenv("LOOM_DATABASE_SECRET", PASSWORD)
        told = run_on_disk(tmp_path, 'mount -t tmpfs -o size=16m none "$1"', SHARED)
    assert "full" in told["told"]
    assert told["documents"] == ["text:1", "text:2"]
    assert told["sound"] == [True, True]


def test_an_agent_whose_disk_is_full_stops_and_goes_on_with_room(
    tmp_path: Path,
) -> None:
    told = run_on_disk(tmp_path, 'mount -t tmpfs -o size=16m none "$1"', AGENT)
    assert "full" in told["refusal"]
    assert "full" in told["still"]
    assert told["left"] == "working"
    assert told["before"] > 4
    assert told["uncommitted"] == [], "nothing is done that was not written down before"
    assert (told["status"], told["output"]) == ("completed", "done")
    assert told["twice"] == told["without"] == []
    assert not told["gaps"]


def test_a_folder_that_cannot_be_written_is_refused_with_advice(tmp_path: Path) -> None:
    told = run_on_disk(tmp_path, 'mount -t tmpfs -o size=4m,ro none "$1"', READ_ONLY)
    assert str(tmp_path) in told["refusal"]
    assert told["advice"]


COMMANDS = """
import json, os, subprocess, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads is not to be forked
from loom_kb.cli import run
from tests.fixtures.fork_server import import_all

import_all()
home, document = sys.argv[1] + "/home", sys.argv[1] + "/note.md"
subprocess.run(["mount", "--bind", home, home], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
told = {}
for command in (
    ["list"], ["query", "Visby"], ["stats"], ["check"], ["check", "--repair"], ["add", document],
    ["sync", sys.argv[1]], ["remove", "--all"], ["rebuild"], ["export", sys.argv[1] + "/out.zip"], ["doctor"],
    ["serve"],
):
    reads, writes = os.pipe()
    if (pid := os.fork()) == 0:  # as a program of its own would be, without importing all of it again
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writes, 1)
        os.dup2(writes, 2)
        os.close(reads)
        try:
            code = run([*command, "--home", home, "--embedder", "hashing"])
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        os._exit(code)
    os.close(writes)
    with open(reads) as said:
        text = said.read()
    told[" ".join(command[:2])[:14]] = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text]
json.dump(told, sys.stdout)
"""


def test_every_command_says_that_a_knowledge_base_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Visby\n\nVisby lies on Gotland.", encoding="utf-8")
    home = ["--home", str(tmp_path / "home"), "--embedder", "hashing"]
    subprocess.run(
        [sys.executable, "-m", "loom_kb", "add", str(tmp_path / "note.md"), *home],
        check=True,
        capture_output=True,
    )
    told = run_on_disk(tmp_path, "true", COMMANDS)
    for command, (code, text) in told.items():
        assert "Traceback" not in text, command
        if command != "serve":  # which has not opened any when its client goes
            assert "this user may not write to" in text, command
        assert code == (0 if command in {"list", "serve"} else 1), command
