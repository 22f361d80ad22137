"""How fast machines that share a store embed and answer, and how soon another one takes over.

    python benchmarks/nodes.py postgresql://… DATASET_DIR

Each machine is a process with a folder of its own. Its embedder makes a passage's vector in a fiftieth of a
second, without using the processor, as a model on another machine would. Markdown is printed: passages a
second with one, two and four machines; questions of the data set a second with as many, which ask all the
time; and, with three, the seconds from kill -9 of the one that works until what was submitted right after it
is found on another one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from bases import percentile
from datasets import read_dataset

from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase, KnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.server.serving.run import set_for_serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind

_WORK, _ASK = "--node", "--asking-node"  # how this program is called for one machine
_PASSAGES = 1500
_TEXT_SECONDS = 0.02
_LOOK_SECONDS = 0.02
_ASKING_SECONDS = 15


class _SlowEmbedder(HashingEmbedder):
    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        await anyio.sleep(_TEXT_SECONDS * len(texts))
        return await super().embed(texts, kind=kind)


def main() -> None:
    if sys.argv[1:2] == [_WORK]:
        anyio.run(_open(*sys.argv[2:]).work)
        return
    if sys.argv[1:2] == [_ASK]:
        anyio.run(_ask, sys.argv[2], Path(sys.argv[3]), sys.argv[4])
        return
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("database", metavar="URL")
    arguments.add_argument("dataset", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--kills", type=int, default=10, metavar="N")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-nodes-") as scratch:
        anyio.run(measure, args.database, args.dataset, Path(scratch), args.kills)


def _open(database: str, name: str, folder: str) -> GraphRAGKnowledgeBase:
    return KnowledgeBase(name, embedder=_SlowEmbedder(), path=folder, database=database)


def _start(database: str, name: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, _WORK, database, name, str(folder)])


async def measure(database: str, dataset: Path, home: Path, kills: int) -> None:
    """Print all tables."""
    print("| machines | passages embedded a second |\n|---|---|")
    for count in (1, 2, 4):
        print(f"| {count} | {await _embedding_rate(database, home, count):.0f} |", flush=True)
    print("\n| machines | questions a second | p50 ms | p95 ms |\n|---|---|---|---|")
    documents = [replace(one, uri=f"text:{n}") for n, one in enumerate(read_dataset(dataset).documents)]
    name, folder = "questions", home / "questions" / "filled"
    with closing(KnowledgeBase(name, embedder=HashingEmbedder(), path=folder, database=database)) as filled:
        filled.submit(DocumentsRequest(documents))
        await filled.worker.drain()
    for count in (1, 2, 4):
        times = _answer_times(database, dataset, home / name, count)
        rate = len(times) / _ASKING_SECONDS
        p50, p95 = percentile(times, 50), percentile(times, 95)
        print(f"| {count} | {rate:.0f} | {p50:.1f} | {p95:.1f} |", flush=True)
    seconds = await _take_overs(database, home, kills)
    print(
        f"\n{kills} kills: taken over and found after {statistics.median(seconds):.1f} s (median), ", end=""
    )
    print(f"{min(seconds):.1f} to {max(seconds):.1f} s")


async def _embedding_rate(database: str, home: Path, count: int) -> float:
    name, folder = f"embed{count}", home / f"embed{count}" / "asked"
    texts = [f"Loom number {n} was built in {1000 + n}." for n in range(_PASSAGES)]
    nodes: list[subprocess.Popen[bytes]] = []
    with closing(KnowledgeBase(name, embedder=HashingEmbedder(), path=folder, database=database)) as asked:
        await asked.add_texts(texts)
        asked.store.vectors.clear()
        try:
            nodes += [_start(database, name, home / name / f"{n}") for n in range(count)]
            while asked.coverage()[0] < _PASSAGES / 5:  # all have begun  # noqa: ASYNC110
                await anyio.sleep(_LOOK_SECONDS)
            began, first = time.perf_counter(), asked.coverage()[0]
            while asked.coverage()[0] < _PASSAGES:  # noqa: ASYNC110
                await anyio.sleep(_LOOK_SECONDS)
            return (_PASSAGES - first) / (time.perf_counter() - began)
        finally:
            _kill_all(nodes)


def _answer_times(database: str, dataset: Path, home: Path, count: int) -> list[float]:
    """Return the milliseconds of each question that so many machines answered in the time."""
    command = [sys.executable, __file__, _ASK, database, str(dataset)]
    nodes = [
        subprocess.Popen([*command, str(home / f"{n}")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(count)
    ]
    for node in nodes:
        assert node.stdout is not None
        node.stdout.readline()  # its indexes are built
    for node in nodes:
        assert node.stdin is not None
        node.stdin.write(b"go\n")
        node.stdin.flush()
    return [float(line) for node in nodes for line in node.communicate()[0].split()]


async def _ask(database: str, dataset: Path, folder: str) -> None:
    """Be a machine that asks one question after the other, once it is told to."""
    set_for_serving()
    questions = [question.text for question in read_dataset(dataset).questions]
    base = KnowledgeBase("questions", embedder=HashingEmbedder(), path=folder, database=database)
    with closing(base):
        await base.worker.drain()
        await base.search(questions[0], limit=10)
        print("ready", flush=True)
        sys.stdin.readline()
        until, times = time.perf_counter() + _ASKING_SECONDS, list[float]()
        for question in cycle(questions):
            began = time.perf_counter()
            if began > until:
                break
            await base.search(question, limit=10)
            times.append(1000 * (time.perf_counter() - began))
    print(*times, sep="\n")


async def _take_overs(database: str, home: Path, kills: int) -> list[float]:
    name = "takeover"
    asked = KnowledgeBase(name, embedder=_SlowEmbedder(), path=home / name / "asked", database=database)
    nodes = {n: _start(database, name, home / name / f"{n}") for n in range(3)}
    seconds: list[float] = []
    try:
        for kill in range(kills):
            leader = await _find_leader(asked, nodes)
            nodes[leader].kill()
            nodes[leader].wait()
            began = time.perf_counter()
            uri = f"text:{kill}"
            asked.submit(DocumentsRequest([DocumentDraft(uri=uri, text=f"Kill number {kill} was survived.")]))
            while asked.documents.get(uri) is None:  # noqa: ASYNC110 - other machines write it
                await anyio.sleep(_LOOK_SECONDS)
            seconds.append(time.perf_counter() - began)
            nodes[leader] = _start(database, name, home / name / f"{leader}")
    finally:
        _kill_all(nodes.values())
        asked.close()
    return seconds


def _kill_all(nodes: Iterable[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        node.kill()
        node.wait()


async def _find_leader(asked: GraphRAGKnowledgeBase, nodes: dict[int, subprocess.Popen[bytes]]) -> int:
    while True:
        title = asked.worker.find_leader()
        for number, node in nodes.items():
            if title.startswith(f"pid {node.pid} "):
                return number
        await anyio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main()
