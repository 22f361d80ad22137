"""Telling what has become of a file before it is loaded: nothing, only its address, or its content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.knowledge.ingest.loaders.titles import readable_name
from loom_core.knowledge.store.files import FileState, read_state
from loom_core.knowledge.uris import path_of

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.store import Job, JobItem, Record
    from loom_core.knowledge.store.files import KnownFile

__all__ = ["FileCheck", "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What has become of a file.

    Attributes:
        outcome: `unchanged`: its document is up to date; `moved`: it is the file that another document was
            read from; `load`: it has to be read; `gone`: it is not there; `unreadable`: nothing is known.
        state: what it is like now, where it could be read in peace.
        source: the document that only gets another address, where it was moved.
    """

    outcome: Literal["unchanged", "moved", "load", "gone", "unreadable"]
    state: FileState | None = None
    source: KnownFile | None = None


class FileCheck:
    """Looks at the files of jobs before they are loaded.

    Args:
        record: knows what they were like.
        pipeline: id of the pipeline.
        limits: what is too large to be loaded is not read here either.
    """

    def __init__(self, record: Record, *, pipeline: str, limits: LoadLimits) -> None:
        self._record = record
        self._pipeline = f"{version('loom-mcp-core')}/{pipeline}"
        self._limits = limits
        self._claimed: set[tuple[int, int]] = set()

    def settings(self, job: Job) -> bytes:
        """Digest of all that a document depends on beside its file."""
        described = json.dumps([self._pipeline, job.request.get("metadata", {})], sort_keys=True)
        return hashlib.sha256(described.encode()).digest()[:16]

    def look(self, job: Job, item: JobItem) -> Verdict:
        """What has become of the file of an item. Blocks: reads the file, unless it is too large.

        A document is claimed by the first file that it could have moved to; a second copy is loaded.
        """
        if item.payload is not None or not item.uri.startswith("file:") or "stored" in job.request:
            return Verdict("load")
        path = path_of(item.uri)
        try:
            state = read_state(path, max_bytes=self._limits.max_bytes, roots=job.roots)
        except (FileNotFoundError, NotADirectoryError):
            return Verdict("gone")
        except (OSError, ValueError):
            return Verdict("unreadable")
        if state is None:
            return Verdict("load")
        settings = self.settings(job)
        before = self._record.files.known([item.uri], settings).get(item.uri)
        if before is not None and before.state.content == state.content:
            return Verdict("unchanged", state)
        if job.kind == "sync":
            for source in self._record.files.leaving(job.key, state.content, settings):
                claim = (job.key, source.document)
                if claim not in self._claimed and _reads_alike(source, path):
                    self._claimed.add(claim)
                    return Verdict("moved", state, source)
        return Verdict("load", state)

    def is_still(self, item: JobItem, state: FileState) -> bool:
        """Whether a file still looks as it did when it was looked at, so that what was loaded was that."""
        try:
            now = path_of(item.uri).stat(follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return (now.st_size, now.st_ctime_ns) == (state.size, state.ctime_ns)

    def forget(self) -> None:
        """Drop all claims, as no job is under way."""
        self._claimed.clear()


def _reads_alike(source: KnownFile, path: Path) -> bool:
    """Whether a file that had another name gives the same document under a new one."""
    before = path_of(source.uri)
    if before.suffix.lower() != path.suffix.lower():
        return False
    if not path.suffix and before.name.lower() != path.name.lower():  # README, Dockerfile
        return False
    return source.title_source not in {"filename", "none"} or readable_name(before) == readable_name(path)
