"""What the tools answer, as text for a model and as lines for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.uris import readable
from loom_core.server.results import TextBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_kb.models import DocumentInfo, GraphResult, JobInfo, Passage, QueryResult

__all__ = ["citation", "coverage_line", "document_line", "graph_text", "job_text", "query_text"]


def citation(passage: Passage) -> str:
    """The line that says where a passage is from: `[1] title › heading (uri#start-end, page 3)`."""
    place = " › ".join([passage.title or "untitled", *passage.heading_path])
    page = f", page {passage.page}" if passage.page else ""
    return f"[{passage.number}] {place} ({readable(passage.uri)}#{passage.start}-{passage.end}{page})"


def coverage_line(embedded: int, total: int) -> str:
    """What to say while vectors are still being made; empty when all are there."""
    if embedded >= total:
        return ""
    return (
        f"({embedded:,} of {total:,} passages have vectors so far; "
        "the others were searched by words and links only.)"
    )


def query_text(result: QueryResult, *, detailed: bool, max_tokens: int) -> tuple[str, int]:
    """The answer of `query`.

    Args:
        result: what was found.
        detailed: with scores and the path of evidence.
        max_tokens: limit of the text.

    Returns:
        The text, and how many passages are in it.
    """
    notes = [coverage_line(result.embedded, result.total), *(f"(Note: {note})" for note in result.notes)]
    if not result.passages:
        hint = "Nothing was found. Try other words, fewer filters, or another source."
        return "\n".join(filter(None, [hint, *notes])), 0
    budget = TextBudget(
        max_tokens, narrow="limit, filters, or a more exact question; read one with fetch(id)"
    )
    for passage in result.passages:
        budget.add(_passage_text(passage, detailed=detailed))
    return "\n\n".join(filter(None, [budget.text(), *notes])), budget.shown


def _passage_text(passage: Passage, *, detailed: bool) -> str:
    lines = [f"{citation(passage)} id={passage.id}"]
    if detailed:
        scores = ", ".join(f"{name} {value:.3g}" for name, value in passage.scores.items())
        lines.append(f"source {passage.source}; relevance {passage.relevance:.2f}; {scores}")
    if detailed or _was_led_to(passage):
        lines.append("why: " + "; ".join(passage.why))
    return "\n".join([*lines, passage.text])


def _was_led_to(passage: Passage) -> bool:
    """Whether something else than the question's own words led to it, which is worth a line."""
    return any("“" in reason for reason in passage.why)


def document_line(document: DocumentInfo) -> str:
    """A document in a list."""
    title = document.title or "untitled"
    size = f"{document.length:,} characters, {document.language}"
    return f"- {title} ({readable(document.uri)}), {size}, id={document.id}"


def job_text(jobs: Sequence[JobInfo]) -> str:
    """Jobs, with what went wrong."""
    if not jobs:
        return "There are no jobs."
    blocks: list[str] = []
    for job in jobs:
        counts = ", ".join(f"{n} {state}" for state, n in sorted(job.counts.items()))
        line = f"{job.id} in {job.source}: {job.state}, {job.processed} of {job.total} documents"
        lines = [f"{line} ({counts or 'listing files'}), {job.passages} passages"]
        lines += [f"  {problem}" for problem in job.problems]
        blocks.append("\n".join(lines))
    budget = TextBudget(narrow="an id")
    for block in blocks:
        budget.add(block)
    return budget.text()


def graph_text(result: GraphResult) -> str:
    """An entity's surroundings, or a path."""
    if result.path:
        head = "Path: " + " → ".join(result.path)
    else:
        kinds = ", ".join(f"{e.name} ({e.type}, {e.mentions} mentions)" for e in result.entities)
        head = f"{result.entity} is connected with: {kinds or 'nothing else'}."
    budget = TextBudget(narrow="a smaller limit or fewer hops", separator="\n")
    budget.add(head)
    for relation in result.relations:
        line = f"- {relation.subject} —{relation.predicate}→ {relation.object} ({relation.support}×)"
        said = f": “{relation.evidence}” id={relation.passage_id}" if relation.evidence else ""
        budget.add(line + said)
    return budget.text()
