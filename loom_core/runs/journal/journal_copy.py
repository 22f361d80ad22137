"""Copy of a journal to another place: from a file to PostgreSQL, or back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError, StoreBusyError
from loom_core.runs.journal.rows.schema import SCHEMA
from loom_core.runs.journal.store import PostgresPlace, open_database
from loom_core.storage.table_copy import copy_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.runs.journal.drivers import DriverRegistry
    from loom_core.storage.sql import SQLDatabase

__all__ = ["copy_journal"]


def copy_journal(
    source: Path | PostgresPlace,
    target: Path | PostgresPlace,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Copy all runs, sessions and memories of a journal, and verify the copy; see `copy_tables`. Blocks.

    Registered processes are not copied: those that open the target take over the runs that have not ended.

    Args:
        source: the journal to read.
        target: where there is no journal, or the beginning of such a copy.
        progress: see `copy_tables`.

    Raises:
        InvalidInputError: there is no such journal, or both are the same.
        StoreBusyError: a process executes runs of one of them.
        StoreError: see `copy_tables`.
    """
    if source == target:
        raise InvalidInputError(
            f"The journal is in {source} already.",
            advice="Name another target. Without LOOM_DATABASE and --database, the source is the file.",
        )
    if not source.exists():
        raise InvalidInputError(f"There is no journal in {source}.", advice="Nothing needs to be copied.")
    read, readers = open_database(source)
    with closing(read):
        _require_idle(source, read, readers)
        written, writers = open_database(target)
        with closing(written):
            _require_idle(target, written, writers)
            copy_tables(read, written, SCHEMA, without={"drivers": "TRUE"}, progress=progress)
            _require_idle(source, read, readers)  # one may have begun meanwhile


def _require_idle(place: Path | PostgresPlace, database: SQLDatabase, drivers: DriverRegistry) -> None:
    with database.read() as db:
        titles = drivers.live_titles(db)
    if titles:
        raise StoreBusyError(
            f"Processes execute runs of {place}: {', '.join(titles)}.",
            advice="Stop all servers that use it, and try again.",
        )
