"""Vectors in a database of the team's own: pgvector, Qdrant, Milvus, Chroma, or another `VectorIndex`.

`RemoteVectors` keeps a collection there equal to the store, without a copy on this machine; `RemoteSearch`
answers from it. Filters are decided here, by the store: the engine is told which documents are allowed, and
what it finds is compared with the filter once more, so that no engine can show what a filter excludes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.engines.exact_vectors import cosines
from loom_core.knowledge.indexes.engines.servers import VECTORS, open_vector_index
from loom_core.knowledge.indexes.language_vectors import Neighbours
from loom_core.knowledge.indexes.remote import RemoteIndex
from loom_core.knowledge.interface import PassageVectors, VectorQuery
from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.knowledge.interface import VectorIndex
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges
    from loom_core.knowledge.store.chunk_keys import ChunkKeys

__all__ = ["RemoteSearch", "RemoteVectors"]

_COMPARED = 64  # vectors that are compared with the store when a collection is opened
_SAME = 2e-3  # tolerance: engines may round vectors
_SAMPLES = 8192  # passages that the average of a language is taken from
_FEW = 64  # of a language in that sample; below, the engine is asked for all of its passages
_FEW_MOST = 512
_GROWTH = 1.1  # of the passages, from which on averages are taken again
_EXACT_AMONG = 4000  # allowed passages up to which the store's own vectors are compared: some 50 ms
_PENDING = 500  # changes that the collection has still to get and that a question takes into account
_MOST_DOCUMENTS = 30_000  # allowed documents up to which the engine is told them
_MOST_CANDIDATES = 10_000


@dataclass(frozen=True, slots=True)
class _Language:
    """Average vector and number of the passages of a language."""

    mean: NDArray[np.float32]
    size: int


@dataclass(frozen=True, slots=True)
class _Survey:
    """The languages as they were at a number of vectors, at a change of the store."""

    count: int
    head: int
    groups: frozenset[str]
    found: dict[str, _Language]

    def holds(self, count: int, head: int, groups: frozenset[str]) -> bool:
        """Whether the averages are still good enough; of few passages they are those of every change."""
        if groups != self.groups:
            return False
        if max(count, self.count) <= _FEW_MOST:
            return head == self.head
        return count / _GROWTH <= self.count <= count * _GROWTH


class RemoteVectors(RemoteIndex["VectorIndex"]):
    """The vectors of a knowledge base in a vector database; see `RemoteIndex`."""

    name = "remote"
    kind = VECTORS
    noted_as = "collection"

    def __init__(self, store: KnowledgeStore, folder: Path, setting: str) -> None:
        super().__init__(store, folder, setting)
        self._built = 0  # vectors there were when `VectorIndex.build` was called last
        self._languages: _Survey | None = None

    def searcher(self) -> RemoteSearch | None:
        """Return the collection as of the last sync, for searching; None before it is built."""
        return RemoteSearch(self, self._store) if self.is_built else None

    def sync(self, *, limit: int = RemoteIndex.step_size) -> bool:
        """Apply up to `limit` changes, if there ever was an embedder; see `RemoteIndex.sync`."""
        return bool(self._dimension()) and super().sync(limit=limit)

    def lag(self) -> int:
        """Return how many changes are still to be applied; 0 if there never was an embedder."""
        return super().lag() if self._dimension() else 0

    def languages(self) -> dict[str, _Language]:
        """Return average and size of each language group that has vectors. Blocks.

        They are taken from an even sample of the passages: the cosine of a question with an average of 8,000
        of them differs by less than 0.001 from that with all.

        Raises:
            StoreUnavailableError: a rare language is looked for in the collection, which cannot be asked.
        """
        count, head, groups = self._store.vectors.coverage()[0], self._store.changes.head(), self.groups()
        known = self._languages
        if known is None or not known.holds(count, head, groups):
            self._languages = known = _Survey(count, head, groups, self._survey(count, groups))
        return known.found

    def groups(self) -> frozenset[str]:
        """Return the language groups that ever had a vector in the collection."""
        return frozenset(json.loads(self._store.get("vector_languages") or "[]"))

    def find_differing(self, keys: Sequence[int]) -> list[int]:
        """Return the keys under which the collection holds another vector than the store, or none."""
        import numpy as np

        found, expected = self._store.vectors.of(keys)
        stored = self.ask(lambda index: index.vectors(found))
        return [
            key
            for key, vector in zip(found, expected, strict=True)
            if key not in stored or not np.allclose(stored[key], vector, atol=_SAME)
        ]

    def _finish(self, generation: int) -> None:
        self._index(generation).build()
        self._built = self._store.vectors.coverage()[0]

    def _catch_up(self, limit: int) -> bool:
        if super()._catch_up(limit):
            return True
        # What makes searches fast in a collection that grew may not be there yet.
        state, count = self._store.changes.state(self.name), self._store.vectors.coverage()[0]
        if state.built and count >= 2 * max(1, self._built):
            self._finish(state.generation)
        return False

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        self._take(pending.keys["vector+"], generation)
        if gone := pending.keys["chunk-"]:
            self._index(generation).delete(gone)

    def _take(self, keys: Sequence[int], generation: int) -> None:
        found, matrix = self._store.vectors.of(keys)
        places = self._store.documents.places_of(found)
        rows = [row for row, key in enumerate(found) if key in places]
        if not rows:
            return
        chosen = [found[row] for row in rows]
        languages = [language_group(places[key][0]) for key in chosen]
        self._note_groups(languages)
        documents = [places[key][1] for key in chosen]
        self._index(generation).upsert(PassageVectors(chosen, matrix[rows], languages, documents))

    def _is_consistent(self) -> bool:
        count = self.ask(lambda index: index.count())
        if count != self._store.vectors.coverage()[0]:
            return False
        return not self.find_differing(self._spread_chunks(_COMPARED))

    def _open(self, collection: str, secret: SecretStr | None) -> VectorIndex:
        return open_vector_index(
            self.setting, secret=secret, collection=collection, dimension=self._dimension()
        )

    def _dimension(self) -> int:
        return int(self._store.get("dimension") or 0)

    # -- languages ---------------------------------------------------------------------------------

    def _note_groups(self, groups: Collection[str]) -> None:
        known = self.groups()
        if not known.issuperset(groups):
            self._store.set("vector_languages", json.dumps(sorted(known.union(groups))))

    def _survey(self, count: int, groups: frozenset[str]) -> dict[str, _Language]:
        import numpy as np

        keys = [key for key, _ in self._store.documents.chunk_documents()]
        step = max(1, ceil(len(keys) / _SAMPLES))
        found, matrix = self._store.vectors.of(keys[::step])
        languages = self._store.documents.languages_of(found)
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(found):
            if key in languages:
                rows[language_group(languages[key])].append(row)
        surveyed: dict[str, _Language] = {}
        for group in sorted(groups.union(rows)):
            sample = matrix[rows[group]]
            size = round(len(sample) * count / max(1, len(found)))
            if step > 1 and len(sample) < _FEW:
                sample, size = self._few_of(group, size)
            if len(sample):
                mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
                surveyed[group] = _Language(mean, max(size, len(sample)))
        return surveyed

    def _few_of(self, group: str, size: int) -> tuple[NDArray[np.float32], int]:
        """Return the vectors of a rare language, as the collection knows which passages have it."""
        import numpy as np

        anywhere = np.full(self._dimension(), self._dimension() ** -0.5, dtype=np.float32)
        query = VectorQuery(anywhere, _FEW_MOST, language=group)
        [hits] = self.ask(lambda index: index.search([query]))
        _, matrix = self._store.vectors.of([key for key, _ in hits])
        return matrix, len(hits) if len(hits) < _FEW_MOST else size


class RemoteSearch:
    """`DenseSearch` over a collection of a vector database; all but the search itself is read from the store.

    Args:
        index: the collection.
        store: the store, with the vectors of all passages.
        exact_among: up to so many allowed passages are compared one by one, with their vectors in the store.
        most_documents: up to so many allowed documents the engine is told; else it is asked for more hits.

    Raises:
        StoreUnavailableError: by its methods: the server cannot be asked.
    """

    def __init__(
        self,
        index: RemoteVectors,
        store: KnowledgeStore,
        *,
        exact_among: int = _EXACT_AMONG,
        most_documents: int = _MOST_DOCUMENTS,
    ) -> None:
        self._index = index
        self._store = store
        self._exact_among = exact_among
        self._most_documents = most_documents

    def by_language(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        among: ChunkKeys | None = None,
        only: Collection[str] | None = None,
    ) -> list[Neighbours]:
        """Return the most similar chunks of each language, at most `limit` of each; one request for all."""
        languages = {
            group: language
            for group, language in self._index.languages().items()
            if only is None or group in only
        }
        if not languages:
            return []
        if among is None or len(among) > self._exact_among:
            hits = self._nearest(vector, limit, list(languages), among)
        else:
            hits = self._exact(vector, limit, among)
        return [
            Neighbours(group, float(vector @ language.mean), language.size, hits[group])
            for group, language in languages.items()
            if hits.get(group)
        ]

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Return the language group of chunks; those without a vector are left out."""
        languages = self._store.vectors.languages_of(list(keys))
        return {key: language_group(language) for key, language in languages.items()}

    def language_groups(self) -> frozenset[str]:
        """Return the languages that there are vectors of."""
        return frozenset(self._index.languages())

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Return the cosine of given chunks; those without a vector are left out."""
        found, matrix = self._store.vectors.of(list(keys))
        return dict(zip(found, cosines(matrix, vector).tolist(), strict=True)) if found else {}

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return vectors of given chunks, a row each; zeros where there is none."""
        import numpy as np

        found, matrix = self._store.vectors.of(keys)
        place = {key: row for row, key in enumerate(keys)}
        rows = np.zeros((len(keys), int(self._store.get("dimension") or 0)), dtype=np.float32)
        if found:
            rows[[place[key] for key in found]] = matrix
        return rows

    def _nearest(
        self, vector: NDArray[np.float32], limit: int, groups: Sequence[str], among: ChunkKeys | None
    ) -> dict[str, list[tuple[int, float]]]:
        """Ask the engine, and compare what it has still to get: else that would be near to nothing."""
        # Before the engine is asked, which may get them meanwhile.
        pending = self._store.changes.pending(self._index.name, limit=_PENDING)
        if pending is None:
            return self._ask(vector, limit, groups, among)
        new, gone = pending.keys["vector+"], pending.keys["chunk-"]
        hits = self._ask(vector, limit + len(gone), groups, among)
        exact = self._exact(vector, limit, [key for key in new if among is None or key in among])
        old = {*new, *gone}
        merged = {
            group: [hit for hit in hits.get(group, []) if hit[0] not in old] + exact.get(group, [])
            for group in hits.keys() | exact.keys()
        }
        return {group: _best(some, limit) for group, some in merged.items()}

    def _ask(
        self, vector: NDArray[np.float32], limit: int, groups: Sequence[str], among: ChunkKeys | None
    ) -> dict[str, list[tuple[int, float]]]:
        """Ask the engine; it is told the allowed documents, or asked for more where they are too many."""
        documents, wanted = None, limit
        if among is not None:
            documents = self._store.documents.documents_of(among)
            if len(documents) > self._most_documents:
                share = len(among) / max(1, self._store.vectors.coverage()[0])
                documents, wanted = None, min(ceil(2 * limit / share), _MOST_CANDIDATES)
        queries = [VectorQuery(vector, wanted, language=group, documents=documents) for group in groups]
        try:
            answers = self._index.ask(lambda index: index.search(queries))
        except IndexDamagedError as error:
            self._index.report_damage(error)
            raise StoreUnavailableError(
                f"{error.message} It is written again from the store.", advice="Ask again in a moment."
            ) from error
        found = dict(zip(groups, answers, strict=True))
        if among is None:
            return found
        kept = {group: [hit for hit in hits if hit[0] in among][:limit] for group, hits in found.items()}
        if wanted == limit or all(
            len(kept[group]) == limit or len(found[group]) < wanted for group in groups
        ):
            return kept
        return self._exact(vector, limit, among)

    def _exact(
        self, vector: NDArray[np.float32], limit: int, among: Collection[int]
    ) -> dict[str, list[tuple[int, float]]]:
        """Compare the vectors of all allowed passages, as the store has them."""
        hits: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        keys = list(among)
        for start in range(0, len(keys), _EXACT_AMONG):
            found, languages, matrix = self._store.vectors.with_languages(keys[start : start + _EXACT_AMONG])
            similar: list[float] = cosines(matrix, vector).tolist() if found else []
            for key, language, cosine in zip(found, languages, similar, strict=True):
                hits[language_group(language)].append((key, cosine))
        return {group: _best(some, limit) for group, some in hits.items()}


def _best(hits: list[tuple[int, float]], limit: int) -> list[tuple[int, float]]:
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]
