"""The view of a graph: the entities and relations that a page shows, and their layout.

The layout is force-directed: related entities attract each other, all others repel. The page holds as many
of their passages as fit, long ones in parts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from loom_core.cjk import is_cjk
from loom_core.errors import NotFoundError
from loom_core.knowledge.overview.associations import (
    by_strength,
    informativeness,
    related_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import EntityEdge, EntityNode
    from loom_core.knowledge.overview.topics import TopicMap
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import DocumentReader, EntityReader
    from loom_core.knowledge.store.documents import ChunkRow

__all__ = ["GraphView", "TextSpan", "ViewEntity", "ViewPassage", "ViewRelation", "lay_out", "view_of"]

_CLOSING, _OPENING = "，。、；：！？）》」』”", "（《「『“"  # of Chinese: no space goes next to them
_PUSH, _GRAVITY = 2.0, 1.2  # repulsion, and pull to the centre; the pull of an edge is 1
_EDGES_EACH = 4  # relations per entity, on average
_LINKS_EACH = 2  # and of links, where passages about one only mention the other
_ABOUTS, _MENTIONS = 3, 5  # passages per entity: about it, and that mention it
_NAMES = 6  # other names of an entity
_TEXT = 6_000_000  # characters of all passages, by default
_RelationKey = tuple[int, str, int]
"""A relation: keys of its ends, and the predicate between."""

# Layout.
_STEPS = 220
_CELLS = 192  # at most, per side of the grid for the repulsion
_PACE = 0.7  # share of its force that a node follows in a step
_REACH = 0.1  # of the whole width: the longest move in the first step
_SPACE = 26.0  # median distance between a node and the nearest one
_SIZE = 15.0  # minimum distance of any two, where there is room
_ROUNDS = 30  # of enforcing that minimum
_SEED = 11

# Passages.
_WHOLE = 1_200  # characters of a passage that are shown; a longer one is shown in parts of this length
_STRETCH = 1_000  # distance between the starts of two parts
_AS_IT_IS = {"code", "table", "row"}  # kinds of passages whose line breaks are kept
# The end of a line within a paragraph.
_WRAP = re.compile(r"(?<=([^\s|]))\n(?=([^\s|>#*+\-\d]))")
TextPosition = tuple[int, int, int]
"""A chunk's key, and offsets in its text."""

_Key = tuple[int, int]
"""A part of a passage: the chunk's key, and the number of the part."""


@dataclass(frozen=True, slots=True)
class ViewEntity:
    """An entity, with its topic and the places of its name in some of its passages.

    The topic is a number, or None.
    """

    name: str
    type: str
    mentions: int
    also: tuple[str, ...] = ()
    spans: tuple[TextSpan, ...] = ()
    topic: int | None = None


@dataclass(frozen=True, slots=True)
class ViewRelation:
    """A relation between two entities, given by their numbers.

    Attributes:
        subject: number of an entity.
        predicate: of the relation; empty where a passage about the subject only mentions the object.
        object: number of an entity.
        support: number of passages that state it.
        span: where one of them does.
    """

    subject: int
    predicate: str
    object: int
    support: int
    span: TextSpan | None = None


@dataclass(frozen=True, slots=True)
class GraphView:
    """The part of a graph that a page shows, the entities that say most first.

    Attributes:
        name: of the knowledge base.
        description: likewise.
        focus: number of the entity that was asked for, or None.
        entities: those shown.
        relations: those shown between them.
        passages: those shown.
        entities_in_all: in the knowledge base.
        relations_in_all: between the entities shown.
        without_passages: entities shown whose passages did not fit.
        topics: names of the topics, the largest first.
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
    topics: Sequence[str] = ()


def view_of(
    knowledge_base: GraphRAGKnowledgeBase,
    *,
    limit: int,
    entity: str | None = None,
    hops: int = 2,
    text: int = _TEXT,
) -> GraphView:
    """Select the entities, relations and passages of a page. Blocks: 4 s for 10,000 passages.

    Args:
        knowledge_base: whose graph it is.
        limit: maximum number of entities: those that say most, or the nearest to `entity`.
        entity: a name; only its neighbourhood within `hops` is shown.
        hops: how many.
        text: characters of all passages; the one that reaches this number is the last.

    Raises:
        NotFoundError: there is no such entity.
    """
    graph = knowledge_base.graph
    if entity is None:
        nodes, edges = _most_informative(knowledge_base, limit)
        focus = None
    else:
        focus = _key_of(knowledge_base, entity)
        nodes, edges = _around(knowledge_base, focus, hops=hops, limit=limit)
    number = {node.key: index for index, node in enumerate(nodes)}
    mentioned = _MentionIndex(graph, list(number))
    relations_in_all, edges = len(edges), edges[: _EDGES_EACH * len(nodes)]
    topics = knowledge_base.topics()
    topic_of = topics.topic_of_entity()
    links = mentioned.links(edges).most_common(_LINKS_EACH * len(nodes))
    passages = Passages(knowledge_base.documents, characters=text)
    evidence = mentioned.evidence(edges)
    mentioned.read_into(passages, evidence)
    relations = [
        ViewRelation(number[subject], predicate, number[object_], support, passages.place(place))
        for subject, predicate, object_, support, place in [
            *(
                (edge.subject, edge.predicate, edge.object, edge.support, evidence.get(_relation_key(edge)))
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
            topic_of.get(node.key, mentioned.topic(node.key, topics)),
        )
        for node in nodes
    ]
    return GraphView(
        name=knowledge_base.name,
        description=knowledge_base.description,
        focus=None if focus is None else number.get(focus),
        topics=tuple(topic.name for topic in topics.topics),
        entities=entities,
        relations=relations,
        passages=passages.shown,
        entities_in_all=graph.counts()[0],
        relations_in_all=relations_in_all,
        without_passages=sum(not entity.spans for entity in entities),
    )


def _most_informative(
    knowledge_base: GraphRAGKnowledgeBase, limit: int
) -> tuple[list[EntityNode], list[EntityEdge]]:
    """Return the entities that say most about the passages, and their relations, the best first."""
    graph, passages = knowledge_base.graph, knowledge_base.coverage()[1]
    nodes = nlargest(
        limit,
        graph.all_nodes(),
        key=lambda node: (informativeness(node.mentions, passages), -node.key),
    )
    return nodes, _relations_among(graph, nodes, passages)


def _relations_among(graph: EntityReader, nodes: Sequence[EntityNode], passages: int) -> list[EntityEdge]:
    """Return the relations between entities: those that passages state, and pairs beyond chance."""
    spread = {node.key: node.mentions for node in nodes}
    stated = [edge for edge in graph.all_edges() if edge.subject in spread and edge.object in spread]
    joined = {frozenset((edge.subject, edge.object)) for edge in stated}
    mentions = (pair for pair in graph.recognised() if pair[1] in spread)
    pairs = related_pairs(mentions, spread, passages=passages)
    return by_strength([*stated, *(e for e in pairs if frozenset((e.subject, e.object)) not in joined)])


def _around(
    knowledge_base: GraphRAGKnowledgeBase, start: int, *, hops: int, limit: int
) -> tuple[list[EntityNode], list[EntityEdge]]:
    """Return the neighbourhood of an entity, nearest first, then best connected first."""
    graph, passages = knowledge_base.graph, knowledge_base.coverage()[1]
    near = knowledge_base.associations().around([start], hops=hops)[0][:limit]
    order = {key: place for place, key in enumerate(near)}
    nodes = sorted(graph.nodes(near), key=lambda node: order[node.key])
    return nodes, _relations_among(graph, nodes, passages)


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
    """Return the aliases of the entities, without their display names."""
    others = knowledge_base.aliases.other_names({node.key: node.name for node in nodes})
    return {key: tuple(names[:_NAMES]) for key, names in others.items()}


def _relation_key(edge: EntityEdge) -> _RelationKey:
    return edge.subject, edge.predicate, edge.object


class _MentionIndex:
    """Mentions of some entities: a few passages of each, those about it first."""

    def __init__(self, graph: EntityReader, keys: Sequence[int]) -> None:
        abouts = graph.abouts_of(keys, limit=_ABOUTS)
        asides = graph.passing_mentions_of(keys, limit=_MENTIONS)
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
        """Count passages about one entity that mention another, by pair, without related pairs."""
        spoken = {frozenset((edge.subject, edge.object)) for edge in edges}
        counted: Counter[tuple[int, int]] = Counter()
        for other, places in self._places.items():
            for chunk in places:
                for about in self._about[chunk] - {other}:
                    if frozenset((about, other)) not in spoken:
                        counted[about, other] += 1
        return counted

    def first(self, about: int, other: int) -> TextPosition:
        """Return a place where a passage about the first entity mentions the other."""
        return next(
            (chunk, *places[0])
            for chunk, places in self._places[other].items()
            if about in self._about[chunk]
        )

    def evidence(self, edges: Iterable[EntityEdge]) -> dict[_RelationKey, TextPosition]:
        """Return the place of the evidence for each relation."""
        wanted = set(map(_relation_key, edges))
        if not wanted:
            return {}
        found = {row[:3]: row[3:] for row in self._graph.all_evidence() if row[:3] in wanted}
        for key in wanted - found.keys():
            found.update((key, place) for place in self._graph.nearest(key[0], key[2], limit=1))
        return found

    def places(self, key: int) -> list[TextPosition]:
        """Return the mentions of an entity; an empty span in a chunk that is only about it."""
        found = self._places[key]
        return [
            (chunk, start, end) for chunk in self._chunks[key] for start, end in found.get(chunk) or [(0, 0)]
        ]

    def topic(self, key: int, topics: TopicMap) -> int | None:
        """Return the topic that most of these passages of an entity have."""
        found = Counter(
            topics.topic_of[chunk] for chunk in self._chunks[key] if chunk in topics.topic_of
        ).most_common(1)
        return found[0][0] if found else None

    def read_into(self, passages: Passages, evidence: Mapping[_RelationKey, TextPosition]) -> None:
        """Add the first passage of each entity, then the second …; then the evidence of the relations."""
        for place in range(_ABOUTS + _MENTIONS):
            passages.add(
                (chunks[place], (self._places[key].get(chunks[place]) or [(0, 0)])[0][0])
                for key, chunks in self._chunks.items()
                if len(chunks) > place
            )
        passages.add((chunk, start) for chunk, start, _ in evidence.values())


def lay_out(count: int, edges: Sequence[tuple[int, int, float]]) -> NDArray[np.float32]:
    """Compute a deterministic force-directed layout: 2 s for 5,000 nodes and 20,000 edges.

    Edges attract their ends; each node repels the others, in proportion to its degree (Jacomy et al.,
    ForceAtlas2, 2014). The repulsion is computed on a grid by a Fourier transform, so that a step is linear
    in the number of nodes. Nodes without edges are placed around the others.

    Args:
        count: how many nodes there are.
        edges: numbers of two nodes, and a weight above 0.
    """
    import numpy as np

    positions = np.zeros((count, 2), np.float32)
    if count == 0:
        return positions
    ends = np.array([(a, b) for a, b, _ in edges], np.int64).reshape(-1, 2)
    weights = np.array([weight for _, _, weight in edges], np.float32)
    degree = np.bincount(ends.ravel(), minlength=count)
    joined = np.flatnonzero(degree)
    if len(joined):
        index = np.cumsum(degree > 0) - 1
        positions[joined] = _move_nodes(index[ends], weights, degree[joined])
    alone = np.flatnonzero(degree == 0)
    radius = float(np.abs(positions).max()) + 2 * _SPACE if len(joined) else 0.0
    # A spiral with constant spacing, as the seeds of a sunflower.
    turn = np.arange(len(alone), dtype=np.float32)
    distance = np.sqrt(radius**2 + turn * _SPACE**2 * 0.9)
    positions[alone, 0] = distance * np.cos(turn * 2.39996)
    positions[alone, 1] = distance * np.sin(turn * 2.39996)
    return positions


def _move_nodes(
    ends: NDArray[np.int64], weights: NDArray[np.float32], degree: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Lay out nodes that all have edges."""
    import numpy as np

    count = len(degree)
    mass = (degree + 1).astype(np.float32)
    side = float(np.sqrt(count)) + 1  # about the final radius of the layout
    positions = np.random.default_rng(_SEED).uniform(-side, side, (count, 2)).astype(np.float32)
    pushing = _Pushing(count)
    one, other = ends[:, 0], ends[:, 1]
    for step in range(_STEPS):
        speed = (_PUSH * side / float(mass.sum())) * pushing.on(positions, mass)
        speed -= _GRAVITY / side * positions
        apart = positions[other] - positions[one]
        length = np.sqrt((apart**2).sum(1)) + 1e-6
        # Logarithmic, so that clusters stay together and hubs do not absorb their neighbours.
        pull = apart * (weights * np.log1p(length) / length)[:, None]
        for axis in (0, 1):
            speed[:, axis] += np.bincount(one, pull[:, axis], count) / mass
            speed[:, axis] -= np.bincount(other, pull[:, axis], count) / mass
        reach = _REACH * side * (1 - step / _STEPS) ** 1.5 + 0.01
        length = np.sqrt((speed**2).sum(1, keepdims=True)) + 1e-6
        positions += speed * np.minimum(_PACE, reach / length)
    return _apart(positions - np.median(positions, axis=0))


class _Pushing:
    """Repulsion of nodes: the mass of the other divided by the distance."""

    def __init__(self, count: int) -> None:
        import numpy as np

        self._cells = min(max(round(3 * count**0.5), 96), _CELLS)
        size = 2 * self._cells  # twice as wide: the Fourier transform wraps around
        across = (np.arange(size, dtype=np.float64) + self._cells) % size - self._cells
        x, y = across[:, None], across[None, :]
        law = 1 / (x * x + y * y + 0.35)
        self._laws = np.fft.rfft2(x * law), np.fft.rfft2(y * law)

    def on(self, positions: NDArray[np.float32], mass: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the repulsive force on each node."""
        import numpy as np

        cells = self._cells
        low, high = positions.min(0), positions.max(0)
        cell = float((high - low).max()) / (cells - 3) + 1e-6
        place = (positions - low) / cell + 1
        corner = place.astype(np.int64)
        part = (place - corner).astype(np.float32)
        # Bilinear weights: each node is distributed over the four corners of its cell.
        shares = [
            (
                (corner[:, 0] + dx) * cells + corner[:, 1] + dy,
                np.abs(1 - dx - part[:, 0]) * np.abs(1 - dy - part[:, 1]),
            )
            for dx in (0, 1)
            for dy in (0, 1)
        ]
        density = np.zeros(cells * cells)
        for corner_, share in shares:
            density += np.bincount(corner_, mass * share, cells * cells)
        size = 2 * cells
        spread = np.fft.rfft2(density.reshape(cells, cells), (size, size))
        force = np.zeros_like(positions)
        for axis, law in enumerate(self._laws):
            field = np.fft.irfft2(spread * law, (size, size))[:cells, :cells].ravel() / cell
            for corner_, share in shares:
                force[:, axis] += share * field[corner_]
        return force


def _apart(positions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Spread the nodes so that none covers another."""
    import numpy as np

    count = len(positions)
    sample = positions[:: max(1, count // 200)]
    gaps = np.sqrt(((sample[:, None] - positions[None]) ** 2).sum(2))
    gaps[gaps < 1e-6] = np.inf  # itself
    positions = positions * (_SPACE / float(np.median(gaps.min(1))))
    for _ in range(_ROUNDS):
        one, other = _near(positions, _SIZE)
        between = positions[other] - positions[one]
        length = np.sqrt((between**2).sum(1)) + 1e-3
        close = length < _SIZE
        if not close.any():
            break
        one, other = one[close], other[close]
        push = between[close] * ((_SIZE - length[close]) / 2 / length[close])[:, None]
        for axis in (0, 1):
            positions[:, axis] -= np.bincount(one, push[:, axis], count)
            positions[:, axis] += np.bincount(other, push[:, axis], count)
    return positions


def _near(positions: NDArray[np.float32], reach: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of nodes that may be closer to each other than `reach`, each once."""
    import numpy as np

    cells = np.floor((positions - positions.min(0)) / reach).astype(np.int64) + 1
    width = int(cells[:, 1].max()) + 2
    key = cells[:, 0] * width + cells[:, 1]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    nodes = np.arange(len(key))
    for step in (0, 1, width - 1, width, width + 1):  # half of the adjacent cells
        first = ordered.searchsorted(key + step, "left")
        last = ordered.searchsorted(key + step, "right")
        for ahead in range(int(np.max(last - first))):
            met = first + ahead < last
            one, other = nodes[met], order[(first + ahead)[met]]
            if step == 0:
                once = one < other
                one, other = one[once], other[once]
            pairs.append((one, other))
    return np.concatenate([one for one, _ in pairs]), np.concatenate([other for _, other in pairs])


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A span of a passage's text: the number of the passage, and offsets in the shown text."""

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ViewPassage:
    """A passage, or a part of a long one.

    Attributes:
        id: the passage's, for `fetch`.
        text: the shown text.
        title: of its document.
        uri: likewise.
        heading: headings over it, from the outermost.
        before: whether text before this is left out.
        after: likewise.
    """

    id: str
    text: str
    title: str
    uri: str
    heading: tuple[str, ...]
    before: bool
    after: bool


class Passages:
    """The passages of a page, up to a number of characters."""

    def __init__(self, documents: DocumentReader, *, characters: int) -> None:
        self._documents = documents
        self._number: dict[_Key, int] = {}
        self._start: list[int] = []
        self._left = characters
        self.shown: list[ViewPassage] = []

    def add(self, places: Iterable[tuple[int, int]]) -> None:
        """Add the parts of passages that hold some places, given by chunk and offset."""
        wanted = list(places)
        chunks = self._documents.chunks(list({chunk for chunk, _ in wanted}))
        for chunk, start in wanted:
            row = chunks.get(chunk)
            if row is not None and self._left > 0:
                self._show(row, self._stretch(row, start))

    def place(self, place: TextPosition | None) -> TextSpan | None:
        """Return the span of a place in the shown text, or None if it is not shown."""
        if place is None:
            return None
        chunk, start, end = place
        for key in ((chunk, 0), (chunk, start // _STRETCH)):
            number = self._number.get(key)
            if number is not None:
                begins, text = self._start[number], self.shown[number].text
                if begins <= start and start - begins <= len(text):
                    return TextSpan(number, start - begins, min(end - begins, len(text)))
        return None

    @staticmethod
    def _stretch(row: ChunkRow, start: int) -> int:
        return start // _STRETCH if len(row.text) > _WHOLE else 0

    def _show(self, row: ChunkRow, stretch: int) -> None:
        key = row.key, stretch
        if key in self._number:
            return
        begins = stretch * _STRETCH
        text = row.text[begins : begins + _WHOLE]
        if row.kind not in _AS_IT_IS:
            text = _WRAP.sub(_unwrap, text)
        self._number[key] = len(self.shown)
        self._start.append(begins)
        self._left -= len(text)
        self.shown.append(
            ViewPassage(
                id=row.id,
                text=text,
                title=row.title,
                uri=row.uri,
                heading=row.heading_path,
                before=begins > 0,
                after=begins + len(text) < len(row.text),
            )
        )


def _unwrap(end: re.Match[str]) -> str:
    """Replace a line break within a paragraph by one character: a zero-width space between Chinese."""
    before, after = end[1], end[2]
    chinese = (is_cjk(before) or before in _CLOSING) and (is_cjk(after) or after in _OPENING)
    return "\u200b" if chinese else " "
