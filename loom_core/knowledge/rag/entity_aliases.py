"""Entity aliases: list which entities were merged and why; merge, split and hide them."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.store.aliases import AliasDecision
from loom_core.knowledge.text.scripts import normalise
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.aliases import AliasPair, PairKind
    from loom_core.storage.sql import SQLDatabase

__all__ = ["AliasGroup", "AliasReason", "EntityAliases", "in_several_scripts", "spellings_of"]


@dataclass(frozen=True, slots=True)
class AliasReason:
    """Why two names are, or may be, names of the same entity.

    Attributes:
        name: one name, in its most frequent spelling.
        other: the other name, likewise.
        kind: `acronym`, `also_called`, `translation`, `spelling` or `decision` (of a person).
        confidence: 0 to 1; of spellings, how alike they are to the embedder.
        passage_id: a passage that says so, or empty.
        evidence: what it says, or empty.
    """

    name: str
    other: str
    kind: PairKind
    confidence: float
    passage_id: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class AliasGroup:
    """Names of an entity, the most frequent first, and why they are merged."""

    names: tuple[str, ...]
    reasons: tuple[AliasReason, ...]


class EntityAliases:
    """Lists, merges, splits and hides entities of a knowledge base. All methods block for milliseconds.

    A merge or split is stored as a decision about two names, hiding as one about a name: it also holds for
    documents added later, and replaces an earlier decision about the same names.
    """

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store

    def groups(self, *, limit: int = 100, after: int = 0) -> tuple[list[AliasGroup], int | None]:
        """Return entities that have several names.

        Args:
            limit: maximum number.
            after: the position that the previous call returned; 0 for the first page.

        Returns:
            The groups, and the position of the next page, or None after the last.
        """
        keys = self._store.aliases.groups(after=after, limit=limit + 1)
        more = keys[limit - 1] if len(keys) > limit else None
        members = self._store.aliases.members_of(keys[:limit])
        return [self._group(members[key]) for key in keys[:limit]], more

    def group_of(self, name: str) -> AliasGroup:
        """Return all names of the entity with a name.

        Raises:
            NotFoundError: no entity has this name.
        """
        return self._group(self._members(self._key(name)))

    def names_of(self, entity: int) -> list[str]:
        """Return all names of an entity given by its key, whatever their script, the most used first."""
        return spellings_of(self._store.database, self._members(entity))

    def other_names(self, entities: Mapping[int, str]) -> dict[int, list[str]]:
        """Return further names of those of some entities that have several, the most used first.

        Args:
            entities: the name that each is known by already, by key.
        """
        members = self._store.aliases.members_of(list(entities))
        return {
            key: [name for name in spellings_of(self._store.database, grouped) if name != entities[key]]
            for key, grouped in members.items()
            if len(grouped) > 1
        }

    def in_several_scripts(self) -> list[tuple[str, ...]]:
        """Return names that are written in several scripts, such as 臺灣 and 台湾: the spellings of each.

        Each is one name, which cannot be split. This reads the names of all entities: a second for millions.
        """
        return in_several_scripts(self._store.database)

    def suggestions(self, *, limit: int = 100) -> list[AliasReason]:
        """Return pairs of names that may be the same entity, but lack the evidence to be merged."""
        return self._reasons(self._store.aliases.suggestions(limit=limit))

    def merge(self, name: str, other: str) -> AliasGroup:
        """Treat two names as the same entity from now on.

        Returns:
            The group that both are in.

        Raises:
            NotFoundError: no entity has one of the names.
            InvalidInputError: they are spellings of one name, or other names of theirs were split.
        """
        one, two = self._members(self._key(name)), self._members(self._key(other))
        if self._store.aliases.are_declared_different([*one, *two], but=(name_key(name), name_key(other))):
            raise InvalidInputError(
                f"{name!r} and {other!r} cannot be merged: other names of theirs were split.",
                advice="Undo that first (`clear_decision`).",
            )
        return self._group(self._members(self._decide(name, other, same=True)[0]))

    def split(self, name: str, other: str) -> tuple[AliasGroup, AliasGroup]:
        """Keep two names apart from now on, whatever passages say.

        Returns:
            The groups that each of them is in then.

        Raises:
            NotFoundError: no entity has one of the names.
            InvalidInputError: they are spellings of one name.
        """
        one, two = self._decide(name, other, same=False)
        return self._group(self._members(one)), self._group(self._members(two))

    def hide(self, name: str) -> tuple[str, ...]:
        """Hide the entity with a name from now on, with all its names: no question or graph shows it.

        Returns:
            Its names.

        Raises:
            NotFoundError: no entity has this name.
        """
        store, key = self._store, self._key(name)
        names = tuple(spellings_of(store.database, self._members(key)))
        with store.database.write():
            store.aliases.decide(AliasDecision("", name_key(name), same=False))
            self._regroup([key])
        return names

    def unhide(self, name: str) -> bool:
        """Show an entity again; return whether it was hidden by this name."""
        return self.clear_decision("", name)

    def hidden(self) -> list[str]:
        """Return the hidden names, in lower case, also those that no document uses any more."""
        return self._store.aliases.hidden()

    def clear_decision(self, name: str, other: str) -> bool:
        """Forget a decision about two names; return whether there was one."""
        store = self._store
        with store.database.write():
            known = store.aliases.clear_decision(name_key(name), name_key(other))
            if known:
                self._regroup(store.graph.find([name_key(name), name_key(other)]).values())
        return known

    def _decide(self, name: str, other: str, *, same: bool) -> tuple[int, int]:
        store, (one, two) = self._store, (self._key(name), self._key(other))
        if one == two:
            raise InvalidInputError(
                f"{name!r} and {other!r} are spellings of one name.",
                advice="Only different names can be merged or split.",
            )
        with store.database.write():
            store.aliases.decide(AliasDecision(name_key(name), name_key(other), same))
            self._regroup([one, two])
        return one, two

    def _regroup(self, entities: Collection[int]) -> None:
        changed = self._store.aliases.regroup(entities)
        self._store.changes.note("entity", sorted(changed))

    def _key(self, name: str) -> int:
        key = self._store.graph.find([name_key(name)]).get(name_key(name))
        if key is None:
            raise NotFoundError(
                f"There is no entity {name!r}.", advice="Give a name as the documents use it."
            )
        return key

    def _members(self, key: int) -> list[int]:
        aliases = self._store.aliases
        canonical = aliases.canonical_of([key]).get(key)
        return aliases.members_of([canonical])[canonical] if canonical else [key]

    def _group(self, members: Sequence[int]) -> AliasGroup:
        names = self._store.graph.spellings(members)
        inside = set(members)
        pairs = [
            pair for pair in self._store.aliases.pairs_of(members) if {pair.entity, pair.other} <= inside
        ]
        return AliasGroup(tuple(names[key] for key in names), tuple(self._reasons(pairs)))

    def _reasons(self, pairs: Sequence[AliasPair]) -> list[AliasReason]:
        store = self._store
        names = store.graph.spellings(sorted({end for pair in pairs for end in (pair.entity, pair.other)}))
        chunks = store.documents.chunks(sorted({pair.chunk for pair in pairs if pair.chunk is not None}))
        reasons: list[AliasReason] = []
        for pair in pairs:
            row = chunks.get(pair.chunk) if pair.chunk is not None else None
            place = store.aliases.locate(pair) if row is not None else None
            told = " ".join(row.text[slice(*place)].split()) if row and place else ""
            reasons.append(
                AliasReason(
                    name=names.get(pair.entity, ""),
                    other=names.get(pair.other, ""),
                    kind=pair.kind,
                    confidence=pair.confidence,
                    passage_id=row.id if row is not None else "",
                    evidence=told,
                )
            )
        return reasons


_IN_SEVERAL_SPELLINGS = """
SELECT entity, name FROM names AS n
WHERE EXISTS (SELECT 1 FROM names WHERE entity = n.entity AND name != n.name)
GROUP BY entity, name ORDER BY entity, SUM(uses) DESC, name
"""


def spellings_of(database: SQLDatabase, entities: Sequence[int]) -> list[str]:
    """Return all spellings of entities that differ by more than case, the most used first."""
    uses: defaultdict[str, int] = defaultdict(int)
    for row in database.rows_in("SELECT name, uses FROM names WHERE entity IN ({})", entities):
        uses[row["name"]] += row["uses"]
    ordered = sorted(uses, key=lambda name: (-uses[name], name))
    return list(_by_case_alone(ordered).values())


def in_several_scripts(database: SQLDatabase) -> list[tuple[str, ...]]:
    """Return names that are written in several scripts: traditional and simplified, full and half width.

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
    """Return the first of those names that differ by no more than case."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
    return first
