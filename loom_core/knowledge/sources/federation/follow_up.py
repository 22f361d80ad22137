"""What several sources are to be asked once more: names that their first answers lead to, and do not tell of.

Who directed a film stands in one source, where that person was born in another one, which does not find it by
the question: its passage shares hardly a word with it. So the names in the best passages are asked for, with
what the question still asks, in one short question for each source.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.confidence import words_missing
from loom_core.knowledge.retrieval.rerankers.ranking import reading
from loom_core.knowledge.sources.federation.passage_names import names_in, title_key
from loom_core.knowledge.text.analysis import analyse, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.sources.federation.passage_names import PassageName

__all__ = ["LEAD_LIMIT", "Lead", "lead"]

LEAD_LIMIT = 20
"""How many passages a source is asked for by a lead."""

# As measured (benchmarks/RESULTS.md).
_SEEDS = 6
_NAMES = 6
_LEAST = 0.3  # a passage that is worth less leads nowhere
_CERTAIN = 0.75  # from this share of the question's words on, the best passage is all that is asked for


@dataclass(frozen=True, slots=True)
class Lead:
    """What to ask for.

    Attributes:
        names: names, each with the source whose passage mentions it.
        left: the words of the question that are open, in its order.
    """

    names: tuple[tuple[str, str], ...]
    left: tuple[str, ...]

    def question_for(self, source: str) -> str:
        """What to ask a source, in words for any kind of search; empty for nothing.

        Names that its own passages mention are left out: it knows where they lead to inside itself.
        """
        names = [name for name, place in self.names if place != source]
        return " ".join([*names, *self.left]) if names else ""


def lead(query: str, candidates: Sequence[tuple[str, KnowledgeItem]], scores: Sequence[float]) -> Lead | None:
    """What the sources are to be asked once more, or None where that promises nothing.

    It does where the best passage leaves a quarter of the question's words open, and the best six mention
    names that no candidate is about. The surest names of the best passages are taken.

    Args:
        query: the question.
        candidates: source and passage.
        scores: of the candidates, 1 for the best.
    """
    best = nlargest(_SEEDS, range(len(candidates)), key=scores.__getitem__)
    if not best:
        return None
    content = [word for word in words(query) if analyse(word)]
    left = words_missing(content, frozenset(analyse(reading(candidates[best[0]][1]))))
    if not content or len(left) <= (1 - _CERTAIN) * len(content):
        return None
    known = {title_key(item) for _, item in candidates}
    folded = query.casefold()
    worth: dict[str, tuple[float, str, PassageName]] = {}
    for place in best:
        if scores[place] < _LEAST:
            break
        source, item = candidates[place]
        for name in names_in(item):
            if name.key not in known and name.name.casefold() not in folded:
                worth.setdefault(name.key, (scores[place] * name.confidence, source, name))
    chosen = nlargest(_NAMES, worth.values(), key=itemgetter(0))  # of equals, those that come first
    names = tuple((name.name, source) for _, source, name in chosen)
    return Lead(names, tuple(left)) if names else None
