"""Texts of the tools' answers, for a model and for a terminal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget
from loom_core.server.search.citations import citation, passages_text

if TYPE_CHECKING:
    from loom_query.models import (
        AskResult,
        Passage,
        QueryResult,
        SentenceInfo,
        SourceDetails,
        SourcesResult,
    )

__all__ = [
    "ask_text",
    "passage_lines",
    "query_text",
    "sentence_line",
    "source_line",
    "sources_text",
]

_NO_SOURCE = "There is no source yet. Add documents with loom-kb, or name sources in {config}."


def query_text(result: QueryResult, *, detailed: bool, max_tokens: int) -> tuple[str, int]:
    """Format the answer of `query`.

    Args:
        result: what was found.
        detailed: with scores and the path of evidence.
        max_tokens: limit of the text.

    Returns:
        The text, and how many passages are in it.
    """
    notes = [f"(Note: {escape_controls(note)})" for note in result.notes]
    told = partial(passage_lines, detailed=detailed)
    return passages_text(result.passages, told, match=result.match, notes=notes, tokens=max_tokens)


def passage_lines(passage: Passage, *, detailed: bool) -> list[str]:
    """Format the lines between the citation and the text of a passage."""
    lines: list[str] = []
    if detailed:
        scores = [f"{name} {value:.3g}" for name, value in passage.scores.items()]
        found = [f"source {passage.source}", f"relevance {passage.relevance:.2f}"]
        lines.append("; ".join([*found, *([", ".join(scores)] if scores else [])]))
        if passage.why:
            lines.append("why: " + "; ".join(passage.why))
    if passage.also_in:
        lines.append(f"also in: {', '.join(passage.also_in)}")
    return [escape_controls(line) for line in lines]


def source_line(source: SourceDetails) -> str:
    """Format a source in a list."""
    filters = f"; filters: {', '.join(source.filters)}" if source.filters else ""
    line = (
        f"- {source.name} ({source.kind}, {source.state}): {source.description or 'no description'}{filters}"
    )
    if source.hints:
        line += f"; good for: {', '.join(source.hints)}"
    line = escape_controls(line)
    return f"{line}\n  problem: {escape_controls(source.problem)}" if source.problem else line


def sources_text(result: SourcesResult, *, config: str) -> str:
    """Format the answer of `sources`.

    Args:
        result: the list.
        config: the file that names sources; shown if there is none.
    """
    budget = TextBudget(narrow="fewer sources in the configuration", separator="\n")
    for source in result.sources:
        budget.add(source_line(source))
    for problem in result.problems:
        budget.add(f"- problem: {escape_controls(problem)}")
    if not result.sources and not result.problems:
        return _NO_SOURCE.format(config=config)
    return budget.text()


def sentence_line(sentence: SentenceInfo) -> str:
    """Format an unsupported or weakly supported sentence, with the reason."""
    if not sentence.supported:
        return f"- not supported by any passage: {sentence.text}"
    doubtful = ", ".join(f"[{number}]" for number in sentence.weak)
    return f"- cites {doubtful}, which shares no word with it: {sentence.text}"


def ask_text(result: AskResult) -> tuple[str, int]:
    """Format the answer of `ask`: the text, doubtful sentences and the passages.

    Returns:
        The text, and how many passages are in it.
    """
    notes = [f"(Note: {escape_controls(note)})" for note in result.notes]
    blocks = [result.answer] if result.answer else []
    doubtful = [each for each in result.sentences if not each.supported or each.weak]
    if doubtful:
        blocks.append("\n".join(["Be careful with:", *map(sentence_line, doubtful)]))
    if result.answered:
        blocks.append(
            "\n".join(
                [
                    "Passages:",
                    *(f"{citation(p)} id={escape_controls(p.id)}" for p in result.passages),
                ]
            )
        )
        return "\n\n".join([*blocks, *notes]), len(result.passages)
    told = partial(passage_lines, detailed=False)
    found, shown = passages_text(result.passages, told, tokens=TOKEN_CAP // 2)
    return "\n\n".join([*notes, found]), shown
