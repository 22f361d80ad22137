"""Checks of the derived indexes against the store."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.engines.link_arrays import LinkArrays
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.maintenance.finding import CheckFinding
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex
    from loom_core.knowledge.indexes.lexical import RemoteLexicalIndex
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors
    from loom_core.knowledge.interface import GraphStore, LexicalIndex, LexicalSearch
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import ChangeKind, IndexName

__all__ = [
    "check_chroma",
    "check_flat_vectors",
    "check_graph_store",
    "check_indexes",
    "check_lexical",
    "check_server",
]

_ATTEMPTS = 5
_SAMPLES = 25  # chunks whose content is compared, as another knowledge base may have the same keys
_CHROMA_SAMPLES = 1000  # chunks whose vectors are compared, at a file read each
_BATCH = 5000
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Differences between the content of an index and what it should hold.

    Attributes:
        expected: keys that should be in it.
        missing: keys that are not in it.
        surplus: keys that should not be in it, or are in it more than once.
        settled: keys that are in both, without pending changes.
    """

    expected: int
    missing: tuple[int, ...]
    surplus: tuple[int, ...]
    settled: tuple[int, ...]

    def findings(self, name: IndexName, what: str) -> Iterator[CheckFinding]:
        """Return the differences as findings."""
        if self.missing:
            text = f"{len(self.missing):,} of {self.expected:,} {what} are not in the index {name!r}"
            yield CheckFinding("indexes", text, "index", (name,))
        if self.surplus:
            text = f"the index {name!r} has {len(self.surplus):,} {what} that are gone, or there twice"
            yield CheckFinding("indexes", text, "index", (name,))


def _compare_keys(
    store: KnowledgeStore,
    name: IndexName,
    held: Callable[[], Collection[int]],
    expected: Callable[[], Collection[int]],
    *,
    kinds: Sequence[ChangeKind],
) -> _Comparison | None:
    """Compare the keys of an index with those of the store, while both may change.

    Changes that the index had not yet applied when it was read are left out of the comparison.

    Args:
        store: the store.
        name: the index.
        held: returns the keys in the index, with repeats.
        expected: returns the keys that should be in it, read from the store.
        kinds: kinds of changes that add or remove such keys.

    Returns:
        The differences; None if changes were applied and pruned during every attempt.

    Raises:
        IndexDamagedError: the index cannot be read.
    """
    for _ in range(_ATTEMPTS):
        watermark = max(0, store.changes.state(name).watermark)
        there = Counter(held())
        with store.database.snapshot():
            if not store.changes.is_complete_since(watermark):
                continue
            open_: set[int] = set()
            for kind in kinds:
                open_ |= _changes_since(store, watermark, kind)
            wanted = set(expected())
        missing = sorted(key for key in wanted if not there[key] and key not in open_)
        surplus = sorted(
            key for key, times in there.items() if key not in open_ and (key not in wanted or times > 1)
        )
        settled = sorted(key for key in wanted if there[key] == 1 and key not in open_)
        return _Comparison(len(wanted), tuple(missing), tuple(surplus), tuple(settled))
    return None


def _check_index(
    name: IndexName,
    compare: Callable[[], _Comparison | None],
    *,
    what: str,
    differing: Callable[[Sequence[int]], tuple[int, int]],
) -> Iterator[CheckFinding]:
    """Check an index: its keys, and a sample of its contents.

    Args:
        name: the index.
        compare: compares its keys, see `_compare_keys`.
        what: name of its values, for messages.
        differing: compares the values of given keys; returns how many differ, and how many it examined.
    """
    try:
        found = compare()
        if found is None:
            return
        yield from found.findings(name, "passages")
        wrong, seen = differing(found.settled)
    except IndexDamagedError as error:
        yield CheckFinding("indexes", f"the index {name!r} cannot be read: {error.message}", "index", (name,))
        return
    if wrong:
        text = f"the index {name!r} has other {what} for {wrong:,} of {seen:,} passages examined"
        yield CheckFinding("indexes", text, "index", (name,))


def check_lexical(
    store: KnowledgeStore, index: LexicalIndex, *, name: IndexName = "words"
) -> Iterator[CheckFinding]:
    """Check that the lexical index holds every chunk once; compare a sample's tokens."""

    def differing(keys: Sequence[int]) -> tuple[int, int]:
        chosen = _sample(keys, _SAMPLES)
        return _find_wrong_tokens(store, index, chosen), len(chosen)

    def list_expected() -> list[int]:
        return store.documents.chunk_keys(limit=_ALL)

    compare = partial(_compare_keys, store, name, index.keys, list_expected, kinds=("chunk+", "chunk-"))
    return _check_index(name, compare, what="words", differing=differing)


def check_graph_store(
    store: KnowledgeStore, graph_store: GraphStore, *, name: IndexName = "graph"
) -> Iterator[CheckFinding]:
    """Check that the graph store equals the store's graph. No process may be writing to it."""
    graph, after, wrong = store.graph, 0, 0
    try:
        with store.database.snapshot():
            entities, relations, _ = graph.counts()
            counted = graph_store.counts()
            if counted != (entities, relations):
                text = (
                    f"the graph has {counted[0]:,} entities and {counted[1]:,} relations, "
                    f"not {entities:,} and {relations:,}"
                )
                yield CheckFinding("indexes", text, "index", (name,))
                return
            while keys := graph.keys(after=after, limit=_BATCH):
                wrong += len(set(graph.nodes(keys)) ^ set(graph_store.get(keys)))
                wrong += len(set(graph.edges_from(keys)) ^ set(graph_store.relations(after + 1, keys[-1])))
                after = keys[-1]
    except IndexDamagedError as error:
        yield CheckFinding("indexes", f"the graph cannot be read: {error.message}", "index", (name,))
        return
    if wrong:
        text = f"{wrong:,} entities or relations of the graph do not match the store"
        yield CheckFinding("indexes", text, "index", (name,))


def _check_graph_server(store: KnowledgeStore, index: RemoteGraph) -> Iterator[CheckFinding]:
    """Check that a graph in a database equals the store's graph; nothing is found while that is written."""
    with store.database.snapshot():
        if not index.is_current():
            return
        try:
            version = index.ask(lambda graph: graph.version())
            found = index.ask(lambda graph: list(check_graph_store(store, graph, name=index.name)))
            if index.ask(lambda graph: graph.version()) == version:
                yield from found
        except IndexDamagedError as error:
            text = f"the graph cannot be read: {error.message}"
            yield CheckFinding("indexes", text, "index", (index.name,))


def _sample(keys: Sequence[int], count: int) -> list[int]:
    """Return an evenly spread sample of keys."""
    return list(keys[:: max(1, len(keys) // count)][:count])


def _find_wrong_tokens(store: KnowledgeStore, index: LexicalSearch, chosen: Sequence[int]) -> int:
    queries = {
        key: LexicalQuery(tokens, match="all", among=[key])
        for key, row in store.documents.chunks(chosen).items()
        if (tokens := index_tokens(row.title, row.heading_path, row.text))
    }
    answers = index.search(list(queries.values()))
    missed = [key for key, hits in zip(queries, answers, strict=True) if not hits]
    return len(store.documents.existing(missed))  # a chunk may have been changed or deleted meanwhile


def _changes_since(store: KnowledgeStore, watermark: int, kind: ChangeKind) -> set[int]:
    changed: set[int] = set()
    while (pending := store.changes.since(watermark)) is not None:
        changed.update(pending.keys[kind])
        watermark = pending.watermark
    return changed


def check_flat_vectors(store: KnowledgeStore, index: LanguageVectors) -> Iterator[CheckFinding]:
    """Check that the flat index holds every vector once; compare a sample."""

    def differing(settled: Sequence[int]) -> tuple[int, int]:
        import numpy as np

        wrong = 0
        for start in range(0, len(settled), _BATCH):
            keys, expected = store.vectors.of(settled[start : start + _BATCH])
            wrong += int(np.count_nonzero((index.vectors(keys) != expected).any(axis=1))) if keys else 0
        return wrong, len(settled)

    return _check_vector_index(store, "vectors", index.keys, differing)


def servers_of(store: KnowledgeStore, folder: Path) -> list[RemoteVectors | RemoteLexicalIndex | RemoteGraph]:
    """Return the indexes of a knowledge base that are in servers, and built."""
    from loom_core.knowledge.indexes.lexical import RemoteLexicalIndex
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors

    kinds = (RemoteVectors, RemoteLexicalIndex, RemoteGraph)
    known = [kind.known(store, folder) for kind in kinds]
    return [index for index in known if index is not None and index.is_built]


def check_server(
    store: KnowledgeStore, index: RemoteVectors | RemoteLexicalIndex | RemoteGraph
) -> Iterator[CheckFinding]:
    """Check that an index in a server holds every passage once; compare a sample. A graph is compared whole.

    Raises:
        StoreUnavailableError: the server cannot be asked.
    """
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors

    if isinstance(index, RemoteGraph):
        return _check_graph_server(store, index)
    if not isinstance(index, RemoteVectors):
        return iter(index.ask(lambda opened: list(check_lexical(store, opened, name=index.name))))

    def list_held() -> list[int]:
        return index.ask(lambda collection: collection.keys())

    def differing(keys: Sequence[int]) -> tuple[int, int]:
        chosen = _sample(keys, _CHROMA_SAMPLES)
        return len(index.find_differing(chosen)), len(chosen)

    return _check_vector_index(store, "remote", list_held, differing)


def check_chroma(store: KnowledgeStore, indexes: Collection[ChromaVectorIndex]) -> Iterator[CheckFinding]:
    """Check that Chroma holds every vector once; compare a sample. No process may be writing to it.

    Args:
        store: the store that it is derived from.
        indexes: the index of each language.
    """
    from loom_core.knowledge.indexes import vectors

    def list_held() -> list[int]:
        return list(chain.from_iterable(index.keys() for index in indexes))

    def differing(keys: Sequence[int]) -> tuple[int, int]:
        chosen = _sample(keys, _CHROMA_SAMPLES)
        return len(vectors.find_differing(store.vectors.of(chosen), indexes)), len(chosen)

    return _check_vector_index(store, "chroma", list_held, differing)


def _check_vector_index(
    store: KnowledgeStore,
    name: IndexName,
    held: Callable[[], Collection[int]],
    differing: Callable[[Sequence[int]], tuple[int, int]],
) -> Iterator[CheckFinding]:
    kinds: tuple[ChangeKind, ...] = ("chunk+", "chunk-", "vector+")
    compare = partial(_compare_keys, store, name, held, partial(_keys_with_vector, store), kinds=kinds)
    return _check_index(name, compare, what="vectors", differing=differing)


def check_indexes(store: KnowledgeStore, folder: Path, *, owned: bool) -> Iterator[CheckFinding]:
    """Check the derived indexes of a knowledge base on disk. Blocks.

    Args:
        store: its store.
        folder: where they are.
        owned: whether to open the graph and Chroma, too: only the holder of the lock may, and only while it
            does not have them open already.
    """
    from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex

    state = store.changes.state("links")
    if state.built:
        try:
            LinkArrays(folder / f"links-{state.generation}").verify()
        except IndexDamagedError as error:
            text = f"the index 'links' cannot be read: {error.message}"
            yield CheckFinding("indexes", text, "index", ("links",))
    state = store.changes.state("words")
    if state.built:
        try:
            words = TantivyIndex(folder / f"words-{state.generation}", read_only=True)
        except IndexDamagedError as error:
            text = f"the index 'words' does not open: {error.message}"
            yield CheckFinding("indexes", text, "index", ("words",))
        else:
            yield from check_lexical(store, words)
            words.close()
    state = store.changes.state("vectors")
    if state.built:
        path = folder / f"vectors-{state.generation}"
        try:
            if not path.is_dir():
                raise IndexDamagedError(f"There are no vectors at {path}.")
            vectors = LanguageVectors(int(store.get("dimension") or 0), path, writable=False)
        except IndexDamagedError as error:
            text = f"the index 'vectors' does not open: {error.message}"
            yield CheckFinding("indexes", text, "index", ("vectors",))
        else:
            yield from check_flat_vectors(store, vectors)
            vectors.close()
    state = store.changes.state("graph")
    if owned and state.built and state.watermark >= store.changes.head():
        yield from _check_kuzu(store, folder / f"graph-{state.generation}")
    state = store.changes.state("chroma")
    if owned and state.built:
        yield from _check_chroma(store, folder / f"chroma-{state.generation}")


def _check_kuzu(store: KnowledgeStore, path: Path) -> Iterator[CheckFinding]:
    from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
    from loom_core.knowledge.indexes.engines.probe import probe_kuzu

    if reason := probe_kuzu(path):
        yield CheckFinding("indexes", f"the graph does not open: {reason}", "index", ("graph",))
        return
    graph_store = KuzuGraphStore(path)
    try:
        yield from check_graph_store(store, graph_store)
    finally:
        graph_store.close()


def _check_chroma(store: KnowledgeStore, path: Path) -> Iterator[CheckFinding]:
    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex, groups_in
    from loom_core.knowledge.indexes.engines.probe import probe_chroma

    dimension = int(store.get("dimension") or 0)
    if reason := probe_chroma(path, dimension=dimension):
        yield CheckFinding("indexes", f"the index 'chroma' does not open: {reason}", "index", ("chroma",))
        return
    with ExitStack() as opened:
        indexes = [ChromaVectorIndex(path, dimension=dimension, group=group) for group in groups_in(path)]
        for index in indexes:
            opened.callback(index.close)
        yield from check_chroma(store, indexes)


def _keys_with_vector(store: KnowledgeStore) -> list[int]:
    rows = store.database.rows(
        "SELECT key FROM chunks AS c WHERE EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash)"
    )
    return [row["key"] for row in rows]
