"""Reading what can be read of a damaged record."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DamagedRecord", "is_database", "mend_header"]

_PAGE = 200
_MOST_TRIES = 10_000_000  # some minutes
_HEADER = 100  # bytes, see "The Database Header" in SQLite's description of its file format
_PAGES_AT = slice(28, 32)  # there, how many pages the file has
_FREE_PAGES_AT = slice(32, 40)


class DamagedRecord:
    """The tables of a damaged record, as far as they can be read; nothing is written to it.

    Args:
        path: the damaged file.

    Attributes:
        incomplete: whether something that was asked for could not even be counted.
    """

    def __init__(self, path: Path) -> None:
        self.incomplete = False
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        self._db.row_factory = sqlite3.Row
        self._db.text_factory = _any_text
        with suppress(sqlite3.Error):
            # Otherwise nothing at all is read of a file that was cut off.
            self._db.execute("PRAGMA writable_schema=ON")

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def version(self) -> int:
        """The format it was written in; 0 where that cannot be read."""
        with suppress(sqlite3.Error):
            return int(self._db.execute("PRAGMA user_version").fetchone()[0])
        return 0

    def select(self, sql: str, parameters: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        """The rows of a statement up to the first that cannot be read."""
        found: list[sqlite3.Row] = []
        try:
            found.extend(self._db.execute(sql, parameters))
        except sqlite3.Error:
            self.incomplete = True
        return found

    def rows(self, table: str) -> Iterator[sqlite3.Row]:
        """The rows of a table that can be read, by rowid."""
        after = 0
        while True:
            try:
                rows = self._db.execute(
                    f"SELECT rowid AS _row, * FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?",
                    (after, _PAGE),
                ).fetchall()
            except sqlite3.Error:
                break
            if not rows:
                return
            yield from rows
            after = rows[-1]["_row"]
        # From here on one by one: which of them lie on a damaged page is not known.
        last = self._last(table)
        if last - after > _MOST_TRIES:  # more than there can be: the number itself is damaged
            self.incomplete, last = True, after + _MOST_TRIES
        for rowid in range(after + 1, last + 1):
            with suppress(sqlite3.Error):
                row = self._db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
                if row is not None:
                    yield row

    def uris(self) -> set[str]:
        """The URIs of the documents that should be there, by whichever of table and index tells them."""
        known: set[object] = set()  # on a damaged page there may be anything
        whole = False
        for order in ("rowid", "uri"):  # the latter is read off an index of its own
            with suppress(sqlite3.Error):
                known.update(
                    row["uri"] for row in self._db.execute(f"SELECT uri FROM documents ORDER BY {order}")
                )
                whole = True
        uris = {uri for uri in known if isinstance(uri, str)}
        self.incomplete = self.incomplete or not whole or uris != known
        return uris

    def _last(self, table: str) -> int:
        for sql in (
            f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
            f"SELECT MAX(rowid) FROM {table}",
        ):
            with suppress(sqlite3.Error):
                row = self._db.execute(sql).fetchone()
                if row is not None and isinstance(row[0], int):
                    return row[0]
        return 0


def is_database(path: Path) -> bool:
    """Whether a file begins as a database does, whatever comes after."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("PRAGMA writable_schema=ON")
            db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def mend_header(path: Path, *, like: Path) -> None:
    """Replace the header of a database, which says how its pages are to be read and holds no data.

    Args:
        path: the database, which is changed.
        like: a sound one of the same format, with nothing in its log.
    """
    with like.open("rb") as sound:
        header = bytearray(sound.read(_HEADER))
    page_size = int.from_bytes(header[16:18], "big")
    header[_PAGES_AT] = (path.stat().st_size // page_size).to_bytes(4, "big")
    header[_FREE_PAGES_AT] = bytes(8)
    with path.open("r+b") as file:
        file.write(header)


def _any_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
