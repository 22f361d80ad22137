"""Knowledge bases under measurement: filled through the real pipeline, and asked question by question."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.rag.requests import DocumentsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Question

    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.retrieval.config import SearchOptions, Strategy

__all__ = ["Run", "ask", "ask_one", "fill", "percentile"]

_DEPTH = 60  # passages asked for, so that there are ten documents among them
_WARM_UP = 5  # questions before the clock runs: what is loaded at the first question is loaded
_TELL_SECONDS = 15


@dataclass(slots=True)
class Run:
    """Answers to questions: the documents found for each, best first, and the times in milliseconds."""

    rankings: list[list[str]] = field(default_factory=list[list[str]])
    retrieve_ms: list[float] = field(default_factory=list[float])
    embed_ms: list[float] = field(default_factory=list[float])


async def fill(
    knowledge_base: GraphRAGKnowledgeBase, documents: Sequence[DocumentDraft], *, quiet: bool = False
) -> tuple[float, float]:
    """Add documents and wait until everything is done.

    Returns:
        Seconds until all could be found by words and links, and from then until all had vectors.
    """
    started = told = time.perf_counter()
    job = knowledge_base.submit(DocumentsRequest(documents))
    searchable = 0.0

    def progress() -> None:
        nonlocal searchable, told
        if not searchable and knowledge_base.job(job).finished:
            searchable = time.perf_counter()
        if not quiet and time.perf_counter() - told > _TELL_SECONDS:
            told = time.perf_counter()
            done, total = knowledge_base.coverage()
            print(f"{knowledge_base.name}: {done} of {total} passages embedded", file=sys.stderr)

    await knowledge_base.worker.drain(progress=progress)
    ended = time.perf_counter()
    failed = knowledge_base.store.jobs.report(knowledge_base.job(job), ["failed"])
    if failed:
        sys.exit(f"{len(failed)} documents failed, the first: {failed[0].uri}: {failed[0].reason}")
    return searchable - started, ended - searchable


async def ask(
    knowledge_base: GraphRAGKnowledgeBase,
    questions: Sequence[Question],
    *,
    strategy: Strategy | None = None,
    options: SearchOptions | None = None,
    limit: int = _DEPTH,
) -> Run:
    """Ask questions one after the other; a document counts at the place of its best passage."""
    for question in questions[:_WARM_UP]:
        await ask_one(knowledge_base, question, Run(), strategy=strategy, options=options, limit=limit)
    run = Run()
    for question in questions:
        await ask_one(knowledge_base, question, run, strategy=strategy, options=options, limit=limit)
    return run


async def ask_one(
    knowledge_base: GraphRAGKnowledgeBase,
    question: Question,
    run: Run,
    *,
    filters: dict[str, Any] | None = None,
    strategy: Strategy | None = None,
    options: SearchOptions | None = None,
    limit: int = _DEPTH,
) -> None:
    """Ask a question, and add the answer to a run."""
    answer = await knowledge_base.search(
        question.text, limit=limit, strategy=strategy, filters=filters, options=options
    )
    run.rankings.append(list(dict.fromkeys(item.source for item in answer.items)))
    run.retrieve_ms.append(answer.retrieve_ms)
    run.embed_ms.append(answer.embed_ms)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` of a hundred do not exceed."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
