"""The link index: which passages mention each entity or are about it, as questions read it."""

from __future__ import annotations

from itertools import chain, compress, islice, pairwise
from typing import TYPE_CHECKING, Any

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.derived import SteppedIndex
from loom_core.knowledge.indexes.engines.link_arrays import LinkArrays, LinkKind, LinkWriter
from loom_core.knowledge.store.chunk_keys import ChunkKeys
from loom_core.knowledge.store.mentions import LOOKED_AT, EntityLinks, by_chunk, surest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import IndexState, PendingChanges
    from loom_core.knowledge.store.mentions import AboutRow, MentionRow

Edges = list[tuple[int, float]]

__all__ = ["KEPT", "IndexedLinks", "LinkIndex"]

KEPT = LOOKED_AT
"""Links of each kind that are kept of an entity: none more is read of it."""

_STEP = 300  # changes that are applied at a time: a new passage brings a dozen entities
_PLACES = 20_000  # passages whose documents are read at a time
_LOG = 20_000  # changes that the log keeps for this index
_COMPARED = 64  # entities whose links are compared with the store when files are opened


class IndexedLinks:
    """Links as of one change of the store: mapped arrays, and in memory what has changed since.

    It gives the same answers as the store's `GraphTable`, which it asks for what is not in the arrays: what
    given passages mention, with the names.

    Attributes:
        applied: the last change that it holds.
    """

    def __init__(self, store: KnowledgeStore, arrays: LinkArrays, *, applied: int) -> None:
        self.applied = applied
        self._store = store
        self._arrays = arrays
        self._boilerplate = ChunkKeys(arrays["boilerplate"].tolist())
        self._links: dict[int, EntityLinks] = {}
        self._members: dict[int, list[int]] = {}
        self._documents: dict[int, int] = {}  # 0 for a deleted chunk
        self._rejudged = 0  # passages that have become boilerplate, or no longer are

    def find_canonical(self, ids: Sequence[str]) -> dict[str, int]:
        """See `EntityReader.find_canonical`."""
        return self._store.graph.find_canonical(ids)

    def links_in(self, chunks: Collection[int]) -> tuple[list[MentionRow], list[AboutRow]]:
        """See `MentionReader.links_in`."""
        return self._store.graph.links_in(chunks)

    def entities_in(self, chunks: Collection[int]) -> set[int]:
        """See `MentionReader.entities_in`."""
        return self._store.graph.entities_in(chunks)

    def mentions_of(self, entities: Collection[int], *, limit: int) -> dict[int, Edges]:
        """See `MentionReader.mentions_of`."""
        if limit > KEPT:
            return self._store.graph.mentions_of(entities, limit=limit)
        return self._of_each("mentions", entities, limit, by_chunk)

    def passing_mentions_of(self, entities: Collection[int], *, limit: int) -> dict[int, Edges]:
        """See `MentionReader.passing_mentions_of`."""
        if limit > KEPT:
            return self._store.graph.passing_mentions_of(entities, limit=limit)
        found = self._of_each("mentions", entities, LOOKED_AT, by_chunk, passing=True)
        return {entity: rows[:limit] for entity, rows in found.items()}

    def abouts_of(self, entities: Collection[int], *, limit: int) -> dict[int, Edges]:
        """See `MentionReader.abouts_of`."""
        if limit > KEPT:
            return self._store.graph.abouts_of(entities, limit=limit)
        return self._of_each("abouts", entities, limit, surest)

    def documents_of(self, chunks: Collection[int]) -> dict[int, int]:
        """See `MentionReader.documents_of`."""
        keys = list(chunks)
        documents, places = self._arrays["documents"], self._arrays.places("chunks", keys)
        known = places >= 0
        found = dict(zip(compress(keys, known), documents[places[known]].tolist(), strict=True))
        found |= {key: self._documents[key] for key in keys if key in self._documents}
        return {key: document for key, document in found.items() if document}

    def boilerplate_among(self, chunks: Collection[int]) -> set[int]:
        """See `MentionReader.boilerplate_among`."""
        keys = list(chunks)
        return {keys[place] for place in self._boilerplate.places(keys)}

    def size(self) -> int:
        """Return how many entities the arrays have."""
        return len(self._arrays["entities"])

    def verify(self) -> None:
        """See `LinkArrays.verify`."""
        self._arrays.verify()

    def changed(self) -> int:
        """Return how many entities and passages have changed since the arrays were written."""
        return len(self._links) + len(self._members) + len(self._documents) + self._rejudged

    def apply(self, pending: PendingChanges) -> None:
        """Apply changes; idempotent."""
        graph, keys = self._store.graph, pending.keys
        regrouped = sorted(set(keys["entity"]))
        # New passages may also change which other passages' links of the same names are seen.
        changed = {*regrouped}
        documents = dict.fromkeys(keys["chunk-"], 0)
        if keys["chunk+"]:
            changed |= graph.named_in(keys["chunk+"])
            documents |= graph.documents_of(keys["chunk+"])
        boilerplate = self._boilerplate
        if keys["document"] or keys["chunk-"]:
            boilerplate = ChunkKeys(graph.boilerplate())
            if boilerplate != self._boilerplate:
                rejudged = {*boilerplate} ^ {*self._boilerplate}
                self._rejudged += len(rejudged)
                changed |= graph.named_in(rejudged)
        entities = sorted(changed)
        links = dict(zip(entities, graph.links_of(entities, limit=KEPT), strict=True))
        groups = self._store.aliases.members_of(regrouped)
        self._links.update(links)
        self._members.update({key: sorted({*groups.get(key, ())} - {key}) for key in regrouped})
        self._documents.update(documents)
        self._boilerplate = boilerplate
        self.applied = pending.watermark

    def write(self, folder: Path) -> LinkArrays:
        """Write all of it as arrays into a new folder."""
        import numpy as np

        arrays, writer = self._arrays, LinkWriter(folder)
        writer.merge(arrays, self._links)
        groups = dict(zip(arrays["members"].tolist(), arrays["canonicals"].tolist(), strict=True))
        stale = {member for member, canonical in groups.items() if canonical in self._members}
        pairs = [(canonical, member) for member, canonical in groups.items() if member not in stale]
        pairs += [(key, member) for key, members in self._members.items() for member in members]
        gone = np.isin(arrays["chunks"], np.array(list(self._documents), dtype=np.int64))
        kept = [pair for pair in self._documents.items() if pair[1]]
        fresh = np.array(kept, dtype=np.int64).reshape(-1, 2)
        chunks = np.concatenate([arrays["chunks"][~gone], fresh[:, 0]])
        documents = np.concatenate([arrays["documents"][~gone], fresh[:, 1]])
        _write_rest(writer, pairs, chunks, documents, self._boilerplate.array)
        return writer.finish()

    def holds(self, entities: Sequence[int], links: Sequence[EntityLinks]) -> bool:
        """Whether these are the links of some entities."""
        kinds: tuple[tuple[LinkKind, bool], ...] = (
            ("mentions", False),
            ("mentions", True),
            ("abouts", False),
        )
        return all(
            self._read(kind, entities, KEPT, passing=passing)
            == [_decode(kind, getattr(each, kind), passing=passing) for each in links]
            for kind, passing in kinds
        )

    def _of_each(
        self,
        kind: LinkKind,
        entities: Collection[int],
        limit: int,
        order: Callable[[tuple[int, float]], Any],
        *,
        passing: bool = False,
    ) -> dict[int, Edges]:
        """Return the first links of each entity and of the other members of its group, in order."""
        if not entities:
            return {}
        unique = list(dict.fromkeys(entities))
        groups = [
            [entity, *self._members.get(entity, members)]
            for entity, members in zip(unique, self._arrays.members(unique), strict=True)
        ]
        rows = iter(self._read(kind, list(chain.from_iterable(groups)), limit, passing=passing))
        found: dict[int, Edges] = {}
        for entity, *members in groups:
            own = next(rows)
            found[entity] = (
                sorted(chain(own, *islice(rows, len(members))), key=order)[:limit] if members else own
            )
        return found

    def _read(self, kind: LinkKind, entities: Sequence[int], limit: int, *, passing: bool) -> list[Edges]:
        """Return the first links of each entity, whatever its group, in order.

        Args:
            kind: which.
            entities: the entities.
            limit: maximum number of each.
            passing: whether to leave out mentions in passages that are about the entity.
        """
        import numpy as np

        chunks, confidences, ends = self._arrays.links(entities, kind, limit=limit)
        if passing:
            kept = chunks & 1 == 0
            chunks, confidences = chunks[kept], confidences[kept]
            ends = np.concatenate([[0], np.cumsum(kept)])[ends]
        if kind == "mentions":
            chunks = chunks >> 1
        edges = list(zip(chunks.tolist(), confidences.tolist(), strict=True))
        found = [edges[first:last] for first, last in pairwise([0, *ends.tolist()])]
        for place, entity in enumerate(entities):
            if (links := self._links.get(entity)) is not None:
                some = getattr(links, kind)
                found[place] = _decode(kind, (some[0][:limit], some[1][:limit]), passing=passing)
        return found


def _decode(kind: LinkKind, columns: tuple[list[int], list[float]], *, passing: bool) -> Edges:
    """Return chunks and confidences of links in the form of `EntityLinks`."""
    rows = zip(*columns, strict=True)
    if kind == "abouts":
        return list(rows)
    return [(code >> 1, sure) for code, sure in rows if not (passing and code & 1)]


class LinkIndex(SteppedIndex):
    """`IndexedLinks` on disk, rebuilt or written again when much has changed; see `DerivedIndex`.

    A process keeps in memory what has changed since the arrays were written, and reads it from the log again
    when it opens them: so the log keeps these changes. Any process may read. It is of no use in memory.

    Args:
        store: the store that it is derived from.
        folder: where its directories are; None for a store in memory.
        few: changes up to which a question applies them itself, and files are not written again.
    """

    name = "links"
    step_size = 2000  # entities

    def __init__(self, store: KnowledgeStore, folder: Path | None, *, few: int = 500) -> None:
        super().__init__(store, folder)
        self._few = few
        self._links: IndexedLinks | None = None
        self._generation = 0  # of `_links`
        self._writer: LinkWriter | None = None

    def current(self, head: int) -> IndexedLinks | None:
        """Return the links if they hold the changes up to one, else None. Blocks.

        A question does not wait for more than a few changes to be applied.
        """
        links = self._links
        if links is not None and links.applied >= head:
            return links
        if self._folder is None or not self._lock.acquire(blocking=False):
            return None
        generation = 0
        try:
            state = self._store.changes.state(self.name)
            generation = state.generation
            if not state.built:
                return None
            links = self._open(state)
            if head - links.applied > self._few:
                return None
            while links.applied < head and (pending := self._store.changes.since(links.applied)) is not None:
                links.apply(pending)
        except IndexDamagedError as error:
            self._mark_damaged(generation, error)
            return None
        finally:
            self._lock.release()
        return links if links.applied >= head else None

    def sync(self, *, limit: int = _STEP) -> bool:
        """Apply up to `limit` changes of the store, or continue a build; see `DerivedIndex.sync`."""
        return self._folder is not None and super().sync(limit=limit)

    def lag(self) -> int:
        """Return how many changes are still to be applied, to what is in memory or else to the files."""
        links = self._links
        return super().lag() if links is None else max(0, self._store.changes.head() - links.applied)

    def _catch_up(self, limit: int) -> bool:
        changes = self._store.changes
        head, state = changes.head(), changes.state(self.name)
        if not head:
            return False
        if not state.built or self._growing is not None or changes.must_restart(self.name, head):
            self._rebuild()
            return True
        links = self._open(state)
        if head - links.applied > max(self._few, links.size() // 6):  # reading all takes less time
            self._rebuild()
            return True
        if head > links.applied and (pending := changes.since(links.applied, limit=limit)) is not None:
            links.apply(pending)
            return True
        self._verify_existing(state.generation)
        return self._persist(links, state)

    def _persist(self, links: IndexedLinks, state: IndexState) -> bool:
        """Write the arrays again if much has changed since; return whether anything was written."""
        changed = links.changed()
        if not changed and links.applied > state.watermark:
            self._store.changes.advance(self.name, links.applied)
        few = changed <= max(self._few, links.size() // 64) and links.applied <= state.watermark + _LOG
        if not changed or few:
            return False
        generation = state.generation + 1
        self._remove(generation)
        arrays = links.write(self._path(generation))
        self._links = IndexedLinks(self._store, arrays, applied=links.applied)
        self._generation = self._compared = generation
        self._adopt(generation, links.applied)
        return True

    def _open(self, state: IndexState) -> IndexedLinks:
        links = self._links
        if links is None or self._generation != state.generation:
            if not self._store.changes.is_complete_since(state.watermark):
                raise IndexDamagedError("Changes that the links have still to get are gone.")
            arrays = LinkArrays(self._path(state.generation))
            self._links = links = IndexedLinks(self._store, arrays, applied=state.watermark)
            self._generation = state.generation
        if not links.changed():  # so was nothing for the process that wrote the watermark
            links.applied = max(links.applied, state.watermark)
        return links

    def _is_consistent(self) -> bool:
        links = self._links
        if links is None:
            return True
        links.verify()
        highest = self._store.graph.highest()
        places = sorted({highest * n // _COMPARED for n in range(_COMPARED)})
        keys = [key for place in places for key in self._store.graph.own_keys(after=place, limit=1)]
        return links.holds(keys, self._store.graph.links_of(keys, limit=KEPT))

    def _next_keys(self, after: int) -> list[int]:
        return self._store.graph.own_keys(after=after, limit=self.step_size)

    def _begin(self, generation: int) -> None:
        super()._begin(generation)
        self._writer = LinkWriter(self._path(generation))

    def _take(self, keys: Sequence[int], generation: int) -> None:
        if self._writer is not None:
            self._writer.add(keys, self._store.graph.links_of(keys, limit=KEPT))

    def _finish(self, generation: int) -> None:
        import numpy as np

        writer, self._writer = self._writer, None
        if writer is None:
            raise AssertionError("begun before")
        chunks: list[NDArray[np.int64]] = [np.zeros((0, 3), np.int64)]
        after = 0, -1
        while rows := self._store.documents.chunk_places(after=after, limit=_PLACES):
            chunks.append(np.array(rows, dtype=np.int64))
            after = rows[-1][:2]
        documents, _, keys = np.concatenate(chunks).T
        boilerplate = np.array(self._store.graph.boilerplate(), dtype=np.int64)
        _write_rest(writer, self._store.aliases.all_members(), keys, documents, boilerplate)
        writer.finish()
        self._compared = generation

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        raise AssertionError("applied in memory")

    def close(self) -> None:
        """Drop an unfinished build, as another process may be the worker; what is mapped is still read."""
        with self._lock:
            self._growing = self._writer = None
            self._swept = False

    def _is_open(self) -> bool:
        return self._links is not None

    def _close(self) -> None:
        self._links = self._growing = self._writer = None


def _write_rest(
    writer: LinkWriter,
    members: Sequence[tuple[int, int]],
    chunks: NDArray[np.int64],
    documents: NDArray[np.int64],
    boilerplate: NDArray[np.int64],
) -> None:
    """Write everything but the links: groups, as canonical entity and member, and passages."""
    import numpy as np

    pairs = np.array(sorted(members), dtype=np.int64).reshape(-1, 2)
    order = np.argsort(chunks)
    writer.append(
        {
            "canonicals": pairs[:, 0],
            "members": pairs[:, 1],
            "chunks": chunks[order],
            "documents": documents[order],
            "boilerplate": boilerplate,
        }
    )
