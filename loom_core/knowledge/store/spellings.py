"""How the names of entities are written: all spellings of some, and those that differ by their script."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.storage import Database

__all__ = ["in_several_scripts", "spellings_of"]

_IN_SEVERAL_SPELLINGS = """
SELECT entity, name FROM names AS n
WHERE EXISTS (SELECT 1 FROM names WHERE entity = n.entity AND name != n.name)
GROUP BY entity, name ORDER BY entity, SUM(uses) DESC, name
"""


def spellings_of(database: Database, entities: Sequence[int]) -> list[str]:
    """All spellings of entities that differ by more than case, the most used first."""
    uses: defaultdict[str, int] = defaultdict(int)
    for row in database.rows_in("SELECT name, uses FROM names WHERE entity IN ({})", entities):
        uses[row["name"]] += row["uses"]
    ordered = sorted(uses, key=lambda name: (-uses[name], name))
    return list(_by_case_alone(ordered).values())


def in_several_scripts(database: Database) -> list[tuple[str, ...]]:
    """Names that are written in several scripts: traditional and simplified, full and half width.

    Each is one name of one entity. Reads the names of all entities.

    Returns:
        The spellings of each, the most used first.
    """
    found: list[tuple[str, ...]] = []
    for _, rows in groupby(database.rows(_IN_SEVERAL_SPELLINGS), itemgetter("entity")):
        same: defaultdict[str, list[str]] = defaultdict(list)
        for row in rows:
            same[normalise(row["name"])].append(row["name"])
        spellings = (tuple(_by_case_alone(names).values()) for names in same.values())
        found += [names for names in spellings if len(names) > 1]
    return found


def _by_case_alone(names: Iterable[str]) -> dict[str, str]:
    """The first of those names that differ by no more than case."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
    return first
