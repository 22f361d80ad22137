"""Copy of the tables of one database to another that has the same schema, from SQLite to PostgreSQL or back.

Rows are copied in the order of their keys, a batch a transaction, without triggers: what these maintain is
copied, too. The rows of the target say where a copy that was killed has to go on. At the end all rows are
compared; until then the target refuses to be opened, see `refuse_unfinished_copy`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError, StoreError
from loom_core.storage.postgres import PostgresDatabase
from loom_core.storage.sql import UNFINISHED_COPY
from loom_core.storage.sqlite import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loom_core.storage.sql import SQLConnection, SQLDatabase

    _Row = tuple[Any, ...]

__all__ = ["copy_tables"]

_FEW, _MANY = 50, 5000  # rows of a table's first batch, and of any
_BATCH = 8 << 20  # bytes of texts and contents, about


def copy_tables(
    source: SQLDatabase,
    target: SQLDatabase,
    schema: Sequence[str],
    *,
    without: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Copy all rows, and the highest keys ever given, and verify that both hold the same then. Blocks.

    A call after one that was interrupted goes on where that stopped. The caller sees to it that nothing
    writes to either database meanwhile; the verification finds what did.

    Args:
        source: the database to read.
        target: the database to write: empty, or with the first rows of such a copy.
        schema: SQLite's scripts of both.
        without: SQL conditions of rows that stay where they are and are not compared, by table.
        progress: called with the number of rows done, and of those to do; each counts twice, as it is copied
            and compared.

    Raises:
        InvalidInputError: PostgreSQL cannot store a row.
        StoreError: the target holds other rows, and is left as it is; or rows have changed meanwhile; or one
            of the two cannot be read or written.
    """
    tables = _read_tables(schema, without or {})
    total, done = 2 * sum(table.count(source) for table in tables), 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, total)

    ends = [_compare(source, target, table, advance) if table.has_key else None for table in tables]
    with target.write() as db:
        db.execute(f"CREATE TABLE IF NOT EXISTS {UNFINISHED_COPY} (one INTEGER)")
    for table, end in zip(tables, ends, strict=True):
        batches = table.batches(source, end) if table.has_key else [table.page(source, None, _MANY)]
        for rows in batches:
            table.insert(target, rows)
            advance(len(rows))
    _set_highest_keys(target, tables, _highest_keys(source, tables))
    for table in tables:
        end = _compare(source, target, table, advance)
        for row in table.page(source, end, 1):
            raise table.difference(row)
    with target.write() as db:
        if isinstance(target, PostgresDatabase):
            for table in tables:
                db.execute(f"ANALYZE {table.name}")  # or plans are bad until the server does it by itself
        db.execute(f"DROP TABLE {UNFINISHED_COPY}")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table.

    Attributes:
        name: its name.
        columns: its columns.
        key: those of its primary key; of a table without one, all.
        has_key: whether it has a primary key; if not, it has few rows, also in a new database.
        has_number: whether its key is one number, which the database may have assigned.
        never_reuses: whether no key is ever assigned twice.
        rows: the condition of the rows to copy.
    """

    name: str
    columns: Sequence[str]
    key: Sequence[str]
    has_key: bool
    has_number: bool
    never_reuses: bool
    rows: str

    def count(self, database: SQLDatabase) -> int:
        return database.row(f"SELECT COUNT(*) FROM {self.name} WHERE {self.rows}")[0]

    def page(self, database: SQLDatabase, after: _Row | None, limit: int) -> list[_Row]:
        """Return the next rows after a key, in the order of their keys."""
        key = _listed(self.key)
        later = f" AND ({key}) > ({', '.join('?' * len(self.key))})" if after is not None else ""
        sql = f"SELECT {_listed(self.columns)} FROM {self.name} WHERE {self.rows}{later}"
        return [tuple(row) for row in database.rows(f"{sql} ORDER BY {key} LIMIT {limit}", after or ())]

    def batches(self, database: SQLDatabase, after: _Row | None) -> Iterator[list[_Row]]:
        """Yield all rows after a key, in batches that fit into memory."""
        limit = _FEW
        while rows := self.page(database, after, limit):
            yield rows
            after = self.key_of(rows[-1])
            size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
            limit = max(1, min(2 * limit, limit * _BATCH // max(1, size), _MANY))

    def key_of(self, row: _Row) -> _Row:
        return tuple(row[self.columns.index(name)] for name in self.key)

    def insert(self, database: SQLDatabase, rows: Sequence[_Row]) -> None:
        """Insert rows in a transaction, without triggers; they replace those of a table without a key."""
        marks = ", ".join("?" * len(self.columns))
        insert = f"INSERT INTO {self.name} ({_listed(self.columns)}) VALUES ({marks})"
        try:
            with database.write(durable=False) as db:
                triggers = _disable_triggers(db, database, self.name)
                if not self.has_key:
                    db.execute(f"DELETE FROM {self.name}")
                db.executemany(insert, rows)
                for statement in triggers:
                    db.execute(statement)
        except InvalidInputError as error:
            for row in rows:
                for column, value in zip(self.columns, row, strict=True):
                    if isinstance(value, str) and "\0" in value:
                        raise InvalidInputError(
                            f"{self._title(row)} cannot be copied: its {column} has the character U+0000, "
                            "which PostgreSQL cannot store.",
                            advice="Remove or change what it belongs to, and copy to an empty place.",
                        ) from error
            raise

    def difference(self, row: _Row) -> StoreError:
        """Return the error for a row that is not the same in both databases."""
        return StoreError(
            f"{self._title(row)} is not the same in both databases.",
            advice="Stop what writes to them. The target must be empty, or hold the beginning of a copy of "
            "what the source holds now: else empty it, or choose another one.",
        )

    def _title(self, row: _Row) -> str:
        key = [each.hex() if isinstance(each, bytes) else each for each in self.key_of(row)]
        id_ = f" ({row[self.columns.index('id')]})" if self.has_number and "id" in self.columns else ""
        return f"The row {', '.join(map(str, key))}{id_} of the table {self.name}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _read_tables(schema: Sequence[str], without: Mapping[str, str]) -> list[_Table]:
    """Return the tables that a schema makes, each after those that it refers to."""
    with closing(Database(None, schema=schema)) as model:
        sql = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        scripts = {row["name"]: str(row["sql"]) for row in model.rows(sql)}
        parents = {
            name: sorted({row["table"] for row in model.rows(f"PRAGMA foreign_key_list({name})")})
            for name in scripts
        }
        tables: list[_Table] = []
        for name in TopologicalSorter(parents).static_order():
            columns = model.rows(f"PRAGMA table_info({name})")
            key = sorted((row for row in columns if row["pk"]), key=lambda row: row["pk"])
            tables.append(
                _Table(
                    name=name,
                    columns=[row["name"] for row in columns],
                    key=[row["name"] for row in key or columns],
                    has_key=bool(key),
                    has_number=[row["type"] for row in key] == ["INTEGER"],
                    never_reuses="AUTOINCREMENT" in scripts[name],
                    rows=f"NOT ({without.get(name, 'FALSE')})",
                )
            )
        return tables


def _compare(
    source: SQLDatabase, target: SQLDatabase, table: _Table, advance: Callable[[int], None]
) -> _Row | None:
    """Compare the target's rows with the first ones of the source; return the key of the last one.

    Raises:
        StoreError: they differ.
    """
    end = None
    for held in table.batches(target, None):
        for row, expected in zip_longest(held, table.page(source, end, len(held))):
            if row != expected:
                raise table.difference(row)
        end = table.key_of(held[-1])
        advance(len(held))
    return end


def _disable_triggers(db: SQLConnection, database: SQLDatabase, table: str) -> list[str]:
    """Disable the triggers of a table, in a transaction; return the statements that enable them again."""
    if isinstance(database, PostgresDatabase):
        db.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        return [f"ALTER TABLE {table} ENABLE TRIGGER USER"]
    sql = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    triggers = db.execute(sql, (table,)).fetchall()
    for trigger in triggers:
        db.execute(f"DROP TRIGGER {trigger['name']}")
    return [trigger["sql"] for trigger in triggers]


# The highest key ever of each table whose keys are never assigned twice: SQLite has it in `sqlite_sequence`,
# PostgreSQL in the sequence of the column, and a knowledge store there in a table of that name, too.
_LAST = "SELECT pg_sequence_last_value(pg_get_serial_sequence(?, ?)::regclass) AS seq"
_SET_LAST = (
    "SELECT setval(pg_get_serial_sequence(?, ?)::regclass,"
    " GREATEST(NULLIF(?::bigint, 0), (SELECT MAX({1}) FROM {0})))"  # without either, it does nothing
)


def _highest_keys(database: SQLDatabase, tables: Sequence[_Table]) -> dict[str, int]:
    found: dict[str, int] = {}
    if is_postgres := isinstance(database, PostgresDatabase):
        for table in tables:
            if table.never_reuses:
                found[table.name] = database.row(_LAST, (table.name, table.key[0]))["seq"] or 0
    if not is_postgres or database.has_table("sqlite_sequence"):
        found |= {row["name"]: row["seq"] for row in database.rows("SELECT name, seq FROM sqlite_sequence")}
    return {name: highest for name, highest in found.items() if highest}


def _set_highest_keys(database: SQLDatabase, tables: Sequence[_Table], highest: Mapping[str, int]) -> None:
    with database.write() as db:
        if not isinstance(database, PostgresDatabase):
            db.execute("DELETE FROM sqlite_sequence")
            db.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", [*highest.items()])
            return
        for table in tables:
            if table.has_number:  # also those whose keys only PostgreSQL takes from a sequence
                sql = _SET_LAST.format(table.name, table.key[0])
                db.execute(sql, (table.name, table.key[0], highest.get(table.name, 0)))
        if database.has_table("sqlite_sequence"):
            for name, seq in highest.items():
                db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (seq, name))
