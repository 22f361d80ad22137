"""Entity aliases in the store: which entities are the same under different names.

Entities stay separate rows; a group of them is read as one. Groups follow from statements in passages
("World Health Organization (WHO)"), from names that differ by a space or a plural and are alike to the
embedder, and from users' decisions. A user may also hide an entity, with its group: its canonical entity is
0, and no question sees it. They are a function of those alone, so that adding and removing
documents in any order ends in the same groups, and every merge can be listed, explained and undone.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from loom_core.knowledge.model import AliasKind
    from loom_core.storage.sql import SQLConnection, SQLDatabase

__all__ = ["AliasDecision", "AliasPair", "AliasTable", "PairKind", "StatedAlias"]

PairKind = Literal["decision", "acronym", "also_called", "translation", "spelling"]

_SURE_ENOUGH = 0.8  # minimum confidence of a statement
_ALIKE = 0.965  # cosine of two spellings of a name: e5-small gives 0.97 to 0.99, and 0.96 to other names


class StatedAlias(NamedTuple):
    """A passage's statement that two entities are one; `entity` is the expansion of an acronym."""

    chunk: int
    entity: int
    other: int
    kind: AliasKind
    start: int
    end: int
    confidence: float


@dataclass(frozen=True, slots=True)
class AliasDecision:
    """A user's decision whether two names are the same. Ids are `name_key`s, in order.

    A decision about an empty id and another one hides the entity of that name.
    """

    id: str
    other: str
    same: bool


class AliasPair(NamedTuple):
    """Two entities that are or may be the same.

    Attributes:
        entity: key of one entity.
        other: key of the other entity.
        kind: the kind of evidence.
        confidence: 0 to 1; the cosine of two spellings.
        chunk: passage that states it, or None.
    """

    entity: int
    other: int
    kind: PairKind
    confidence: float
    chunk: int | None = None


class AliasTable:
    """Groups of merged entities in the store, and the evidence for them."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    # -- writing; every method is part of the transaction around it --------------------------------------

    def add(self, statements: Iterable[StatedAlias]) -> set[int]:
        """Add what passages state.

        Returns:
            The entities of pairs whose first sure statement is among these, for `regroup`. Known pairs are
            left out: ubiquitous names would make this slower and slower.
        """
        rows = [statement for statement in statements if statement.entity != statement.other]
        with self._database.write() as db:
            news = self._leave_out_stated([row for row in rows if row.confidence >= _SURE_ENOUGH])
            db.executemany(
                "INSERT INTO alias_statements VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
            )
        return {end for row in news for end in (row.entity, row.other)}

    def remove(self, chunks: Sequence[int]) -> set[int]:
        """Remove what passages state; return the entities concerned."""
        with self._database.write() as db:
            rows = self._database.rows_in(
                "SELECT entity, other FROM alias_statements WHERE chunk IN ({})", chunks
            )
            if rows:
                db.executemany("DELETE FROM alias_statements WHERE chunk = ?", [(key,) for key in chunks])
        return {end for row in rows for end in (row["entity"], row["other"])}

    def note_new(self, entities: Sequence[int]) -> set[int]:
        """Queue comparisons of new entities with names that differ only by a space or a plural.

        Returns:
            Those of the entities with earlier decisions of users, for `regroup`.
        """
        with self._database.write() as db:
            rows = self._database.rows_in(
                # Both conditions on the form are needed, else SQLite does not use the index.
                "SELECT e.key AS entity, o.key AS other FROM entities AS e CROSS JOIN entities AS o "
                "INDEXED BY entities_form WHERE e.key IN ({}) AND e.form != '' AND o.form = e.form "
                "AND o.form != '' AND o.key != e.key AND instr(e.id || o.id, ' ') > 0",
                entities,
            )
            pairs = {(min(row["entity"], row["other"]), max(row["entity"], row["other"])) for row in rows}
            db.executemany(
                "INSERT INTO name_likenesses VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", sorted(pairs)
            )
            if db.execute("SELECT 1 FROM alias_decisions LIMIT 1").fetchone() is None:
                return set()
            decided = self._database.rows_in(
                "SELECT key FROM entities AS e WHERE key IN ({}) AND (EXISTS (SELECT 1 FROM alias_decisions "
                "WHERE id = e.id) OR EXISTS (SELECT 1 FROM alias_decisions WHERE other = e.id))",
                entities,
            )
        return {row["key"] for row in decided}

    def store_similarities(self, cosines: Iterable[tuple[int, int, float]]) -> set[int]:
        """Store the similarity of the names of pairs of entities; return the entities concerned."""
        rows = list(cosines)
        with self._database.write() as db:
            db.executemany(
                "UPDATE name_likenesses SET cosine = ? WHERE entity = ? AND other = ?",
                [(cosine, entity, other) for entity, other, cosine in rows],
            )
        return {end for entity, other, _ in rows for end in (entity, other)}

    def decide(self, decision: AliasDecision) -> None:
        """Record a user's decision, in place of the earlier one about the two."""
        with self._database.write() as db:
            db.execute(
                "INSERT INTO alias_decisions VALUES (?, ?, ?, ?) ON CONFLICT (id, other) "
                "DO UPDATE SET same = excluded.same, decided_at = excluded.decided_at",
                (*sorted((decision.id, decision.other)), decision.same, time.time()),
            )

    def clear_decision(self, id_: str, other: str) -> bool:
        """Forget the decision about two names; return whether there was one."""
        with self._database.write() as db:
            cursor = db.execute(
                "DELETE FROM alias_decisions WHERE id = ? AND other = ?", sorted((id_, other))
            )
            return cursor.rowcount > 0

    def regroup(self, entities: Collection[int]) -> set[int]:
        """Recompute the groups of some entities.

        Returns:
            Keys of all entities whose group changed, and of their canonical entities, old and new.
        """
        if not entities:
            return set()
        with self._database.write() as db:
            old, new = self._groups_around(db, entities)
            changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            db.executemany("DELETE FROM aliases WHERE entity = ?", [(key,) for key in changed])
            db.executemany(
                "INSERT INTO aliases VALUES (?, ?)",
                [(key, new[key]) for key in sorted(changed) if key in new],
            )
        groups = [[group[key] for key in changed if group.get(key)] for group in (old, new)]
        return changed.union(*groups)

    # -- reading -----------------------------------------------------------------------------------------

    def canonical_of(self, entities: Sequence[int]) -> dict[int, int]:
        """Return the canonical entity of each of some entities that is in a group."""
        rows = self._database.rows_in("SELECT entity, canonical FROM aliases WHERE entity IN ({})", entities)
        return {row["entity"]: row["canonical"] for row in rows}

    def members_of(self, canonicals: Sequence[int]) -> dict[int, list[int]]:
        """Return all entities of groups, by canonical entity."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for row in self._database.rows_in(
            "SELECT canonical, entity FROM aliases WHERE canonical IN ({})", canonicals
        ):
            found[row["canonical"]].append(row["entity"])
        return dict(found)

    def all_members(self) -> list[tuple[int, int]]:
        """Return the canonical entity and each other member of all groups that are not hidden."""
        rows = self._database.rows(
            "SELECT canonical, entity FROM aliases WHERE canonical != 0 AND entity != canonical"
        )
        return list(map(tuple, rows))

    def groups(self, *, after: int = 0, limit: int = 100) -> list[int]:
        """Return the canonical entities of groups, by key, after a key."""
        rows = self._database.rows(
            "SELECT DISTINCT canonical FROM aliases WHERE canonical > ? ORDER BY canonical LIMIT ?",
            (after, limit),
        )
        return [row["canonical"] for row in rows]

    def pairs_of(self, entities: Sequence[int]) -> list[AliasPair]:
        """Return all evidence that entities are the same as others, sure or not, the surest first."""
        with self._database.read() as db:
            pairs = _pairs(db, entities)
        return sorted(pairs, key=lambda pair: (-pair.confidence, pair.entity, pair.other))

    def suggestions(self, *, limit: int = 100) -> list[AliasPair]:
        """Return pairs with some evidence that are neither in one group nor declared different."""
        rows = self._database.rows(
            "SELECT p.entity, p.other, p.kind, p.confidence, p.chunk FROM ("
            "SELECT entity, other, kind, confidence, chunk FROM (SELECT s.*, ROW_NUMBER() OVER "
            "(PARTITION BY entity, other ORDER BY confidence DESC, chunk) AS place FROM alias_statements AS s"
            ") AS ranked WHERE place = 1 UNION ALL "
            "SELECT entity, other, 'spelling', COALESCE(cosine, 0), NULL FROM name_likenesses) AS p "
            "JOIN entities AS e ON e.key = p.entity JOIN entities AS o ON o.key = p.other "
            "WHERE COALESCE((SELECT canonical FROM aliases WHERE entity = p.entity), p.entity) "
            "!= COALESCE((SELECT canonical FROM aliases WHERE entity = p.other), p.other) "
            "AND NOT EXISTS (SELECT 1 FROM aliases WHERE entity IN (p.entity, p.other) AND canonical = 0) "
            "AND NOT EXISTS (SELECT 1 FROM alias_decisions AS d WHERE NOT d.same "
            "AND ((d.id = e.id AND d.other = o.id) OR (d.id = o.id AND d.other = e.id))) "
            "ORDER BY p.confidence DESC, p.entity, p.other LIMIT ?",
            (limit,),
        )
        return [AliasPair(**dict(row)) for row in rows]

    def locate(self, pair: AliasPair) -> tuple[int, int] | None:
        """Return where in its passage a pair is stated to be the same: start and end."""
        row = self._database.row(
            'SELECT start, "end" FROM alias_statements WHERE chunk = ? AND entity = ? AND other = ?',
            (pair.chunk, pair.entity, pair.other),
        )
        return None if row is None else (row["start"], row["end"])

    def find_misgrouped(self) -> list[int]:
        """Return entities in a wrong group. Reads all evidence."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT entity AS key FROM alias_statements UNION SELECT other FROM alias_statements "
                "UNION SELECT entity FROM name_likenesses UNION SELECT other FROM name_likenesses "
                "UNION SELECT entity FROM aliases UNION SELECT e.key FROM entities AS e "
                "JOIN alias_decisions AS d ON e.id IN (d.id, d.other)"
            ).fetchall()
            old, new = self._groups_around(db, {row["key"] for row in rows})
        return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))

    def pending_comparisons(self, *, limit: int) -> list[tuple[int, int]]:
        """Return pairs of entities whose names have yet to be compared by the embedder."""
        rows = self._database.rows(
            "SELECT entity, other FROM name_likenesses WHERE cosine IS NULL LIMIT ?", (limit,)
        )
        return [(row["entity"], row["other"]) for row in rows]

    def decisions(self) -> list[AliasDecision]:
        """Return the users' decisions, oldest first."""
        rows = self._database.rows(
            "SELECT id, other, same FROM alias_decisions ORDER BY decided_at, id, other"
        )
        return [AliasDecision(row["id"], row["other"], bool(row["same"])) for row in rows]

    # -- inside ------------------------------------------------------------------------------------------

    def _groups_around(
        self, db: SQLConnection, entities: Collection[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the canonical entities around some, as stored and as they should be."""
        around, pairs = self._component(db, entities)
        ids = self._ids(sorted(around))
        new = _groups(
            around & ids.keys(), self._without_ambiguous_acronyms(pairs), self._find_separated(ids), ids
        )
        hidden = self.hidden_among(ids)
        hidden_groups = {new.get(key, key) for key in hidden}
        new |= dict.fromkeys((key for key in around & ids.keys() if new.get(key, key) in hidden_groups), 0)
        return self.canonical_of(sorted(around)), new

    def _component(self, db: SQLConnection, entities: Collection[int]) -> tuple[set[int], set[AliasPair]]:
        """Return the connected component of some entities, by evidence and stored groups; and its pairs."""
        around: set[int] = set()
        pairs: set[AliasPair] = set()
        ring = set(entities)
        while ring:
            around |= ring
            found = [pair for pair in _pairs(db, sorted(ring)) if _counts(pair)]
            pairs.update(found)
            grouped = self.members_of(sorted(set(self.canonical_of(sorted(ring)).values()) - {0}))
            ring = {end for pair in found for end in (pair.entity, pair.other)}
            ring = ring.union(*grouped.values()) - around
        return around, pairs

    def _without_ambiguous_acronyms(self, pairs: Collection[AliasPair]) -> list[AliasPair]:
        """Drop acronyms with several expansions, unless a user decided."""
        acronyms = [pair for pair in pairs if pair.kind == "acronym"]
        rows = self._database.rows_in(
            "SELECT key, form, id FROM entities WHERE key IN ({})", sorted({pair.entity for pair in acronyms})
        )
        names = {row["key"]: row["form"] or row["id"] for row in rows}
        meanings: defaultdict[int, set[str]] = defaultdict(set)
        for pair in acronyms:
            meanings[pair.other].add(names[pair.entity])
        return [pair for pair in pairs if pair.kind != "acronym" or len(meanings[pair.other]) == 1]

    def _leave_out_stated(self, said: Sequence[StatedAlias]) -> list[StatedAlias]:
        """Leave out what a stored passage states at least as surely."""
        rows = self._database.rows_each(
            "SELECT 1 FROM alias_statements WHERE entity = ? AND other = ? AND kind = ? AND confidence >= ? "
            "LIMIT 1",
            [(each.entity, each.other, each.kind, each.confidence) for each in said],
        )
        return [each for each, found in zip(said, rows, strict=True) if not found]

    def are_declared_different(self, entities: Sequence[int], *, but: tuple[str, str]) -> bool:
        """Whether a person declared two of some entities different, other than a pair of ids."""
        ids = self._ids(entities)
        pairs = {frozenset(ids[key] for key in pair) for pair in self._find_separated(ids)}
        return bool(pairs - {frozenset(but)})

    def hidden_among(self, ids: dict[int, str]) -> set[int]:
        """Return those of some entities, given with their ids, that a user has hidden by name."""
        rows = self._database.rows_in(
            "SELECT other FROM alias_decisions WHERE id = '' AND other IN ({})", sorted(ids.values())
        )
        names = {row["other"] for row in rows}
        return {key for key, id_ in ids.items() if id_ in names}

    def hidden(self) -> list[str]:
        """Return the ids of the names that a user has hidden, whether or not documents use them."""
        rows = self._database.rows("SELECT other FROM alias_decisions WHERE id = '' ORDER BY other")
        return [row["other"] for row in rows]

    def _find_separated(self, ids: dict[int, str]) -> set[frozenset[int]]:
        """Return pairs of entities that a user declared to be different."""
        keys = {id_: key for key, id_ in ids.items()}
        rows = self._database.rows_in(
            "SELECT id, other FROM alias_decisions WHERE id IN ({}) AND NOT same", sorted(keys)
        )
        return {frozenset((keys[row["id"]], keys[row["other"]])) for row in rows if row["other"] in keys}

    def _ids(self, entities: Sequence[int]) -> dict[int, str]:
        rows = self._database.rows_in("SELECT key, id FROM entities WHERE key IN ({})", entities)
        return {row["key"]: row["id"] for row in rows}


def _counts(pair: AliasPair) -> bool:
    return pair.confidence >= (_ALIKE if pair.kind == "spelling" else _SURE_ENOUGH)


def _pairs(db: SQLConnection, entities: Sequence[int]) -> set[AliasPair]:
    """Return the evidence that entities are the same: the surest of each kind for each pair."""
    rows = db.execute(
        "WITH wanted AS MATERIALIZED (SELECT value FROM json_each(?)) "
        "SELECT entity, other, kind, MAX(confidence) AS confidence, MIN(chunk) AS chunk FROM wanted "
        "CROSS JOIN alias_statements WHERE entity = value GROUP BY entity, other, kind UNION "
        "SELECT entity, other, kind, MAX(confidence), MIN(chunk) FROM wanted "
        "CROSS JOIN alias_statements WHERE other = value GROUP BY entity, other, kind UNION "
        "SELECT entity, other, 'spelling', cosine, NULL FROM wanted "
        "CROSS JOIN name_likenesses WHERE entity = value AND cosine IS NOT NULL UNION "
        "SELECT entity, other, 'spelling', cosine, NULL FROM wanted "
        "CROSS JOIN name_likenesses WHERE other = value AND cosine IS NOT NULL UNION "
        "SELECT e.key, o.key, 'decision', 1.0, NULL FROM wanted CROSS JOIN entities AS e "
        "JOIN alias_decisions AS d ON d.id = e.id AND d.same "
        "JOIN entities AS o ON o.id = d.other WHERE e.key = value UNION "
        "SELECT o.key, e.key, 'decision', 1.0, NULL FROM wanted CROSS JOIN entities AS e "
        "JOIN alias_decisions AS d ON d.other = e.id AND d.same "
        "JOIN entities AS o ON o.id = d.id WHERE e.key = value",
        (json.dumps(entities),),
    )
    return set(map(AliasPair._make, rows))


def _groups(
    entities: set[int], pairs: Iterable[AliasPair], apart: set[frozenset[int]], ids: dict[int, str]
) -> dict[int, int]:
    """Return the canonical entity of each, for those that are in a group.

    Pairs join groups, decisions first and then the surest; two entities that were declared different are
    never in one group, whatever the evidence.
    """
    group = {entity: {entity} for entity in entities}
    ordered = sorted(
        pairs,
        key=lambda pair: (pair.kind != "decision", -pair.confidence, ids[pair.entity], ids[pair.other]),
    )
    for pair in ordered:
        one, two = group[pair.entity], group[pair.other]
        if one is two or any(frozenset((a, b)) in apart for a in one for b in two):
            continue
        one |= two
        group.update(dict.fromkeys(two, one))
    # The choice of the canonical entity is arbitrary, but must not depend on the order of writing.
    return {
        entity: min(members, key=lambda key: ids[key])
        for entity, members in group.items()
        if len(members) > 1
    }
