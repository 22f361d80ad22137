"""One size of `latency.py`: a knowledge base filled, or opened and asked, in a process of its own."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import anyio
from datasets import merged, read_dataset
from synthetic import corpus_of

from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.server.serving.run import set_for_serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.retrieval.config import Strategy

__all__ = ["Measured", "Task", "carry_out"]

_LIMIT = 10  # passages asked for
_ENOUGH = 0.99  # of a size; above a size retrieval may take another way
_JOB = 50_000  # documents of a job, so that a million of them are not in memory at once
_WARM_UP = 5  # questions before the clock runs: what is loaded at the first question is loaded
_TAG, _EACH = {"portion": "fiftieth"}, 50
_INGESTED = 20_000  # documents that are waiting while questions are asked


@dataclass(frozen=True, slots=True)
class Task:
    """Task of one process: fill a knowledge base, or query it.

    Attributes:
        kind: which.
        folder: of the knowledge base.
        database: the address of its store, or empty.
        size: chunks that it shall have.
        datasets: folders of the data sets.
        embedder: name of the embedder.
        questions: what is asked.
        strategies: how.
        filtered: whether it is also asked with a filter.
        ingesting: whether a copy is also asked while documents are added.
    """

    kind: Literal["fill", "ask"]
    folder: str
    database: str
    size: int
    datasets: list[str]
    embedder: str
    questions: list[str]
    strategies: list[Strategy]
    filtered: bool
    ingesting: bool

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task that `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """The task as an argument of a command."""
        return json.dumps(asdict(self))

    def to_ask(self) -> Task:
        """The same, to ask what was filled."""
        return replace(self, kind="ask")


class Measured(TypedDict):
    """Time and memory of a task.

    `seconds` is the time of filling, or from the beginning of opening to the first answer; `ms` has the times
    of questions by circumstance (`plain`, `filtered`, `ingesting`) and strategy; memory is that of the
    process when the plain questions had been asked.
    """

    seconds: float
    chunks: int
    entities: int
    mentions: int
    rss_mib: float
    anonymous_mib: float
    ms: dict[str, dict[str, list[float]]]


def carry_out(task: Task) -> Measured:
    """Do what a task says."""
    set_for_serving()
    return anyio.run(_fill if task.kind == "fill" else _ask, task)


async def _fill(task: Task) -> Measured:
    knowledge_base = _opened(task, Path(task.folder))
    try:
        seconds = await _grow(knowledge_base, task.size, _documents(task))
        return _measured(knowledge_base, seconds=seconds)
    finally:
        knowledge_base.close()


async def _grow(
    knowledge_base: GraphRAGKnowledgeBase, size: int, documents: Iterator[DocumentDraft]
) -> float:
    """Add documents until there are about `size` chunks, never more.

    Returns:
        Seconds, until every index was up to date; 0 if there was nothing to add.
    """
    added, seconds = 0, 0.0
    while (chunks := knowledge_base.coverage()[1]) < _ENOUGH * size:
        each = max(chunks / added, 1.0) if added else 2.0  # chunks of a document
        wanted = max(1, int(0.8 * (size - chunks) / each))
        started = time.perf_counter()
        jobs = [
            knowledge_base.submit(DocumentsRequest(list(islice(documents, min(_JOB, wanted - done)))))
            for done in range(0, wanted, _JOB)
        ]
        await knowledge_base.worker.drain()
        seconds += time.perf_counter() - started
        added += wanted
        failed = [item for job in jobs for item in _failures(knowledge_base, job)]
        if failed:
            sys.exit(f"{len(failed)} documents failed, the first: {failed[0]}")
    return seconds


def _failures(knowledge_base: GraphRAGKnowledgeBase, job: str) -> list[str]:
    report = knowledge_base.store.jobs.report(knowledge_base.job(job), ["failed"])
    return [f"{item.uri}: {item.reason}" for item in report]


async def _ask(task: Task) -> Measured:
    started = time.perf_counter()
    knowledge_base = _opened(task, Path(task.folder))
    try:
        await knowledge_base.search(task.questions[0], limit=_LIMIT)
        seconds = time.perf_counter() - started
        plain = await _times(knowledge_base, task)
        measured = _measured(knowledge_base, seconds=seconds)
        measured["ms"]["plain"] = plain
        if task.filtered:
            measured["ms"]["filtered"] = await _times(knowledge_base, task, filters=_TAG)
    finally:
        knowledge_base.close()
    if task.ingesting:
        measured["ms"]["ingesting"] = await _while_ingesting(task)
    return measured


async def _while_ingesting(task: Task) -> dict[str, list[float]]:
    """Ask a copy while this process adds more documents to it than it can in that time."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="loom-latency-", dir=Path(task.folder).parent) as scratch:
        folder = Path(scratch) / "copy"
        shutil.copytree(task.folder, folder)
        knowledge_base = _opened(task, folder)
        try:
            more = islice(_documents(task), _INGESTED)
            job = knowledge_base.submit(
                DocumentsRequest([replace(one, uri=f"{one.uri}/more") for one in more])
            )
            async with anyio.create_task_group() as group:
                group.start_soon(knowledge_base.work)
                times = await _times(knowledge_base, task)
                if knowledge_base.job(job).finished:
                    print(f"{task.folder}: the ingest ended before the questions", file=sys.stderr)
                group.cancel_scope.cancel()
        finally:
            knowledge_base.close()
    return times


async def _times(
    knowledge_base: GraphRAGKnowledgeBase, task: Task, *, filters: dict[str, Any] | None = None
) -> dict[str, list[float]]:
    """Milliseconds of each question without its embedding, by strategy."""
    times: dict[str, list[float]] = {}
    for strategy in task.strategies:
        values: list[float] = []
        for question in [*task.questions[:_WARM_UP], *task.questions]:
            answer = await knowledge_base.search(question, limit=_LIMIT, strategy=strategy, filters=filters)
            values.append(answer.retrieve_ms)
        times[strategy] = values[min(_WARM_UP, len(task.questions)) :]
    return times


def _opened(task: Task, folder: Path) -> GraphRAGKnowledgeBase:
    return GraphRAGKnowledgeBase(f"{task.size}", embedder=task.embedder, path=folder, database=task.database)


def _documents(task: Task) -> Iterator[DocumentDraft]:
    """Passages of the data sets and then variants of them without end, every fiftieth with the tag."""
    sets = merged([read_dataset(Path(folder)) for folder in task.datasets])
    originals: Sequence[DocumentDraft] = [document for dataset in sets for document in dataset.documents]
    for number, document in enumerate(corpus_of(originals)):
        tagged = {**document.metadata, **_TAG}
        yield document if number % _EACH else replace(document, metadata=tagged)


def _measured(knowledge_base: GraphRAGKnowledgeBase, *, seconds: float) -> Measured:
    resident, anonymous = _memory()
    counted = "SELECT (SELECT COUNT(*) FROM entities), (SELECT COUNT(*) FROM mentions)"
    ((entities, mentions),) = knowledge_base.store.database.rows(counted)
    return Measured(
        seconds=seconds,
        chunks=knowledge_base.coverage()[1],
        entities=entities,
        mentions=mentions,
        rss_mib=resident,
        anonymous_mib=anonymous,
        ms={"plain": {}, "filtered": {}, "ingesting": {}},
    )


def _memory() -> tuple[float, float]:
    """MiB that are resident, and those of them that are no pages of files; the most there were, elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return most, most
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="ascii").splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["RssAnon"].split()[0]) / 1024
