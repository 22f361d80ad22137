"""Having an extractor of the program's own read what was prepared, such as a language model."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import LLMError, unwrapped
from loom_core.knowledge.preparing.making import Failed
from loom_core.knowledge.record.prepared import PreparedDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.pipeline import Pipeline
    from loom_core.knowledge.preparing.making import Made
    from loom_core.knowledge.record import Job, Record

__all__ = ["ExtractionStep"]

_log = logging.getLogger(__name__)


class ExtractionStep:
    """Has a pipeline's own extractor read documents, for as long as their job is wanted.

    Args:
        record: what is there already, and needs no reading.
        pipeline: whose extractor it is.
        look_seconds: between two looks whether the job was cancelled.
    """

    def __init__(self, record: Record, pipeline: Pipeline, *, look_seconds: float = 1.0) -> None:
        self._record = record
        self._pipeline = pipeline
        self._look_seconds = look_seconds

    async def run(self, job: Job, made: Sequence[Made]) -> list[Made] | None:
        """What was made, with what the extractor finds, or why it finds nothing.

        Returns:
            None if the job was cancelled meanwhile.

        Raises:
            LLMError: the extractor cannot extract now.
        """
        if self._pipeline.extractor is None:
            return list(made)
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
