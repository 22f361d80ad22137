"""Having an extractor of the program's own read what was prepared, such as a language model."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import LLMError, unwrapped
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
from loom_core.knowledge.ingest.workers.preparation import Failed
from loom_core.knowledge.store.prepared import PreparedDocument
from loom_core.llm.interface import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.extraction.llm.extractor import ExtractionSpent
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.ingest.workers.preparation import Made
    from loom_core.knowledge.store import Job, Record

__all__ = ["ExtractionStep"]

_log = logging.getLogger(__name__)


class ExtractionStep:
    """Has a pipeline's own extractor read documents, for as long as their job is wanted.

    What a language model takes for a job is written down with the job. A job that nobody agreed to ends where
    the model would take more than the configuration allows: web pages are not known before they are fetched,
    and who added the documents may have had no model, other than the process that works.

    Args:
        record: what is there already, and needs no reading.
        pipeline: whose extractor it is.
        config: above what a job needs a confirmation.
        look_seconds: between two looks whether the job was cancelled.
    """

    def __init__(
        self,
        record: Record,
        pipeline: Pipeline,
        *,
        config: ExtractionConfig | None = None,
        look_seconds: float = 1.0,
    ) -> None:
        self._record = record
        self._pipeline = pipeline
        self._config = config or ExtractionConfig()
        self._look_seconds = look_seconds
        extractor = pipeline.extractor
        self._model = extractor if isinstance(extractor, LLMEntityExtractor) else None

    async def run(self, job: Job, made: Sequence[Made]) -> list[Made] | None:
        """What was made, with what the extractor finds, or why it finds nothing.

        Returns:
            None if the job was cancelled meanwhile, or cannot go on, and has failed.

        Raises:
            LLMError: the extractor cannot extract now.
        """
        if reason := await to_thread.run_sync(self._reason_to_end, job, made):
            await to_thread.run_sync(partial(self._record.jobs.finish, job, "failed", error=reason))
            return None
        if self._pipeline.extractor is None:
            return list(made)
        before = self._model.spent if self._model is not None else None
        try:
            return await self._extract_while_wanted(job, made)
        finally:
            if self._model is not None and before is not None:
                with anyio.CancelScope(shield=True):  # what is paid is paid
                    await to_thread.run_sync(self._note_spent, job, self._model, before)

    async def _extract_while_wanted(self, job: Job, made: Sequence[Made]) -> list[Made] | None:
        results: list[Made] | None = None

        async def watch() -> None:
            while True:
                await anyio.sleep(self._look_seconds)
                if not await to_thread.run_sync(self._record.jobs.is_open, job):
                    tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                results = await self._extract(made)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrapped(group) from group
        return results

    async def _extract(self, made: Sequence[Made]) -> list[Made]:
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        known = await to_thread.run_sync(self._known_chunks, documents)
        try:
            found = iter(await self._pipeline.extract(documents, known=known))
        except LLMError:
            raise
        except Exception as error:  # noqa: BLE001 - extractors may be anybody's
            if len(made) == 1:
                _log.exception("extracting from %s failed", documents[0].uri)
                return [Failed(f"it could not be prepared: {type(error).__name__}: {error}")]
            # One of them is the cause, and must not take the others with it.
            return [result for one in made for result in await self._extract([one])]
        return [next(found) if isinstance(result, PreparedDocument) else result for result in made]

    def _known_chunks(self, documents: Sequence[PreparedDocument]) -> set[str]:
        """Ids of chunks that stay as they are, of documents that come once.

        Of two versions of one document the first may remove what the second has.
        """
        times = Counter(document.uri for document in documents)
        once = [document for document in documents if times[document.uri] == 1]
        return self._record.documents.same_chunks([chunk for document in once for chunk in document.chunks])

    def _reason_to_end(self, job: Job, made: Sequence[Made]) -> str:
        """Why a job must not go on with these documents; or empty."""
        model = self._model
        if model is None:
            if not job.request.get("by_model"):
                return ""
            return (
                "A language model was to read the documents, and the process that works for the knowledge "
                "base has none. Close it, or start it with the same model, and add them again."
            )
        if job.request.get("confirmed"):
            return ""
        documents = [result for result in made if isinstance(result, PreparedDocument)]
        known = self._known_chunks(documents)
        new = [c.chunk for document in documents for c in document.chunks if c.id not in known]
        spent = self._record.jobs.spent(job) or Usage(cost=0.0)
        planned = model.estimate(new) + ExtractionEstimate(
            input_tokens=spent.input_tokens, output_tokens=spent.output_tokens, cost=spent.cost
        )
        if not new or not self._config.takes_confirmation(planned.tokens, planned.cost):
            return ""
        return (
            f"A language model has read {spent.input_tokens:,} tokens and written {spent.output_tokens:,}; "
            "more needs a confirmation. What is in stays. Add the rest again, and confirm it."
        )

    def _note_spent(self, job: Job, model: LLMEntityExtractor, before: ExtractionSpent) -> None:
        now = model.spent
        if now.calls == before.calls:
            return
        cost = None if now.cost is None or before.cost is None else now.cost - before.cost
        record = self._record
        record.progress.note_spent(
            job,
            Usage(
                now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens, cost=cost
            ),
        )
        name = f"{model.llm.name}/{model.llm.model}".rstrip("/")
        if record.get("llm") != name:
            record.set("llm", name)
