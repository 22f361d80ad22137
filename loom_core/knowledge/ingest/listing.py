"""File listing of a job: files of folders, in portions, and documents whose files are gone."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core.files.safe_open import resolves_within
from loom_core.knowledge.ingest.loaders import scan
from loom_core.knowledge.ingest.stored_documents import iterate_uris
from loom_core.knowledge.store.jobs import ListedDocument
from loom_core.knowledge.store.shard import read_shard
from loom_core.knowledge.uris import uri_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.ingest.loaders.folder import ScanEntry
    from loom_core.knowledge.store import Job, KnowledgeStore

__all__ = ["FileListing", "outermost"]

_PORTION = 1000
_SECONDS = 0.25  # of a portion, after which progress is reported and cancellation checked
_FEW = 10  # up to this many documents are removed if their folder is empty
_COUNTED = 10_000


class FileListing:
    """Listing of a job's files. Its state is in memory only: after a kill, the next process starts over.

    Files that are surely unchanged become no items; they are only counted. For a `sync`
    the documents below its folders whose files are gone follow at the end, as `leaving`.

    Args:
        store: the store, which receives the items.
        job: the job, which has been started.
        settings: digest of the settings of loading, see `FileTable`.
    """

    def __init__(self, store: KnowledgeStore, job: Job, *, settings: bytes) -> None:
        self._store = store
        self._shard = read_shard(store)
        self._settings = settings
        self._seen = bytearray()  # a bit for each document that still has its file
        self._kept: list[str] = []  # addresses that could not be read, whose documents are kept
        self._places: list[Path] = []  # folders below which documents without a file are removed
        # In this order: only after all files are listed are the documents without one known.
        self._phases = deque([self._files(job), self._leaving()])
        self.job = job

    def step(self) -> bool:
        """List some more files, and store them. Blocks for a moment.

        Returns:
            Whether there may be more.

        Raises:
            InvalidInputError: a pattern is malformed.
        """
        until = time.monotonic() + _SECONDS
        portion: list[ScanEntry | ListedDocument] = []
        for each in islice(self._phases[0], _PORTION):
            portion.append(each)
            if time.monotonic() > until:
                break
        if not portion:
            self._phases.popleft()
        found = [each for each in portion if isinstance(each, ListedDocument)]
        entries = [each for each in portion if not isinstance(each, ListedDocument)]
        changed, unchanged = self._detect_changes(entries)
        self._store.jobs.append(self.job, [*found, *changed], unchanged=unchanged)
        if not self._phases:
            self._store.jobs.finish_listing(self.job)
        return bool(self._phases)

    def _files(self, job: Job) -> Iterator[ScanEntry | ListedDocument]:
        request = job.request
        if "stored" in request:
            wanted = frozenset(request["stored"])
            for uri, size in iterate_uris(self._store.database):
                if not wanted or uri in wanted:
                    yield ListedDocument(uri, size)
        elif job.kind == "sync":
            roots = outermost([Path(path).resolve() for path in request["paths"]])
            within = outermost(list(map(Path, request.get("within", ()))))
            self._places = within or roots
            for root in roots:
                yield from self._folder(root, request, within)
        else:
            yield from (ListedDocument(url) for url in request.get("urls", ()) if self._holds(url))
            for path in map(Path, request.get("paths", ())):
                if not self._holds(uri_of(path)) and not path.is_dir():
                    continue
                if job.roots and not resolves_within(path, job.roots):
                    yield ListedDocument(
                        uri_of(path), 0, "failed", "it leads out of the folders that may be read"
                    )
                elif path.exists():
                    yield from self._scan(path, request)
                else:
                    yield ListedDocument(uri_of(path), 0, "skipped", "there is no such file or folder")

    def _scan(self, path: Path, request: dict[str, Any], within: Sequence[Path] = ()) -> Iterator[ScanEntry]:
        """Scan a folder, or a file, for what belongs here; what cannot be read protects documents below."""
        include, exclude = request.get("include", ()), request.get("exclude", ())
        for entry in scan(path, include=include, exclude=exclude, within=within):
            if not entry.is_known or self._holds(uri_of(entry.path)):
                yield entry

    def _holds(self, uri: str) -> bool:
        return self._shard is None or self._shard.holds(uri)

    def _detect_changes(self, entries: Sequence[ScanEntry]) -> tuple[list[ListedDocument], int]:
        """Return the actions for some files, and how many of them surely did not change."""
        uris = [uri_of(entry.path) for entry in entries]
        loadable = [uri for uri, entry in zip(uris, entries, strict=True) if not entry.skipped]
        known = self._store.files.find_known(loadable, self._settings)
        if self.job.kind == "sync":
            for key in self._store.files.documents_at(loadable).values():
                self._mark(key)
        found: list[ListedDocument] = []
        unchanged = 0
        for uri, entry in zip(uris, entries, strict=True):
            before = known.get(uri)
            if not entry.is_known and self.job.kind == "sync":
                self._kept.append(uri)
                reason = f"{entry.skipped}; what was read from it before is kept"
                found.append(ListedDocument(uri, 0, "failed", reason))
            elif entry.skipped:
                found.append(ListedDocument(uri, entry.size, "skipped", entry.skipped))
            elif before is not None and before.state.is_untouched(
                size=entry.size, mtime_ns=entry.mtime_ns, ctime_ns=entry.ctime_ns
            ):
                unchanged += 1
            else:
                found.append(ListedDocument(uri, entry.size))
        return found, unchanged

    # -- keeping in sync ---------------------------------------------------------------------------

    def _folder(
        self, root: Path, request: dict[str, Any], within: Sequence[Path]
    ) -> Iterator[ScanEntry | ListedDocument]:
        uri = uri_of(root)
        documents = self._store.files.count_under(uri, limit=_COUNTED)
        state = _state_of(root)
        lost = state == "gone" or (state == "empty" and documents > _FEW)
        if lost and documents and not request.get("allow_empty"):
            self._kept.append(uri)
            more = " or more" if documents == _COUNTED else ""
            yield ListedDocument(
                uri,
                0,
                "failed",
                f"the folder is {state}, so nothing was removed: {documents:,}{more} documents came from it. "
                "Is its drive connected? To remove them, use --allow-empty",
            )
        elif state != "gone":
            yield from self._scan(root, request, within)
        elif not documents:
            yield ListedDocument(uri, 0, "failed", "there is no such folder")

    def _leaving(self) -> Iterator[ScanEntry | ListedDocument]:
        for uri in map(uri_of, self._places):
            for at, key in self._store.files.documents_at([uri]).items():
                if self._is_leaving(key, at):
                    yield ListedDocument(at, 0, "leaving")
            after = ""
            while page := self._store.files.documents_under(uri, after=after, limit=_PORTION):
                after = page[-1][1]
                yield from (
                    ListedDocument(below, 0, "leaving") for key, below in page if self._is_leaving(key, below)
                )

    def _is_leaving(self, key: int, uri: str) -> bool:
        at = key >> 3
        if at < len(self._seen) and self._seen[at] >> (key & 7) & 1:
            return False
        return not any(uri == kept or uri.startswith(f"{kept}/") for kept in self._kept)

    def _mark(self, key: int) -> None:
        at = key >> 3
        if at >= len(self._seen):
            self._seen.extend(bytes(at + 1 - len(self._seen) + 1024))
        self._seen[at] |= 1 << (key & 7)


def outermost(paths: Sequence[Path]) -> list[Path]:
    """Drop paths that are below another of them; sorted."""
    found: list[Path] = []
    for path in sorted(set(paths), key=lambda path: path.parts):
        if not found or not path.is_relative_to(found[-1]):
            found.append(path)
    return found


def _state_of(folder: Path) -> str:
    """Return `gone` or `empty`, or nothing if a folder has content or cannot be read."""
    try:
        return "" if any(folder.iterdir()) else "empty"
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    except OSError:
        return ""
