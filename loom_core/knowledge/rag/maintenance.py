"""Maintenance of a knowledge base: check and repair it, rebuild its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, EmbeddingError, StoreBusyError, StoreUnavailableError
from loom_core.knowledge.maintenance.check import check_record
from loom_core.knowledge.maintenance.index_checks import check_indexes, check_server, servers_of
from loom_core.knowledge.maintenance.repair import repair as repair_record
from loom_core.knowledge.rag.intake import DocumentIntake
from loom_core.knowledge.rag.requests import RebuildRequest
from loom_core.storage.ownership import holder_of
from loom_core.storage.sqlite import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.ingest.pipeline import Pipeline
    from loom_core.knowledge.maintenance.archive import ArchiveReader
    from loom_core.knowledge.maintenance.finding import CheckFinding, CheckReport
    from loom_core.knowledge.rag.extraction_plan import ExtractionPlan
    from loom_core.knowledge.rag.worker import KnowledgeBaseWorker
    from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
    from loom_core.knowledge.store import DocumentRow, Job, KnowledgeStore
    from loom_core.knowledge.store.changes import IndexName

__all__ = ["KnowledgeBaseMaintenance"]

_ERASING = "erasing"  # metadata of the store
_POLL_SECONDS = 0.2
_ROUNDS = 3  # some defects of an index show only once the store is repaired


class KnowledgeBaseMaintenance(DocumentIntake):
    """Maintenance of a knowledge base: checks, repairs, rebuilds, change of embedder, import."""

    def __init__(
        self,
        store: KnowledgeStore,
        worker: KnowledgeBaseWorker,
        *,
        pipeline: Pipeline,
        plan: ExtractionPlan,
        folder: Path | None,
        embedder: CurrentEmbedder | None,
    ) -> None:
        super().__init__(store, worker, plan=plan)
        self._pipeline = pipeline
        self._folder = folder
        self._current = embedder

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Check the store in itself, and the indexes against it; optionally repair both.

        Other processes may work meanwhile. It takes as long as reading everything.

        Args:
            repair: repair what can be repaired; then this process works until that is done.

        Returns:
            What was checked, and the defects; after a repair, the remaining ones.

        Raises:
            StoreBusyError: there is something to repair, and another process works for the knowledge base.
        """
        report = await self._check_all()
        if report.sound or not repair:
            return report
        if not await to_thread.run_sync(self.worker.acquire):
            raise StoreBusyError(
                f"{len(report.findings)} problems need repair, but {self._other_owner()} works for the "
                "knowledge base.",
                advice="Close it and try again.",
            )
        found = dict.fromkeys(finding.text for finding in report.findings)
        for _ in range(_ROUNDS):
            await to_thread.run_sync(self._repair, report)
            await self.worker.drain()
            report = await self._check_all()
            if report.sound:
                break
            found |= dict.fromkeys(finding.text for finding in report.findings)
        left = {finding.text for finding in report.findings}
        report.repaired = [text for text in found if text not in left]
        return report

    async def rebuild(
        self, indexes: Collection[IndexName], *, progress: Callable[[], None] | None = None
    ) -> None:
        """Rebuild derived indexes from the store, and wait until the worker process has done so.

        Args:
            indexes: the names of the indexes.
            progress: called from time to time.

        Raises:
            StoreUnavailableError: one is in a server that cannot be asked.
        """
        before = await to_thread.run_sync(self._mark_damaged, indexes)
        while True:
            await self.worker.drain(progress=progress)
            state = self.store.changes.state
            if all(state(name).built or not before[name] for name in before):
                return
            if self.worker.problem:
                raise StoreUnavailableError(
                    self.worker.problem, advice="It is rebuilt once the server answers; nothing is lost."
                )
            await anyio.sleep(_POLL_SECONDS)  # another process builds them

    async def erase(self, ids: Sequence[str] = ()) -> list[DocumentRow]:
        """Remove documents, and leave nothing of their texts in the store's file and the indexes.

        `remove` is fast, but what it frees in files is only overwritten later. This rewrites the file, unless
        the store is in PostgreSQL, whose autovacuum does so, and the indexes. Jobs keep the addresses. An
        erasure that was interrupted is `unfinished_erasure` until the next one.

        Args:
            ids: ids or URIs, as for `remove`.

        Returns:
            The removed documents; unknown ids are ignored.

        Raises:
            StoreUnavailableError: an index is in a server that cannot be asked.
            StoreError: another process reads the store's file for too long, and the erasure is unfinished.
        """
        await to_thread.run_sync(self.store.set, _ERASING, "1")
        removed = await self.remove(ids)
        await self.rebuild(("words", "vectors", "graph"))
        if isinstance(self.store.database, Database):
            await to_thread.run_sync(self.store.database.compact)
        await to_thread.run_sync(self.store.set, _ERASING, "")
        return removed

    @property
    def unfinished_erasure(self) -> bool:
        """Whether an erasure was interrupted: `erase()` completes it. Blocks."""
        return bool(self.store.get(_ERASING))

    async def rebuild_from_texts(
        self, *, progress: Callable[[], None] | None = None, confirm: bool = False
    ) -> Job:
        """Chunk all documents and extract from them again, from their texts in the store.

        Documents made by the current rules are left as they are, and so are vectors of unchanged texts.

        Args:
            progress: called after every step of the work.
            confirm: whether a large extraction by a language model is confirmed; see `estimate_extraction`.

        Returns:
            The finished job.

        Raises:
            ConfirmationNeededError: it needs a confirmation; nothing is done.
            LLMError: as for `add_documents`.
        """
        request = self.rebuild_request(confirm=confirm)
        await self.confirm_extraction(request)
        job = await to_thread.run_sync(self.submit, request)
        await self.worker.drain(progress=progress)
        return self.job(job)

    def rebuild_request(self, *, confirm: bool = False) -> RebuildRequest:
        """Return the request to read all documents again; see `RebuildRequest`."""
        return RebuildRequest(self.store.database, confirm=confirm)

    async def change_embedder(
        self, provider: EmbeddingProvider, *, progress: Callable[[], None] | None = None
    ) -> None:
        """Let another embedder make the vectors, and wait until it has taken over.

        Its vectors are made in the background, by the worker process, and questions are answered with
        the old ones until all are made. A process that ends meanwhile loses nothing. To cancel a
        change, change to the current embedder.

        Args:
            provider: the embedder that is to take over.
            progress: called from time to time.

        Raises:
            ConfigError: the knowledge base was opened without an embedder.
            EmbeddingError: the new embedder fails; the change continues when it works again, or is cancelled.
        """
        await provider.prepare()
        await to_thread.run_sync(self.submit_embedder, provider)
        while await to_thread.run_sync(self.next_embedder) == provider.id:
            await self.worker.drain(progress=progress)
            if self.worker.stopped_change:
                raise EmbeddingError(
                    self.worker.stopped_change, advice="To cancel the change, change to the current embedder."
                )
            await anyio.sleep(_POLL_SECONDS)
        if self._current is not None:
            await to_thread.run_sync(self._current.follow)

    def submit_embedder(self, provider: EmbeddingProvider) -> None:
        """Submit a change to another embedder, which the worker carries out; see `change_embedder`. Blocks.

        Raises:
            ConfigError: the knowledge base was opened without an embedder.
        """
        if self._current is None:
            raise ConfigError(
                "This knowledge base was opened without an embedder.", advice="Open it with the one it has."
            )
        self._current.register(provider)
        self.store.next_vectors.begin(provider)

    def next_embedder(self) -> str:
        """Return the id of the embedder that is to take over; empty where none is. Blocks."""
        return self.store.next_vectors.target_embedder()

    def reembedding_progress(self) -> tuple[int, int]:
        """Return the numbers of chunks with a vector of the next embedder, and of all chunks. Blocks."""
        return self.store.next_vectors.coverage()

    def import_archive(
        self,
        archive: ArchiveReader,
        *,
        progress: Callable[[int, int], None] | None = None,
        confirm: bool = False,
    ) -> str:
        """Submit a job that imports an archive; see `import_archive`. Blocks.

        Returns:
            Id of the job.
        """
        from loom_core.knowledge.maintenance.archive import import_archive

        return import_archive(self.store, archive, folder=self._folder, progress=progress, confirm=confirm)

    async def _check_all(self) -> CheckReport:
        report = await to_thread.run_sync(check_record, self.store, self._pipeline.hash)
        if self._folder is None:
            return report
        if any(finding.subject in {"references", "documents"} for finding in report.findings):
            report.notes.append("the indexes were not checked, as the store is damaged")
            return report
        ours = not self.worker.is_owner and await to_thread.run_sync(self.worker.acquire_folder)
        try:
            report.findings += await to_thread.run_sync(self._check_indexes, self._folder, ours)
        finally:
            if ours:
                await to_thread.run_sync(self.worker.release)
        state = self.store.changes.state
        everywhere: tuple[IndexName, ...] = ("words", "vectors", "links")
        checked = [name for name in everywhere if state(name).built]
        files: tuple[IndexName, ...] = ("graph", "chroma")
        owned = [name for name in files if state(name).built]
        checked += owned if ours else []
        checked += await to_thread.run_sync(self._check_servers, self._folder, report)
        report.checked.append(f"indexes: {', '.join(checked)}")
        if owned and not ours:
            left = ", ".join(owned)
            report.notes.append(f"not checked, as {self._other_owner()} works with it: {left}")
        return report

    def _check_indexes(self, folder: Path, owned: bool) -> list[CheckFinding]:
        return list(check_indexes(self.store, folder, owned=owned))

    def _check_servers(self, folder: Path, report: CheckReport) -> list[IndexName]:
        """Check what is in servers, and return which were checked; notes say why others were not."""
        checked: list[IndexName] = []
        for index in servers_of(self.store, folder):
            try:
                if index.name == "remote_graph" and (lag := index.lag()):
                    note = f"not checked: the graph, which lacks {lag:,} changes in {index.setting}"
                    report.notes.append(note)
                    continue
                report.findings += check_server(self.store, index)
                checked.append(index.name)
                if lag := index.lag():
                    lacking = f"the {index.kind.setting} index in {index.setting} lacks {lag:,} changes"
                    report.notes.append(f"{lacking}; `loom-kb add` writes them")
            except StoreUnavailableError as error:
                report.notes.append(f"not checked: the {index.kind.setting}. {error.message}")
            finally:
                index.close()
        return checked

    def _repair(self, report: CheckReport) -> None:
        repair_record(self.store, report.findings)

    def _mark_damaged(self, indexes: Collection[IndexName]) -> dict[IndexName, int]:
        changes = self.store.changes
        names = set(indexes)
        if "vectors" in names:
            names |= {"chroma", "remote"}  # those of them that there are
        if "words" in names:
            names.add("remote_words")
        if "graph" in names:
            names |= {"remote_graph", "links"}
        generations: dict[IndexName, int] = {name: changes.state(name).generation for name in names}
        for name, generation in generations.items():
            changes.mark_damaged(name, generation=generation)
        return generations

    def _other_owner(self) -> str:
        holder = holder_of(self._folder) if self._folder is not None else None
        return str(holder or self.worker.find_leader() or "another program")
