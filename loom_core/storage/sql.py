"""Port of the databases that a journal can be in: SQLite (`Database`) and PostgreSQL (`PostgresDatabase`).

One set of SQL serves both. It has `?` for parameters, `RETURNING key` for the key of a new row,
`ON CONFLICT`, and TRUE and FALSE for truth values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["SQLConnection", "SQLCursor", "SQLDatabase", "SQLRow"]


class SQLRow(Protocol):
    """Row of a result: its values by column name and by position, and as an iterable."""

    def __getitem__(self, key: str, /) -> Any:  # noqa: ANN401 - of a column of any type
        """Return the value of a column."""
        ...


class SQLCursor(Protocol):
    """Result of a statement, whose rows are `SQLRow`."""

    @property
    def rowcount(self) -> int:
        """Number of changed rows."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - None, or a `SQLRow` that unpacks, too
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the remaining rows."""
        ...


class SQLConnection(Protocol):
    """Connection to a database."""

    @property
    def total_changes(self) -> int:
        """Number of rows that this connection has changed."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> SQLCursor:
        """Execute a statement."""
        ...

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]], /) -> object:
        """Execute a statement for each of several lists of parameters."""
        ...


class SQLDatabase(Protocol):
    """Database, usable from every thread and by several processes. Its methods raise StoreError."""

    def snapshot(self) -> AbstractContextManager[SQLConnection]:
        """Return a context whose connection sees one snapshot of committed transactions."""
        ...

    def write(self, *, durable: bool = True) -> AbstractContextManager[SQLConnection]:
        """Return the context of a transaction; those of all processes take turns.

        Args:
            durable: whether the commit must survive a power failure; if not, only a kill of this process.
        """
        ...

    def hold_connection(self) -> AbstractContextManager[object]:
        """Return a context in which this thread keeps its connection, where that is of use."""
        ...

    def change_mark(self) -> object:
        """Return a value that differs from the last one if another process has committed in between."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
