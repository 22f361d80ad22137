"""Work on a job in the foreground, with progress bars."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.server.cli.console import ProgressBar, out, out_json, say
from loom_kb.job_facts import info_of_parts
from loom_kb.models import AddResult
from loom_kb.texts import ASK_COMMAND, duration, job_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

__all__ = ["LEFT_OUT", "work_until_done", "work_until_idle"]

LEFT_OUT = 3
"""Exit code: done, but some documents are missing or failed."""


async def work_until_done(parts: Sequence[GraphRAGKnowledgeBase], job: str, *, kb: str, as_json: bool) -> int:
    """Work until a job is done and print its outcome; returns the exit code.

    Args:
        parts: where the job is; of a split knowledge base, its shards, which do their parts in turn.
        job: its id.
        kb: the name of the knowledge base, for the command that continues after an interruption.
        as_json: whether to print JSON.
    """
    began = time.monotonic()
    try:
        for part in parts:
            await work_until_idle(part, job)
    except anyio.get_cancelled_exc_class():
        say(f"\nStopped. What is done is kept; `loom-kb add --kb {kb}` goes on with {job}.")
        raise
    info = await to_thread.run_sync(lambda: info_of_parts([(part, part.job(job)) for part in parts]))
    if as_json:
        out_json(AddResult(job=info, documents=[]))
    else:
        out(job_text([info], ask=ASK_COMMAND))
        if info.embedded:
            out(f"All of it took {duration(time.monotonic() - began)}, vectors included.")
    if info.state == "failed":
        return 1
    return LEFT_OUT if info.counts.get("failed") else 0


async def work_until_idle(knowledge_base: GraphRAGKnowledgeBase, job: str = "") -> None:
    """Work until nothing is left to do, and show the progress: of a job first, where one is given."""
    reading, embedding = ProgressBar("reading  ", "documents"), ProgressBar("embedding", "passages")
    finished = not job

    def progress() -> None:
        nonlocal finished
        if not finished:
            state = knowledge_base.job(job)
            finished = state.finished
            reading.show(state.processed, state.total, final=finished)
        elif knowledge_base.strategy in {"hybrid", "vector_first", "graph_first"}:
            embedding.show(*knowledge_base.coverage())

    await knowledge_base.worker.drain(progress=progress)
    done, total = await to_thread.run_sync(knowledge_base.coverage)
    if done:
        embedding.show(done, total, final=True)
    if knowledge_base.worker.problem:
        say(knowledge_base.worker.problem)
    if problem := await to_thread.run_sync(knowledge_base.graph_problem):
        say(problem)
