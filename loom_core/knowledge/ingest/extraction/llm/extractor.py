"""Extraction by a language model, in addition to the rules."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import LLMError
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.ingest.extraction.llm.prompts import (
    PROMPT_VERSION,
    format_passages,
    instruction,
    output_schema,
)
from loom_core.knowledge.ingest.extraction.llm.reply import parse_reply
from loom_core.knowledge.ingest.extraction.llm.span_alignment import (
    AlignedExtraction,
    align_spans,
    merge_with_rules,
)
from loom_core.knowledge.ingest.extraction.rules import RuleExtractor
from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
from loom_core.knowledge.validation import require_positive
from loom_core.llm.text import compact_json
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.errors import ModelFailure
    from loom_core.knowledge.ingest.extraction.llm.reply import RawExtraction
    from loom_core.knowledge.model import Chunk, Extraction
    from loom_core.llm.interface import LLMProvider

__all__ = ["ExtractionUsage", "LLMEntityExtractor", "PassageGroup", "portions"]

_log = logging.getLogger(__name__)

_FOR_ALL: frozenset[ModelFailure] = frozenset(
    {"authentication", "not_found", "quota", "rate_limit", "overloaded", "connection", "unavailable"}
)
"""Failures that affect all requests: the provider has retried transient ones already."""
_FOR_THESE: frozenset[ModelFailure] = frozenset({"too_long", "unreadable", "refused"})
"""Failures due to the passages, or to their number."""
_FOR_SO_MANY: frozenset[ModelFailure] = frozenset({*_FOR_THESE, "invalid_request", "timeout"})
"""Failures that may be due to the number of passages."""


@dataclass(frozen=True, slots=True)
class ExtractionUsage:
    """Usage of extraction by the model so far.

    Attributes:
        calls: number of requests, including failed ones.
        passages: number of passages extracted from by the model.
        by_rules: number of passages extracted from by rules only, as the model failed.
        input_tokens: input tokens of all answered requests.
        output_tokens: output tokens of all answered requests.
        cost: cost in US dollars; None if a price is not known.
    """

    calls: int = 0
    passages: int = 0
    by_rules: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0


class LLMEntityExtractor:
    """Extracts entities and relations with a language model, and with rules.

    Several passages go into one request. Whatever the model answers, only findings that occur in a passage
    are kept, in its own spelling. Passages that the reply lacks are requested again, one by one; if that
    fails too, only the rules extract from them, and `Extraction.problem` says why. The rules always run: they
    cost nothing, and find the subjects of a passage, on which retrieval relies.

    If the model is unavailable, `extract` raises: stored passages are not extracted from again, so a fallback
    to the rules would silently lose the model's findings.

    Args:
        llm: the model.
        config: types, predicates, hints and limits.
        request_tokens: maximum tokens of passages in one request, by `estimate_tokens`; a longer passage is
            sent alone.
        request_passages: maximum number of passages in one request; reduced after a timeout.
        max_tokens: limit of an answer; models that think first need room for it.
        concurrency: maximum number of concurrent requests.
        timeout: seconds for one answer, including the provider's waits and retries.
        max_failures: number of consecutive failed requests after which extraction stops.

    Raises:
        ConfigError: a number is not above 0.
    """

    def __init__(
        self,
        llm: LLMProvider,
        config: ExtractionConfig | None = None,
        *,
        request_tokens: int = 3000,
        request_passages: int = 8,
        max_tokens: int = 8000,
        concurrency: int = 4,
        timeout: float = 300.0,
        max_failures: int = 4,
    ) -> None:
        require_positive(
            of="extraction",
            request_tokens=request_tokens,
            request_passages=request_passages,
            max_tokens=max_tokens,
            concurrency=concurrency,
            timeout=timeout,
            max_failures=max_failures,
        )
        self._llm = llm
        self._config = config or ExtractionConfig()
        self._rules = RuleExtractor(self._config.rule_settings())
        self._schema = output_schema(self._config)
        self._request_tokens = request_tokens
        self._request_passages = request_passages
        self._max_tokens = max_tokens
        self._concurrency = concurrency
        self._timeout = timeout
        self._max_failures = max_failures
        self._failures = 0  # in a row
        self._paid: dict[Chunk, Extraction] = {}  # results from before extraction stopped
        self.spent = ExtractionUsage()
        """Usage of this extractor so far, in this process."""

    @property
    def id(self) -> str:
        """The prompt's and the rules' version and the settings.

        The model is not part of it: a user who changes the model in the middle of a corpus does not pay twice
        for finished passages.
        """
        config = self._config
        asked = json.dumps([config.entity_types, config.relation_types, config.hints], ensure_ascii=False)
        return f"llm-{PROMPT_VERSION}/{hashlib.sha256(asked.encode()).hexdigest()[:12]}/{self._rules.id}"

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        """Return one extraction for each chunk, in order.

        After an error it may be called again, and requests only the remaining passages.

        Raises:
            LLMError: the model is unavailable: its key or account is refused, it is overloaded, unreachable,
                or it failed `max_failures` times in a row.
        """
        paid = {chunk: self._paid[chunk] for chunk in chunks if chunk in self._paid}
        new = [chunk for chunk in chunks if chunk not in paid]
        found: dict[int, Extraction] = dict(enumerate(await self._rules.extract(new)))
        read: dict[int, Extraction] = {}
        limit = anyio.CapacityLimiter(self._concurrency)
        stopped: list[LLMError] = []

        async def ask(portion: PassageGroup) -> None:
            async with limit:
                try:
                    read.update(await self._read(portion, found))
                except LLMError as error:
                    stopped.append(error)
                    tasks.cancel_scope.cancel()  # before the next request starts

        async with anyio.create_task_group() as tasks:
            for portion in self._portions(new):
                tasks.start_soon(ask, portion)
        if stopped:
            self._paid = paid | {new[number]: each for number, each in read.items() if not each.problem}
            raise _stopping(stopped[0], self._llm)
        self._paid = {}
        in_order = iter([read.get(number, by_rules) for number, by_rules in found.items()])
        return [paid[chunk] if chunk in paid else next(in_order) for chunk in chunks]

    @property
    def llm(self) -> LLMProvider:
        """The model."""
        return self._llm

    def estimate(self, chunks: Sequence[Chunk]) -> ExtractionEstimate:
        """Estimate what extraction from some chunks will take, if no request is repeated."""
        planned = self._portions(chunks)
        passages = [chunk for portion in planned for chunk in portion.chunks]
        form = estimate_tokens(compact_json(self._schema.schema))  # some vendors get none
        estimate = ExtractionEstimate(
            passages=len(passages),
            calls=len(planned),
            input_tokens=sum(
                form
                + estimate_tokens(self._instruction(portion))
                + estimate_tokens(format_passages(portion.chunks))
                for portion in planned
            ),
            output_tokens=sum(map(self._answer_tokens, passages)),
        )
        return replace(estimate, cost=estimate.cost_of(self._llm))

    def _portions(self, chunks: Sequence[Chunk]) -> list[PassageGroup]:
        return portions(chunks, tokens=self._request_tokens, most=self._request_passages)

    def _instruction(self, portion: PassageGroup) -> str:
        return instruction(self._config, chinese=portion.chinese)

    def _answer_tokens(self, chunk: Chunk) -> int:
        """Estimate the answer's tokens: about as many as the passage has, as JSON adds braces and keys."""
        limit = 20 * self._config.max_entities_per_chunk + 30 * self._config.max_relations_per_chunk
        return 20 + min(estimate_tokens(chunk.text), limit)

    async def _read(self, portion: PassageGroup, found: dict[int, Extraction]) -> dict[int, Extraction]:
        """Extract from some chunks; return the results by number."""
        try:
            said = await self._ask(portion)
        except LLMError as error:
            if error.failure in _FOR_ALL:
                raise
            if len(portion.chunks) > 1 and error.failure in _FOR_SO_MANY:
                if error.failure == "timeout":
                    self._request_passages = max(1, len(portion.chunks) // 2)
                return await self._read_singly(portion, portion.numbers, found)
            if error.failure not in _FOR_THESE:
                self._failures += 1
                if self._failures >= self._max_failures:
                    raise
            return self._by_rules(portion, found, error.message)
        self._failures = 0
        read: dict[int, Extraction] = {}
        for shown_as, (number, chunk) in enumerate(
            zip(portion.numbers, portion.chunks, strict=True), start=1
        ):
            placed = self._align(said, chunk, None if len(portion.chunks) == 1 else shown_as)
            if placed is not None:
                read[number] = merge_with_rules(placed, found[number], config=self._config)
        self._count(passages=len(read))
        left = [number for number in portion.numbers if number not in read]
        return read | await self._read_singly(portion, left, found)

    async def _read_singly(
        self, portion: PassageGroup, numbers: Sequence[int], found: dict[int, Extraction]
    ) -> dict[int, Extraction]:
        """Ask for some chunks of a portion one by one."""
        read: dict[int, Extraction] = {}
        for number in numbers:
            read |= await self._read(portion.only(number), found)
        return read

    def _by_rules(
        self, portion: PassageGroup, found: dict[int, Extraction], why: str
    ) -> dict[int, Extraction]:
        _log.info("%d passages were extracted by rules only: %s", len(portion.numbers), why)
        self._count(by_rules=len(portion.numbers))
        return {number: replace(found[number], problem=why) for number in portion.numbers}

    def _align(self, said: RawExtraction, chunk: Chunk, number: int | None) -> AlignedExtraction | None:
        """Align the findings about one passage; None if the reply does not cover the passage.

        Args:
            said: the parsed reply.
            chunk: the passage.
            number: its number in the request; None if it was the only one.
        """
        about = {number, None}
        entities = [e for e in said.entities if number is None or e.passage in about]
        relations = [r for r in said.relations if number is None or r.passage in about]
        placed = align_spans(chunk.text, entities, relations, config=self._config)
        # Findings without a number belong to the passages in which they occur.
        is_told = number is None or number in said.passages or (None in said.passages and not said.entities)
        return placed if is_told or placed.mentions else None

    async def _ask(self, portion: PassageGroup) -> RawExtraction:
        """Ask for some passages.

        Raises:
            LLMError: the model fails, refuses, does not answer in time, or its answer is unusable.
        """
        self._count(calls=1)
        try:
            with anyio.fail_after(self._timeout):
                response = await self._llm.chat(
                    [
                        {"role": "system", "content": self._instruction(portion)},
                        {"role": "user", "content": format_passages(portion.chunks)},
                    ],
                    max_tokens=self._max_tokens,
                    temperature=0.0,
                    effort="off",
                    output=self._schema,
                )
        except TimeoutError:
            raise LLMError(
                f"The language model gave no answer within {self._timeout:g} s.", failure="timeout"
            ) from None
        usage = response.usage
        self._count(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        cost = self.spent.cost
        known = None if cost is None or usage.cost is None else cost + usage.cost
        self.spent = replace(self.spent, cost=known)
        if response.finish == "refused":
            raise LLMError("The language model refuses to read the passage.", failure="refused")
        said = parse_reply(response.content)
        if not said.passages:
            raise LLMError("The answer of the language model is unusable.", failure="unreadable")
        return said

    def _count(self, **more: int) -> None:
        now = {name: getattr(self.spent, name) + number for name, number in more.items()}
        self.spent = replace(self.spent, **now)


def _stopping(error: LLMError, llm: LLMProvider) -> LLMError:
    model = f"{llm.name} ({llm.model})" if llm.model else llm.name
    return LLMError(
        f"Extraction with the language model {model} has stopped: {error.message}",
        advice=f"{error.advice} Stored documents stay; the job continues once the model is back.".strip(),
        failure=error.failure,
        provider=error.provider,
        status=error.status,
        retry_after=error.retry_after,
    )


@dataclass(frozen=True, slots=True)
class PassageGroup:
    """Passages of one request.

    Attributes:
        numbers: indexes of the chunks in the input, from 0.
        chunks: the chunks.
        chinese: whether they are in Chinese, which decides the language of the prompt.
    """

    numbers: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    chinese: bool

    def only(self, number: int) -> PassageGroup:
        """Return a group of one of its chunks alone."""
        return PassageGroup((number,), (self.chunks[self.numbers.index(number)],), self.chinese)


def portions(chunks: Sequence[Chunk], *, tokens: int, most: int) -> list[PassageGroup]:
    """Group chunks into requests, in order, Chinese ones separately; chunks without a word are dropped.

    Args:
        chunks: the chunks.
        tokens: maximum tokens of chunks in one request, by `estimate_tokens`; a longer chunk is alone.
        most: maximum number of chunks in one request.
    """
    divided: list[PassageGroup] = []
    for chinese in (False, True):
        numbers: list[int] = []
        left = 0
        for number, chunk in enumerate(chunks):
            if (chunk.language == "zh") != chinese or not any(map(str.isalnum, chunk.text)):
                continue
            size = estimate_tokens(chunk.text)
            if numbers and (size > left or len(numbers) == most):
                divided.append(_portion(chunks, numbers, chinese=chinese))
                numbers = []
            if not numbers:
                left = tokens
            numbers.append(number)
            left -= size
        if numbers:
            divided.append(_portion(chunks, numbers, chinese=chinese))
    return divided


def _portion(chunks: Sequence[Chunk], numbers: Sequence[int], *, chinese: bool) -> PassageGroup:
    return PassageGroup(tuple(numbers), tuple(chunks[number] for number in numbers), chinese)
