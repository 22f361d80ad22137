"""Telling clients that knowledge bases, or what is in them, have changed, whichever process did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom_core.knowledge.sources.library import Library
    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.server.protocol.factory import LoomServer
    from loom_kb.service import Service

__all__ = ["tell_changes"]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look has found.

    Attributes:
        files: date and size of every file that a record is made of.
        sources: what the tools say of the knowledge bases.
        revisions: `CatalogueEntry.revision` of each.
    """

    files: Mapping[Path, tuple[int, int]]
    sources: tuple[SourceInfo, ...] = ()
    revisions: tuple[str, ...] = ()


async def tell_changes(server: LoomServer, service: Service, *, interval: float = 1.0) -> None:
    """Look again and again until cancelled, and tell every client that wants to know.

    A database tells nobody that another process has written to it, so the dates of its files are looked at,
    and its content only where these are new: as long as nothing happens, nothing is opened. That documents
    are others is told when they have been the same for one look, which is when a job is done or rests.
    """
    library = service.library
    seen = _Seen(await to_thread.run_sync(library.catalogue.files))
    told = seen.revisions
    while True:
        await anyio.sleep(interval)
        now = await to_thread.run_sync(_look, library, seen)
        if now.sources != seen.sources:
            await server.tools_changed()
        if now.revisions == seen.revisions != told:
            told = now.revisions
            await server.resources_changed()
        seen = now


def _look(library: Library, before: _Seen) -> _Seen:
    files = library.catalogue.files()
    if files == before.files:
        return before
    entries = library.list()
    return _Seen(
        files=files,
        sources=tuple(entry.source for entry in entries),
        revisions=tuple(f"{entry.name}: {entry.revision}" for entry in entries),
    )
