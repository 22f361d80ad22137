"""What extraction by a language model will take, and whether somebody has to agree to it first."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError, ExtractionEstimate
from loom_core.knowledge.ingest.loaders import scan
from loom_core.knowledge.ingest.stored_documents import packed_draft, stored_drafts
from loom_core.knowledge.ingest.workers import Material, Preparer, draft_payload
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store.prepared import PreparedDocument
from loom_core.knowledge.uris import uri_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.ingest.workers.material import Made
    from loom_core.knowledge.store import Record
    from loom_core.storage import Database

__all__ = ["ExtractionPlan", "draft_materials", "path_materials", "stored_materials"]

_PORTION = 64  # documents that are prepared at a time, only to be counted
_ENOUGH = 64 << 10  # bytes that were read, and say how much there is in others
# Of text of which nothing is known; Chinese has a token in three bytes, English one in four.
_TOKEN, _PASSAGE, _REQUEST = 3, 1_500, 9_000


class ExtractionPlan:
    """Prepares documents as a job would, up to the point where the model would be asked.

    Args:
        record: what is there already, and costs nothing.
        pipeline: prepares.
        config: above what a job needs a confirmation.
        listing_seconds: for finding the sizes of documents that there is no time to read.
    """

    def __init__(
        self, record: Record, pipeline: Pipeline, config: ExtractionConfig, *, listing_seconds: float = 0.5
    ) -> None:
        self._record = record
        self._pipeline = pipeline
        self._config = config
        self._listing_seconds = listing_seconds
        extractor = pipeline.extractor
        self._extractor = extractor if isinstance(extractor, LLMEntityExtractor) else None

    @property
    def by_model(self) -> bool:
        """Whether a language model is asked."""
        return self._extractor is not None

    async def estimate(
        self, materials: Iterable[Material], *, seconds: float | None = None
    ) -> ExtractionEstimate:
        """About what extraction from some documents will take; nothing where no model is asked.

        It takes as long as reading the documents. What cannot be read is left out, as a job leaves it out.

        Args:
            materials: of the documents.
            seconds: so long documents are read; what takes longer is judged by the sizes of the others.
        """
        total = ExtractionEstimate()
        if self._extractor is None:
            return total
        until = math.inf if seconds is None else time.monotonic() + seconds
        preparer = Preparer(self._pipeline)
        left = iter(materials)
        size = 0  # of what is read
        unread: list[Material] = []
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
                total += await to_thread.run_sync(self._estimated, self._extractor, made)
        finally:
            preparer.close()
        return total + await to_thread.run_sync(self._by_size, chain(unread, left), total, size)

    async def agree(
        self, materials: Iterable[Material], *, confirm: bool, seconds: float | None = None
    ) -> None:
        """See that the model can be asked, and that nobody pays by accident.

        Args:
            materials: of the documents.
            confirm: whether somebody agreed to it.
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
                advice="Put that right, or do without a language model.",
            )
        if confirm or (config.confirm_tokens is None and config.confirm_cost is None):
            return
        estimate = await self.estimate(materials, seconds=seconds)
        if estimate.more or config.takes_confirmation(estimate.tokens, estimate.cost):
            raise ConfirmationNeededError(estimate)

    def _by_size(self, unread: Iterable[Material], read: ExtractionEstimate, size: int) -> ExtractionEstimate:
        """What documents will take that there is no time to read. Blocks.

        Args:
            unread: the documents.
            read: what others will take,
            size: and how many bytes these have.
        """
        rest = _listed(unread, seconds=self._listing_seconds)
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

    def _with_hashes(self, materials: Sequence[Material]) -> list[Material]:
        known = self._record.documents.hashes([material.uri for material in materials])
        return [replace(material, known=known.get(material.uri, b"")) for material in materials]

    def _estimated(self, extractor: LLMEntityExtractor, made: Sequence[Made | None]) -> ExtractionEstimate:
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        chunks = [chunk for document in documents for chunk in document.chunks]
        known = self._record.documents.same_chunks(chunks)
        estimate = extractor.estimate([chunk.chunk for chunk in chunks if chunk.id not in known])
        return replace(estimate, documents=len(documents))


@dataclass(frozen=True, slots=True)
class _Rest:
    """How many documents were not read, their bytes, and whether there are more."""

    documents: int = 0
    size: int = 0
    more: bool = False


def _listed(materials: Iterable[Material], *, seconds: float) -> _Rest:
    """Documents that there is no time to read, as far as they are found in some seconds. Blocks."""
    until = time.monotonic() + seconds
    documents = size = 0
    for material in materials:
        documents, size = documents + 1, size + material.size
        if time.monotonic() > until:
            return _Rest(documents, size, more=True)
    return _Rest(documents, size)


def draft_materials(documents: Sequence[DocumentDraft]) -> Iterator[Material]:
    """What documents are prepared from that are given as they are."""
    for draft in documents:
        payload = draft_payload(draft)
        yield Material(draft.uri, payload, size=len(payload))


def stored_materials(database: Database) -> Iterator[Material]:
    """What the documents of the record are prepared from, if that is done anew. Blocks."""
    for uri, draft in stored_drafts(database):
        if isinstance(draft, DocumentDraft):
            payload = json.dumps(packed_draft(draft), ensure_ascii=False).encode("utf-8", "replace")
            yield Material(uri, payload, size=len(payload))


def path_materials(
    paths: Sequence[Path],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    metadata: dict[str, Any] | None = None,
    within: Sequence[Path] = (),
) -> Iterator[Material]:
    """What the documents of files and folders are prepared from. Blocks while it looks for them.

    Raises:
        InvalidInputError: a pattern is malformed.
    """
    for path in paths:
        found = scan(path, include=include, exclude=exclude, within=within) if path.exists() else ()
        for entry in found:
            if not entry.skipped:
                yield Material(uri_of(entry.path), None, metadata or {}, size=entry.size)
