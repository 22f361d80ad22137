"""Selection of the findings in a passage that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import Mention, Relation

__all__ = ["distinct", "surest_mentions", "without_overlap"]


def without_overlap(mentions: Iterable[Mention]) -> list[Mention]:
    """Keep the longest of overlapping mentions; sorted by position."""
    taken: list[Mention] = []
    end = -1
    for mention in sorted(mentions, key=lambda m: (m.start, -m.end)):
        if mention.start >= end:
            taken.append(mention)
            end = mention.end
    return taken


def surest_mentions(mentions: Sequence[Mention], limit: int) -> list[Mention]:
    """Return the mentions of the first `limit` entities, surest first, then by position."""
    if len(mentions) <= limit:
        return list(mentions)
    keys: dict[str, None] = {}
    for mention in sorted(mentions, key=lambda m: (-m.confidence, m.start)):
        keys.setdefault(name_key(mention.name))
    kept = set(list(keys)[:limit])
    return [mention for mention in mentions if name_key(mention.name) in kept]


def distinct(relations: Iterable[Relation]) -> list[Relation]:
    """Return relations without repetitions, in order."""
    seen: dict[tuple[str, str, str], Relation] = {}
    for relation in relations:
        seen.setdefault((name_key(relation.subject), relation.predicate, name_key(relation.object)), relation)
    return list(seen.values())
