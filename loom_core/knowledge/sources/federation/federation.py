"""Federation: query several knowledge sources at once, each with a deadline, and merge their answers."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import anyio
from anyio import to_thread

from loom_core.errors import (
    ConfigError,
    InvalidInputError,
    LoomError,
    NotFoundError,
    SourceError,
    SourceStartingError,
    unwrap_group,
)
from loom_core.knowledge.retrieval.confidence import Match, assess_match, combine_matches
from loom_core.knowledge.sources.federation.merging import candidates_for, merge
from loom_core.knowledge.validation import check_limit, check_question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.strategies import ScoreScale

__all__ = [
    "START_SECONDS",
    "FederatedAnswer",
    "Federation",
    "PartialItems",
    "SourceQuery",
    "SourceReport",
    "SourceState",
    "timeout_message",
]

START_SECONDS = 9.0
"""Maximum wait for a source that is starting; the deadline of its answer begins after that."""


_log = logging.getLogger(__name__)

_MAX_LIMIT = 100


SourceState = Literal["answered", "failed", "late", "starting"]
"""`answered`, even without hits; `failed`; `late`: timed out; `starting`: not ready yet."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Report on a queried source.

    Attributes:
        source: its name.
        state: the outcome.
        seconds: how long it took.
        count: how many passages it found.
        problem: the error and the advice, in sentences; or which part of its answer is missing.
        is_refusal: whether the question itself is at fault, such as an unsupported filter.
    """

    source: str
    state: SourceState
    seconds: float
    count: int = 0
    problem: str = ""
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class FederatedAnswer:
    """Merged passages of several sources, and a report on each source.

    Attributes:
        items: best first, see `KnowledgeItem.of_source`; `relevance` is comparable among them all.
        match: how well they fit the question.
        reports: one for each source that was asked, in the order of the sources.
    """

    items: list[KnowledgeItem]
    match: Match
    reports: tuple[SourceReport, ...]

    @property
    def partial(self) -> bool:
        """Whether the answer of a queried source is missing."""
        return any(report.state != "answered" for report in self.reports)

    @property
    def notes(self) -> list[str]:
        """Notes for the reader: how many sources answered, and why the others did not."""
        answered = sum(report.state == "answered" for report in self.reports)
        return [
            *([f"{answered} of {len(self.reports)} sources answered."] if self.partial else ()),
            *(f"{report.source}: {report.problem}" for report in self.reports if report.problem),
        ]


class PartialItems(list["KnowledgeItem"]):
    """Passages of a source of which a part did not answer.

    Args:
        items: the passages, best first.
        problem: which part is missing, and why; in sentences.
    """

    def __init__(self, items: Sequence[KnowledgeItem], problem: str) -> None:
        super().__init__(items)
        self.problem = problem


class Federation:
    """Queries any number of sources at once and merges their hits.

    If a source fails or is late, only its passages are missing from the answer. Several tasks may query
    concurrently, and the sources may be replaced meanwhile: a running query keeps the sources that it began
    with.

    Args:
        sources: the sources to query; their names must differ.
        deadline: seconds for a source's answer.
        deadlines: other deadlines, by name of the source.
        shards: whether the sources are shards of one knowledge base, so that fewer passages of each do.

    Raises:
        ConfigError: two sources have the same name, or a deadline is not above 0.
    """

    def __init__(
        self,
        sources: Sequence[KnowledgeBaseProvider],
        *,
        deadline: float = 10.0,
        deadlines: Mapping[str, float] | None = None,
        shards: bool = False,
    ) -> None:
        self._shards = shards
        self._deadline = _validate_deadline(deadline)
        self._deadlines: dict[str, float] = {}
        self._sources: dict[str, KnowledgeBaseProvider] = {}
        self.replace(sources, deadlines=deadlines)

    @property
    def sources(self) -> tuple[KnowledgeBaseProvider, ...]:
        """Current sources, in order."""
        return tuple(self._sources.values())

    def replace(
        self, sources: Sequence[KnowledgeBaseProvider], *, deadlines: Mapping[str, float] | None = None
    ) -> None:
        """Replace the sources; the caller closes those that are left out.

        Args:
            sources: as for the class.
            deadlines: as for the class; None keeps the current ones.

        Raises:
            ConfigError: as for the class; then nothing has changed.
        """
        named = {source.name: source for source in sources}
        if len(named) < len(sources):
            raise ConfigError("Two sources have the same name.", advice="Give each a unique name.")
        if deadlines is not None:
            self._deadlines = {name: _validate_deadline(seconds) for name, seconds in deadlines.items()}
        self._sources = named

    async def query(
        self,
        query: str,
        *,
        source: str | Sequence[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = 5,
        on_report: Callable[[SourceReport], Awaitable[None]] | None = None,
    ) -> FederatedAnswer:
        """Find the passages that answer a question, in any of the sources.

        Args:
            query: a question or keywords, in any language.
            source: names of the sources to ask; None asks all.
            filters: as in `KnowledgeBaseProvider.query`. A source that does not support one of them counts
                as failed.
            limit: maximum number of passages, 1 to 100.
            on_report: called with the report of each source as soon as it is known.

        Raises:
            InvalidInputError: the question is empty, or the limit is out of range.
            NotFoundError: a source is unknown, or there are no sources.
            LoomError: the only queried source failed; the error is its own.
            SourceError: none of several sources gave an answer.
        """
        check_question(query)
        check_limit(limit, most=_MAX_LIMIT)
        chosen = self._select_sources(source)
        depth = (
            limit if len(chosen) == 1 else candidates_for(limit, shards=len(chosen) if self._shards else 0)
        )
        asked = [SourceQuery(each, self._seconds(each)) for each in chosen]
        async with anyio.create_task_group() as tasks:
            for each in asked:
                tasks.start_soon(each.run, query, depth, dict(filters or {}), on_report)
        if all(each.report.state != "answered" for each in asked):
            raise _failure(asked)
        by_name = {source.name: each for source, each in zip(chosen, asked, strict=True)}
        found = {name: each.items for name, each in by_name.items()}
        matches = await to_thread.run_sync(_matches, query, chosen, found)
        match: Match | None = None
        if len(chosen) == 1:
            items = [item.of_source(chosen[0].name) for item in asked[0].items]
            match = _own_match(chosen[0])
        else:

            async def ask(name: str, question: str, most: int) -> list[KnowledgeItem]:
                return await by_name[name].ask_again(question, most, dict(filters or {}))

            items = await merge(
                query,
                found,
                limit=limit,
                spaces=_spaces(chosen),
                scales={source.name: source.scale for source in chosen if isinstance(source, _WithScale)},
                ask=ask,
                confidence=max(match.confidence for match in matches),
            )
        if match is None:
            match = await to_thread.run_sync(combine_matches, query, matches, items)
        return FederatedAnswer(items, match, tuple(each.report for each in asked))

    async def get_by_id(self, id_: str) -> KnowledgeItem | None:
        """Return the item with an id of an answer, or None.

        An id without the prefix of a source is looked up in all of them, one after the other.

        Raises:
            LoomError: the source that the id names failed or timed out.
        """
        sources = self._sources
        names = [name for name in sources if id_.startswith(f"{name}:")]
        if names:
            name = max(names, key=len)
            return await self._get(sources[name], id_.removeprefix(f"{name}:"))
        for source in sources.values():
            try:
                found = await self._get(source, id_)
            except LoomError as error:
                _log.info("the source %r could not look up an id: %s", source.name, error)
                continue
            if found is not None:
                return found
        return None

    async def _get(self, source: KnowledgeBaseProvider, id_: str) -> KnowledgeItem | None:
        seconds = self._seconds(source)
        with anyio.move_on_after(seconds):
            item = await source.get_by_id(id_)
            return None if item is None else item.of_source(source.name)
        raise SourceError(
            f"{source.name}: {timeout_message(seconds)}", advice="Ask again, or allow it more time."
        )

    def _seconds(self, source: KnowledgeBaseProvider) -> float:
        return self._deadlines.get(source.name, self._deadline)

    def _select_sources(self, source: str | Sequence[str] | None) -> list[KnowledgeBaseProvider]:
        known = self._sources
        if not known:
            raise NotFoundError("There is no source to ask.", advice="Configure one first.")
        names = list(known) if source is None else [source] if isinstance(source, str) else list(source)
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None or not names:
            what = "No source is named." if unknown is None else f"There is no source {unknown!r}."
            raise NotFoundError(what, advice=f"There are: {', '.join(known)}.")
        return [known[name] for name in dict.fromkeys(names)]


@runtime_checkable
class _WithMatch(Protocol):
    """A source for one question, which reports how well its answer fits; None if it gave none."""

    @property
    def match(self) -> Match | None: ...


@runtime_checkable
class _WithScale(Protocol):
    """A shard for one question, which reports the scale of its scores; None if they have none."""

    @property
    def scale(self) -> ScoreScale | None: ...


def _matches(
    query: str, sources: Sequence[KnowledgeBaseProvider], found: Mapping[str, Sequence[KnowledgeItem]]
) -> list[Match]:
    """Return how well each source fits: as reported, or its absolute relevance, else by words."""

    def match_of(source: KnowledgeBaseProvider) -> Match:
        items = found[source.name]
        if (own := _own_match(source)) is not None:
            return own
        if source.relevance_is_absolute:
            return Match(max((item.relevance for item in items), default=0.0))
        return assess_match(query, items)

    return [match_of(source) for source in sources]


def _own_match(source: KnowledgeBaseProvider) -> Match | None:
    return source.match if isinstance(source, _WithMatch) else None


def _spaces(sources: Sequence[KnowledgeBaseProvider]) -> dict[str, str]:
    """Return the vector space of each source's cosines, by name; empty if it has none or is unknown."""
    return {source.name: str(getattr(source, "embedder_id", "")) for source in sources}


def _failure(asked: Sequence[SourceQuery]) -> LoomError:
    """Return the error to raise if no source answered: the only one's own error, or all of them in one."""
    errors = [each.error for each in asked]
    if len(asked) == 1 and errors[0] is not None:
        return errors[0]
    told = " ".join(f"{each.report.source}: {each.report.problem}" for each in asked)
    # If all sources refuse the question itself, the caller has to change it.
    if all(isinstance(error, InvalidInputError) for error in errors):
        return InvalidInputError(told)
    return SourceError(f"No source gave an answer. {told}")


def _validate_deadline(seconds: float) -> float:
    if not seconds > 0:
        raise ConfigError(f"A deadline is {seconds} s.", advice="Use a number of seconds above 0.")
    return seconds


class SourceQuery:
    """A query to one source.

    Args:
        source: the source to query.
        seconds: time limit of its answer. A start is waited for as long, but at most `START_SECONDS`.

    Attributes:
        items: its hits, best first.
        report: the outcome; a failure until `run` has ended.
        error: the error of a failed source, if it raised one.
    """

    def __init__(self, source: KnowledgeBaseProvider, seconds: float) -> None:
        self._source = source
        self._seconds = seconds
        self.items: list[KnowledgeItem] = []
        self.report = SourceReport(source.name, "failed", 0.0)
        self.error: LoomError | None = None
        self._until = 0.0  # deadline, by the clock of the event loop

    async def run(
        self,
        query: str,
        limit: int,
        filters: dict[str, Any],
        on_report: Callable[[SourceReport], Awaitable[None]] | None,
    ) -> None:
        """Query the source and report the outcome; never raises, except for cancellation.

        Args:
            query: the question.
            limit: maximum number of passages.
            filters: as in `KnowledgeBaseProvider.query`; may be empty.
            on_report: called with the report.
        """
        began = time.monotonic()
        state: SourceState = "late"
        problem = ""
        with anyio.CancelScope() as answering:
            try:
                await self._source.start(min(self._seconds, START_SECONDS))
                self._until = answering.deadline = anyio.current_time() + self._seconds
                found = await self._source.query(query, limit=limit, filters=dict(filters) or None)
                self.items = found[:limit]
                problem = found.problem if isinstance(found, PartialItems) else ""
                state = "answered"
            except Exception as raised:  # noqa: BLE001 - the outermost handler of possibly third-party code
                state = "starting" if isinstance(raised, SourceStartingError) else "failed"
                error = unwrap_group(raised)
                if isinstance(error, LoomError):
                    problem, self.error = str(error), error
                else:
                    _log.exception("the source %r failed", self._source.name)
                    problem = f"It failed with an unexpected error ({type(error).__name__}); see the log."
        if state == "late":
            problem = f"{timeout_message(self._seconds)} Ask again, or allow it more time."
        self.report = SourceReport(
            self._source.name,
            state,
            seconds=time.monotonic() - began,
            count=len(self.items),
            problem=problem,
            is_refusal=isinstance(self.error, InvalidInputError),
        )
        if on_report is not None:
            await on_report(self.report)

    async def ask_again(self, query: str, limit: int, filters: dict[str, Any]) -> list[KnowledgeItem]:
        """Send a follow-up query in the remaining time.

        Returns:
            The source's hits, best first; none if it did not answer the first query, or fails
            now: its earlier answer still counts, so `report` is unchanged.
        """
        if self.report.state != "answered":
            return []
        with anyio.CancelScope(deadline=self._until):
            try:
                return (await self._source.query(query, limit=limit, filters=dict(filters) or None))[:limit]
            except Exception as raised:  # noqa: BLE001 - as in `run`
                _log.info(
                    "the follow-up query to the source %r failed: %s", self._source.name, unwrap_group(raised)
                )
        return []


def timeout_message(seconds: float) -> str:
    """Return the message for a timeout."""
    return f"It did not answer within {seconds:g} s."
