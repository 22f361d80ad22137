"""What a page shows of a graph: which entities and relations, and the passages that they stand in."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from loom_core.errors import NotFoundError
from loom_kb.graph_pages.passages import Passages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loom_core.knowledge.interface import EntityEdge, EntityNode
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import EntityReader
    from loom_kb.graph_pages.passages import Place, Span, ViewPassage

__all__ = ["GraphView", "ViewEntity", "ViewRelation", "view_of"]

_EDGES_EACH = 4  # relations for each entity, on the average
_LINKS_EACH = 2  # and of those that only say that passages about one mention the other
_ABOUTS, _MENTIONS = 3, 5  # passages of an entity: that are about it, that mention it
_NAMES = 6  # other names of an entity
_TEXT = 6_000_000  # characters of all passages, if nothing else is said
_RING = 400  # entities of one hop that are followed further

_Said = tuple[int, str, int]
"""A relation: keys of its ends, and the predicate between."""


@dataclass(frozen=True, slots=True)
class ViewEntity:
    """An entity, with where its name stands in some of the passages that have it."""

    name: str
    type: str
    mentions: int
    also: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewRelation:
    """A relation between two entities, given by their numbers.

    Attributes:
        subject: number of an entity.
        predicate: what is said of the two; empty where a passage about the subject mentions the object.
        object: number of an entity.
        support: passages that say so.
        span: where one of them does.
    """

    subject: int
    predicate: str
    object: int
    support: int
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class GraphView:
    """The part of a graph that a page shows, the best connected entities first.

    Attributes:
        name: of the knowledge base.
        description: likewise.
        focus: number of the entity that was asked for, or None.
        entities: those shown.
        relations: those shown between them.
        passages: those shown.
        entities_in_all: in the knowledge base.
        relations_in_all: likewise.
        without_passages: entities shown whose passages did not fit.
    """

    name: str
    description: str
    focus: int | None
    entities: Sequence[ViewEntity]
    relations: Sequence[ViewRelation]
    passages: Sequence[ViewPassage]
    entities_in_all: int
    relations_in_all: int
    without_passages: int


def view_of(
    knowledge_base: GraphRAGKnowledgeBase,
    *,
    limit: int,
    entity: str | None = None,
    hops: int = 2,
    text: int = _TEXT,
) -> GraphView:
    """Choose what a page shows. Blocks: a second for 100,000 relations.

    Args:
        knowledge_base: whose graph it is.
        limit: entities at the most: the best connected, or the nearest to `entity`.
        entity: a name; only what lies within some hops of it is shown.
        hops: how many.
        text: characters of all passages; the one that reaches this number is the last.

    Raises:
        NotFoundError: there is no such entity.
    """
    graph = knowledge_base.graph
    if entity is None:
        nodes, edges = _best_connected(graph, limit)
        focus = None
    else:
        focus = _key_of(knowledge_base, entity)
        nodes, edges = _around(graph, focus, hops=hops, limit=limit)
    number = {node.key: index for index, node in enumerate(nodes)}
    mentioned = _Mentioned(graph, list(number))
    edges = nlargest(_EDGES_EACH * len(nodes), edges, key=lambda edge: (edge.support, edge.confidence))
    links = mentioned.links(edges).most_common(_LINKS_EACH * len(nodes))
    passages = Passages(knowledge_base.documents, characters=text)
    evidence = mentioned.evidence(edges)
    mentioned.read_into(passages, evidence)
    relations = [
        ViewRelation(number[subject], predicate, number[object_], support, passages.place(place))
        for subject, predicate, object_, support, place in [
            *(
                (edge.subject, edge.predicate, edge.object, edge.support, evidence.get(_said(edge)))
                for edge in edges
            ),
            *((about, "", other, count, mentioned.first(about, other)) for (about, other), count in links),
        ]
    ]
    names = _other_names(knowledge_base, nodes)
    entities = [
        ViewEntity(
            node.name,
            node.type,
            node.mentions,
            names.get(node.key, ()),
            tuple(filter(None, map(passages.place, mentioned.places(node.key)))),
        )
        for node in nodes
    ]
    in_all, relations_in_all, _ = graph.counts()
    return GraphView(
        name=knowledge_base.name,
        description=knowledge_base.description,
        focus=None if focus is None else number.get(focus),
        entities=entities,
        relations=relations,
        passages=passages.shown,
        entities_in_all=in_all,
        relations_in_all=relations_in_all,
        without_passages=sum(not entity.spans for entity in entities),
    )


def _best_connected(graph: EntityReader, limit: int) -> tuple[list[EntityNode], list[EntityEdge]]:
    """The entities that most relations have, then those mentioned most, and the relations between them."""
    degree: Counter[int] = Counter()
    edges: list[EntityEdge] = []
    for edge in graph.all_edges():
        degree[edge.subject] += 1
        degree[edge.object] += 1
        edges.append(edge)
    nodes = nlargest(
        limit,
        graph.all_nodes(),
        key=lambda node: (degree[node.key], node.mentions, -node.key),
    )
    shown = {node.key for node in nodes}
    return nodes, [edge for edge in edges if edge.subject in shown and edge.object in shown]


def _around(
    graph: EntityReader, start: int, *, hops: int, limit: int
) -> tuple[list[EntityNode], list[EntityEdge]]:
    """What lies within some hops of an entity, the nearest and of these the best supported first."""
    met, ring = [start], [start]
    found: dict[tuple[int, str, int], EntityEdge] = {}
    for _ in range(hops):
        support: Counter[int] = Counter()
        for edge in graph.edges(ring):
            found[edge.subject, edge.predicate, edge.object] = edge
            for end in (edge.subject, edge.object):
                support[end] += edge.support
        ring = sorted(support.keys() - set(met), key=lambda key: (-support[key], key))
        met += ring
        ring = ring[:_RING]
    wanted = met[:limit]
    order = {key: index for index, key in enumerate(wanted)}
    nodes = sorted(graph.nodes(wanted), key=lambda node: order[node.key])
    shown = {node.key for node in nodes}
    return nodes, [edge for edge in found.values() if edge.subject in shown and edge.object in shown]


def _key_of(knowledge_base: GraphRAGKnowledgeBase, name: str) -> int:
    keys = knowledge_base.graph.search(name, limit=1)
    if not keys:
        raise NotFoundError(
            f"There is no entity like {name!r} in {knowledge_base.name!r}.",
            advice="Names are those that the documents use; leave --entity out to see all of them.",
        )
    return keys[0]


def _other_names(
    knowledge_base: GraphRAGKnowledgeBase, nodes: Sequence[EntityNode]
) -> dict[int, tuple[str, ...]]:
    """Names of the entities that have several, without the one that they are shown by."""
    others = knowledge_base.aliases.other_names({node.key: node.name for node in nodes})
    return {key: tuple(names[:_NAMES]) for key, names in others.items()}


def _said(edge: EntityEdge) -> _Said:
    return edge.subject, edge.predicate, edge.object


class _Mentioned:
    """Where some entities are mentioned: a few passages of each, those about it first."""

    def __init__(self, graph: EntityReader, keys: Sequence[int]) -> None:
        abouts = graph.abouts_of(keys, limit=_ABOUTS)
        asides = graph.asides_of(keys, limit=_MENTIONS)
        self._graph = graph
        self._chunks = {
            key: list(
                dict.fromkeys(chunk for chunk, _ in [*islice(abouts.get(key, ()), _ABOUTS), *asides[key]])
            )
            for key in keys
        }
        self._about: dict[int, set[int]] = defaultdict(set)
        wanted = set(keys)
        read = {chunk for chunks in self._chunks.values() for chunk in chunks}
        for row in graph.abouts_in(sorted(read)):
            if row.entity in wanted and row.source != "first_phrase":
                self._about[row.chunk].add(row.entity)
        self._places: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for row in graph.mentions_in(sorted(read)):
            if row.entity in wanted:
                self._places[row.entity][row.chunk].append((row.start, row.end))

    def links(self, edges: Iterable[EntityEdge]) -> Counter[tuple[int, int]]:
        """Pairs of which passages about the first mention the other, and how many do; no related ones."""
        spoken = {frozenset((edge.subject, edge.object)) for edge in edges}
        counted: Counter[tuple[int, int]] = Counter()
        for other, places in self._places.items():
            for chunk in places:
                for about in self._about[chunk] - {other}:
                    if frozenset((about, other)) not in spoken:
                        counted[about, other] += 1
        return counted

    def first(self, about: int, other: int) -> Place:
        """Where a passage about the first mentions the other."""
        return next(
            (chunk, *places[0])
            for chunk, places in self._places[other].items()
            if about in self._about[chunk]
        )

    def evidence(self, edges: Iterable[EntityEdge]) -> dict[_Said, Place]:
        """Where each relation is said."""
        wanted = set(map(_said, edges))
        if not wanted:
            return {}
        rows = self._graph.all_evidence()
        return {row[:3]: row[3:] for row in rows if row[:3] in wanted}

    def places(self, key: int) -> list[Place]:
        """Where an entity is mentioned; in a chunk that is only about it, an empty stretch."""
        found = self._places[key]
        return [
            (chunk, start, end) for chunk in self._chunks[key] for start, end in found.get(chunk) or [(0, 0)]
        ]

    def read_into(self, passages: Passages, evidence: Mapping[_Said, Place]) -> None:
        """Read the first passage of each entity, then the second; then what relations stand on."""
        for place in range(_ABOUTS + _MENTIONS):
            passages.add(
                (chunks[place], (self._places[key].get(chunks[place]) or [(0, 0)])[0][0])
                for key, chunks in self._chunks.items()
                if len(chunks) > place
            )
        passages.add((chunk, start) for chunk, start, _ in evidence.values())
