"""The CSV files that a Kùzu database is loaded from: one of entities, one of relations."""

from __future__ import annotations

import csv
from operator import attrgetter
from typing import TYPE_CHECKING

from loom_core.knowledge.indexes.engines.kuzu_statements import copy_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from loom_core.knowledge.indexes.engines.kuzu_session import KuzuSession
    from loom_core.knowledge.interface import EntityEdge, EntityNode

__all__ = ["copy_tables", "tables_size", "write_tables"]

_TABLES = ("Entity", "REL")

_ENTITY = attrgetter("key", "name", "type", "mentions")
_RELATION = attrgetter("subject", "object", "predicate", "support", "confidence")


def write_tables(folder: Path, entities: Iterable[EntityNode], relations: Iterable[EntityEdge]) -> None:
    """Write all entities and all relations into a folder, in this order."""
    _write(folder / "Entity.csv", map(_ENTITY, entities))
    _write(folder / "REL.csv", map(_RELATION, relations))


def copy_tables(session: KuzuSession, folder: Path) -> None:
    """Load what `write_tables` wrote into a new database.

    Raises:
        InvalidInputError: an entity comes twice, or the end of a relation does not come.
        IndexDamagedError: the engine failed.
    """
    for table in _TABLES:
        file = folder / f"{table}.csv"
        if file.stat().st_size:  # the engine refuses an empty file
            copy_table(session, table, file)


def tables_size(folder: Path) -> int:
    """Bytes of what `write_tables` wrote."""
    return sum((folder / f"{table}.csv").stat().st_size for table in _TABLES)


def _write(file: Path, rows: Iterable[tuple[int | str | float, ...]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
