"""Several processes have one knowledge base open: one works, all answer, and any of them may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.knowledge.store import KnowledgeStore
from loom_core.storage.ownership import holder_of, read_card
from tests.fixtures import processes
from tests.fixtures.fork_server import starts_quickly

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

PROGRAM = """
import json, sys
from pathlib import Path
import anyio
from anyio import to_thread
from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.owner.protocol import PeerSettings
from loom_core.knowledge.rag.requests import DocumentsRequest

HEAVY = {"numpy", "onnxruntime", "tantivy", "chromadb", "kuzu"}

async def main(folder, transport, silence):
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"),
        path=Path(folder),
        peers=PeerSettings(program="peer", transport=transport, silence=float(silence)),
    )

    async def carry_out(command, *args):
        if command == "ask":
            return [item.source for item in (await knowledge_base.search(*args, limit=3)).items]
        if command == "add":
            drafts = [DocumentDraft(uri=uri, text=text) for uri, text in args[0]]
            job = await to_thread.run_sync(knowledge_base.submit, DocumentsRequest(drafts))
            knowledge_base.worker.wake()
            return job
        if command == "job":
            return knowledge_base.job(args[0]).counts
        if command == "idle":  # nothing is left to be written
            rows = knowledge_base.store.database.rows("SELECT 1 FROM changes LIMIT 1")
            return not rows and not any(knowledge_base.index_lag().values())
        return sorted(HEAVY & sys.modules.keys())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        while line := await to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await carry_out(*json.loads(line))), flush=True)
        tasks.cancel_scope.cancel()
    knowledge_base.close()

anyio.run(main, *sys.argv[1:])
"""


class Peer:
    """A process that has the knowledge base open and works when it can."""

    def __init__(self, folder: Path, transport: str, silence: float, *, fresh: bool) -> None:
        program = PROGRAM if fresh else starts_quickly(f"{PROGRAM}# with all modules there already\n")
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), transport, str(silence)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, *command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self, *, within: float = 60.0) -> Any:
        try:
            return json.loads(self._lines.get(timeout=within))
        except Empty:
            raise AssertionError(f"no answer within {within} s") from None

    def do(self, *command: object, within: float = 60.0) -> Any:
        self.send(*command)
        return self.answer(within=within)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


Start = Callable[..., Peer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kb"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts processes on one folder; the first has become its owner when it is returned."""
    peers: list[Peer] = []

    def run(transport: str = "unix", *, silence: float = 1.0, fresh: bool = False) -> Peer:
        peers.append(Peer(folder, transport, silence, fresh=fresh))
        if len(peers) == 1:
            until(lambda: read_card(folder) is not None)
        peers[-1].do("modules")  # it is up
        return peers[-1]

    yield run
    for peer in peers:
        peer.end()


def until(condition: Callable[[], object], *, within: float = 60.0) -> float:
    """Waits for a condition; returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, "it has not come true in time"
        time.sleep(0.01)
    return time.monotonic() - began


def documents(first: int, count: int) -> list[tuple[str, str]]:
    return [
        (f"text:{n}", f"# Person{n}\n\nPerson{n} met Person{n * 7 % 50} in Town{n % 13}. 第{n}号人物在厦门。")
        for n in range(first, first + count)
    ]


def owner_of(folder: Path) -> int:
    card, holder = read_card(folder), holder_of(folder)
    return holder.pid if card is not None and holder is not None and card.pid == holder.pid else 0


@pytest.mark.slow
def test_a_killed_owner_is_replaced_and_every_job_of_every_process_is_done_once(folder: Path, start: Start):
    peers = [start() for _ in range(3)]
    added = peers[0].do("add", documents(0, 10))
    until(lambda: peers[0].do("job", added) == {"added": 10})
    until(lambda: peers[0].do("idle"))  # its index is there for a process that answers alone
    jobs = [peer.do("add", documents(1000 * n, 100)) for n, peer in enumerate(peers, start=1)]
    store = KnowledgeStore(folder / "record.db")
    gaps: list[float] = []
    for _ in range(2):
        so_far = store.documents.counts()[0]
        until(lambda so_far=so_far: store.documents.counts()[0] > so_far)
        owner = owner_of(folder)
        (victim,) = [peer for peer in peers if peer.pid == owner]
        peers.remove(victim)
        for peer in peers:
            peer.send("ask", "Whom did Person3 meet?")
        os.kill(owner, signal.SIGKILL)
        gaps.append(until(lambda: owner_of(folder) in {peer.pid for peer in peers}))
        for peer in peers:  # asked before it was killed, and now
            assert "text:3" in peer.answer()
            assert "text:3" in peer.do("ask", "Whom did Person3 meet?")
    (last,) = peers
    for job in jobs:
        until(lambda job=job: last.do("job", job) == {"added": 100})
    until(lambda: store.vectors.coverage() == (310, 310))
    assert store.documents.counts()[0] == 310
    uris = store.database.rows("SELECT uri FROM documents")
    assert sorted(row["uri"] for row in uris) == sorted(
        uri
        for first, count in ((0, 10), (1000, 100), (2000, 100), (3000, 100))
        for uri, _ in documents(first, count)
    )
    until(lambda: store.changes.head() == store.changes.state("words").watermark)
    assert "text:2099" in last.do("ask", "Person2099")
    store.close()
    assert max(gaps) < 2.0


@pytest.mark.slow
def test_a_stopped_owner_keeps_no_one_waiting(folder: Path, start: Start):
    owner, peer = start(), start()
    job = owner.do("add", documents(0, 5))
    until(lambda: peer.do("job", job) == {"added": 5})
    until(lambda: "text:3" in peer.do("ask", "Person3"))
    until(lambda: owner.do("idle"))  # a process that is stopped while it writes keeps others from writing
    os.kill(owner.pid, signal.SIGSTOP)
    processes.wait_until_stopped(owner.pid)
    try:
        assert "text:3" in peer.do("ask", "Person3", within=10)  # a second of silence, and then alone
        assert "numpy" in peer.do("modules")
        assert "text:4" in peer.do("ask", "Person4", within=5)  # the owner is not waited for again
        late = peer.do("add", documents(100, 1), within=10)
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    until(lambda: owner.do("job", late) == {"added": 1})
    assert owner_of(folder) == owner.pid


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_whom_the_owner_answers_loads_nothing_heavy(folder: Path, start: Start, transport: str):
    # A busy machine is no dead owner.
    owner, peer = start(transport, silence=30.0), start(transport, silence=30.0, fresh=True)
    job = peer.do("add", documents(0, 5))
    until(lambda: peer.do("job", job) == {"added": 5})
    until(lambda: owner.do("idle"))
    assert "text:3" in peer.do("ask", "Person3")
    assert "text:3" in peer.do("ask", "第3号人物")
    assert peer.do("modules") == []
    assert {"numpy", "tantivy"} <= set(owner.do("modules"))
    card = read_card(folder)
    assert card is not None
    assert (card.pid, card.program, card.transport) == (owner.pid, "peer", transport)


@pytest.mark.slow
def test_a_server_whose_host_goes_hands_over_to_the_next(
    tmp_path: Path, stdio_server: Callable[..., StdioServer]
):
    command = [sys.executable, "-m", "loom_kb", "--home", str(tmp_path), "--embedder", "hashing"]
    first = stdio_server(command, era="modern", timeout=60.0)
    added = first.call("add", text="# Zell\n\nAnna Berg was born in Zell.", uri="note:zell")
    assert added["structuredContent"]["job"]["counts"] == {"added": 1}
    second = stdio_server(command, era="modern", timeout=60.0)

    def held_by() -> str:
        answer = second.call("sources")
        (source,) = answer["structuredContent"]["sources"]
        assert f"held by {source['held_by']}" in answer["content"][0]["text"]
        return source["held_by"]

    def asked(server: StdioServer) -> list[str]:
        result = server.call("query", query="Who was born in Zell?")["structuredContent"]
        return [passage["uri"] for passage in result["passages"]]

    assert asked(second) == ["note:zell"]
    assert held_by() == f"loom-kb (process {first.process.pid})"
    # The command line asks the server, too, and loads neither model nor index.
    query = ["query", "--home", str(tmp_path), "--json", "Who was born in Zell?"]
    asking = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "loom_kb", *query],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert "note:zell" in asking.stdout
    imported = {line.rpartition("|")[2].strip() for line in asking.stderr.splitlines()}
    assert "loom_core.knowledge.rag.owner.client" in imported
    assert not imported & {"numpy", "onnxruntime", "tantivy", "chromadb", "kuzu"}
    folder = tmp_path / "kb" / "default"
    socket = read_card(folder)
    assert socket is not None
    assert first.close_input() == 0
    assert not Path(socket.place).exists()
    until(lambda: owner_of(folder) == second.process.pid)
    assert held_by() == f"this process ({second.process.pid})"
    assert asked(second) == ["note:zell"]
    again = second.call("add", text="厦门是海滨城市。", uri="note:xiamen")
    assert again["structuredContent"]["job"]["counts"] == {"added": 1}
    assert second.close_input() == 0
    assert holder_of(folder) is None
    assert not (folder / "owner.json").exists()
