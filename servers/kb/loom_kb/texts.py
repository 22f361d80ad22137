"""Texts of the tools' results, for a model, and lines for a person at a terminal."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from loom_core.knowledge.overview.overview import topic_lines
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.knowledge.uris import readable
from loom_core.server.protocol.results import TextBudget
from loom_core.server.search.citations import passages_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.overview.overview import KnowledgeOverview
    from loom_core.storage.ownership import Holder
    from loom_kb.models import (
        DocumentInfo,
        GraphResult,
        JobInfo,
        Passage,
        QueryResult,
        SkippedInfo,
        SourceDetails,
    )

__all__ = [
    "ASK_COMMAND",
    "UNFORESEEN_QUESTION",
    "confirmation_question",
    "confirmation_text",
    "coverage_line",
    "describe_holder",
    "document_line",
    "extraction_of",
    "graph_text",
    "job_text",
    "overview_text",
    "query_text",
    "removal_question",
    "source_line",
]


def coverage_line(embedded: int, total: int) -> str:
    """Return a note while vectors are still being made; empty once all are there."""
    if embedded >= total:
        return ""
    return (
        f"({embedded:,} of {total:,} passages have vectors so far; "
        "the others were searched by words and links only.)"
    )


def query_text(result: QueryResult, *, detailed: bool, max_tokens: int) -> tuple[str, int]:
    """Format the result of `query`.

    Args:
        result: the result.
        detailed: with scores and the path of evidence.
        max_tokens: limit of the text.

    Returns:
        The text, and how many passages are in it.
    """
    notes = [coverage_line(result.embedded, result.total), *(f"(Note: {note})" for note in result.notes)]
    told = partial(_passage_lines, detailed=detailed)
    return passages_text(
        result.passages, told, match=result.match, notes=[*filter(None, notes)], tokens=max_tokens
    )


def _passage_lines(passage: Passage, *, detailed: bool) -> list[str]:
    lines: list[str] = []
    if detailed:
        scores = ", ".join(f"{name} {value:.3g}" for name, value in passage.scores.items())
        lines.append(f"source {passage.source}; relevance {passage.relevance:.2f}; {scores}")
    if detailed or _was_led_to(passage):
        lines.append("why: " + "; ".join(passage.why))
    return lines


def _was_led_to(passage: Passage) -> bool:
    """Whether something other than the question's own words led to it."""
    return any("“" in reason for reason in passage.why)


def document_line(document: DocumentInfo) -> str:
    """Format a document in a list."""
    title = escape_controls(document.title or "untitled")
    size = f"{document.length:,} characters, {document.language}"
    return f"- {title} ({readable(document.uri)}), {size}, id={document.id}"


def source_line(source: SourceDetails) -> str:
    """Format a knowledge base in a list."""
    line = (
        f"- {source.name}: {source.description or 'no description'}; {source.documents:,} documents, "
        f"{source.passages:,} passages; filters: {', '.join(source.filters)}"
    )
    if source.extraction != extraction_of(""):
        line += f"; entities by {source.extraction}"
    return f"{line}; held by {source.held_by}" if source.held_by else line


def overview_text(source: str, overview: KnowledgeOverview) -> str:
    """Format an overview of a knowledge base."""
    if not overview.topics:
        return (
            f"{source}: {overview.documents:,} documents, {overview.passages:,} passages. "
            "There is too little text for topics yet."
        )
    head = f"{source}: {overview.passages:,} passages of {overview.documents:,} documents. Topics:"
    return "\n".join([head, *map(escape_controls, topic_lines(overview, detailed=True))])


def extraction_of(model: str) -> str:
    """Describe the extraction of a knowledge base by its language model, which may be empty."""
    return f"{model} and rules" if model else "rules"


UNFORESEEN_QUESTION = (
    "A language model is to read web pages, however much it is: that is known only once they are fetched. "
    "Add them?"
)
"""Asked of the user if it is not known yet how much a language model would have to read."""


def confirmation_question(estimate: ExtractionEstimate) -> str:
    """Return the question to the user if a language model would have to read a large amount."""
    return f"A language model is to read {estimate}. Add it?"


def removal_question(count: int, source: str | None) -> str:
    """Return the question to the user if many documents would be removed at once."""
    place = f"the knowledge base {escape_controls(source)}" if source else "all knowledge bases"
    return f"Remove {count:,} documents from {place}? It cannot be undone; the files are not touched."


def confirmation_text(estimate: ExtractionEstimate) -> str:
    """Return the reply of `add` if a language model would have to read a large amount."""
    return (
        f"Nothing was added yet: a language model would have to read {estimate}. Ask the user. If they "
        "agree, call `add` again with the same arguments and confirm: true."
    )


def describe_holder(holder: Holder | None) -> str:
    """Describe the worker process of a knowledge base; empty if there is none."""
    if holder is None:
        return ""
    return f"this process ({holder.pid})" if holder.pid == os.getpid() else str(holder)


ASK_COMMAND = "loom-kb jobs {id}"
"""Command that shows all problems of a job."""

_ASK_TOOL = 'job(id="{id}"{cursor})'


def job_text(jobs: Sequence[JobInfo], *, ask: str = _ASK_TOOL, page: bool = False) -> str:
    """Format jobs: a line each, with what failed and counts of what was skipped.

    Args:
        jobs: the jobs.
        ask: call or command that shows more about one; empty if all of it follows.
        page: whether a cursor was given, so that the problems are further ones.
    """
    if not jobs:
        return "There are no jobs."
    budget = TextBudget(narrow="an id")
    for job in jobs:
        lines = [_job_line(job), *map(_format_skipped, job.skipped), *job.problems]
        lines += [f"note: {note}" for note in job.notes]
        if ask and (more := _count_unnamed(job, page=page)):
            cursor = f', cursor="{job.next_cursor}"' if job.next_cursor else ""
            lines.append(f"[{more}: {ask.format(id=job.id, cursor=cursor)}]")
        budget.add("\n  ".join(lines))
    return budget.text()


def _format_skipped(skipped: SkippedInfo) -> str:
    """Format the files skipped for a reason: `skipped 167 × .png, 2 × .gif: unsupported type. …`."""
    parts = [f"{count:,} × {escape_controls(name)}" for name, count in skipped.types.items()]
    if rest := skipped.count - sum(skipped.types.values()):
        parts.append(f"{rest:,} × other types" if parts else f"{rest:,} more")
    return f"skipped {', '.join(parts)}" + (f": {skipped.reason}" if skipped.reason else "")


def _count_unnamed(job: JobInfo, *, page: bool) -> str:
    """Describe the problems of a job that its list does not name; empty if it names all."""
    if page:
        return "more" if job.next_cursor else ""
    whole = job.state == "failed"  # the first line says why the job itself failed
    named = sum(problem.startswith("failed: ") for problem in job.problems) - whole
    if (failed := job.counts.get("failed", 0) - max(named, 0)) > 0:
        return f"{failed:,} more failed" if named > 0 else f"{failed:,} failed"
    return "each skipped file" if job.next_cursor else ""


def _job_line(job: JobInfo) -> str:
    """Format a job: `job-1a2b3c4d in notes: running, 12 of 40 documents (…), 80 passages, 0:12 left`."""
    counts = ", ".join(f"{n} {state}" for state, n in sorted(job.counts.items()))
    if job.state == "listing":
        return f"{job.id} in {job.source}: listing, {job.total:,} files so far"
    kind = "sync, " if job.kind == "sync" else ""
    line = f"{job.id} in {job.source}: {kind}{job.state}, {job.processed} of {job.total} documents"
    nothing = "listing files" if job.state == "queued" else "nothing to do"
    parts = [f"{line} ({counts or nothing}), {job.passages} passages"]
    if job.embedded is not None and job.embedded < job.passages:
        parts.append(f"{job.embedded} of them with vectors")
    if job.documents_per_second is not None and job.passages_per_second is not None:
        parts.append(f"{job.documents_per_second:.3g} documents/s, {job.passages_per_second:.3g} passages/s")
    if job.tokens_read is not None:
        price = "cost not known" if job.cost is None else f"US$ {job.cost:.4f}"
        parts.append(
            f"{job.tokens_read:,} tokens read and {job.tokens_written:,} written by a model ({price})"
        )
    if job.seconds_left is not None:
        parts.append(f"about {duration(job.seconds_left)} left")
    if job.document:
        parts.append(f"at {job.document}")
    if job.started_at is not None and job.finished_at is not None:
        parts.append(f"read in {duration(job.finished_at - job.started_at)}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Format seconds: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def graph_text(result: GraphResult) -> str:
    """Format the neighbourhood of an entity, or a path."""
    if result.path:
        head = "Path: " + " → ".join(result.path)
    else:
        kinds = ", ".join(f"{e.name} ({e.type}, passages: {e.mentions})" for e in result.entities)
        head = f"{result.entity} is connected with: {kinds or 'nothing else'}."
    budget = TextBudget(narrow="a smaller limit or fewer hops", separator="\n")
    budget.add(escape_controls(head))
    if result.also_known_as:
        names = ", ".join(result.also_known_as)
        budget.add(escape_controls(f"{result.entity} is also known as: {names}."))
    for relation in result.relations:
        line = f"- {relation.subject} —{relation.predicate}→ {relation.object} ({relation.support}×)"
        said = f": “{relation.evidence}” id={relation.passage_id}" if relation.evidence else ""
        budget.add(escape_controls(line + said))
    return budget.text()
