"""Data models of the tools' answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from loom_core.knowledge.sources.federation.federation import SourceState
from loom_core.server.search.citations import MatchInfo
from loom_query.configuration.source_config import Kind

__all__ = [
    "AskResult",
    "FetchResult",
    "Passage",
    "Pattern",
    "QueryResult",
    "SentenceInfo",
    "SourceDetails",
    "SourceInfoState",
    "SourceOutcome",
    "SourcesResult",
]

Pattern = Literal["rag", "multi_query", "hierarchical"]
"""How `ask` finds the passages to answer from."""

SourceInfoState = Literal["idle", "connecting", "ready", "failed"]
"""Connects at its first question; connecting; can be asked; cannot be asked, or the last question failed."""


_CONCISE: dict[str, object] = {
    "number": 0,
    "source": "",
    "start": None,
    "end": None,
    "relevance": None,
    "scores": {},
    "why": [],
    "answer_sentence": "",
}


class Passage(BaseModel):
    """A passage that was found. A concise answer omits the fields that have a default."""

    number: int = Field(default=0, description="Citation number: its place in the list, from 1.")
    id: str = Field(description="For `fetch`: the source and the passage's id there.")
    source: str = Field(default="", description="`id` as far as its colon.")
    title: str
    heading_path: list[str] = []
    uri: str
    start: int | None = Field(
        default=None, description="Offset in the document, in characters, where it is known."
    )
    end: int | None = None
    page: int | None = Field(default=None, description="Page or slide, from 1.")
    text: str = Field(default="", description="Left out where `ask` has an answer; `fetch` reads it.")
    relevance: float | None = Field(default=None, description="0 to 1, comparable among all sources.")
    scores: dict[str, float] = Field(
        default={}, description="By channel; `source` is what the source itself gave."
    )
    why: list[str] = Field(default=[], description="The path of evidence, where the source tells it.")
    answer_sentence: str = Field(default="", description="Its sentence that probably answers.")
    also_in: list[str] = Field(default=[], description="Ids of the same text in other sources.")

    def concise(self) -> Passage:
        """Return a copy with only the fields of a concise answer."""
        return self.model_copy(update=_CONCISE)


class SourceOutcome(BaseModel):
    """Outcome of one source that was asked."""

    source: str
    state: SourceState = Field(description="`starting` is not failed: ask again in a moment.")
    seconds: float
    count: int = Field(description="Passages that it found.")
    problem: str = Field(
        default="", description="What went wrong, or is missing, and what to do; empty if nothing is."
    )

    @property
    def is_whole(self) -> bool:
        """Whether it answered, and no part of its answer is missing."""
        return self.state == "answered" and not self.problem


class QueryResult(BaseModel):
    """Answer of `query`."""

    passages: list[Passage]
    match: MatchInfo
    sources: list[SourceOutcome] = Field(
        default=[],
        description="Every source that was asked; a concise answer has those that did not answer in full.",
    )
    notes: list[str] = Field(
        default=[], description="What to know about this answer: which sources are not in it, and why."
    )

    def concise(self) -> QueryResult:
        """Return a copy with only what the concise text has, so that it costs no more tokens."""
        passages = [passage.concise() for passage in self.passages]
        return self.model_copy(update={"passages": passages, "sources": _missing(self.sources)})


class FetchResult(BaseModel):
    """Answer of `fetch`."""

    id: str
    source: str
    title: str
    uri: str
    text: str
    start: int
    end: int
    length: int = Field(description="Characters of all that the source gives for this id.")
    metadata: dict[str, str]


class SourceDetails(BaseModel):
    """A source in a list."""

    name: str
    kind: Kind | Literal["unknown"]
    state: SourceInfoState
    description: str
    hints: list[str] = Field(description="What it is good for.")
    filters: list[str]
    deadline: float = Field(description="Seconds that it has for an answer.")
    problem: str = Field(description="What is wrong with it and what to do; empty if nothing is.")


class SourcesResult(BaseModel):
    """Answer of `sources`."""

    sources: list[SourceDetails]
    problems: list[str] = Field(
        description="What is wrong with the configuration, with file, line and column."
    )


class SentenceInfo(BaseModel):
    """A sentence of an answer."""

    text: str
    citations: list[int] = Field(description="Numbers of the passages it cites.")
    supported: bool = Field(description="Whether it cites a passage that there is.")
    weak: list[int] = Field(description="Citations whose passage shares no content word with it.")


class AskResult(BaseModel):
    """Answer of `ask`."""

    answered: bool = Field(description="False where no language model answered; see notes.")
    answer: str = ""
    sentences: list[SentenceInfo] = []
    passages: list[Passage] = Field(description="What the answer was written from; [1] is the first.")
    sources: list[SourceOutcome] = Field(default=[], description="Those that did not answer in full.")
    notes: list[str] = []

    def concise(self) -> AskResult:
        """Return a copy with only what the text has."""
        passages = [passage.concise() for passage in self.passages]
        if self.answered:
            passages = [passage.model_copy(update={"text": ""}) for passage in passages]
        return self.model_copy(update={"passages": passages, "sources": _missing(self.sources)})


def _missing(sources: Sequence[SourceOutcome]) -> list[SourceOutcome]:
    return [source for source in sources if not source.is_whole]
