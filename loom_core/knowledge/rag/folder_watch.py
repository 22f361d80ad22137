"""Folder watch: keep a knowledge base in sync with folders until it is stopped."""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.knowledge.ingest.listing import outermost
from loom_core.knowledge.rag.requests import SyncRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import Job

__all__ = ["FolderWatch"]

_log = logging.getLogger(__name__)
_MANY = 5_000  # changes at once: Linux keeps 16,384 and drops the rest without a word
_IGNORE_FILES = frozenset({".gitignore", ".loomignore"})
_TIMEOUT = 500  # milliseconds without a change after which the folder itself is checked


class FolderWatch:
    """Watches folders and syncs changes below them; another task has to run `work` meanwhile.

    The file system reports changes, which are gathered for a moment; where it does not (network drives) the
    environment variable WATCHFILES_FORCE_POLLING makes this poll the folders instead, as it does where
    watching fails. As a file system may lose events, all is synced at the start, after very many changes at
    once, when a missing folder comes back, and at intervals.

    A sync that needs a confirmation for a language model, or whose model cannot be asked, is skipped and
    logged; the next change, or the next full sync, retries.

    Args:
        knowledge_base: the knowledge base to sync.
        folders: the folders.
        include: patterns as in .gitignore; if given, only matching files are added.
        exclude: patterns of files to leave out.
        metadata: fields for all the documents.
        on_job_done: called with every finished job.
        debounce: milliseconds for which changes are gathered, at most.
        every: seconds after which all is synced, whatever changes were reported.
        missing: seconds after which a missing folder is looked for again.
    """

    def __init__(
        self,
        knowledge_base: GraphRAGKnowledgeBase,
        folders: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        on_job_done: Callable[[Job], None] | None = None,
        debounce: int = 1_600,
        every: float = 900.0,
        missing: float = 2.0,
    ) -> None:
        self._knowledge_base = knowledge_base
        self._folders = outermost([folder.resolve() for folder in folders])
        self._request = SyncRequest(self._folders, include, exclude, metadata)
        self._on_job_done = on_job_done
        self._debounce = debounce
        self._every = every
        self._missing = missing
        self._left_out: dict[Path, str] = {}

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            InvalidInputError: one of the folders is a file.
        """
        async with anyio.create_task_group() as tasks:
            for folder in self._folders:
                tasks.start_soon(self._keep, folder)

    async def _keep(self, folder: Path) -> None:
        polling: bool | None = None  # as the environment says
        while True:
            if not await anyio.Path(folder).is_dir():
                await self._sync(folder)  # fails with a message instead of removing everything
                await self._until_there(folder)
            try:
                await self._follow(folder, polling=polling)
            except* (OSError, RuntimeError) as errors:  # from the watcher, which may have no more watches
                reason = errors.exceptions[0]
                _log.warning("%s is polled, as it cannot be watched: %s", folder, reason)
                polling = True
                await anyio.sleep(self._missing)

    async def _follow(self, folder: Path, *, polling: bool | None) -> None:
        """Sync a folder, then each reported change, until all has to be synced again."""
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - takes an event of trio, too

        started = anyio.current_time()
        stop = anyio.Event()
        in_step = False
        async with anyio.create_task_group() as tasks:
            # This stops the thread that waits for events; cancelling alone would wait for it.
            tasks.start_soon(_set_in_the_end, stop)
            watch = awatch(
                folder,
                watch_filter=None,
                debounce=self._debounce,
                stop_event=stop,
                rust_timeout=_TIMEOUT,
                yield_on_timeout=True,
                force_polling=polling,
                ignore_permission_denied=True,
            )
            async with aclosing(watch):
                async for changes in watch:
                    if not in_step:  # only now, as every change is reported from here on
                        await self._sync(folder)
                        in_step = True
                        continue
                    changed = sorted({Path(path) for _, path in changes})
                    late = anyio.current_time() - started > self._every
                    if late or await to_thread.run_sync(_concerns_all, folder, changed):
                        break
                    if changed:
                        await self._sync(folder, within=changed)
            tasks.cancel_scope.cancel()

    async def _until_there(self, folder: Path) -> None:
        while not await anyio.Path(folder).is_dir():  # noqa: ASYNC110 - there is no notification
            await anyio.sleep(self._missing)

    async def _sync(self, folder: Path, *, within: Sequence[Path] = ()) -> None:
        knowledge_base = self._knowledge_base
        request = replace(self._request, paths=[folder], within=within)
        try:
            await knowledge_base.confirm_extraction(request)
        except (ConfigError, ConfirmationNeededError) as error:
            if self._left_out.get(folder) != error.message:
                _log.warning(
                    "%s is not synced: %s To sync it, run one sync by hand and confirm it.",
                    folder,
                    error.message,
                )
            self._left_out[folder] = error.message
            return
        self._left_out.pop(folder, None)
        id_ = await to_thread.run_sync(knowledge_base.submit, request)
        knowledge_base.worker.wake()
        job = await knowledge_base.wait_for_job(id_)
        if self._on_job_done is not None:
            self._on_job_done(job)


def _concerns_all(folder: Path, changed: Sequence[Path]) -> bool:
    """Whether a change is about more than the paths that it names."""
    if len(changed) > _MANY or folder in changed or not folder.is_dir():
        return True
    return any(path.name in _IGNORE_FILES for path in changed)


async def _set_in_the_end(event: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        event.set()
