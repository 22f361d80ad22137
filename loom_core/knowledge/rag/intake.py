"""Documents into a knowledge base and out of it again."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.page_fetcher import client_for
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.ingest.workers import draft_payload
from loom_core.knowledge.rag.drafts import text_drafts
from loom_core.knowledge.rag.extraction_plan import draft_materials, path_materials
from loom_core.knowledge.uris import shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.rag.extraction_plan import ExtractionPlan
    from loom_core.knowledge.rag.worker import Worker
    from loom_core.knowledge.store import DocumentRow, Job, Record

__all__ = ["DocumentIntake"]


class DocumentIntake:
    """Takes documents in and removes them: the writing half of a knowledge base.

    What is added becomes a job of the record. The methods that `add` wait until it is done; those that
    `submit` return as soon as it is safe, for a worker in the background.
    """

    def __init__(self, record: Record, worker: Worker, *, plan: ExtractionPlan) -> None:
        self.record = record
        self.worker = worker
        self._plan = plan

    async def add_texts(
        self,
        texts: Sequence[str],
        *,
        titles: Sequence[str] | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        mime: str = "text/markdown",
        confirm: bool = False,
    ) -> list[str]:
        """Add texts and wait until they are searchable by words, graph and vectors.

        Args:
            texts: Markdown or plain text, one document each.
            titles: a title for each, or an empty one where the text's own first heading is to serve.
            metadatas: fields for each, which filters may use.
            uris: an address for each; a text with a known address replaces the one that was there.
            mime: media type of all the texts.
            confirm: see `add_documents`.

        Returns:
            The documents' ids.

        Raises:
            InvalidInputError: lists of different lengths, or as for `add_documents`.
            LLMError: as for `add_documents`.
        """
        drafts = text_drafts(texts, titles=titles, metadatas=metadatas, uris=uris, mime=mime)
        await self.add_documents(drafts, confirm=confirm)
        return [document_id(draft.uri) for draft in drafts]

    async def add_documents(self, documents: Sequence[DocumentDraft], *, confirm: bool = False) -> Job:
        """Add documents and wait as `add_texts` does.

        Args:
            documents: the documents.
            confirm: whether a language model may read much for it; see `estimate_extraction`.

        Returns:
            The finished job; `report` of the record's jobs says what failed.

        Raises:
            InvalidInputError: a document is too long, or it takes a confirmation; nothing is added.
            LLMError: the language model that extracts cannot be asked now. What is in stays, and the job
                goes on there with the next work.
        """
        await self.agree_on_extraction(documents=documents, confirm=confirm)
        job = await to_thread.run_sync(partial(self.submit_documents, documents, confirm=confirm))
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
        confirm: bool = False,
    ) -> Job:
        """Add files and folders and wait as `add_texts` does; see `submit_paths`.

        Args:
            paths: files and folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            progress: called after every step of the work.
            confirm: see `add_documents`.

        Raises:
            InvalidInputError: as for `add_documents`.
            LLMError: as for `add_documents`.
        """
        await self.agree_on_extraction(
            paths, include=include, exclude=exclude, metadata=metadata, confirm=confirm
        )
        job = self.submit_paths(paths, include=include, exclude=exclude, metadata=metadata, confirm=confirm)
        await self.worker.drain(progress=progress)
        return self.job(job)

    async def add_urls(
        self,
        urls: Sequence[str],
        *,
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
        confirm: bool = False,
    ) -> Job:
        """Add web pages and wait as `add_texts` does; see `submit_urls`.

        Args:
            urls: http and https addresses.
            allow_net: hosts and networks that may be asked besides the open internet.
            metadata: fields for all the documents.
            progress: called after every step of the work.
            confirm: whether a language model may read much for it. As the pages are not known before they
                are fetched, the job fails where it would become too much.
        """
        await self.agree_on_extraction(confirm=confirm)
        job = await to_thread.run_sync(
            partial(self.submit_urls, urls, allow_net=allow_net, metadata=metadata, confirm=confirm)
        )
        await self.worker.drain(progress=progress)
        return self.job(job)

    async def estimate_extraction(
        self,
        paths: Sequence[Path] = (),
        *,
        documents: Sequence[DocumentDraft] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> ExtractionEstimate:
        """About what a language model will take to extract from documents, if they were added now.

        Nothing is added, and no model is asked. What is in the record already, just as it is, costs nothing;
        without a language model nothing does. It takes as long as reading the documents.

        Args:
            paths: files and folders.
            documents: documents.
            include: as for `add_paths`.
            exclude: as for `add_paths`.
            metadata: as for `add_paths`.

        Raises:
            InvalidInputError: a pattern is malformed.
        """
        of_paths = path_materials(paths, include=include, exclude=exclude, metadata=metadata)
        return await self._plan.estimate(chain(of_paths, draft_materials(documents)))

    async def agree_on_extraction(
        self,
        paths: Sequence[Path] = (),
        *,
        documents: Sequence[DocumentDraft] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        within: Sequence[Path] = (),
        confirm: bool = False,
        seconds: float | None = None,
    ) -> None:
        """See, before documents are submitted, that a language model may and can read them; see `add_paths`.

        Args:
            paths: files and folders.
            documents: documents.
            include: as for `add_paths`.
            exclude: as for `add_paths`.
            metadata: as for `add_paths`.
            within: as for `submit_sync`.
            confirm: whether somebody agreed to it; then only the model is looked at.
            seconds: so long documents are read; what takes longer is judged by the sizes of the others.

        Raises:
            ConfigError: the model's package or key is missing.
            ConfirmationNeededError: it takes more than the configuration allows without `confirm`.
            InvalidInputError: a pattern is malformed.
        """
        of_paths = path_materials(paths, include=include, exclude=exclude, metadata=metadata, within=within)
        materials = chain(of_paths, draft_materials(documents))
        await self._plan.agree(materials, confirm=confirm, seconds=seconds)

    def submit_documents(self, documents: Sequence[DocumentDraft], *, confirm: bool = False) -> str:
        """Write documents down to be added. Blocks; when it returns they are safe.

        Args:
            documents: the documents.
            confirm: whether a language model may read much for it; else the job fails where it would.

        Returns:
            Id of the job.

        Raises:
            InvalidInputError: one of them is longer than any document may be; none is added.
        """
        most = LoadLimits().max_text_chars
        for draft in documents:
            if len(draft.text) > most:
                raise InvalidInputError(
                    f"{shown(draft.uri)} has {len(draft.text):,} characters, and {most:,} are the most.",
                    advice="Split it into several documents.",
                )
        return self.record.jobs.submit(
            self._request({"texts": len(documents)}, confirm=confirm),
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
        roots: Sequence[Path] = (),
        confirm: bool = False,
    ) -> str:
        """Write files and folders down to be added. Blocks, but reads none of them yet.

        Args:
            paths: files and folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            roots: where given, nothing outside these folders is read, wherever links lead by then.
            confirm: as for `submit_documents`.

        Returns:
            Id of the job.
        """
        request = {
            "paths": [str(path.absolute()) for path in paths],
            "include": list(include),
            "exclude": list(exclude),
            "metadata": metadata or {},
            "roots": [str(root.resolve()) for root in roots],
        }
        return self.record.jobs.submit(self._request(request, confirm=confirm))

    def submit_urls(
        self,
        urls: Sequence[str],
        *,
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        confirm: bool = False,
    ) -> str:
        """Write web pages down to be added. Blocks, but fetches none of them yet.

        A page's document has the canonical form of the address that was given, whatever it redirects to, so
        that the same address replaces it later. A page that cannot be had fails alone.

        Args:
            urls: http and https addresses, of documents in any format that files can have.
            allow_net: hosts and networks that may be asked besides the open internet (`wiki.example`,
                `10.1.0.0/16`). The job remembers them.
            metadata: fields for all the documents.
            confirm: as for `submit_documents`.

        Returns:
            Id of the job.

        Raises:
            InvalidInputError: no address is given.
            NetError: one of them is no web address, or of a private place that is not allowed.
            ConfigError: a rule of `allow_net` is neither a host nor a network.
        """
        client = client_for(allow_net)
        addresses = list(dict.fromkeys(map(client.check, urls)))
        if not addresses:
            raise InvalidInputError("There is no address to add.", advice="Give at least one URL.")
        request = {"urls": addresses, "allow_net": list(allow_net), "metadata": metadata or {}}
        return self.record.jobs.submit(self._request(request, confirm=confirm))

    async def sync_paths(
        self,
        folders: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        allow_empty: bool = False,
        progress: Callable[[], None] | None = None,
        confirm: bool = False,
    ) -> Job:
        """Bring the knowledge base in step with folders and wait as `add_texts` does; see `submit_sync`.

        Args:
            folders: the folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            allow_empty: whether a folder that is gone or empty means that its documents are to go.
            progress: called after every step of the work.
            confirm: see `add_documents`.

        Raises:
            InvalidInputError: as for `submit_sync` and `add_documents`.
            LLMError: as for `add_documents`.
        """
        await self.agree_on_extraction(
            folders, include=include, exclude=exclude, metadata=metadata, confirm=confirm
        )
        submit = partial(
            self.submit_sync,
            folders,
            include=include,
            exclude=exclude,
            metadata=metadata,
            allow_empty=allow_empty,
            confirm=confirm,
        )
        job = await to_thread.run_sync(submit)
        await self.worker.drain(progress=progress)
        return self.job(job)

    def submit_sync(
        self,
        folders: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        allow_empty: bool = False,
        within: Sequence[Path] = (),
        confirm: bool = False,
    ) -> str:
        """Write down that the knowledge base is to be in step with folders. Blocks, but reads nothing yet.

        New files are added, changed ones updated, and the documents below the folders whose files are gone
        or left out now are removed; a file that moved between the folders keeps all that was made of it. A
        folder that is gone, or empty where there were many documents, is refused, as its drive may just not
        be connected; the documents of what cannot be read are kept.

        Args:
            folders: the folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            allow_empty: whether a folder that is gone or empty means that its documents are to go.
            within: where given, only these paths below the folders' real paths are looked at.
            confirm: as for `submit_documents`.

        Returns:
            Id of the job.

        Raises:
            InvalidInputError: there is no folder, or one of them is a file.
        """
        if not folders:
            raise InvalidInputError("There is no folder to sync.", advice="Name at least one folder.")
        for folder in folders:
            if folder.is_file():
                raise InvalidInputError(f"{folder} is a file, not a folder.", advice="Files are added.")
        request = {
            "paths": [str(folder.absolute()) for folder in folders],
            "include": list(include),
            "exclude": list(exclude),
            "metadata": metadata or {},
            "allow_empty": allow_empty,
            "within": [str(path) for path in within],
        }
        return self.record.jobs.submit(self._request(request, confirm=confirm), kind="sync")

    def job(self, id_: str) -> Job:
        """A job by its id. Blocks.

        Raises:
            NotFoundError: there is none with this id.
        """
        job = self.record.jobs.get(id_)
        if job is None:
            raise NotFoundError(f"There is no job {id_!r}.", advice="List the jobs to see their ids.")
        return job

    async def wait_for_job(
        self, id_: str, *, progress: Callable[[Job], Awaitable[None]] | None = None
    ) -> Job:
        """Wait until a job is over; this process or another has to `work` meanwhile.

        Args:
            id_: the job's id.
            progress: called with the job whenever it may have changed, until it is over.

        Raises:
            NotFoundError: there is none with this id.
        """
        while True:
            step = self.worker.next_step  # before the look, so that what happens after it is not missed
            job = await to_thread.run_sync(self.job, id_)
            if job.finished:
                return job
            if progress is not None:
                await progress(job)
            await self.worker.wait_for_step(step)

    async def cancel_job(self, id_: str) -> None:
        """Cancel a job unless it is over or forgotten: what it has added stays, the rest is skipped."""
        job = await to_thread.run_sync(self.record.jobs.get, id_)
        if job is not None:
            await to_thread.run_sync(self.record.jobs.finish, job, "cancelled")
            self.worker.tell_step()

    async def remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Remove documents by id or URI with everything that only they support, and wait for the indexes.

        What jobs have still to add at these addresses is not added any more.

        Returns:
            The documents that were removed; ids that are not there are passed over.
        """
        removed = await to_thread.run_sync(self._remove, ids)
        if self.worker.runs:
            self.worker.wake()
        else:
            await self.worker.drain()
        return removed

    def _request(self, request: dict[str, Any], *, confirm: bool) -> dict[str, Any]:
        """A job's request that says whether a language model is to read for it, and may read much."""
        marks = {"by_model": self._plan.by_model, "confirmed": confirm}
        return request | {name: True for name, holds in marks.items() if holds}

    def _remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        removed: list[DocumentRow] = []
        with self.record.database.write():
            for id_ in ids:
                document = self.record.documents.get(id_)
                if document is not None:
                    self.record.documents.remove(document.key)
                    removed.append(document)
            self.record.jobs.withdraw([*ids, *(document.uri for document in removed)])
        return removed
