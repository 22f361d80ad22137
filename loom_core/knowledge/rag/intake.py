"""Documents into a knowledge base and out of it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import NotFoundError
from loom_core.knowledge.ingest import draft_payload
from loom_core.knowledge.pipeline import document_id
from loom_core.knowledge.rag.drafts import text_drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.rag.worker import Worker
    from loom_core.knowledge.record import DocumentRow, Job, Record

__all__ = ["DocumentIntake"]


class DocumentIntake:
    """Takes documents in and removes them: the writing half of a knowledge base.

    What is added becomes a job of the record. The methods that `add` wait until it is done; those that
    `submit` return as soon as it is safe, for a worker in the background.
    """

    def __init__(self, record: Record, worker: Worker) -> None:
        self.record = record
        self.worker = worker

    async def add_texts(
        self,
        texts: Sequence[str],
        *,
        titles: Sequence[str] | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        mime: str = "text/markdown",
    ) -> list[str]:
        """Add texts and wait until they are searchable by words, graph and vectors.

        Args:
            texts: Markdown or plain text, one document each.
            titles: a title for each, or an empty one where the text's own first heading is to serve.
            metadatas: fields for each, which filters may use.
            uris: an address for each; a text with a known address replaces the one that was there.
            mime: media type of all the texts.

        Returns:
            The documents' ids.
        """
        drafts = text_drafts(texts, titles=titles, metadatas=metadatas, uris=uris, mime=mime)
        await self.add_documents(drafts)
        return [document_id(draft.uri) for draft in drafts]

    async def add_documents(self, documents: Sequence[DocumentDraft]) -> Job:
        """Add documents and wait as `add_texts` does.

        Returns:
            The finished job; `report` of the record's jobs says what failed.
        """
        job = await to_thread.run_sync(self.submit_documents, documents)
        await self.worker.drain()
        return self.job(job)

    async def add_paths(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
    ) -> Job:
        """Add files and folders and wait as `add_texts` does; see `submit_paths`.

        Args:
            paths: files and folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            progress: called after every step of the work.
        """
        job = self.submit_paths(paths, include=include, exclude=exclude, metadata=metadata)
        await self.worker.drain(progress=progress)
        return self.job(job)

    def submit_documents(self, documents: Sequence[DocumentDraft]) -> str:
        """Write documents down to be added. Blocks; when it returns they are safe.

        Returns:
            Id of the job.
        """
        return self.record.jobs.submit(
            {"texts": len(documents)},
            [(draft.uri, draft_payload(draft)) for draft in documents],
            listed=True,
        )

    def submit_paths(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Write files and folders down to be added. Blocks, but reads none of them yet.

        Returns:
            Id of the job.
        """
        return self.record.jobs.submit(
            {
                "paths": [str(path.absolute()) for path in paths],
                "include": list(include),
                "exclude": list(exclude),
                "metadata": metadata or {},
            }
        )

    def job(self, id_: str) -> Job:
        """A job by its id. Blocks.

        Raises:
            NotFoundError: there is none with this id.
        """
        job = self.record.jobs.get(id_)
        if job is None:
            raise NotFoundError(f"There is no job {id_!r}.", advice="List the jobs to see their ids.")
        return job

    async def remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Remove documents by id or URI with everything that only they support, and wait for the indexes.

        Returns:
            The documents that were removed; ids that are not there are passed over.
        """
        removed = await to_thread.run_sync(self._remove, ids)
        if not self.worker.runs:
            await self.worker.drain()
        return removed

    def _remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        removed: list[DocumentRow] = []
        with self.record.database.write():
            for id_ in ids:
                document = self.record.documents.get(id_)
                if document is not None:
                    self.record.documents.remove(document.key)
                    removed.append(document)
        return removed
