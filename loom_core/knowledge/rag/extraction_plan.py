"""Estimate of extraction by a language model, and the user's confirmation of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError, ExtractionEstimate
from loom_core.knowledge.ingest.workers import Preparer
from loom_core.knowledge.store.prepared_documents import PreparedDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.store import JobItem, KnowledgeStore
    from loom_core.knowledge.store.prepared_documents import Prepared

__all__ = ["ExtractionPlan"]

_PORTION = 64  # documents that are prepared at a time, only to be counted
_ENOUGH = 64 << 10  # bytes that must be read before their rates are applied to other documents
# Bytes of each in unknown text; a token is three bytes in Chinese, four in English.
_TOKEN, _PASSAGE, _REQUEST = 3, 1_500, 9_000


class ExtractionPlan:
    """Estimates the cost of extraction: prepares documents as a job does, without asking the model.

    Args:
        store: the store; documents that are in it unchanged cost nothing.
        pipeline: loads and chunks the documents, and names the extractor.
        config: limits above which a job needs a confirmation.
        listing_seconds: for listing the sizes of unread documents.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        pipeline: Pipeline,
        config: ExtractionConfig,
        *,
        listing_seconds: float = 0.5,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._config = config
        self._listing_seconds = listing_seconds
        extractor = pipeline.extractor
        self._extractor = extractor if isinstance(extractor, LLMEntityExtractor) else None

    @property
    def uses_model(self) -> bool:
        """Whether a language model extracts entities."""
        return self._extractor is not None

    async def estimate(self, items: Iterable[JobItem], *, seconds: float | None = None) -> ExtractionEstimate:
        """Estimate the extraction from some documents; zero if no model is used.

        It takes as long as reading the documents. Unreadable documents are left out, as in a job.

        Args:
            items: of the documents.
            seconds: for reading documents; the rest is estimated by size.
        """
        total = ExtractionEstimate()
        if self._extractor is None:
            return total
        until = math.inf if seconds is None else time.monotonic() + seconds
        preparer = Preparer(self._pipeline)
        left = iter(items)
        size = 0  # of what is read
        unread: list[JobItem] = []
        try:
            while time.monotonic() < until and (
                portion := await to_thread.run_sync(lambda: list(islice(left, _PORTION)))
            ):
                preparation = preparer.begin(await to_thread.run_sync(self._with_hashes, portion))
                while not await to_thread.run_sync(preparer.work, preparation) and time.monotonic() < until:
                    pass
                made = list(preparation.made)
                unread = [one for one, result in zip(portion, made, strict=True) if result is None]
                size += sum(one.size for one in portion) - sum(one.size for one in unread)
                total += await to_thread.run_sync(self._estimate_documents, self._extractor, made)
        finally:
            preparer.close()
        return total + await to_thread.run_sync(self._by_size, chain(unread, left), total, size)

    async def require_confirmation(
        self, items: Iterable[JobItem], *, confirm: bool, seconds: float | None = None
    ) -> None:
        """Check that the model can be asked, and require confirmation of a large cost.

        Args:
            items: of the documents.
            confirm: whether a user agreed to it.
            seconds: see `estimate`.

        Raises:
            ConfigError: the model's package or key is missing.
            ConfirmationNeededError: extraction takes more than the configuration allows without `confirm`.
        """
        if self._extractor is None:
            return
        llm, config = self._extractor.llm, self._config
        if problem := await to_thread.run_sync(llm.problem):
            raise ConfigError(
                f"The language model {llm.name} ({llm.model}) cannot be asked: {problem}.",
                advice="Fix this, or work without a language model.",
            )
        if confirm or (config.confirm_tokens is None and config.confirm_cost is None):
            return
        estimate = await self.estimate(items, seconds=seconds)
        if estimate.more or config.takes_confirmation(estimate.tokens, estimate.cost):
            raise ConfirmationNeededError(estimate)

    def _by_size(self, unread: Iterable[JobItem], read: ExtractionEstimate, size: int) -> ExtractionEstimate:
        """Estimate, by their size, the extraction from documents that there is no time to read. Blocks.

        Args:
            unread: the documents.
            read: the estimate for the documents that were read.
            size: how many bytes these have.
        """
        rest = _list_unread(unread, seconds=self._listing_seconds)
        if not rest.documents:
            return ExtractionEstimate()
        times = rest.size / size if size >= _ENOUGH else 0.0
        tokens = rest.size // _TOKEN
        estimate = ExtractionEstimate(
            documents=rest.documents,
            passages=math.ceil(read.passages * times if times else rest.size / _PASSAGE),
            calls=math.ceil(read.calls * times if times else rest.size / _REQUEST),
            input_tokens=math.ceil(read.input_tokens * times) if times else tokens,
            output_tokens=math.ceil(read.output_tokens * times) if times else tokens,
            by_size=True,
            more=rest.more,
        )
        return replace(estimate, cost=estimate.cost_of(self._extractor.llm) if self._extractor else 0.0)

    def _with_hashes(self, items: Sequence[JobItem]) -> list[JobItem]:
        known = self._store.documents.hashes([item.uri for item in items])
        return [replace(item, known=known.get(item.uri, b"")) for item in items]

    def _estimate_documents(
        self, extractor: LLMEntityExtractor, made: Sequence[Prepared | None]
    ) -> ExtractionEstimate:
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        chunks = [chunk for document in documents for chunk in document.chunks]
        known = self._store.documents.same_chunks(chunks)
        estimate = extractor.estimate([chunk.chunk for chunk in chunks if chunk.id not in known])
        return replace(estimate, documents=len(documents))


@dataclass(frozen=True, slots=True)
class _Remainder:
    """Documents that were not read: how many, their bytes, and whether there are more."""

    documents: int = 0
    size: int = 0
    more: bool = False


def _list_unread(items: Iterable[JobItem], *, seconds: float) -> _Remainder:
    """List the documents that there is no time to read, for some seconds. Blocks."""
    until = time.monotonic() + seconds
    documents = size = 0
    for item in items:
        documents, size = documents + 1, size + item.size
        if time.monotonic() > until:
            return _Remainder(documents, size, more=True)
    return _Remainder(documents, size)
