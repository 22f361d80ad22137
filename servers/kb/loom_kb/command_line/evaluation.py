"""`loom-kb eval`: measure retrieval by questions whose documents or passages are known.

    {"question": "How often is the loom oiled?", "documents": ["manual.md"]}
    {"question": "年假怎么申请？", "passages": ["提前三天在系统中提交"], "filters": {"tags": "hr"}}

Each question is asked as `loom-kb query` asks it. A metric is its mean over the questions.
"""

from __future__ import annotations

import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from anyio import to_thread
from pydantic import Field, JsonValue, model_validator

from loom_core.errors import LoomError, NotFoundError
from loom_core.knowledge.retrieval.ranking_metrics import confidence_interval, ndcg, recall, reciprocal_rank
from loom_core.knowledge.uris import display_uri, readable
from loom_core.server.cli.command_line import parse_filters, report_wrong_usage
from loom_core.server.cli.console import ProgressBar, out, out_json, say, strong
from loom_core.server.cli.evaluation import CaseModel, JUnitCase, TextList, count, read_cases, write_junit
from loom_kb import PROGRAM
from loom_kb.texts import coverage_line

if TYPE_CHECKING:
    import argparse

    from loom_core.knowledge.retrieval.config import SearchOptions
    from loom_core.knowledge.store import DocumentRow
    from loom_kb.models import Passage, QueryResult
    from loom_kb.service import KnowledgeService

__all__ = ["METRICS", "EvaluationQuestion", "evaluate"]

Places: TypeAlias = "Sequence[int | None]"
"""The place of each expected document or passage in the results, from 1; None if it was not found."""

METRICS: Mapping[str, Callable[[Places], float]] = {
    "R@1": partial(recall, k=1),
    "R@5": partial(recall, k=5),
    "R@10": partial(recall, k=10),
    "nDCG@10": partial(ndcg, k=10),
    "MRR@10": partial(reciprocal_rank, k=10),
}
"""The metrics of a question, by name."""

_DEPTH = 100  # passages that are requested: the most that a knowledge base returns
_PAGE = 500
_NAMED = 3  # results of a question that are named
_LISTED = 5  # names in a note
_MAX_NAME = 80
_MAX_CANDIDATES = 5000  # names among which a similar one is searched
_ADVICE = "See docs/howto/evaluation.md for the format."


class EvaluationQuestion(CaseModel):
    """A line of the file: a question, and the documents or passages that answer it."""

    question: str = Field(min_length=1)
    documents: TextList = ()
    passages: TextList = ()
    id: str = ""
    kb: str | None = None
    filters: dict[str, JsonValue] = Field(default={})
    note: str = ""

    @model_validator(mode="after")
    def _check_expectation(self) -> Self:
        if not self.documents and not self.passages:
            raise ValueError("it needs `documents` or `passages` that answer the question")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """An expected document or passage.

    Attributes:
        name: as the file has it.
        documents: ids of the documents of this name, or those that may hold the passage; None for any.
        text: normalised text of the passage; empty for a document.
    """

    name: str
    documents: frozenset[str] | None
    text: str = ""

    def matches(self, passage: Passage) -> bool:
        """Whether a passage is the expected one, or of the expected document."""
        if self.documents is not None and passage.document_id not in self.documents:
            return False
        if not self.text or passage.id == self.name:
            return True
        found = _normalise(passage.text)
        return self.text in found or (found in self.text and 2 * len(found) >= len(self.text))


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """The result of a question.

    Attributes:
        line: its line in the file.
        question: the question.
        expected: the expected documents or passages.
        places: their places.
        found: how many documents or passages were found.
        first: names of the first results.
        seconds: how long the answer took.
        error: why the question could not be asked; None if it was.
        reasons: why the result is not perfect, a line each; of the worst questions only.
    """

    line: int
    question: EvaluationQuestion
    expected: Sequence[_Expected]
    places: Places
    found: int = 0
    first: Sequence[str] = ()
    seconds: float = 0.0
    error: LoomError | None = None
    reasons: list[str] = field(default_factory=list[str])

    @property
    def scores(self) -> dict[str, float]:
        """The metrics of this question."""
        return {name: metric(self.places) for name, metric in METRICS.items()}

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Sort key, worst first: errors, then by nDCG, then by places after the tenth."""
        return self.error is None, self.scores["nDCG@10"], reciprocal_rank(self.places, k=_DEPTH)

    @property
    def title(self) -> str:
        """The question, with its id or line."""
        return f"{self.question.id or f'line {self.line}'}: {self.question.question}"

    def data(self) -> dict[str, object]:
        """Return the result for programs."""
        return {
            "line": self.line,
            **self.question.model_dump(include={"id", "question"}),
            "places": {each.name: place for each, place in zip(self.expected, self.places, strict=True)},
            **self.scores,
            "first": list(self.first),
            "seconds": round(self.seconds, 3),
            "problem": str(self.error or ""),
            "why": self.reasons,
        }


async def evaluate(service: KnowledgeService, args: argparse.Namespace, options: SearchOptions) -> int:
    """Evaluate a file of questions, and print the report.

    Args:
        service: the knowledge bases.
        args: arguments of the command.
        options: options of every search.

    Returns:
        The exit code: 1 if a metric is below its threshold or a question could not be asked, 2 if a line of
        the file is invalid.

    Raises:
        LoomError: no question could be asked, or the JUnit report cannot be written.
    """
    try:
        questions = await to_thread.run_sync(
            partial(read_cases, args.file, EvaluationQuestion, advice=_ADVICE)
        )
    except LoomError as error:
        return report_wrong_usage(PROGRAM, error)
    evaluation = _Evaluation(service, args, options)
    outcomes = await evaluation.run(questions)
    errors = [each.error for each in outcomes if each.error is not None]
    if len(errors) == len(outcomes):  # it is not about one question
        raise errors[0]
    values = {name: [each.scores[name] for each in outcomes] for name in METRICS}
    outcomes.sort(key=lambda outcome: outcome.rank)
    await evaluation.explain([each for each in outcomes if each.scores["nDCG@10"] < 1][: args.worst])
    means = {name: sum(each) / len(each) for name, each in values.items()}
    missed = {name: least for name, least in args.at_least if means[name] < least}
    if args.json:
        intervals = {name: confidence_interval(each) for name, each in values.items()}
        results = [each.data() for each in outcomes]
        out_json({"metrics": means, "intervals_95": intervals, "missed": missed, "questions": results})
    else:
        _print_report(outcomes, values)
    for note in evaluation.notes():
        say(note)
    told = {name: f"{name} is {means[name]:.3f}, below {least:g}." for name, least in missed.items()}
    for line in told.values():
        say(line)
    if args.junit:
        thresholds = [
            JUnitCase(name=f"{name} at least {least:g}", failure=told.get(name, ""))
            for name, least in args.at_least
        ]
        cases = [*thresholds, *map(_junit_case, outcomes)]
        await to_thread.run_sync(write_junit, args.junit, f"{PROGRAM} eval", cases)
    return 1 if missed or errors else 0


class _Evaluation:
    """Asks the questions of one file, and explains the worst results."""

    def __init__(self, service: KnowledgeService, args: argparse.Namespace, options: SearchOptions) -> None:
        self._service = service
        self._args = args
        self._options = options
        self._filters = parse_filters(args.filter)
        self._names = _DocumentNames()
        self._notes: Counter[str] = Counter()

    async def run(self, questions: Mapping[int, EvaluationQuestion]) -> list[_Outcome]:
        """Ask the questions, one after the other.

        Raises:
            LoomError: a knowledge base cannot be opened.
        """
        wanted = [name for each in questions.values() for name in each.documents]
        for source in await self._sources(questions.values()):
            await self._names.look_up(wanted, self._service, source)
        bar = ProgressBar("asking", "questions")
        outcomes: list[_Outcome] = []
        for line, question in questions.items():
            bar.show(len(outcomes), len(questions))
            outcomes.append(await self._judge(line, question))
        bar.show(len(outcomes), len(questions), final=True)
        return outcomes

    async def explain(self, outcomes: Sequence[_Outcome]) -> None:
        """Add the reasons to outcomes."""
        for each in outcomes:
            try:
                each.reasons = [str(each.error)] if each.error else await self._reasons(each)
            except LoomError as error:
                each.reasons = [str(error)]

    def notes(self) -> list[str]:
        """Return what to know about the results, such as that vectors or documents are missing."""
        of_answers = [
            f"{note} ({count(number, 'question')})" for note, number in self._notes.most_common(_LISTED)
        ]
        return [*of_answers, *self._names.notes()]

    async def _sources(self, questions: Iterable[EvaluationQuestion]) -> list[str]:
        """Return the names of the knowledge bases that are asked."""
        named = {name for each in questions if (name := self._source(each)) is not None}
        if any(self._source(each) is None for each in questions):
            named |= {source.name for source in await self._service.describe_sources()}
        return sorted(named)

    def _source(self, question: EvaluationQuestion) -> str | None:
        return question.kb or self._args.kb

    async def _judge(self, line: int, question: EvaluationQuestion) -> _Outcome:
        expected = self._expected(question)
        outcome = _Outcome(line=line, question=question, expected=expected, places=[None] * len(expected))
        began = time.perf_counter()
        try:
            result = await self._ask(question)
        except LoomError as error:
            outcome.error = error
            return outcome
        outcome.seconds = time.perf_counter() - began
        found = _results(question, result.passages)
        outcome.places, outcome.found = _places(expected, found), len(found)
        outcome.first = [each.title or display_uri(each.uri) for each in found[:_NAMED]]
        self._notes.update(filter(None, [coverage_line(result.embedded, result.total), *result.notes]))
        return outcome

    def _expected(self, question: EvaluationQuestion) -> list[_Expected]:
        ids = {name: self._names.find(name, self._source(question)) for name in question.documents}
        if not question.passages:
            return [_Expected(name=name, documents=found) for name, found in ids.items()]
        within = frozenset[str]().union(*ids.values()) if ids else None
        texts = {name: _normalise(name) for name in question.passages}
        return [_Expected(name=name, documents=within, text=text) for name, text in texts.items()]

    async def _ask(self, question: EvaluationQuestion, changes: Mapping[str, Any] = {}) -> QueryResult:
        asked: dict[str, Any] = {
            "source": self._source(question),
            "filters": self._filters | question.filters,
            "strategy": self._args.strategy,
            "options": self._options,
        }
        return await self._service.query(question.question, limit=_DEPTH, **{**asked, **changes})

    async def _reasons(self, outcome: _Outcome) -> list[str]:
        """Return why expected documents or passages have no better place, a line each."""
        question = outcome.question
        reasons = [
            f"{_short(name)} is not in the knowledge base.{self._names.suggest(name)}"
            for name in question.documents
            if not self._names.find(name, self._source(question))
        ]
        low = [
            (number, each)
            for number, each in enumerate(outcome.expected)
            if each.documents != frozenset() and (outcome.places[number] or _DEPTH) > len(outcome.expected)
        ]
        ways = await self._places_by_other_ways(question, outcome.expected) if low else {}
        for number, each in low:
            place = outcome.places[number]
            others = "; ".join(f"{way}: {_describe(places[number])}" for way, places in ways.items())
            if place is None and each.text and not await self._exists(each, question):
                reasons.append(
                    f"{_short(each.name)}: no passage has this text. It is not in the knowledge base, or it"
                    " is divided between passages: then give a shorter part of it."
                )
            else:
                missing = f"not among the {outcome.found} results" if outcome.found else "nothing was found"
                told = _describe(place) if place else missing
                reasons.append(f"{_short(each.name)}: {told} ({others})")
        if low and outcome.first:
            reasons.append(f"found first: {'; '.join(map(_short, outcome.first))}")
        return reasons

    async def _places_by_other_ways(
        self, question: EvaluationQuestion, expected: Sequence[_Expected]
    ) -> dict[str, Places]:
        """Return the places that parts of the search give, to tell which part is at fault."""
        changes: dict[str, dict[str, Any]] = {
            "words alone": {"strategy": "bm25"},
            "vectors alone": {"strategy": "vector_first"},
        }
        if self._filters or question.filters:
            changes["without filters"] = {"filters": None}
        places: dict[str, Places] = {}
        for way, change in changes.items():
            result = await self._ask(question, change)
            places[way] = _places(expected, _results(question, result.passages))
        return places

    async def _exists(self, expected: _Expected, question: EvaluationQuestion) -> bool:
        """Whether an expected passage is in a knowledge base at all: its own text finds it."""
        source = self._source(question)
        try:
            await self._service.fetch(expected.name, source=source, tokens=1)
        except NotFoundError:
            found = await self._service.query(expected.name, source=source, limit=_DEPTH, strategy="bm25")
            return any(expected.matches(each) for each in found.passages)
        return True


class _DocumentNames:
    """The documents that the questions name: by id, address, file name, end of a path, or title."""

    def __init__(self) -> None:
        self._ids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # by source and name
        self._wanted: dict[str, str] = {}
        self._candidates: dict[str, None] = {}

    async def look_up(self, names: Iterable[str], service: KnowledgeService, source: str) -> None:
        """Look up names among the documents of a knowledge base.

        Raises:
            LoomError: there is no such knowledge base.
        """
        self._wanted |= {_key(name): name for name in names}
        cursor = 0
        while rows := await service.list_documents(source, limit=_PAGE, cursor=cursor):
            cursor = rows[-1][0]
            for _, row in rows:
                for key in self._wanted.keys() & _keys(row):
                    self._ids[source, key].add(row.id)
                if len(self._candidates) < _MAX_CANDIDATES:
                    self._candidates |= {row.title: None, readable(row.uri).rpartition("/")[2]: None}

    def find(self, name: str, source: str | None) -> frozenset[str]:
        """Return the ids of the documents of a name, in one knowledge base or in all."""
        key = _key(name)
        sources = [source] if source else {each for each, _ in self._ids}
        return frozenset[str]().union(*(self._ids.get((each, key), ()) for each in sources))

    def suggest(self, name: str) -> str:
        """Return a question whether a similar name was meant; empty if there is none."""
        near = get_close_matches(name, self._candidates, n=1)
        return f" Did you mean {near[0]}?" if near else ""

    def notes(self) -> list[str]:
        """Return a note on the names of no document, and one on those of several."""
        numbers = {name: len(self.find(key, None)) for key, name in self._wanted.items()}
        none = [name for name, number in numbers.items() if not number]
        several = [f"{name} ({number})" for name, number in numbers.items() if number > 1]
        return [
            *([f"Not in the knowledge base: {_listed(none)}"] if none else ()),
            *([f"Names of several documents, of which any counts: {_listed(several)}"] if several else ()),
        ]


def _keys(row: DocumentRow) -> set[str]:
    """Return the names by which a document can be given."""
    parts = readable(row.uri).split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return {_key(name) for name in (row.id, row.uri, row.title, *ends)}


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip().removeprefix("./").casefold()


def _normalise(text: str) -> str:
    """Return a text without white space, which differs between the file and a passage."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _results(question: EvaluationQuestion, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages; or if documents are expected, the best one of each document."""
    if question.passages:
        return list(passages)
    best: dict[str, Passage] = {}
    for each in passages:
        best.setdefault(each.document_id, each)
    return list(best.values())


def _places(expected: Sequence[_Expected], found: Sequence[Passage]) -> Places:
    return [
        next((place for place, passage in enumerate(found, 1) if each.matches(passage)), None)
        for each in expected
    ]


def _describe(place: int | None) -> str:
    return f"place {place}" if place else "not found"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(map(_short, names[:_LISTED])) + (f" and {more} more." if more > 0 else ".")


def _print_report(outcomes: Sequence[_Outcome], values: Mapping[str, Sequence[float]]) -> None:
    width = max(map(len, METRICS))
    for name, each in values.items():
        low, high = confidence_interval(each)
        mean = strong(f"{sum(each) / len(each):.3f}")
        out(f"{name:{width}}  {mean}  ({low:.3f} to {high:.3f})")
    out(f"{count(len(outcomes), 'question')}; in brackets the 95 % confidence interval.")
    explained = [each for each in outcomes if each.reasons]
    if explained:
        out(f"\n{strong('Worst first')}")
    for each in explained:
        out(_short(each.title))
        for reason in each.reasons:
            out(f"    {reason}")


def _junit_case(outcome: _Outcome) -> JUnitCase:
    placed = [
        f"{each.name}: {_describe(place)}"
        for each, place in zip(outcome.expected, outcome.places, strict=True)
    ]
    return JUnitCase(
        name=outcome.title,
        seconds=outcome.seconds,
        error=str(outcome.error or ""),
        output="\n".join(outcome.reasons or placed),
    )
