"""What several sources answer together, and what became of each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.confidence import Match
    from loom_core.knowledge.sources.federation.merging import MergedItem

__all__ = ["FederatedAnswer", "SourceReport", "SourceState", "citation", "federated_item"]

SourceState = Literal["answered", "failed", "late", "starting"]
"""It answered, be it with nothing; it could not; it did not in time; or it is not ready to be asked yet."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What became of one source that was asked.

    Attributes:
        source: its name.
        state: how it ended.
        seconds: how long it took.
        count: how many passages it found.
        problem: what went wrong and what to do, in sentences; empty where it answered.
        is_refusal: whether it failed by the question itself, such as a filter that it does not have.
    """

    source: str
    state: SourceState
    seconds: float
    count: int = 0
    problem: str = ""
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class FederatedAnswer:
    """Passages of several sources in one order, and what became of every source.

    Attributes:
        ranked: best first; `relevance` is comparable among them all.
        match: how well they fit the question.
        reports: one for each source that was asked, in the order of the sources.
    """

    ranked: tuple[MergedItem, ...]
    match: Match
    reports: tuple[SourceReport, ...]

    @property
    def items(self) -> list[KnowledgeItem]:
        """The passages, best first, as those of all sources; see `federated_item`."""
        return [federated_item(one.source, one.item, also_in=one.also_in) for one in self.ranked]

    @property
    def partial(self) -> bool:
        """Whether a source that was asked is not in it."""
        return any(report.state != "answered" for report in self.reports)

    @property
    def notes(self) -> list[str]:
        """What the reader has to know: how many sources answered, and why the others did not."""
        if not self.partial:
            return []
        answered = sum(report.state == "answered" for report in self.reports)
        return [
            f"{answered} of {len(self.reports)} sources answered.",
            *(f"{report.source}: {report.problem}" for report in self.reports if report.problem),
        ]


def citation(source: str, id_: str) -> str:
    """The id of a source's item among those of all sources: `<source>:<id>`."""
    return f"{source}:{id_}"


def federated_item(
    source: str, item: KnowledgeItem, *, also_in: Sequence[tuple[str, str]] = ()
) -> KnowledgeItem:
    """A source's item as one of all sources.

    Its id is the `citation`. `metadata` gains `knowledge_base` (the source) and, where other sources have
    the same passage or nearly, `also_in` (its citations there).
    """
    metadata = {**item.metadata, "knowledge_base": source}
    if also_in:
        metadata["also_in"] = [citation(*other) for other in also_in]
    return replace(item, id=citation(source, item.id), metadata=metadata)
