"""Selection of the findings in a passage that are kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.model import Mention, Relation

__all__ = ["distinct", "name_short_options", "surest_mentions", "without_overlap", "without_values"]

_SHORT_OPTION = re.compile(r"-\w")
_MANUAL_TITLE = re.compile(r"([a-z][\w.+-]*)(?:\(\d\w*\))?")
_VALUE = re.compile(r"[A-Za-z]{1,2}:\d+|(?=[a-f]*\d)[0-9a-f]{7,}|[\d.,:]+")
_NUMBERED = {"date", "clause", "error", "version", "standard"}  # types whose names may be numbers


def without_values(mentions: Iterable[Mention]) -> list[Mention]:
    """Leave out numbers, hashes, and cells of tables such as `V:12`, which name nothing."""
    return [
        mention for mention in mentions if mention.type in _NUMBERED or not _VALUE.fullmatch(mention.name)
    ]


def name_short_options(mentions: Iterable[Mention], title: str) -> list[Mention]:
    """Name options of one letter with their command, as `-f` is another thing in each: `tar -f`.

    Args:
        mentions: mentions in a passage, by position.
        title: title of its document; that of a manual page is its command.
    """
    found = _MANUAL_TITLE.fullmatch(title)
    command = found[1] if found else ""
    named: list[Mention] = []
    for mention in mentions:
        if mention.type == "command":
            command = mention.name
        is_short = mention.type == "option" and _SHORT_OPTION.fullmatch(mention.name)
        named.append(mention._replace(name=f"{command} {mention.name}") if is_short and command else mention)
    return named


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
