"""How fast passages are embedded, and how soon another machine takes over, where several share a store.

    python benchmarks/nodes.py postgresql://…

Each machine is a process with a folder of its own. Its embedder makes a passage's vector in a fiftieth of a
second, without using the processor, as a model on another machine would. Markdown is printed: passages a
second with one, two and four machines; and, with three, the seconds from kill -9 of the one that works until
what was submitted right after it is found on another one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase, KnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind

_CHILD = "--node"  # how this program is called for one machine
_PASSAGES = 1500
_TEXT_SECONDS = 0.02
_LOOK_SECONDS = 0.02


class _SlowEmbedder(HashingEmbedder):
    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        await anyio.sleep(_TEXT_SECONDS * len(texts))
        return await super().embed(texts, kind=kind)


def main() -> None:
    if sys.argv[1:2] == [_CHILD]:
        anyio.run(_open(*sys.argv[2:]).work)
        return
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("database", metavar="URL")
    arguments.add_argument("--kills", type=int, default=10, metavar="N")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-nodes-") as scratch:
        anyio.run(measure, args.database, Path(scratch), args.kills)


def _open(database: str, name: str, folder: str) -> GraphRAGKnowledgeBase:
    return KnowledgeBase(name, embedder=_SlowEmbedder(), path=folder, database=database)


def _start(database: str, name: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, _CHILD, database, name, str(folder)])


async def measure(database: str, home: Path, kills: int) -> None:
    """Print both tables."""
    print("| machines | passages embedded a second |\n|---|---|")
    for count in (1, 2, 4):
        print(f"| {count} | {await _embedding_rate(database, home, count):.0f} |", flush=True)
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
