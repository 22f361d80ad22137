"""How many chunks a second become searchable, from an empty knowledge base to a large one.

    python benchmarks/ingest.py --chunks 5000 20000 100000 DATASET_DIR DATASET_DIR …

Documents (the passages of the data sets, and beyond those variants of them, `synthetic.py`) are given to a
knowledge base in a folder, 50,000 in a job, and its worker runs as it does in a server. Searchable means
that every chunk is found by words and through the graph: it is in the index of words, and every name of
the base is linked wherever it stands. What comes after that and no one waits for (comparing texts for
duplicates, Kùzu for the `graph` tool) is timed apart. There is no embedder: `embedding.py` measures that.

Markdown is printed: for every size the chunks a second of the stretch up to it and CPU time for a chunk, in
this process and in the children that prepare documents, and how long its chunks are and how many names they
hold, as time goes with these.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from datasets import merged, read_dataset
from synthetic import corpus_of

from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.server.serving.run import set_for_serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.model import DocumentDraft

_JOB = 50_000  # documents of a job
_CHUNKS = 1.1  # of a document, about
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Moment:
    """Progress of a knowledge base so far.

    Attributes:
        chunks: in it.
        seconds: since the beginning.
        here: CPU seconds of this process.
        children: CPU seconds of its children that have ended.
    """

    chunks: int
    seconds: float
    here: float
    children: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="+", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--chunks", nargs="+", type=int, default=[5_000, 20_000], metavar="N")
    arguments.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="of the knowledge base; one that is there grows"
    )
    arguments.add_argument("--database", default="", metavar="URL", help="keep the store in PostgreSQL")
    args = arguments.parse_args()
    sets = merged([read_dataset(folder) for folder in args.datasets])
    documents = corpus_of([document for dataset in sets for document in dataset.documents])
    with tempfile.TemporaryDirectory(prefix="loom-ingest-") as scratch:
        folder = args.keep or Path(scratch) / "kb"
        anyio.run(measure, folder, args.database, sorted(args.chunks), documents)


async def measure(folder: Path, database: str, sizes: list[int], documents: Iterator[DocumentDraft]) -> None:
    """Fill a knowledge base up to each size, and print what it took."""
    set_for_serving()
    print("| chunks | letters each | names each | chunks/s | ms CPU a chunk here | in children | s after |")
    print("|---" * 7 + "|", flush=True)
    there = 0
    for size in sizes:
        knowledge_base = GraphRAGKnowledgeBase.from_config(name="ingest", path=folder, database=database)
        if not there:  # what is kept of an earlier run is gone on with
            there = knowledge_base.store.documents.counts()[0]
            next(islice(documents, there, there), None)
        stretch = list(islice(documents, int((size - knowledge_base.coverage()[1]) / _CHUNKS)))
        began = _now(knowledge_base)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(knowledge_base.work)
            for start in range(0, len(stretch), _JOB):
                await _add(knowledge_base, stretch[start : start + _JOB])
            searchable = _now(knowledge_base)
            await knowledge_base.worker.drain()
            late = time.perf_counter() - searchable.seconds
            tasks.cancel_scope.cancel()
        characters, names = _content(knowledge_base, after=began.chunks)
        knowledge_base.close()  # which ends the children, so that their time counts
        chunks = searchable.chunks - began.chunks
        rate = chunks / (searchable.seconds - began.seconds)
        here = 1000 * (searchable.here - began.here) / chunks
        children = 1000 * (_children() - began.children) / chunks
        print(f"| {searchable.chunks:,} | {characters:.0f} | {names:.1f} | {rate:,.0f} ", end="")
        print(f"| {here:.2f} | {children:.2f} | {late:.1f} |", flush=True)


async def _add(knowledge_base: GraphRAGKnowledgeBase, documents: list[DocumentDraft]) -> None:
    """Add documents and wait until they are searchable."""
    job = await anyio.to_thread.run_sync(knowledge_base.submit, DocumentsRequest(documents))
    while not await anyio.to_thread.run_sync(_is_searchable, knowledge_base, job):  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)


def _is_searchable(knowledge_base: GraphRAGKnowledgeBase, job: str) -> bool:
    state = knowledge_base.job(job)
    if state.processed < state.total or state.state in {"queued", "listing"}:
        return False
    graph, documents = knowledge_base.store.graph, knowledge_base.store.documents
    is_linked = graph.link_watermark() == documents.last_chunk() and not graph.new_names(limit=1)
    return is_linked and not knowledge_base.index_lag()["words"]


def _content(knowledge_base: GraphRAGKnowledgeBase, *, after: int) -> tuple[float, float]:
    """Characters and mentions of a chunk, on average over those after one."""
    rows = knowledge_base.store.database.rows(
        "SELECT AVG(LENGTH(text)), "
        "(SELECT COUNT(*) FROM mentions WHERE chunk > ?) * 1.0 / COUNT(*) FROM chunks WHERE key > ?",
        (after, after),
    )
    return rows[0][0], rows[0][1]


def _now(knowledge_base: GraphRAGKnowledgeBase) -> Moment:
    chunks = knowledge_base.coverage()[1]
    return Moment(chunks, time.perf_counter(), time.process_time(), _children())


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
