"""Facts about a job: progress, throughput, failures, skipped files by type and reason, duplicates."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.loaders.generated import GENERATED
from loom_core.knowledge.uris import display_uri
from loom_kb.models import JobInfo, SkippedInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import Job, JobItem, JobReader

__all__ = [
    "PartOfJob",
    "all_notes",
    "all_problems",
    "info_of_parts",
    "job_info",
    "list_jobs",
    "problems_page",
]

PartOfJob = tuple["GraphRAGKnowledgeBase", "Job"]
"""A job, or its part in one shard, with the knowledge base that has it."""


_ADDED = (
    "total",
    "processed",
    "passages",
    "embedded",
    "documents_per_second",
    "passages_per_second",
    "seconds_left",  # rather too much: shards are filled at the same time, or one after the other
    "tokens_read",
    "tokens_written",
    "cost",
)
_MAX_FAILURES = 10  # in the overview; the others follow with a cursor
_MAX_NOTES = 5
_MAX_REASONS = 6
_MAX_TYPES = 8
_MAX_COUNTED = 10_000  # skipped documents that are counted by type: some folders have millions
_PAGE = 50
_LONG_PAGE = 500
_FROM_START = 1  # cursor before the first problem
_TYPE = re.compile(r"\.\w{1,10}$")


def job_info(
    knowledge_base: GraphRAGKnowledgeBase,
    job: Job,
    *,
    after: int = 0,
    failures: int = _MAX_FAILURES,
    notes: int = _MAX_NOTES,
) -> JobInfo:
    """Collect the facts about a job, a bounded number of them. Blocks.

    Args:
        knowledge_base: the knowledge base of the job.
        job: the job.
        after: cursor of its problems, see `problems_page`; 0 for an overview of them.
        failures: maximum number of failed documents in the overview.
        notes: maximum number of notes in the overview.
    """
    jobs = knowledge_base.jobs
    if after:
        problems, following = problems_page(jobs, job, after=after)
        skipped: list[SkippedInfo] = []
        noted: list[str] = []
    else:
        problems, following = _failures(jobs, job, limit=failures)
        skipped = _count_skipped(jobs, job)
        noted = [note for _, note in jobs.notes(job, limit=notes)] if notes else []
        if len(noted) == notes > 0 and (more := jobs.count_notes(job) - notes):
            noted.append(f"… and {more:,} more")
    if job.error:
        problems.insert(0, f"failed: {job.error}")
    if not job.finished and knowledge_base.worker.problem:
        noted.insert(0, knowledge_base.worker.problem)
    if not job.finished and job.host not in {"", knowledge_base.host}:
        noted.insert(0, f"it is done by a process on {job.host}, which has the files")
    spent = jobs.llm_usage(job)
    pace = None if job.finished else jobs.throughput(job)
    pending = [] if job.finished else jobs.pending(job, 1)
    return JobInfo(
        id=job.id,
        source=knowledge_base.name,
        kind=job.kind,
        state=job.state,
        total=job.total,
        processed=job.processed,
        counts=job.counts,
        passages=job.chunks,
        embedded=jobs.count_embedded(job) if knowledge_base.embedder_id else None,
        document=display_uri(pending[0].uri) if pending else "",
        started_at=job.started_at,
        finished_at=job.finished_at,
        documents_per_second=None if pace is None else round(pace.documents, 2),
        passages_per_second=None if pace is None else round(pace.chunks, 2),
        seconds_left=None if pace is None or pace.seconds_left is None else round(pace.seconds_left, 1),
        tokens_read=None if spent is None else spent.input_tokens,
        tokens_written=None if spent is None else spent.output_tokens,
        cost=None if spent is None else spent.cost,
        skipped=skipped,
        problems=problems,
        notes=noted,
        next_cursor=str(following) if following else None,
    )


def info_of_parts(parts: Sequence[PartOfJob], *, after: int = 0, **limits: int) -> JobInfo:
    """Collect the facts about a job that every shard of a knowledge base does a part of. Blocks.

    Args:
        parts: one for each shard, or one alone; not empty.
        after: cursor of its problems: that of a part, times the number of parts, and the part's place.
        limits: as for `job_info`.
    """
    count = len(parts)
    inner, first = divmod(after, count)
    if after:
        info, following = job_info(*parts[first], after=inner), 0
        following = int(info.next_cursor or 0) * count + first if info.next_cursor else 0
        if not following and first + 1 < count:
            following = _FROM_START * count + first + 1
        return info.model_copy(update={"next_cursor": str(following) if following else None})
    infos = [job_info(*part, **limits) for part in parts]
    if count == 1:
        return infos[0]
    counts: Counter[str] = Counter()
    for info in infos:
        counts.update(info.counts)
    open_ones = [info for info in infos if info.finished_at is None]
    failed = [info for info in infos if info.state == "failed"]
    cursors = [n for n, info in enumerate(infos) if info.next_cursor]
    shard = parts[0][0].shard
    return infos[0].model_copy(
        update={
            "source": shard.of if shard is not None else infos[0].source,
            "state": (open_ones or failed or infos)[0].state,
            "finished_at": None if open_ones else max(info.finished_at or 0.0 for info in infos),
            "counts": dict(counts),
            "document": next((info.document for info in infos if info.document), ""),
            "skipped": _add_skipped(infos),
            "problems": list(dict.fromkeys(each for info in infos for each in info.problems)),
            "notes": list(dict.fromkeys(each for info in infos for each in info.notes)),
            "next_cursor": str(int(infos[cursors[0]].next_cursor or 0) * count + cursors[0])
            if cursors
            else None,
            **{name: _add(getattr(info, name) for info in infos) for name in _ADDED},
        }
    )


def _add_skipped(infos: Sequence[JobInfo]) -> list[SkippedInfo]:
    by_reason: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for each in (each for info in infos for each in info.skipped):
        by_reason.setdefault(each.reason, Counter()).update(each.types)
        total[each.reason] += each.count
    return [SkippedInfo(reason=r, count=total[r], types=dict(by_reason[r])) for r, _ in total.most_common()]


def _add(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def list_jobs(jobs: Sequence[Sequence[PartOfJob]]) -> list[JobInfo]:
    """Collect the facts about jobs for a list: together they name few failures, each only once. Blocks."""
    listed: list[JobInfo] = []
    named: set[str] = set()
    for parts in jobs:
        info = info_of_parts(parts, failures=max(_MAX_FAILURES - len(named), 0), notes=0)
        problems = [problem for problem in info.problems if problem not in named]
        named.update(problems)
        listed.append(info.model_copy(update={"problems": problems, "next_cursor": None}))
    return listed


def _failures(jobs: JobReader, job: Job, *, limit: int) -> tuple[list[str], int]:
    """Return the first failed documents of a job, and the cursor of all other problems; 0 if none."""
    failed, skipped = job.counts.get("failed", 0), job.counts.get("skipped", 0)
    items = jobs.report(job, ["failed"], limit=limit) if failed and limit else []
    following = _cursor(items[-1]) if items else _FROM_START
    return [_problem(item) for item in items], following if failed > len(items) or skipped else 0


def _count_skipped(jobs: JobReader, job: Job) -> list[SkippedInfo]:
    """Count the skipped documents of a job by reason and type, the most frequent first."""
    if not job.counts.get("skipped"):
        return []
    by_reason: dict[str, Counter[str]] = {}
    for uri, reason in jobs.list_skipped(job, limit=_MAX_COUNTED):
        extension = _TYPE.search(uri)
        types = by_reason.setdefault(reason, Counter())
        without = "folder" if reason == GENERATED else "no extension"  # every generated file has one
        types[extension[0].lower() if extension else without] += 1
    groups = [
        SkippedInfo(reason=reason, count=types.total(), types=dict(types.most_common(_MAX_TYPES)))
        for reason, types in by_reason.items()
    ]
    groups = sorted(groups, key=lambda group: -group.count)[:_MAX_REASONS]
    rest = job.counts["skipped"] - sum(group.count for group in groups)
    return [*groups, SkippedInfo(count=rest)] if rest > 0 else groups


def problems_page(jobs: JobReader, job: Job, *, after: int = 0, limit: int = _PAGE) -> tuple[list[str], int]:
    """Return a page of the documents that a job left out: first the failed ones, then the skipped ones.

    Folders hold many files that are rightly skipped; these must not hide the failed ones.

    Args:
        jobs: where the job is.
        job: the job.
        after: cursor; 0 for the first page.
        limit: how many lines.

    Returns:
        The lines, and the next cursor; 0 if that is all.
    """
    items: list[JobItem] = []
    if after == 0 or after % 2:
        start = (after - 3) // 2 if after else -1
        items = jobs.report(job, ["failed"], limit=limit, after=start)
        after = 0
    if len(items) < limit:
        start = after // 2 - 1 if after else -1
        items += jobs.report(job, ["skipped"], limit=limit - len(items), after=start)
    return [_problem(item) for item in items], _cursor(items[-1]) if len(items) == limit else 0


def all_problems(jobs: JobReader, job: Job) -> Iterator[str]:
    """Yield a line for every document that was left out of a job."""
    after = 0
    while True:
        lines, after = problems_page(jobs, job, after=after, limit=_LONG_PAGE)
        yield from lines
        if not after:
            return


def all_notes(jobs: JobReader, job: Job) -> Iterator[str]:
    """Yield every note about a job."""
    after = 0
    while notes := jobs.notes(job, limit=_LONG_PAGE, after=after):
        after = notes[-1][0]
        yield from (note for _, note in notes)


def _cursor(item: JobItem) -> int:
    """Return the cursor after a problem: odd after a failed document, even after a skipped one."""
    return 2 * item.ordinal + (3 if item.state == "failed" else 2)


def _problem(item: JobItem) -> str:
    place = display_uri(item.uri)
    # The advice is given once for all skipped documents of a reason.
    reason = item.reason.partition(". ")[0] if item.state == "skipped" else item.reason
    return f"{item.state}: " + (reason if place in reason else f"{place}: {reason}")
