"""Prefetch of knowledge from a source as soon as a message arrives, with a cache of answers."""

from __future__ import annotations

import logging
import re
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import anyio

from loom_core.errors import LoomError
from loom_core.knowledge.sources.context_retriever import context_of
from loom_core.knowledge.sources.federation.federation import timeout_message
from loom_core.knowledge.sources.small_talk import needs_retrieval
from loom_core.observability.families import FLOW_KNOWLEDGE as QUESTIONS
from loom_core.observability.families import FLOW_KNOWLEDGE_SECONDS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import FLOW_KNOWLEDGE
from loom_core.observability.tracing import record_failure, span
from loom_core.redaction import redact_log_text

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskGroup

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.sources.context_retriever import ContextOutcome
    from loom_core.tools.interface import JsonValue

__all__ = [
    "TENANCY",
    "AnswerCache",
    "FlowKnowledge",
    "KnowledgeAnswer",
    "KnowledgeExecutor",
    "KnowledgePrefetch",
    "normalize_question",
]

TENANCY = ("tenantId", "chatbotId")
"""Context variables that isolate tenants: an answer for one must never reach another."""

_BLANKS = re.compile(r"\s+")
_AT_THE_END = " .。!！?？~～…"


class FlowKnowledge(Protocol):
    """A knowledge source whose answers may depend on the user."""

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """Return the cache key of a question: the same for two questions only if one answer serves both.

        It is called before the query, and must not block.

        Raises:
            LoomError: such a question is not possible.
        """
        ...

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """Return the passages that may answer a message, best first.

        Raises:
            LoomError: the query failed; the message says why.
        """
        ...


@runtime_checkable
class _SupportsWarmUp(Protocol):
    """A knowledge source that has to load before it can answer."""

    async def warm_up(self) -> None:
        """Load it.

        Raises:
            LoomError: it cannot be loaded.
        """
        ...


def normalize_question(message: str) -> str:
    """Normalize a question: width, case, whitespace and final punctuation do not count."""
    plain = _BLANKS.sub(" ", unicodedata.normalize("NFKC", message)).strip().casefold()
    return plain.rstrip(_AT_THE_END) or plain


_FETCH_SECONDS = 10.0
_WARM_SECONDS = 60.0
_TOGETHER = 8
_STOPPED = "No caller waited for it."


@dataclass(frozen=True, slots=True)
class KnowledgeAnswer:
    """Knowledge about a message.

    Attributes:
        outcome: the outcome.
        items: the passages, best first.
        problem: the error, in a sentence; empty if there was none.
        seconds: duration of the query; 0 for a cached answer.
    """

    outcome: ContextOutcome
    items: tuple[KnowledgeItem, ...] = ()
    problem: str = ""
    seconds: float = 0.0

    def text(self, message: str, *, max_tokens: int = 1500) -> str:
        """Return the passages as quoted data with citations, for a model; empty without any."""
        return context_of(self.items, message, max_tokens=max_tokens).text


@dataclass(slots=True, eq=False)
class _InFlightQuery:
    """A query in flight, and the number of its waiters."""

    key: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: KnowledgeAnswer | None = None
    waiting: int = 0


class KnowledgePrefetch:
    """A started query; its caller waits for the answer or cancels it.

    As a context manager, it cancels the query at the end if no caller has waited for it.
    """

    def __init__(
        self,
        answer: KnowledgeAnswer | _InFlightQuery,
        *,
        seconds: float,
        first_seconds: Callable[[], float],
        let_go: Callable[[_InFlightQuery], None],
    ) -> None:
        self._first_seconds = first_seconds
        self._flight = answer if isinstance(answer, _InFlightQuery) else None
        self._answer = None if isinstance(answer, _InFlightQuery) else answer
        self._seconds = seconds
        self._let_go = let_go

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    async def answer(self, seconds: float | None = None) -> KnowledgeAnswer:
        """Return the answer; it never raises and never exceeds its timeout.

        During the warm-up of the source, the timeout is that of a query. A query that exceeds the caller's
        timeout continues for a while, so that the next caller finds its answer.

        Args:
            seconds: timeout from now on; by default that of the file.
        """
        if self._flight is not None:
            limit = max(self._seconds if seconds is None else seconds, self._first_seconds())
            with anyio.move_on_after(limit):
                await self._flight.done.wait()
            self._answer = self._flight.answer or KnowledgeAnswer("late", problem=timeout_message(limit))
            self._flight = None
        return self._answer or KnowledgeAnswer("not_needed", problem=_STOPPED)

    def cancel(self) -> None:
        """Give up the answer; without other waiters, the query is cancelled."""
        flight, self._flight = self._flight, None
        if flight is not None and not flight.done.is_set():
            self._let_go(flight)


class KnowledgeExecutor:
    """Executor of queries to a knowledge source, with a cache; an asynchronous context manager.

    Concurrent queries with the same question and tenant are deduplicated, and answers are cached. Errors are
    not cached. A failing or slow source never fails a message, and never delays it longer than the caller's
    timeout.

    Args:
        source: the source; None for none.
        seconds: default timeout of callers (`knowledge_seconds`).
        cache_seconds: time to live of answers (`knowledge_cache_seconds`).
        cache: cache of answers; by default one of its own.
        fetch_seconds: timeout of a query.
        now: monotonic clock in seconds, for the cache.
    """

    def __init__(
        self,
        source: FlowKnowledge | None,
        *,
        seconds: float = 2.0,
        cache_seconds: float = 300.0,
        cache: AnswerCache | None = None,
        fetch_seconds: float = _FETCH_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._seconds = seconds
        self._fetch_seconds = max(fetch_seconds, seconds)
        self._cache = AnswerCache(seconds=cache_seconds, now=now) if cache is None else cache
        self._flights: dict[str, _InFlightQuery] = {}
        self._places = anyio.Semaphore(_TOGETHER)
        self._tasks: TaskGroup | None = None
        self._is_warming = False

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        if isinstance(self._source, _SupportsWarmUp):
            self._is_warming = True
            self._tasks.start_soon(self._warm, self._source)
        return self

    async def _warm(self, source: _SupportsWarmUp) -> None:
        """Load what the source needs, so that the first query is not slow."""
        try:
            with anyio.move_on_after(_WARM_SECONDS):
                await source.warm_up()
        except LoomError as error:  # the first query reports the reason
            _log.info("a knowledge source is not ready: %s", error)
        except Exception:  # noqa: BLE001 - sources are others' code, and this is the task's end
            _log.exception("a knowledge source failed unexpectedly")
        finally:
            self._is_warming = False

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(kind, error, trace)

    def pre_query(self, message: str, context: Mapping[str, JsonValue]) -> KnowledgePrefetch:
        """Start a query about a message, without waiting.

        Raises:
            RuntimeError: it is used outside of its context.
        """
        return KnowledgePrefetch(
            self._start(message, context),
            seconds=self._seconds,
            first_seconds=lambda: self._fetch_seconds if self._is_warming else 0.0,
            let_go=self._release,
        )

    def _start(self, message: str, context: Mapping[str, JsonValue]) -> KnowledgeAnswer | _InFlightQuery:
        source = self._source
        if source is None or not needs_retrieval(message):
            return KnowledgeAnswer("not_needed")
        try:
            key = source.identity(message, context)
        except LoomError as error:
            return _answer_from_error(error)
        items = self._cache.get(key)
        if items is not None:
            _record_cache_hit("cached")
            return _answer_from_items(items)
        flight = self._flights.get(key)
        if flight is None:
            if self._tasks is None:
                raise RuntimeError("use a KnowledgeExecutor as a context manager")
            flight = self._flights[key] = _InFlightQuery(key)
            self._tasks.start_soon(self._fetch, source, flight, message, dict(context))
        else:
            _record_cache_hit("shared")
        flight.waiting += 1
        return flight

    async def _fetch(
        self, source: FlowKnowledge, flight: _InFlightQuery, message: str, context: Mapping[str, JsonValue]
    ) -> None:
        answer = KnowledgeAnswer("late", problem=timeout_message(self._fetch_seconds))
        try:
            with _lookup_span() as note:
                answer = await self._query(source, flight, message, context) or answer
                if flight.waiting > 0 or answer.outcome != "late":
                    note(answer)
        finally:
            self._forget(flight)
            flight.answer = answer
            flight.done.set()

    async def _query(
        self, source: FlowKnowledge, flight: _InFlightQuery, message: str, context: Mapping[str, JsonValue]
    ) -> KnowledgeAnswer | None:
        """Return the answer of a source; None on timeout, or if no caller waits for it any more."""
        began = anyio.current_time()
        flight.scope.deadline = began + self._fetch_seconds
        try:
            with flight.scope:
                async with self._places:
                    items = tuple(await source.find(message, context))
                self._cache.put(flight.key, items)
                return _answer_from_items(items, seconds=anyio.current_time() - began)
        except LoomError as error:
            return _answer_from_error(error, seconds=anyio.current_time() - began)
        except Exception as error:  # noqa: BLE001 - sources are others' code, and this is the task's end
            _log.exception("a knowledge source failed unexpectedly")
            problem = f"The source failed unexpectedly: {type(error).__name__}."
            return KnowledgeAnswer("failed", problem=problem, seconds=anyio.current_time() - began)
        return None

    def _release(self, flight: _InFlightQuery) -> None:
        flight.waiting -= 1
        if flight.waiting <= 0:
            self._forget(flight)
            flight.scope.cancel()

    def _forget(self, flight: _InFlightQuery) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]


def _answer_from_items(items: tuple[KnowledgeItem, ...], *, seconds: float = 0.0) -> KnowledgeAnswer:
    return KnowledgeAnswer("retrieved" if items else "nothing", items, seconds=seconds)


def _answer_from_error(error: LoomError, *, seconds: float = 0.0) -> KnowledgeAnswer:
    _log.warning("no knowledge about a message: %s", error)
    return KnowledgeAnswer("failed", problem=redact_log_text(str(error)), seconds=seconds)


_OPERATION = {"gen_ai.operation.name": "retrieval"}
_FAILED: frozenset[ContextOutcome] = frozenset({"failed", "late"})


@contextmanager
def _lookup_span() -> Generator[Callable[[KnowledgeAnswer], None]]:
    """Start the span of a query to a source; yield a function that records its answer."""
    began, outcome = perf_counter(), "dropped"
    with span(FLOW_KNOWLEDGE, _OPERATION) as started:

        def note(answer: KnowledgeAnswer) -> None:
            nonlocal outcome
            outcome = answer.outcome
            started.set_attribute("retrieval.result_count", len(answer.items))
            if outcome in _FAILED:
                record_failure(started, outcome)

        try:
            yield note
        finally:
            started.set_attribute("loom.flow.knowledge", outcome)
            process_metrics.add(QUESTIONS, outcome)
            process_metrics.observe(FLOW_KNOWLEDGE_SECONDS, perf_counter() - began)


def _record_cache_hit(how: Literal["cached", "shared"]) -> None:
    """Record a query that was answered from the cache or joined one in flight."""
    with span(FLOW_KNOWLEDGE, {**_OPERATION, "loom.flow.knowledge": how}):
        process_metrics.add(QUESTIONS, how)


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    items: tuple[KnowledgeItem, ...]
    until: float
    size: int


class AnswerCache:
    """LRU cache of passages by question, with a time to live.

    A time to live of 0 seconds is no cache; `characters` is the maximum size of all answers.
    """

    def __init__(
        self,
        *,
        seconds: float,
        most: int = 1000,
        characters: int = 4_000_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._characters = characters
        self._now = now
        self._kept: OrderedDict[str, _CacheEntry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> tuple[KnowledgeItem, ...] | None:
        """Return the cached passages; None if there are none or they have expired."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._now():
            self._forget(key)
            return None
        self._kept.move_to_end(key)
        return kept.items

    def put(self, key: str, items: tuple[KnowledgeItem, ...]) -> None:
        """Cache passages, also an empty result."""
        self._forget(key)
        size = sum(len(item.content) for item in items)
        if self._seconds <= 0 or size > self._characters:
            return
        self._kept[key] = _CacheEntry(items, self._now() + self._seconds, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._characters:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


_log = logging.getLogger(__name__)
