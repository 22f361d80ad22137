"""Document intake: add documents to a knowledge base, sync and remove them."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import to_thread

from loom_core.blocking import run_blocking
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.rag.requests import (
    DocumentsRequest,
    FilesRequest,
    PagesRequest,
    SourcesRequest,
    SyncRequest,
    text_drafts,
)
from loom_core.knowledge.store.shard import read_shard, refuse_sharded
from loom_core.knowledge.text.control_characters import UNSTORABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.rag.extraction_plan import ExtractionPlan
    from loom_core.knowledge.rag.requests import AddRequest
    from loom_core.knowledge.rag.worker import KnowledgeBaseWorker
    from loom_core.knowledge.store import DocumentRow, Job, KnowledgeStore

__all__ = ["DocumentIntake"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DocumentIntake:
    """Adds and removes documents: the writing half of a knowledge base.

    Added documents become a job of the store. The methods that `add` wait until it is done; `submit` returns
    as soon as the job is durable, for a worker in the background. The arguments are documented as the
    attributes of the request classes (`FilesRequest` and others).
    """

    def __init__(self, store: KnowledgeStore, worker: KnowledgeBaseWorker, *, plan: ExtractionPlan) -> None:
        self.store = store
        self.worker = worker
        self._plan = plan

    async def add(
        self,
        *sources: str | Path,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
        confirm: bool = False,
    ) -> Job:
        """Add files, folders and web pages, and wait as `add_texts` does.

        Args:
            sources: paths, in which `~` is the user's home, and http and https addresses.
            include: patterns as in .gitignore; if given, only matching files are added.
            exclude: patterns of files to leave out.
            allow_net: private hosts and networks that may be requested besides the public internet.
            metadata: fields for all the documents.
            progress: called after every step of the work.
            confirm: see `add_documents`.

        Returns:
            The finished job: its `counts` say how many documents were added, skipped or failed.

        Raises:
            InvalidInputError: there is nothing at a path, or as for `add_documents`; nothing is added.
            NetError: as for `PagesRequest`.
            LLMError: as for `add_documents`.
        """
        request = await to_thread.run_sync(
            partial(
                SourcesRequest.of,
                sources,
                include=include,
                exclude=exclude,
                allow_net=allow_net,
                metadata=metadata,
                confirm=confirm,
            )
        )
        return await self._add(request, progress=progress)

    def add_sync(
        self,
        *sources: str | Path,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
        confirm: bool = False,
    ) -> Job:
        """`add` without `await`, for scripts and notebooks."""
        return self._run_blocking(
            self.add,
            *sources,
            include=include,
            exclude=exclude,
            allow_net=allow_net,
            metadata=metadata,
            progress=progress,
            confirm=confirm,
        )

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
        """Add texts and wait until lexical index, graph and vectors hold them.

        Args:
            texts: Markdown or plain text, one document each.
            titles: a title for each, or an empty one to use the text's first heading.
            metadatas: fields for each, which filters may use.
            uris: an address for each; a text with a known address replaces the one that was there.
            mime: media type of all the texts.
            confirm: see `add_documents`.

        Returns:
            The documents' ids.

        Raises:
            InvalidInputError: the lists differ in length, or as for `add_documents`.
            LLMError: as for `add_documents`.
        """
        drafts = text_drafts(texts, titles=titles, metadatas=metadatas, uris=uris, mime=mime)
        await self.add_documents(drafts, confirm=confirm)
        return [document_id(draft.uri) for draft in drafts]

    def add_texts_sync(
        self,
        texts: Sequence[str],
        *,
        titles: Sequence[str] | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        mime: str = "text/markdown",
        confirm: bool = False,
    ) -> list[str]:
        """`add_texts` without `await`, for scripts and notebooks."""
        return self._run_blocking(
            self.add_texts, texts, titles=titles, metadatas=metadatas, uris=uris, mime=mime, confirm=confirm
        )

    async def add_documents(self, documents: Sequence[DocumentDraft], *, confirm: bool = False) -> Job:
        """Add documents and wait as `add_texts` does.

        Args:
            documents: the documents.
            confirm: whether a large extraction by a language model is confirmed; see `estimate_extraction`.

        Returns:
            The finished job; `jobs.report` says what failed.

        Raises:
            InvalidInputError: a document is too long, or a confirmation is needed; nothing is added.
            LLMError: the language model for extraction is unavailable. Stored documents stay, and the job
                continues there with the next work.
        """
        return await self._add(DocumentsRequest(documents, confirm=confirm))

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
        """Add files and folders and wait as `add_texts` does; arguments and errors as for `FilesRequest`.

        `progress` is called after every step of the work.
        """
        request = FilesRequest(paths, include, exclude, metadata, confirm=confirm)
        return await self._add(request, progress=progress)

    async def add_urls(
        self,
        urls: Sequence[str],
        *,
        allow_net: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
        confirm: bool = False,
    ) -> Job:
        """Add web pages and wait as `add_texts` does; arguments and errors as for `PagesRequest`.

        `progress` is called after every step of the work.
        """
        return await self._add(PagesRequest(urls, allow_net, metadata, confirm=confirm), progress=progress)

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
        """Sync with folders and wait as `add_texts` does; arguments and errors as for `SyncRequest`.

        `progress` is called after every step of the work.
        """
        request = SyncRequest(folders, include, exclude, metadata, allow_empty=allow_empty, confirm=confirm)
        return await self._add(request, progress=progress)

    async def _add(self, request: AddRequest, *, progress: Callable[[], None] | None = None) -> Job:
        await self.confirm_extraction(request)
        job = await to_thread.run_sync(self.submit, request)
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
        """Estimate what a language model will take to extract from documents, if they were added now.

        Nothing is added, and no model is asked. Unchanged documents of the store cost nothing;
        without a language model nothing does. It takes as long as reading the documents. Arguments and
        errors as for `FilesRequest` and `DocumentsRequest`.
        """
        of_paths = FilesRequest(paths, include, exclude, metadata).items()
        return await self._plan.estimate(chain(of_paths, DocumentsRequest(documents).items()))

    async def confirm_extraction(self, request: AddRequest, *, seconds: float | None = None) -> None:
        """Check that the model can be reached and its cost is confirmed, before a request is submitted.

        Args:
            request: the documents to add; if it is confirmed, only the model is checked.
            seconds: time limit for reading documents; the rest is estimated by size.

        Raises:
            ConfigError: the model's package or key is missing.
            ConfirmationNeededError: it takes more than the configuration allows without `confirm`.
            InvalidInputError: a pattern is malformed.
        """
        await self._plan.require_confirmation(request.items(), confirm=request.confirm, seconds=seconds)

    def submit(self, request: AddRequest, *, id_: str = "") -> str:
        """Submit a job. Blocks; when it returns, the job is durable.

        Args:
            request: what to add; of that, a shard takes the documents that it holds.
            id_: id of the job, if it has one already.

        Returns:
            Id of the job.

        Raises:
            InvalidInputError: the request is impossible, see its class, or the knowledge base was split
                meanwhile; nothing is added.
        """
        shard = read_shard(self.store)
        refuse_sharded(self.store.get("name"), self.store.get("shards"))
        job = self._mark_request(request.job(), confirm=request.confirm)
        items = list(request.items()) if request.is_listed else []
        items = [item for item in items if shard is None or shard.holds(item.uri)]
        return self.store.jobs.submit(job, items, listed=request.is_listed, kind=request.kind, id_=id_)

    @property
    def extraction_model(self) -> str:
        """The language model that extracted last; empty if only rules did. Blocks."""
        return self.store.get("llm")

    def forget_extraction_model(self) -> None:
        """Extract by rules alone from now on, even from documents that a model has read. Blocks."""
        self.store.set("llm", "")

    def job(self, id_: str) -> Job:
        """Return a job by its id. Blocks.

        Raises:
            NotFoundError: there is none with this id.
        """
        job = self.store.jobs.get(id_)
        if job is None:
            raise NotFoundError(f"There is no job {id_!r}.", advice="List the jobs to see their ids.")
        return job

    async def wait_for_job(
        self, id_: str, *, progress: Callable[[Job], Awaitable[None]] | None = None
    ) -> Job:
        """Wait until a job is over; this process or another has to run `work` meanwhile.

        Args:
            id_: the job's id.
            progress: called with the job whenever it may have changed, until it is over.

        Raises:
            NotFoundError: there is none with this id.
        """
        while True:
            step = self.worker.next_step  # taken before the job is read, so that no step is missed
            job = await to_thread.run_sync(self.job, id_)
            if job.finished:
                return job
            if progress is not None:
                await progress(job)
            await self.worker.wait_for_step(step)

    async def cancel_job(self, id_: str) -> None:
        """Cancel a job, unless it is over or deleted: documents it has added stay, the rest are skipped."""
        job = await to_thread.run_sync(self.store.jobs.get, id_)
        if job is not None:
            await to_thread.run_sync(self.store.jobs.finish, job, "cancelled")
            self.worker.notify_step()

    async def remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Remove documents by id or URI with everything that only they support, and wait for the indexes.

        Pending documents of jobs at these addresses are not added any more.

        Returns:
            The removed documents; unknown ids are ignored.
        """
        removed = await to_thread.run_sync(self._remove, ids)
        if self.worker.is_running:
            self.worker.wake()
        else:
            await self.worker.drain()
        return removed

    def _run_blocking(
        self, function: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call an async method and wait for it; see `run_blocking`."""
        if self.worker.is_running:
            raise InvalidInputError(
                "A synchronous method cannot be used while `work` runs: each could block the other.",
                advice="Await the async method of the same name, without `_sync`.",
            )
        return run_blocking(function, *args, **kwargs)

    def _mark_request(self, request: dict[str, Any], *, confirm: bool) -> dict[str, Any]:
        """Mark in a job's request whether a language model reads for it, and may read a large amount."""
        marks: dict[str, Any] = {"by_model": self._plan.uses_model, "confirmed": confirm}
        if request.get("paths"):
            marks["host"] = self.store.host  # no other machine has its files
        return request | {name: value for name, value in marks.items() if value}

    def _remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        removed: list[DocumentRow] = []
        with self.store.database.write():
            for id_ in ids:
                document = self.store.documents.get(id_)
                if document is not None:
                    self.store.documents.remove(document.key)
                    removed.append(document)
            storable = [id_ for id_ in ids if not UNSTORABLE.search(id_)]
            self.store.jobs.withdraw([*storable, *(document.uri for document in removed)])
        return removed
