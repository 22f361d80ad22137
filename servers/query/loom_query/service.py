"""Service behind the tools and the command line: query, fetch, list and ask sources."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

import anyio

from loom_core.errors import ConfigError, LLMError, LoomError, NotFoundError, SourceError
from loom_core.knowledge.sources.federation.federation import START_SECONDS
from loom_core.server.auth.caller import current_caller
from loom_core.server.search.citations import MatchInfo
from loom_query.federation.engine_loader import EngineLoader
from loom_query.federation.language_model import LanguageModel
from loom_query.federation.live_source import details_of
from loom_query.federation.passages import passage_of, to_fetch_result
from loom_query.federation.sources import Sources
from loom_query.models import (
    AskResult,
    FetchResult,
    Pattern,
    QueryResult,
    SourceDetails,
    SourceOutcome,
    SourcesResult,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup

    from loom_core.knowledge.sources.federation.federation import SourceReport
    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.llm.interface import LLMProvider
    from loom_core.server.search.excerpts import Excerpt
    from loom_query.configuration.query_file import SourceProblem
    from loom_query.federation.live_source import LiveSource
    from loom_query.settings import Settings

__all__ = ["QueryService"]

_CLOSE_SECONDS = 5.0
_LIGHT = {"http", "mcp"}  # kinds of sources whose modules are light


class QueryService:
    """The sources of one run of the server or the command. Use it as `async with`.

    A caller who may use some sources only does not see the others: they are as if they were not there.

    Attributes:
        settings: of the run.
        sources: the sources that can be asked.
    """

    def __init__(self, settings: Settings, *, upkeep: bool = True) -> None:
        """Open nothing yet.

        Args:
            settings: of the run.
            upkeep: see `Sources`.
        """
        self.settings = settings
        self._engine = EngineLoader()
        self._model = LanguageModel(self._engine)
        self.sources = Sources(settings, self._engine, self._model, upkeep=upkeep)
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self.sources.use_tasks(self._tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        try:
            await self._close()
        finally:
            self._tasks.cancel_scope.cancel()
            # Without the error, which the group would wrap: none of its tasks raised it.
            await self._tasks.__aexit__(None, None, None)

    async def describe_sources(self) -> list[SourceInfo]:
        """Describe the sources that the caller may use."""
        return [source.info for source in self._list_allowed().values()]

    def select_sources(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of the sources to ask.

        Args:
            wanted: some of them; empty for all that can be asked.

        Raises:
            NotFoundError: there is no such source, or none at all.
            SourceError: it cannot be asked.
        """
        allowed = self._list_allowed()
        problems = {problem.name: problem for problem in self._problems()}
        for name in wanted:
            if name not in allowed:
                raise self._unknown(name, [*allowed], problems.get(name))
        if not wanted and not allowed:
            broken = " ".join(map(str, problems.values()))
            raise NotFoundError(
                "No source can be asked." if broken else "There is no source yet.",
                advice=broken or f"Add documents with loom-kb, or name sources in {self.settings.config}.",
            )
        return list(wanted) or list(allowed)

    async def query(
        self,
        question: str,
        *,
        sources: Sequence[str] = (),
        filters: Mapping[str, Any] | None = None,
        limit: int = 5,
        told: Callable[[SourceReport], Awaitable[None]] | None = None,
    ) -> QueryResult:
        """Ask sources for passages.

        Args:
            question: a question or keywords.
            sources: names of those to ask; empty for all.
            filters: as in `KnowledgeBaseProvider.query`.
            limit: maximum number of passages.
            told: called with the report of each source as soon as it is known.

        Raises:
            InvalidInputError: the question, the limit or a filter cannot be used.
            NotFoundError: there is no such source, or none at all.
            SourceError: no source gave an answer.
        """
        names = self.select_sources(sources)
        async with self.sources.federate(names) as federation:
            await self._prepare(names)
            answer = await federation.query(
                question, filters=filters, limit=limit, on_report=self._record_reports(told)
            )
        outcomes = self._outcomes(answer.reports, everything=not sources)
        return QueryResult(
            passages=[passage_of(number, item) for number, item in enumerate(answer.items, start=1)],
            match=MatchInfo.of(answer.match),
            sources=outcomes,
            notes=_notes(outcomes),
        )

    async def fetch(self, id_: str, *, start: int | None, tokens: int) -> FetchResult:
        """Read the text around a passage from the source that gave it.

        Args:
            id_: the id that `query` gave; without a source's name, all sources are searched for it.
            start: offset to read from; None for the passage with its context, if its source supports that.
            tokens: limit of the text.

        Raises:
            NotFoundError: no source has it.
            LoomError: the source that the id names cannot be asked.
        """
        allowed = self._list_allowed()
        named = [name for name in allowed if id_.startswith(f"{name}:")]
        places = {name: id_.removeprefix(f"{name}:") for name in sorted(named, key=len)[-1:]}
        places = places or dict.fromkeys(allowed, id_)
        found: dict[str, Excerpt] = {}
        failures: list[LoomError] = []

        async def look(name: str) -> None:
            try:
                async with allowed[name].in_use():
                    await self._prepare([name])
                    stretch = await _read(allowed[name], places[name], start=start, tokens=tokens)
            except LoomError as error:
                failures.append(error)
                return
            if stretch is not None:
                found[name] = stretch

        async with anyio.create_task_group() as tasks:
            for name in places:
                tasks.start_soon(look, name)
        for name, inner in places.items():
            if name in found:
                return to_fetch_result(f"{name}:{inner}", name, found[name])
        if named and failures:
            raise failures[0]
        unasked = f" Not every source could be asked: {failures[0]}" if failures else ""
        raise NotFoundError(
            f"There is nothing with the id {id_[:200]!r}.",
            advice="Take an id from `query`, and query again if the id is old: some sources only know "
            f"what they found lately.{unasked}",
        )

    async def list_sources(self) -> SourcesResult:
        """List every source, with problems of sources and of the language model."""
        details = [details_of(source) for source in self._list_allowed().values()]
        details += [
            SourceDetails(
                name=problem.name,
                kind=problem.kind,
                state="failed",
                description="",
                hints=[],
                filters=[],
                deadline=0.0,
                problem=str(problem),
            )
            for problem in self._problems()
        ]
        complaints: list[str] = []
        if current_caller().sources is None:  # a file names what others may not use
            complaints.append(await self._model.problem(self.sources.file))
            if complaint := self.sources.complaint:
                complaints.append(f"{complaint} Until then the sources before this change are used.")
        return SourcesResult(sources=details, problems=[complaint for complaint in complaints if complaint])

    async def ask(
        self,
        question: str,
        *,
        sources: Sequence[str] = (),
        filters: Mapping[str, Any] | None = None,
        pattern: Pattern = "rag",
        limit: int = 10,
        told: Callable[[SourceReport], Awaitable[None]] | None = None,
    ) -> AskResult:
        """Generate an answer with a language model from the passages of sources.

        If there is no model, or it fails, the passages are the answer.

        Args:
            question: in any language; the answer is in the same.
            sources: names of those to ask; empty for all.
            filters: as for `query`.
            pattern: how the passages are found.
            limit: maximum number of passages for the model.
            told: as for `query`.

        Raises:
            LoomError: as for `query`.
        """
        try:
            llm = await self._model.get(self.sources.file)
            refusal = "" if llm else _NO_MODEL.format(config=self.settings.config)
        except ConfigError as error:
            llm, refusal = None, f"The language model cannot be used: {error}"
        if llm is not None:
            names = self.select_sources(sources)
            try:
                async with self.sources.federate(names) as federation:
                    await self._prepare(names, generating=True)
                    from loom_query.federation.answer import generate_answer

                    answer, reports = await generate_answer(
                        llm,
                        federation,
                        question,
                        filters=filters,
                        pattern=pattern,
                        limit=limit,
                        told=self._record_reports(told),
                    )
            except LLMError as error:
                refusal = f"The language model gave no answer, so these are the passages: {error}"
            else:
                outcomes = self._outcomes(reports, everything=not sources)
                notes = [*answer.notes, *_notes(outcomes)]
                return answer.model_copy(update={"sources": outcomes, "notes": notes})
        found = await self.query(question, sources=sources, filters=filters, limit=limit, told=told)
        return AskResult(
            answered=False,
            answer="",
            sentences=[],
            passages=found.passages,
            sources=found.sources,
            notes=[refusal, *found.notes],
        )

    def language_model(self) -> LLMProvider | None:
        """Return the language model of `ask`, or None if none is configured. Blocks; may read a keyring.

        Raises:
            ConfigError: the configured model cannot be used.
        """
        return self._model.of(self.sources.file)

    async def _close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self.sources.close()
            await self._model.close()

    async def _prepare(self, names: Sequence[str], *, generating: bool = False) -> None:
        """Load the modules that some sources and generation need; no deadline includes this time."""
        self.sources.start_servers()
        live = self.sources.live
        if generating or any(name in live and live[name].kind not in _LIGHT for name in names):
            await self._engine.load()

    def _record_reports(
        self, told: Callable[[SourceReport], Awaitable[None]] | None
    ) -> Callable[[SourceReport], Awaitable[None]]:
        """Return a callback for reports that also notes them for `list_sources`."""

        async def record(report: SourceReport) -> None:
            if (source := self.sources.live.get(report.source)) is not None:
                source.note(report)
            if told is not None:
                await told(report)

        return record

    def _list_allowed(self) -> dict[str, LiveSource]:
        may_use = current_caller().may_use
        return {name: source for name, source in self.sources.live.items() if may_use(name)}

    def _problems(self) -> list[SourceProblem]:
        may_use = current_caller().may_use
        return [problem for problem in self.sources.problems if may_use(problem.name)]

    def _outcomes(self, reports: Sequence[SourceReport], *, everything: bool) -> list[SourceOutcome]:
        """Return the outcome of each source; if all are asked, include those that cannot be."""
        outcomes = [
            SourceOutcome(
                source=report.source,
                state=report.state,
                seconds=round(report.seconds, 3),
                count=report.count,
                problem=report.problem,
            )
            for report in reports
        ]
        if not everything:
            return outcomes
        return outcomes + [
            SourceOutcome(source=problem.name, state="failed", seconds=0.0, count=0, problem=str(problem))
            for problem in self._problems()
        ]

    def _unknown(self, name: str, known: Sequence[str], problem: SourceProblem | None) -> LoomError:
        if problem is not None:
            return SourceError(
                f"The source {name!r} cannot be asked: {problem.message}", advice=problem.advice
            )
        near = get_close_matches(name, known, n=1)
        advice = f"Did you mean {near[0]!r}? " if near else ""
        listed = f"There are: {', '.join(known)}." if known else "There is none."
        return NotFoundError(f"There is no source {name[:200]!r}.", advice=advice + listed)


_NO_MODEL = (
    "There is no language model to answer with, so these are the passages: answer from them. To configure "
    'one, write "llm": "deepseek" (or another provider, see docs/models.md) into {config}, with its key in '
    "the usual environment variable or the keyring."
)


async def _read(source: LiveSource, id_: str, *, start: int | None, tokens: int) -> Excerpt | None:
    await source.provider.start(min(source.deadline, START_SECONDS))
    with anyio.move_on_after(source.deadline):
        return await source.read(id_, start=start, tokens=tokens)
    raise SourceError(
        f"{source.name} did not answer within {source.deadline:g} s.",
        advice="Ask again, or allow it more time.",
    )


def _notes(outcomes: Sequence[SourceOutcome]) -> list[str]:
    """Return notes that an answer is partial, and why; none if every source answered in full."""
    answered = sum(outcome.state == "answered" for outcome in outcomes)
    return [
        *([f"{answered} of {len(outcomes)} sources answered."] if answered < len(outcomes) else ()),
        *(f"{outcome.source}: {outcome.problem}" for outcome in outcomes if outcome.problem),
    ]
