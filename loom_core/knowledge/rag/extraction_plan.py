"""What extraction by a language model will take, and whether somebody has to agree to it first."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import InvalidInputError
from loom_core.knowledge.extraction.estimate import ExtractionEstimate
from loom_core.knowledge.extraction.llm import LLMEntityExtractor
from loom_core.knowledge.loaders import scan
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.preparing import Material, Preparer, draft_payload
from loom_core.knowledge.record.prepared import PreparedDocument
from loom_core.knowledge.stored import packed_draft, stored_drafts
from loom_core.knowledge.uris import uri_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from loom_core.knowledge.extraction.config import ExtractionConfig
    from loom_core.knowledge.pipeline import Pipeline
    from loom_core.knowledge.preparing.making import Made
    from loom_core.knowledge.record import Record
    from loom_core.storage import Database

__all__ = ["ExtractionPlan", "draft_materials", "path_materials", "stored_materials"]

_PORTION = 64  # documents that are prepared at a time, only to be counted


class ExtractionPlan:
    """Prepares documents as a job would, up to the point where the model would be asked.

    Args:
        record: what is there already, and costs nothing.
        pipeline: prepares.
        config: above what a job needs a confirmation.
    """

    def __init__(self, record: Record, pipeline: Pipeline, config: ExtractionConfig) -> None:
        self._record = record
        self._pipeline = pipeline
        self._config = config
        extractor = pipeline.extractor
        self._extractor = extractor if isinstance(extractor, LLMEntityExtractor) else None

    async def estimate(self, materials: Iterable[Material]) -> ExtractionEstimate:
        """About what extraction from some documents will take; nothing where no model is asked.

        It takes as long as reading the documents. What cannot be read is left out, as a job leaves it out.
        """
        total = ExtractionEstimate()
        if self._extractor is None:
            return total
        preparer = Preparer(self._pipeline)
        left = iter(materials)
        try:
            while portion := await to_thread.run_sync(lambda: list(islice(left, _PORTION))):
                preparation = preparer.begin(await to_thread.run_sync(self._with_hashes, portion))
                while not await to_thread.run_sync(preparer.work, preparation):
                    pass
                total += await to_thread.run_sync(self._estimated, self._extractor, preparation.made)
        finally:
            preparer.close()
        return total

    async def agree(self, materials: Iterable[Material], *, confirm: bool) -> None:
        """See that nobody pays by accident.

        Raises:
            InvalidInputError: extraction takes more than the configuration allows without `confirm`.
        """
        tokens, cost = self._config.confirm_tokens, self._config.confirm_cost
        if confirm or self._extractor is None or (tokens is None and cost is None):
            return
        estimate = await self.estimate(materials)
        is_large = tokens is not None and estimate.tokens > tokens
        is_dear = cost is not None and estimate.cost is not None and estimate.cost > cost
        if is_large or is_dear:
            raise InvalidInputError(
                f"A language model is to read much: {estimate}. Nothing was done.",
                advice="Confirm it (confirm=True), do less, or raise confirm_tokens and confirm_cost.",
            )

    def _with_hashes(self, materials: Sequence[Material]) -> list[Material]:
        known = self._record.documents.hashes([material.uri for material in materials])
        return [replace(material, known=known.get(material.uri, b"")) for material in materials]

    def _estimated(self, extractor: LLMEntityExtractor, made: Sequence[Made | None]) -> ExtractionEstimate:
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        chunks = [chunk for document in documents for chunk in document.chunks]
        known = self._record.documents.same_chunks(chunks)
        estimate = extractor.estimate([chunk.chunk for chunk in chunks if chunk.id not in known])
        return replace(estimate, documents=len(documents))


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
) -> Iterator[Material]:
    """What the documents of files and folders are prepared from. Blocks while it looks for them.

    Raises:
        InvalidInputError: a pattern is malformed.
    """
    for path in paths:
        for entry in scan(path, include=include, exclude=exclude) if path.exists() else ():
            if not entry.skipped:
                yield Material(uri_of(entry.path), None, metadata or {}, size=entry.size)
