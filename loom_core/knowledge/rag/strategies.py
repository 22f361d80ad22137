"""How the channels combine into an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_core.knowledge.rag.channels import Channels, Question, convex
from loom_core.knowledge.rag.links import Expansion, Link, expand
from loom_core.knowledge.rag.walk import walk
from loom_core.knowledge.text import name_key, surface_tokens

if TYPE_CHECKING:
    from loom_core.knowledge.rag.config import RAGConfig, Strategy
    from loom_core.knowledge.record.graph import GraphTable

__all__ = ["Found", "retrieve"]

_MAX_NAME = 8  # words of a name that is looked for in a question


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that was found.

    Attributes:
        key: the chunk's key in the record.
        score: what it is ranked by, 0 to 1.
        scores: what each channel said: `bm25` (raw), `vector` (cosine), `links`, `graph`.
        links: the way that led to it, from the seed on; empty where it was found directly.
        named: the entity that the question names and the chunk is about, or 0.
    """

    key: int
    score: float
    scores: dict[str, float] = field(default_factory=dict[str, float])
    links: tuple[Link, ...] = ()
    named: int = 0


def retrieve(
    question: Question,
    limit: int,
    *,
    strategy: Strategy,
    channels: Channels,
    graph: GraphTable,
    config: RAGConfig,
) -> list[Found]:
    """The best passages for a question, best first."""
    lexical = {} if strategy == "vector_first" else channels.lexical(question)
    semantic = channels.semantic(question) if strategy in {"hybrid", "vector_first"} else {}
    first = convex(
        lexical,
        semantic,
        lexical_weight=config.lexical_weight,
        vector_weight=config.vector_weight,
        words_only=channels.without_vector(question, lexical.keys() - semantic.keys()) if semantic else (),
    )
    if strategy in {"bm25", "vector_first"}:
        return _ranked(first, limit, lexical, semantic)
    named = _named(question, graph)
    expansion = expand(
        question,
        first,
        channels=channels,
        graph=graph,
        named=list(named),
        weight=config.expansion_weight,
    )
    steps = walk(graph, expansion.scores, entities=sorted(set(named.values())))
    if question.among is not None:
        steps = {key: value for key, value in steps.items() if key in question.among}
    scores = dict(expansion.scores)
    for key, value in steps.items():
        scores[key] = scores.get(key, 0.0) + config.graph_weight * value**0.5
    if strategy == "graph_first" and channels.dense is not None and question.vector is not None:
        near = channels.dense.scores(question.vector, sorted(scores, key=lambda k: -scores[k])[: 4 * limit])
        scores = near or scores
    return _ranked(scores, limit, lexical, semantic, expansion, steps, named)


def _ranked(
    scores: dict[int, float],
    limit: int,
    lexical: dict[int, float],
    semantic: dict[int, float],
    expansion: Expansion | None = None,
    steps: dict[int, float] | None = None,
    named: dict[int, int] | None = None,
) -> list[Found]:
    best = sorted(scores, key=lambda key: (-scores[key], key))[:limit]
    top = scores[best[0]] if best else 1.0
    found: list[Found] = []
    for key in best:
        parts = {
            "bm25": lexical.get(key),
            "vector": semantic.get(key),
            "links": expansion.gained.get(key) if expansion else None,
            "graph": steps.get(key) if steps else None,
        }
        found.append(
            Found(
                key=key,
                score=max(0.0, scores[key] / top) if top > 0 else 0.0,  # a cosine may be negative
                scores={name: value for name, value in parts.items() if value is not None},
                links=_way(key, expansion) if expansion else (),
                named=named.get(key, 0) if named else 0,
            )
        )
    return found


def _way(key: int, expansion: Expansion) -> tuple[Link, ...]:
    """The links that led to a chunk, from the first seed on."""
    way: list[Link] = []
    seen = {key}
    while (link := expansion.links.get(key)) is not None and link.seed not in seen:
        way.insert(0, link)
        key = link.seed
        seen.add(key)
    return tuple(way)


def _named(question: Question, graph: GraphTable) -> dict[int, int]:
    """Chunks about something that the question names: chunk and entity."""
    tokens = [token.key for token in surface_tokens(question.text)][:64]
    names = {
        name_key(" ".join(tokens[i : i + n])) for i in range(len(tokens)) for n in range(1, _MAX_NAME + 1)
    }
    entities = graph.find(sorted(names - {""}))
    # Longer names first, and the passages of one name only as far as they are few.
    found: dict[int, int] = {}
    for id_ in sorted(entities, key=len, reverse=True):
        abouts = graph.abouts_of([entities[id_]], limit=4)
        for about in abouts:
            if about.confidence >= 0.8 and (question.among is None or about.chunk in question.among):
                found.setdefault(about.chunk, about.entity)
    return found
