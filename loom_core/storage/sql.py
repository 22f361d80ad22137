"""Port of the databases of journals and knowledge bases: `Database` (SQLite) and `PostgresDatabase`.

One set of SQL serves both. It has `?` or `?1` for parameters, `RETURNING key` for the key of a new row,
`ON CONFLICT`, TRUE and FALSE for truth values, and `CAST(SUM(n) AS BIGINT)`, as sums of integers are decimals
in PostgreSQL. The conditions of a CROSS JOIN, which tells SQLite the order of its loops, are in the WHERE
clause. A comment that begins with `/*postgres` is read by PostgreSQL alone, an `INDEXED BY` by SQLite alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from loom_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = [
    "UNFINISHED_COPY",
    "SQLConnection",
    "SQLCursor",
    "SQLDatabase",
    "SQLRow",
    "refuse_unfinished_copy",
]

UNFINISHED_COPY = "unfinished_copy"
"""Name of a table that a database has as long as it is the beginning of a copy of another one."""


class SQLRow(Protocol):
    """Row of a result: its values by column name and by position, and as an iterable."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the columns."""
        ...

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
        """Execute a statement for each of several lists of parameters.

        The rows of one `INSERT … ON CONFLICT … DO UPDATE` must not conflict with each other.
        """
        ...


class SQLDatabase(Protocol):
    """Database, usable from every thread and by several processes. Its methods raise StoreError."""

    def read(self) -> AbstractContextManager[SQLConnection]:
        """Return a context whose connection reads what was committed, at the latest when the context began.

        Inside a `write` of the same thread it is that transaction's connection.
        """
        ...

    def snapshot(self) -> AbstractContextManager[SQLConnection]:
        """Return a context whose connection sees one snapshot of committed transactions."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ...) -> list[Any]:
        """Return all rows of a query, each a `SQLRow`."""
        ...

    def rows_in(self, sql: str, values: Sequence[Any], parameters: Sequence[Any] = ...) -> list[Any]:
        """Return all rows of a query with a list of any length.

        Args:
            sql: the query, with `IN ({})` for the list, before any other parameter.
            values: the list.
            parameters: the parameters after it.
        """
        ...

    def row(self, sql: str, parameters: Sequence[Any] = ...) -> Any:  # noqa: ANN401 - None, or a `SQLRow`
        """Return the first row of a query, or None."""
        ...

    def rows_each(self, sql: str, parameters: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the rows of a query for each of several lists of parameters."""
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

    def has_table(self, name: str) -> bool:
        """Whether there is a table with a name."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def refuse_unfinished_copy(database: SQLDatabase, place: object) -> None:
    """Check that a database is not what a copy that was interrupted has left.

    Args:
        database: the database.
        place: where it is, for people.

    Raises:
        StoreError: it is.
    """
    if database.has_table(UNFINISHED_COPY):
        raise StoreError(
            f"{place} is an unfinished copy: the command `move` was interrupted.",
            advice="Call it again, and it goes on; or delete the copy, and use the original.",
        )
