"""State of the files that documents were read from."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.files.safe_open import open_regular

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loom_core.knowledge.store.changes import ChangeLog
    from loom_core.storage.sql import SQLDatabase, SQLRow

__all__ = ["NO_TIME", "FileFingerprint", "FileTable", "KnownFile", "read_fingerprint"]

_FILE = (
    "SELECT d.key, d.uri, d.title, d.title_source, f.size, f.mtime_ns, f.ctime_ns, f.content "
    "FROM documents AS d JOIN files AS f ON f.document = d.key AND f.hash = d.hash "
)


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file whose document is in the store, as of when the document was read.

    Attributes:
        document: key of the document.
        state: fingerprint of the file when it was read.
    """

    document: int
    uri: str
    title: str
    title_source: str
    state: FileFingerprint


class FileTable:
    """Fingerprints of the files of documents; a row is valid while its document is unchanged since."""

    def __init__(self, database: SQLDatabase, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    def find_known(self, uris: Sequence[str], settings: bytes) -> dict[str, KnownFile]:
        """Return the files at some addresses whose documents were made with the same settings."""
        rows = self._database.rows_in(_FILE + "WHERE d.uri IN ({}) AND f.settings = ?", uris, (settings,))
        return {row["uri"]: _file_of_row(row) for row in rows}

    def leaving(self, job: int, content: bytes, settings: bytes) -> list[KnownFile]:
        """Return files of some content whose documents a job is about to remove, oldest first."""
        rows = self._database.rows(
            _FILE + "WHERE f.content = ? AND f.settings = ? AND EXISTS (SELECT 1 FROM items AS i "
            "WHERE i.job = ? AND i.uri = d.uri AND i.state = 'leaving') ORDER BY d.key",
            (content, settings, job),
        )
        return [_file_of_row(row) for row in rows]

    def move(self, source: KnownFile, uri: str, *, id_: str) -> bool:
        """Give a document another address, with the id that goes with it; part of a transaction.

        Its text, chunks, vectors and findings stay as they are.

        Args:
            source: the document, which must still be at its known address.
            uri: the new address. A document at this address has to be removed first.
            id_: the document's id at this address.

        Returns:
            Whether the document still existed.
        """
        with self._database.write() as db:
            row = db.execute(
                "SELECT id FROM documents WHERE key = ? AND uri = ?", (source.document, source.uri)
            ).fetchone()
            if row is None:
                return False
            db.execute(
                "UPDATE documents SET uri = ?, id = ?, updated_at = ? WHERE key = ?",
                (uri, id_, time.time(), source.document),
            )
            db.execute(
                "UPDATE chunks SET id = ? || substr(id, ?) WHERE document = ?",
                (id_, len(row["id"]) + 1, source.document),
            )
            self._changes.note("document", [source.document])
            return True

    def note(self, uri: str, state: FileFingerprint, settings: bytes) -> None:
        """Store the fingerprint of a document's file; part of the transaction that writes the document."""
        with self._database.write() as db:
            db.execute(
                "INSERT INTO files (document, hash, settings, size, mtime_ns, ctime_ns, content) "
                "SELECT key, hash, ?, ?, ?, ?, ? FROM documents WHERE uri = ? ON CONFLICT (document) "
                "DO UPDATE SET hash = excluded.hash, settings = excluded.settings, size = excluded.size, "
                "mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, content = excluded.content",
                (settings, state.size, state.mtime_ns, state.ctime_ns, state.content, uri),
            )

    def documents_at(self, uris: Sequence[str]) -> dict[str, int]:
        """Return keys of the documents at some addresses, files or not."""
        rows = self._database.rows_in("SELECT key, uri FROM documents WHERE uri IN ({})", uris)
        return {row["uri"]: row["key"] for row in rows}

    def documents_under(self, folder: str, *, after: str = "", limit: int = 1000) -> list[tuple[int, str]]:
        """Return keys and addresses of the documents below a folder's address, in order, after an address."""
        prefix = folder.rstrip("/")
        rows = self._database.rows(
            "SELECT key, uri FROM documents WHERE uri > ? AND uri > ? AND uri < ? ORDER BY uri LIMIT ?",
            (f"{prefix}/", after, f"{prefix}0", limit),  # the character after "/" is "0"
        )
        return [(row["key"], row["uri"]) for row in rows]

    def count_under(self, folder: str, *, limit: int) -> int:
        """Return how many documents there are below a folder's address, up to a limit."""
        return len(self.documents_under(folder, limit=limit))


def _file_of_row(row: SQLRow) -> KnownFile:
    state = FileFingerprint(row["size"], row["mtime_ns"], row["ctime_ns"], row["content"])
    return KnownFile(row["key"], row["uri"], row["title"], row["title_source"], state)


NO_TIME = -1
"""Stored instead of a modification time so recent that a later change might have the same time."""

_GRAIN_NS = 2_000_000_000  # FAT has a resolution of two seconds; others are finer
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Fingerprint of a file: size, times and content hash.

    Attributes:
        size: in bytes.
        mtime_ns: time of its last change in nanoseconds since 1970, or `NO_TIME`.
        ctime_ns: time of the last change of its inode (on Windows: creation), which programs cannot set.
        content: SHA-256 of its bytes.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    content: bytes

    def is_untouched(self, *, size: int, mtime_ns: int, ctime_ns: int) -> bool:
        """Whether size and times are unchanged, so that the content is certain to be, too."""
        return (self.size, self.mtime_ns, self.ctime_ns) == (size, mtime_ns, ctime_ns)


def read_fingerprint(path: Path, *, max_bytes: int, roots: Sequence[Path] = ()) -> FileFingerprint | None:
    """Read a file and return its fingerprint. Blocks.

    A file that changed within the last two seconds may change again with the same time, as clocks of file
    systems are coarse; its time is ignored (Git calls such a file racily clean).

    Args:
        path: a regular file.
        max_bytes: a larger file is not read.
        roots: if given, a file outside them is not read, see `open_regular`.

    Returns:
        The fingerprint, or None if the file is too large or changed while it was read.

    Raises:
        OSError: it is missing, not a regular file, or unreadable.
        ValueError: no file can have this path.
    """
    began = time.time_ns()
    with open_regular(path, roots=roots) as file:
        before = os.fstat(file.fileno())
        if before.st_size > max_bytes:
            return None
        digest, size = hashlib.sha256(), 0
        while size <= before.st_size and (block := file.read(_BLOCK)):
            digest.update(block)
            size += len(block)
        after = os.fstat(file.fileno())
    if size != before.st_size or _times(before) != _times(after):
        return None
    racy = max(_times(before)) > began - _GRAIN_NS
    return FileFingerprint(size, NO_TIME if racy else before.st_mtime_ns, before.st_ctime_ns, digest.digest())


def _times(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns
