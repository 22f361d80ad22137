"""Topics of a knowledge base: communities of passages and of the entities that they mention.

Passages and entities are the two kinds of nodes of one graph, and mentions its edges, weighted by how
rare the entity is. A community of it holds passages and the terms that tie them together, which name it.
Where many passages mention few entities, their content words count, too. Two levels: topics, and the parts
of large ones. No language model and no vectors are needed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from loom_core.knowledge.overview.communities import WeightedGraph, find_communities
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["Topic", "TopicIndex", "TopicMap", "map_topics"]

_COMMON = 0.15  # share of the passages: an entity in more of them tells no topics apart
_FEW = 8  # passages that an entity may always be in; of so few passages every entity counts
_NO_TOPIC = frozenset({"date", "version"})  # types of entities that connect what has nothing in common
_SMALLEST = 3  # passages of a topic
_SPLIT = 24  # passages of a topic that is split into parts
_ENTITIES = 2  # of a passage that tell topics apart; one with fewer is poor
_POOR = 0.3  # share of the passages; if more than that are poor, their content words count, too
_MOST_READ = 5000  # passages, at most, whose words are read
_TERMS = 10
_LOOKED_AT = 40  # entities of a topic, the best first, that its terms are chosen from


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic.

    Attributes:
        terms: names of its best entities, best first; the first three are its name.
        chunks: keys of its passages, the most representative first.
        entities: keys of its entities, best first.
        documents: how many documents the passages are from.
        parts: the topics that it consists of, the largest first; empty for a small one.
    """

    terms: tuple[str, ...]
    chunks: tuple[int, ...]
    entities: tuple[int, ...]
    documents: int
    parts: tuple[Topic, ...] = ()

    @property
    def name(self) -> str:
        """Its name: the best terms."""
        return ", ".join(self.terms[:3])


@dataclass(frozen=True, slots=True)
class TopicMap:
    """The topics of all passages, the largest first.

    Attributes:
        topics: those of at least three passages.
        chunks: how many passages there are.
        documents: how many documents.
        topic_of: number of the topic of each passage that has one, by key.
    """

    topics: tuple[Topic, ...]
    chunks: int
    documents: int
    topic_of: dict[int, int] = field(default_factory=dict[int, int], repr=False)

    def topic_of_entity(self) -> dict[int, int]:
        """Return the number of the topic of each entity that has one, by key."""
        return {key: place for place, topic in enumerate(self.topics) for key in topic.entities}

    def extended(self, store: KnowledgeStore) -> TopicMap:
        """Return these topics with the passages that came since: each joins the topic of its entities."""
        newest = max(self.topic_of, default=0)
        votes: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        topic_of = self.topic_of_entity()
        for chunk, entity in store.graph.recognised(after=newest):
            if entity in topic_of:
                votes[chunk][topic_of[entity]] += 1
        joined = {chunk: max(each, key=lambda place: (each[place], -place)) for chunk, each in votes.items()}
        more: defaultdict[int, list[int]] = defaultdict(list)
        for chunk, place in joined.items():
            more[place].append(chunk)
        topics = tuple(
            replace(topic, chunks=(*topic.chunks, *more[place])) if place in more else topic
            for place, topic in enumerate(self.topics)
        )
        return replace(self, topics=topics, topic_of=self.topic_of | joined)


class TopicIndex:
    """The topics of a knowledge base, found when they are first asked for, and kept in memory.

    They follow the store: passages that were added join a topic by their entities, and after a change of
    a twentieth of the passages all topics are found again.

    Args:
        store: the store.
        changed: share of the passages; after more changes than that the topics are found again.
        short: seconds; topics that are found in less are always up to date.
    """

    def __init__(self, store: KnowledgeStore, *, changed: float = 0.05, short: float = 0.5) -> None:
        self._store = store
        self._changed = changed
        self._short = short
        self._lock = threading.Lock()
        self._found: TopicMap | None = None
        self._extended: TopicMap | None = None
        self._found_at = self._extended_at = -1  # changes of the store by then
        self._seconds = 0.0

    def current(self) -> TopicMap:
        """Return the topics. Blocks, see `map_topics`."""
        with self._lock:
            head = self._store.changes.head()
            moved = head - self._found_at
            found = self._found
            if found is None or (
                moved and (self._seconds < self._short or moved > self._changed * found.chunks)
            ):
                began = time.perf_counter()
                found = self._extended = self._found = map_topics(self._store)
                self._seconds = time.perf_counter() - began
                self._found_at = self._extended_at = head
            if self._extended is None or head != self._extended_at:
                self._extended, self._extended_at = found.extended(self._store), head
            return self._extended


def map_topics(store: KnowledgeStore) -> TopicMap:
    """Find the topics of a knowledge base. Blocks: 2 s for 10,000 passages with 140,000 mentions."""
    import numpy as np

    with store.database.snapshot():
        chunks = store.documents.chunk_documents()
        mentions = np.array(list(store.graph.recognised()), np.int64).reshape(-1, 2)
        nodes = {node.key: node for node in store.graph.all_nodes() if node.type not in _NO_TOPIC}
    keys = np.array([key for key, _ in chunks], np.int64)
    documents = np.array([document for _, document in chunks], np.int64)
    known = np.array([key in nodes for key in mentions[:, 1].tolist()], bool)
    mentions = mentions[known]
    place = np.searchsorted(keys, mentions[:, 0])
    entities, terms = _telling(place, mentions[:, 1], np.ones(len(place), np.int64), count=len(keys))
    names = [nodes[key].name for key in entities.tolist()]
    if (np.bincount(terms.passage, minlength=len(keys)) < _ENTITIES).sum() > _POOR * len(keys):
        words, found = _words_of(store, keys[:_MOST_READ])
        frequent, more = _telling(found[:, 0], found[:, 1], found[:, 2], count=len(keys))
        terms = terms.joined(more, first=len(entities))
        names += [words[word] for word in frequent.tolist()]
        entities = np.concatenate([entities, np.zeros(len(frequent), np.int64)])
    spread = np.bincount(terms.term, minlength=len(entities))
    graph = WeightedGraph(
        one=terms.passage,
        other=terms.term + len(keys),
        weights=(1 + np.log(terms.uses)) * np.log1p(len(keys) / spread[terms.term]),
        count=len(keys) + len(entities),
    )
    community = _adopt_strays(graph, find_communities(graph), documents)
    naming = _Naming(keys, documents, entities, spread, names)
    everything = np.ones(graph.count, bool)
    topics = naming.topics(graph, community, everything, split=True)
    if not topics and len(keys):  # a few passages that have little in common are one topic
        topics = naming.topics(graph, np.zeros_like(community), everything, split=False, smallest=1)
    return TopicMap(
        topics=topics,
        chunks=len(keys),
        documents=len(set(documents.tolist())),
        topic_of={chunk: place for place, topic in enumerate(topics) for chunk in topic.chunks},
    )


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms in passages: the place of each passage, the number of the term, and its uses there."""

    passage: NDArray[np.int64]
    term: NDArray[np.int64]
    uses: NDArray[np.int64]

    def joined(self, more: _Terms, *, first: int) -> _Terms:
        """Return these terms and others, whose numbers begin at `first`."""
        import numpy as np

        return _Terms(
            np.concatenate([self.passage, more.passage]),
            np.concatenate([self.term, more.term + first]),
            np.concatenate([self.uses, more.uses]),
        )


def _telling(
    passage: NDArray[np.int64], term: NDArray[np.int64], uses: NDArray[np.int64], *, count: int
) -> tuple[NDArray[np.int64], _Terms]:
    """Return the terms that tell topics apart: in several passages, but not in too many of `count`."""
    import numpy as np

    different, number, spread = np.unique(term, return_inverse=True, return_counts=True)
    telling = (spread > (count > _FEW)) & (spread < max(_FEW, _COMMON * count) + 1)
    kept = telling[number]
    return different[telling], _Terms(passage[kept], (np.cumsum(telling) - 1)[number[kept]], uses[kept])


def _words_of(store: KnowledgeStore, chunks: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the content words of passages.

    Returns:
        The words; and rows of the place of a passage, the number of a word, and its uses there.
    """
    import numpy as np

    from loom_core.cjk import is_cjk
    from loom_core.knowledge.text.analysis import is_stop_word, words

    place = {key: number for number, key in enumerate(chunks.tolist())}
    number: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []
    for key, text in store.graph.texts(list(place)):
        counted = Counter(word.casefold() for word in words(text))
        for word, uses in counted.items():
            if len(word) > (1 if is_cjk(word[0]) else 3) and not is_stop_word(word) and word.isalpha():
                rows.append((place[key], number.setdefault(word, len(number)), uses))
    return list(number), np.array(rows, np.int64).reshape(-1, 3)


def _adopt_strays(
    graph: WeightedGraph, community: NDArray[np.int64], documents: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Give passages of tiny communities to the one that they share most terms with, or their document."""
    import numpy as np

    passages, width = len(documents), int(community.max(initial=0)) + 1
    size = np.bincount(community[:passages], minlength=width)
    is_large = size >= _SMALLEST
    stray = ~is_large[community[:passages]]
    community = community.copy()
    settled = np.flatnonzero(~stray)
    by_document = _most_common(documents[settled], community[settled], np.ones(len(settled)), width)
    across = stray[graph.one] & is_large[community[graph.other]]
    by_terms = _most_common(graph.one[across], community[graph.other[across]], graph.weights[across], width)
    for passage in np.flatnonzero(stray).tolist():
        other = by_document.get(int(documents[passage]), int(community[passage]))
        community[passage] = by_terms.get(passage, other)
    return community


def _most_common(
    owner: NDArray[np.int64], choice: NDArray[np.int64], weights: NDArray[np.float64], width: int
) -> dict[int, int]:
    """Return the choice of each owner with most weight; choices are below `width`."""
    import numpy as np

    pairs, place = np.unique(owner * width + choice, return_inverse=True)
    order = np.argsort(np.bincount(place, weights, len(pairs)), kind="stable")  # the heaviest comes last
    return dict(zip((pairs[order] // width).tolist(), (pairs[order] % width).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Naming:
    """Makes topics of communities: `keys` and `documents` by passage, the others by term.

    A term is an entity, or a word, whose key is 0.
    """

    keys: NDArray[np.int64]
    documents: NDArray[np.int64]
    entities: NDArray[np.int64]
    spread: NDArray[np.int64]
    names: list[str]

    def topics(
        self,
        graph: WeightedGraph,
        community: NDArray[np.int64],
        among: NDArray[np.bool_],
        *,
        split: bool,
        smallest: int = _SMALLEST,
    ) -> tuple[Topic, ...]:
        """Return the topics of communities, the largest first.

        Args:
            graph: all passages and entities.
            community: of each node.
            among: the nodes to look at.
            split: whether to find the parts of large topics.
            smallest: fewer passages are no topic.
        """
        import numpy as np

        passages = len(self.keys)
        inside = community[graph.one] == community[graph.other]
        count = graph.count - passages
        within = np.bincount(graph.other[inside] - passages, minlength=count)
        # An entity stands for a topic if it is in many of its passages, and in few others.
        strength = within**2 / np.maximum(self.spread, 1) * np.log1p(within)
        gain = np.log1p(strength[graph.other - passages]) * inside
        held = np.bincount(graph.one, minlength=passages)
        central = np.bincount(graph.one, gain, passages) / np.sqrt(held + 4)
        found: list[Topic] = []
        for members in _groups(community, among):
            chunks, terms = members[members < passages], members[members >= passages] - passages
            if len(chunks) < smallest:
                continue
            best = terms[np.argsort(-strength[terms], kind="stable")]
            parts: tuple[Topic, ...] = ()
            if split and len(chunks) >= _SPLIT:
                chosen = np.zeros(graph.count, bool)
                chosen[members] = True
                finer = community.copy()
                finer[members] = community.max() + 1 + find_communities(graph.within(chosen))
                parts = self.topics(graph, finer, chosen, split=False)
            found.append(
                Topic(
                    terms=_distinct([self.names[term] for term in map(int, best[:_LOOKED_AT])]),
                    chunks=tuple(self.keys[chunks[np.argsort(-central[chunks], kind="stable")]].tolist()),
                    entities=tuple(key for key in self.entities[best].tolist() if key),
                    documents=len(set(self.documents[chunks].tolist())),
                    parts=parts,
                )
            )
        return tuple(sorted(found, key=lambda topic: (-len(topic.chunks), topic.chunks)))


def _groups(community: NDArray[np.int64], among: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return the nodes of each community, ascending."""
    import numpy as np

    nodes = np.flatnonzero(among)
    order = nodes[np.argsort(community[nodes], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(community[order])) + 1) if len(order) else []


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without those that say the same as an earlier one in more or in fewer words."""
    chosen: list[tuple[str, frozenset[str]]] = []
    for name in names:
        words = frozenset(name_key(name).split())
        if all(not (words <= other or other <= words) for _, other in chosen):
            chosen.append((name, words))
    return tuple(name for name, _ in chosen[:_TERMS])
