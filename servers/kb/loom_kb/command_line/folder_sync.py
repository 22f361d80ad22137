"""Folder sync: the command `sync`, once or with `--watch`, and the watched folders of a server."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.knowledge.uris import display_uri
from loom_core.server.cli.console import out, out_json, say
from loom_kb.command_line.job_progress import work_until_done
from loom_kb.language_model import run_with_confirmation
from loom_kb.settings import DEFAULT_SOURCE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import Job, JobReader
    from loom_core.knowledge.store.jobs import ItemState
    from loom_kb.service import KnowledgeService

__all__ = ["sync", "watch_folders"]

_CHANGES: tuple[ItemState, ...] = ("added", "updated", "moved", "removed", "failed")
_PAGE = 500
_POLL_SECONDS = 0.5
_log = logging.getLogger(__name__)


async def sync(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Sync a knowledge base with folders; with `--watch`, keep running and sync every change."""
    from loom_core.knowledge.rag.requests import SyncRequest

    for folder in args.folders:
        if not args.watch and not await anyio.Path(folder).exists() and not args.allow_empty:
            raise NotFoundError(
                f"There is no folder {folder}.",
                advice="Is its drive connected? To remove its documents, use --allow-empty.",
            )
    if args.watch and args.yes:
        raise InvalidInputError(
            "--yes agrees to one sync, but --watch goes on syncing.",
            advice="Sync once with --yes, then watch.",
        )
    metadata = {"tags": args.tag} if args.tag else None
    if args.watch:
        return await _watch(await service.writable(args.kb), args, metadata)
    request = SyncRequest(args.folders, args.include, args.exclude, metadata, allow_empty=args.allow_empty)

    async def submit(confirm: bool) -> tuple[Sequence[GraphRAGKnowledgeBase], str]:
        return await service.add(replace(request, confirm=confirm), source=args.kb)

    parts, job = await run_with_confirmation(submit, yes=args.yes)
    return await work_until_done(parts, job, kb=args.kb, as_json=args.json)


async def watch_folders(service: KnowledgeService) -> None:
    """Keep the folders of the settings in sync, once this process owns the knowledge base."""
    from loom_core.knowledge.rag.folder_watch import FolderWatch

    only = service.settings.sources
    name = only[0] if only else DEFAULT_SOURCE
    try:
        knowledge_base = await service.writable(name)
    except ConfigError as error:
        _log.error("The folders are not watched: %s", error)
        return
    while not knowledge_base.worker.is_owner:  # noqa: ASYNC110 - the lock of another process sends no event
        await anyio.sleep(_POLL_SECONDS)
    await FolderWatch(knowledge_base, service.settings.watched).run()


async def _watch(
    knowledge_base: GraphRAGKnowledgeBase, args: argparse.Namespace, metadata: dict[str, Any] | None
) -> int:
    from loom_core.knowledge.rag.folder_watch import FolderWatch

    def print_changes(job: Job) -> None:
        _tell_changes(knowledge_base.jobs, job, out_json if args.json else _line)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_at_signal, tasks.cancel_scope)
        tasks.start_soon(knowledge_base.work)
        say(f"Watching {', '.join(map(str, args.folders))}; end it with Ctrl+C.")
        watch = FolderWatch(
            knowledge_base,
            args.folders,
            include=args.include,
            exclude=args.exclude,
            metadata=metadata,
            on_job_done=print_changes,
        )
        await watch.run()
    return 0


async def _end_at_signal(scope: anyio.CancelScope) -> None:
    """Cancel a scope at SIGINT or SIGTERM; where these do not exist, KeyboardInterrupt ends the command."""
    try:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()
                return
    except NotImplementedError:
        return


def _tell_changes(jobs: JobReader, job: Job, tell: Callable[[dict[str, object]], None]) -> None:
    after = -1
    while items := jobs.report(job, _CHANGES, limit=_PAGE, after=after):
        after = items[-1].ordinal
        for item in items:
            tell({"state": item.state, "uri": item.uri, "reason": item.reason})
    if job.error:
        tell({"state": "failed", "uri": "", "reason": job.error})


def _line(change: dict[str, object]) -> None:
    reason = f"  ({change['reason']})" if change["reason"] else ""
    out(f"{change['state']:8} {display_uri(str(change['uri']))}{reason}")
