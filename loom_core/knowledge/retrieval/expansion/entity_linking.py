"""What a question names: the entities whose names it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.name_matching import is_marked
from loom_core.knowledge.text.surface_forms import name_key, surface_tokens

if TYPE_CHECKING:
    from loom_core.knowledge.store.graph import GraphTable
    from loom_core.knowledge.text.surface_forms import SurfaceToken

__all__ = ["NamedEntity", "named_entities"]

_MAX_TOKENS = 64  # of a question that are looked at
_MAX_NAME = 12  # tokens of a name: words, or single Chinese characters


class NamedEntity(NamedTuple):
    """An entity that a question names.

    Attributes:
        key: the entity.
        sure: whether it is surely meant: not where its name is a single word that the question writes
            like any other word ("brother" does not surely mean a film of that name).
    """

    key: int
    sure: bool


def named_entities(question: str, graph: GraphTable) -> list[NamedEntity]:
    """The entities that a question names, in the order in which it does, each once.

    Of names that overlap only the longest counts ("New York City" does not name "York"); stop words that are
    not in capitals and single characters of Chinese are no names.
    """
    tokens = list(surface_tokens(question))[:_MAX_TOKENS]
    spans: dict[tuple[int, int], str] = {}
    for first in range(len(tokens)):
        for last in range(first + 1, min(first + _MAX_NAME, len(tokens)) + 1):
            name = name_key(" ".join(token.key for token in tokens[first:last]))
            if len(name) > 1 and (not is_stop_word(name) or _is_acronym(question, tokens[first])):
                spans[first, last] = name
    entities = graph.find_canonical(sorted(set(spans.values())))
    taken: set[int] = set()
    found: dict[int, NamedEntity] = {}  # by place
    for (first, last), name in sorted(spans.items(), key=lambda span: (span[0][0] - span[0][1], span[0])):
        place = range(first, last)
        if name in entities and taken.isdisjoint(place):
            taken.update(place)
            words = question[tokens[first].start : tokens[last - 1].end]
            found[first] = NamedEntity(entities[name], last - first > 1 or is_marked(words))
    unique = {named.key: named for _, named in sorted(found.items(), reverse=True)}
    return [unique[key] for key in reversed(unique)]


def _is_acronym(question: str, token: SurfaceToken) -> bool:
    """Whether a word is in capitals, and what is around it is not: WHO is somebody else than who."""
    around = question[: token.start] + question[token.end :]
    return question[token.start : token.end].isupper() and not around.isupper()
