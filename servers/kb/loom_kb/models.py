"""Results of the tools as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from loom_core.server.search.citations import MatchInfo

if TYPE_CHECKING:
    from loom_core.knowledge.overview.overview import KnowledgeOverview

__all__ = [
    "AddResult",
    "CancelResult",
    "DocumentInfo",
    "EntityInfo",
    "EstimateInfo",
    "FetchResult",
    "GraphResult",
    "JobInfo",
    "JobResult",
    "Passage",
    "QueryResult",
    "RelationInfo",
    "RemoveResult",
    "SkippedInfo",
    "SourceDetails",
    "SourcesResult",
]

_CONCISE: dict[str, object] = {
    "number": 0,
    "source": "",
    "document_id": "",
    "start": None,
    "end": None,
    "relevance": None,
    "scores": {},
    "why": [],
    "answer_sentence": "",
}


class Passage(BaseModel):
    """A passage that was found. What has a default is left out of a concise answer."""

    number: int = Field(default=0, description="Citation number: its place in the list, from 1.")
    id: str = Field(description="For `fetch`.")
    source: str = Field(default="", description="Knowledge base.")
    document_id: str = Field(default="", description="For `fetch` and `remove`: `id` as far as its dot.")
    title: str
    heading_path: list[str] = []
    uri: str
    start: int | None = Field(default=None, description="Offset in the document, in characters.")
    end: int | None = None
    page: int | None = Field(default=None, description="Page or slide, from 1.")
    text: str
    relevance: float | None = Field(
        default=None, description="0 to 1; of the best passage, the confidence that it answers."
    )
    scores: dict[str, float] = Field(
        default={}, description="By channel: bm25, vector (cosine), links, graph."
    )
    why: list[str] = Field(default=[], description="The path of evidence.")
    answer_sentence: str = Field(default="", description="Its sentence that probably answers.")


class QueryResult(BaseModel):
    """Answer of `query`."""

    passages: list[Passage]
    match: MatchInfo
    embedded: int = Field(default=0, description="Passages that have a vector so far…")
    total: int = Field(default=0, description="…of so many in the sources that were asked.")
    notes: list[str] = Field(default=[], description="What to know about this answer.")

    def concise(self) -> QueryResult:
        """Reduce it to the content of the concise text, so that it costs no more tokens."""
        shorter: dict[str, object] = {
            "passages": [each.model_copy(update=_CONCISE) for each in self.passages]
        }
        if self.embedded == self.total:
            shorter |= {"embedded": 0, "total": 0}
        return self.model_copy(update=shorter)


class FetchResult(BaseModel):
    """Answer of `fetch`."""

    document_id: str
    source: str
    title: str
    uri: str
    text: str
    start: int
    end: int
    length: int = Field(description="Characters of the whole document.")
    metadata: dict[str, str]


class DocumentInfo(BaseModel):
    """A document in a list."""

    id: str
    title: str
    uri: str
    type: str = Field(description="Media type.")
    language: str
    length: int = Field(description="Characters.")


class SkippedInfo(BaseModel):
    """Documents that a job skipped for one reason."""

    reason: str = Field(default="", description="And what can be done; empty for all other reasons.")
    count: int
    types: dict[str, int] = Field(default={}, description="By extension; of many, the most frequent.")


class JobInfo(BaseModel):
    """How far a job is."""

    id: str
    source: str
    kind: str = Field(default="add", description="add, or sync.")
    state: str = Field(description="queued, listing, running, done, failed or cancelled.")
    total: int = Field(description="Documents, as far as listed.")
    processed: int
    counts: dict[str, int] = Field(
        description="Documents by state: pending, added, updated, moved, unchanged, removed, skipped, failed."
    )
    passages: int = Field(description="Written so far.")
    embedded: int | None = Field(default=None, description="Of these, those with a vector so far.")
    document: str = Field(default="", description="The document it is at.")
    started_at: float | None = Field(default=None, description="Seconds since 1970.")
    finished_at: float | None = None
    documents_per_second: float | None = Field(default=None, description="In the last half minute of work.")
    passages_per_second: float | None = None
    seconds_left: float | None = None
    tokens_read: int | None = Field(default=None, description="By a language model, so far.")
    tokens_written: int | None = None
    cost: float | None = Field(default=None, description="US dollars; null where the price is not known.")
    skipped: list[SkippedInfo] = []
    problems: list[str] = Field(
        default=[],
        description="A line for each of the first documents that failed; with `cursor`, for further ones and "
        "for each that was skipped.",
    )
    notes: list[str] = Field(default=[], description="A line for each document that another one equals.")
    next_cursor: str | None = Field(default=None, description="For further problems.")


class EstimateInfo(BaseModel):
    """About what a language model will take."""

    passages: int
    requests: int
    tokens: int = Field(description="To read and to write.")
    cost: float | None = Field(description="US dollars; null where the price is not known.")


class AddResult(BaseModel):
    """Answer of `add`."""

    job: JobInfo | None = Field(default=None, description="Null where nothing was begun.")
    documents: list[DocumentInfo] = Field(description="Texts and web pages, once they are in.")
    estimate: EstimateInfo | None = Field(default=None, description="Of what needs a confirmation.")


class RemoveResult(BaseModel):
    """Answer of `remove`."""

    removed: list[DocumentInfo]
    unknown: list[str] = Field(description="Ids that were not there.")


class SourceDetails(BaseModel):
    """A knowledge base in a list."""

    name: str
    description: str
    documents: int
    passages: int
    filters: list[str]
    extraction: str = Field(description="What finds entities: rules, or a language model and rules.")
    held_by: str = Field(description="Process that works for it now; empty if none.")


class ExcerptInfo(BaseModel):
    """A sentence that represents a topic."""

    text: str
    passage_id: str = Field(description="For `fetch`.")
    title: str
    uri: str


class TopicInfo(BaseModel):
    """A topic of a knowledge base."""

    name: str
    terms: list[str] = Field(description="Key terms, best first.")
    passages: int
    documents: int
    titles: list[str] = Field(description="Documents with most of its passages.")
    excerpts: list[ExcerptInfo]
    passage_ids: list[str] = Field(description="Its most representative passages, for `fetch`.")
    parts: list[str] = Field(description="Names of the topics that it consists of.")


class OverviewInfo(BaseModel):
    """Overview of a knowledge base."""

    source: str
    passages: int
    documents: int
    topics: list[TopicInfo] = Field(description="The largest first.")
    others: int = Field(description="Smaller topics that are left out.")

    @classmethod
    def of(cls, source: str, overview: KnowledgeOverview) -> OverviewInfo:
        """Return the overview of a source."""
        return cls.model_validate({"source": source, **asdict(overview)})


class SourcesResult(BaseModel):
    """Answer of `sources`."""

    sources: list[SourceDetails]
    documents: list[DocumentInfo] = Field(description="Where a source was named.")
    overview: OverviewInfo | None = Field(default=None, description="Where it was asked for.")
    next_cursor: str | None = None


class EntityInfo(BaseModel):
    """An entity of the graph."""

    name: str
    type: str
    mentions: int


class RelationInfo(BaseModel):
    """A relation of the graph, with a passage that says so."""

    subject: str
    predicate: str
    object: str
    support: int = Field(description="Passages that say so.")
    evidence: str = Field(description="What one of them says.")
    passage_id: str = Field(description="For `fetch`.")


class GraphResult(BaseModel):
    """Answer of `graph`."""

    entity: str
    also_known_as: list[str] = Field(description="Its other names, the most used first.")
    entities: list[EntityInfo]
    relations: list[RelationInfo]
    path: list[str] = Field(description="Names from `entity` to `to`, where a path was asked for.")


class CancelResult(BaseModel):
    """Answer of `job_cancel`."""

    id: str
    state: str = Field(description="cancelled, or what it was before: done or failed.")


class JobResult(BaseModel):
    """Answer of `job`."""

    jobs: list[JobInfo]
    next_cursor: str | None = Field(default=None, description="For older jobs.")
