"""What is near the passages of one question in the graph, each thing read once.

Links are followed from the best passages, and then a walk goes over much the same passages and names.
What the one has read the other finds here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from loom_core.knowledge.store.graph import AboutRow, GraphTable, MentionRow

__all__ = ["Edges", "Surroundings"]

Edges = list[tuple[int, float]]
"""Chunks, each once, with the confidence of what connects them with an entity."""


class Surroundings:
    """Names of passages and passages of names, for as long as one question is answered.

    Args:
        graph: where they are.
        mentions_each: chunks that mention an entity that are read of each.
        abouts_each: chunks that are about an entity that are read of each.
    """

    def __init__(self, graph: GraphTable, *, mentions_each: int = 9, abouts_each: int = 6) -> None:
        self._graph = graph
        self._mentions_each = mentions_each
        self._abouts_each = abouts_each
        self._mentions_in: dict[int, list[MentionRow]] = {}
        self._abouts_in: dict[int, list[AboutRow]] = {}
        self._mentions_of: dict[int, Edges] = {}
        self._abouts_of: dict[int, Edges] = {}
        self._documents: dict[int, int] = {}

    def mentions_in(self, chunks: Iterable[int]) -> list[MentionRow]:
        """Mentions in chunks, by chunk."""
        chunks = list(chunks)
        self._read_chunks(chunks)
        return [mention for chunk in chunks for mention in self._mentions_in[chunk]]

    def abouts_in(self, chunks: Iterable[int]) -> list[AboutRow]:
        """What chunks are about, by chunk."""
        chunks = list(chunks)
        self._read_chunks(chunks)
        return [about for chunk in chunks for about in self._abouts_in[chunk]]

    def entities_in(self, chunks: Iterable[int]) -> set[int]:
        """Entities that chunks mention or are about."""
        chunks = set(chunks)
        read = chunks & self._mentions_in.keys()
        found = {mention.entity for chunk in read for mention in self._mentions_in[chunk]}
        found.update(about.entity for chunk in read for about in self._abouts_in[chunk])
        return found | self._graph.entities_in(chunks - read) if chunks - read else found

    def abouts_of(self, entities: Iterable[int]) -> dict[int, Edges]:
        """Chunks that are about entities, surest first, at most `abouts_each` of each."""
        entities = list(entities)
        missing = [entity for entity in entities if entity not in self._abouts_of]
        rows = self._graph.abouts_of(missing, limit=self._abouts_each)
        self._abouts_of.update((entity, _once(edges)) for entity, edges in rows.items())
        return {entity: self._abouts_of[entity] for entity in entities}

    def mentions_of(self, entities: Iterable[int]) -> dict[int, Edges]:
        """Chunks that mention entities and are not about them anyway, at most `mentions_each` of each."""
        entities = list(entities)
        missing = [entity for entity in entities if entity not in self._mentions_of]
        limit, most = self._mentions_each, self._abouts_each
        abouts = self.abouts_of(missing)
        mentions = self._graph.mentions_of(missing, limit=limit)
        # Enough of them must be left without those in passages that are about the entity.
        more = [entity for entity in missing if abouts[entity] and len(mentions[entity]) == limit]
        if more:
            mentions |= self._graph.mentions_of(more, limit=limit + most)
        unsure = [entity for entity in missing if mentions[entity] and len(abouts[entity]) == most]
        if unsure:
            mentions |= self._graph.asides_of(unsure, limit=limit)
        for entity, rows in mentions.items():
            subject = {chunk for chunk, _ in abouts[entity]}
            self._mentions_of[entity] = _once((chunk, sure) for chunk, sure in rows if chunk not in subject)[
                :limit
            ]
        return {entity: self._mentions_of[entity] for entity in entities}

    def documents_of(self, chunks: Collection[int]) -> dict[int, int]:
        """The documents of chunks; those of chunks that are gone are left out."""
        missing = [chunk for chunk in chunks if chunk not in self._documents]
        if missing:
            self._documents |= self._graph.documents_of(missing)
        return self._documents

    def _read_chunks(self, chunks: list[int]) -> None:
        missing = [chunk for chunk in chunks if chunk not in self._mentions_in]
        if not missing:
            return
        mentions: defaultdict[int, list[MentionRow]] = defaultdict(list)
        for mention in self._graph.mentions_in(missing):
            mentions[mention.chunk].append(mention)
        abouts: defaultdict[int, list[AboutRow]] = defaultdict(list)
        for about in self._graph.abouts_in(missing):
            abouts[about.chunk].append(about)
        for chunk in missing:
            self._mentions_in[chunk] = mentions[chunk]
            self._abouts_in[chunk] = abouts[chunk]


def _once(edges: Iterable[tuple[int, float]]) -> Edges:
    """The edges without those to a chunk that came before."""
    first: dict[int, float] = {}
    for chunk, confidence in edges:
        first.setdefault(chunk, confidence)
    return list(first.items())
