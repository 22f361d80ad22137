"""What is told about a job: how far and how fast it is, what was left out and why, what is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.uris import shown
from loom_kb.models import JobInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.record import Job, JobItem, Record

__all__ = ["all_notes", "all_problems", "job_info", "problems_page"]

_MAX_PROBLEMS = 50
_MAX_NOTES = 10
_PAGE = 500


def job_info(knowledge_base: GraphRAGKnowledgeBase, job: Job, *, after: int = 0) -> JobInfo:
    """A job as the tools tell it. Blocks.

    Args:
        knowledge_base: where it is.
        job: the job.
        after: where to go on with its problems, see `problems_page`.
    """
    record = knowledge_base.record
    problems, following = problems_page(record, job, after=after)
    if after == 0 and (more := _count_problems(job) - len(problems)):
        problems.append(f"… and {more:,} more")
    if job.error:
        problems.insert(0, f"failed: {job.error}")
    notes = [note for _, note in record.progress.notes(job, limit=_MAX_NOTES)]
    if len(notes) == _MAX_NOTES and (more := record.progress.count_notes(job) - len(notes)):
        notes.append(f"… and {more:,} more")
    if not job.finished and knowledge_base.worker.problem:
        notes.insert(0, knowledge_base.worker.problem)
    spent = record.progress.spent(job)
    pace = None if job.finished else record.progress.pace(job)
    pending = [] if job.finished else record.jobs.pending(job, 1)
    return JobInfo(
        id=job.id,
        source=knowledge_base.name,
        state=job.state,
        total=job.total,
        processed=job.processed,
        counts=job.counts,
        passages=job.chunks,
        embedded=record.progress.embedded(job) if knowledge_base.embedder_id else None,
        document=shown(pending[0].uri) if pending else "",
        started_at=job.started_at,
        finished_at=job.finished_at,
        documents_per_second=None if pace is None else round(pace.documents, 2),
        passages_per_second=None if pace is None else round(pace.chunks, 2),
        seconds_left=None if pace is None or pace.seconds_left is None else round(pace.seconds_left, 1),
        tokens_read=None if spent is None else spent.input_tokens,
        tokens_written=None if spent is None else spent.output_tokens,
        cost=None if spent is None else spent.cost,
        problems=problems,
        notes=notes,
        next_cursor=str(following) if following else None,
    )


def problems_page(
    record: Record, job: Job, *, after: int = 0, limit: int = _MAX_PROBLEMS
) -> tuple[list[str], int]:
    """Some lines about documents that were left out of a job: first what failed, then what was skipped.

    Folders are full of what is rightly skipped; what failed must not be hidden behind it.

    Args:
        record: where the job is.
        job: the job.
        after: where to go on; 0 for the first page.
        limit: how many lines.

    Returns:
        The lines, and where to go on; 0 if that is all.
    """
    # Twice the ordinal, and one more for what failed.
    items: list[JobItem] = []
    if after == 0 or after % 2:
        start = after // 2 if after else -1
        items = record.jobs.report(job, ["failed"], limit=limit, after=start)
        after = 0
    if len(items) < limit:
        start = after // 2 - 1 if after else -1
        items += record.jobs.report(job, ["skipped"], limit=limit - len(items), after=start)
    following = 0
    if len(items) == limit:
        last = items[-1]
        following = 2 * last.ordinal + (1 if last.state == "failed" else 2)
    return [_problem(item) for item in items], following


def all_problems(record: Record, job: Job) -> Iterator[str]:
    """Every line about a document that was left out of a job."""
    after = 0
    while True:
        lines, after = problems_page(record, job, after=after, limit=_PAGE)
        yield from lines
        if not after:
            return


def all_notes(record: Record, job: Job) -> Iterator[str]:
    """Every note about a job."""
    after = 0
    while notes := record.progress.notes(job, limit=_PAGE, after=after):
        after = notes[-1][0]
        yield from (note for _, note in notes)


def _count_problems(job: Job) -> int:
    return job.counts.get("failed", 0) + job.counts.get("skipped", 0)


def _problem(item: JobItem) -> str:
    place = shown(item.uri)
    return f"{item.state}: " + (item.reason if place in item.reason else f"{place}: {item.reason}")
