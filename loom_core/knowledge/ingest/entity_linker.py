"""Entity linking: find the names of known subjects in passages, incrementally."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.store.mentions import first_places, places_of_names
from loom_core.knowledge.text.analysis import lookup_tokens
from loom_core.knowledge.text.name_matching import NameIndex, is_matchable, plain_latin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from loom_core.knowledge.indexes import LexicalIndexes
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.graph import NewName
    from loom_core.knowledge.store.mentions import MentionLink

__all__ = ["EntityLinker"]

_CHUNKS_FOR_A_NAME = (
    2  # looking up a name and reading its candidates costs as much as reading this many chunks
)
_ASKED_AT_ONCE = 50  # names, in one request to a search engine


@dataclass(slots=True)
class _Backfill:
    """A backfill: the search of all earlier chunks for many new names at once.

    Attributes:
        entities: the entities of the names to find.
        last: the last chunk in the store at the beginning.
        until: the last chunk to search.
        at: the last chunk searched so far.
    """

    entities: list[int]
    last: int
    until: int
    at: int = 0


class EntityLinker:
    """Links every known name in every chunk, incrementally.

    New chunks are searched for all names, and their new names are searched for in the chunks
    that were searched before: few names in those that the lexical index finds, many in all of them. The
    store keeps the progress of both, so that the work can be done at any time, and by any process.
    The more chunks come between two steps, the fewer are searched twice.

    Args:
        store: the store of names, chunks and links.
        words: the lexical index, which finds the chunks that may hold a name.
        chunks: how many to search in a step.
        names: how many new names to search for in earlier chunks in a step.
    """

    def __init__(
        self, store: KnowledgeStore, words: LexicalIndexes, *, chunks: int = 500, names: int = 1000
    ) -> None:
        self._store = store
        self._words = words
        self._chunks_at_once = chunks
        self._names_at_once = names
        self._names: NameIndex | None = None
        self._newest = 0  # the last chunk when the names were read
        self._linked = 0  # the link watermark at that time
        self._indexed = 0  # the last chunk that the lexical index is known to hold
        self._reading: _Backfill | None = None

    def forget(self) -> None:
        """Drop what is held in memory, as other processes may write from now on."""
        self._names = self._reading = None
        self._indexed = 0

    def link_some(self, *, spare: int = 0) -> bool:
        """Search some chunks for names. Blocks.

        Args:
            spare: how many new chunks, and new names, may be left for later. Searching a chunk for one more
                name costs next to nothing; a name that comes later needs a separate search.

        Returns:
            Whether there was anything that could be done.
        """
        graph, last = self._store.graph, self._store.documents.last_chunk()
        if last - graph.link_watermark() > spare:
            self._search_new(last)
            return True
        return graph.new_name_count() > spare and self._search_earlier(last)

    def _search_new(self, last: int) -> None:
        """Search the next new chunks for all names so far."""
        graph, limit = self._store.graph, self._chunks_at_once
        names = self._build_name_index(last)
        texts = graph.texts_after(graph.link_watermark(), limit=limit)
        places = list(_places_in(texts, names))
        with self._store.database.write():
            # Names come with chunks: if there is a new chunk, its names were not searched for.
            if self._store.documents.last_chunk() == last:
                self._write(places)
                graph.advance_link_watermark(texts[-1][0] if len(texts) == limit else last)

    def _search_earlier(self, last: int) -> bool:
        """Search the earlier chunks for some new names; return False if that cannot be done now."""
        # Before the new names are removed, as later chunks need them, too.
        names = self._build_name_index(last)
        if self._reading is None:
            self._reading = self._begin_backfill(last)
        if self._reading is not None:
            self._continue_backfill(self._reading, names)
            return True
        return self._look_up_some(last, names)

    def _begin_backfill(self, last: int) -> _Backfill | None:
        """Begin a backfill; return None if looking the names up is cheaper."""
        graph = self._store.graph
        if _CHUNKS_FOR_A_NAME * graph.new_name_count() <= graph.link_watermark():
            return None
        new = graph.new_names()
        looked_for = [name.newest for name in new if name.newest and is_matchable(name.id)]
        until = min(max(looked_for, default=0), graph.link_watermark())
        return _Backfill([name.entity for name in new], last, until)

    def _continue_backfill(self, reading: _Backfill, names: NameIndex) -> None:
        """Continue the backfill; `names` are all names."""
        graph, limit = self._store.graph, self._chunks_at_once
        texts = graph.texts_after(reading.at, limit=limit) if reading.at < reading.until else []
        places = list(_places_in(texts, names, near=frozenset(reading.entities)))
        with self._store.database.write():
            self._write(places)
            reading.at = texts[-1][0] if len(texts) == limit else reading.until
            if reading.at >= reading.until:
                # Keep names that were deleted and added again meanwhile, as their links were deleted, too.
                graph.forget_new_names(graph.subjects_since(reading.entities, reading.last))
                self._reading = None

    def _look_up_some(self, last: int, names: NameIndex) -> bool:
        """Search for some new names in the candidate chunks that the lexical index gives.

        Args:
            last: the last chunk in the store.
            names: all names.

        Returns:
            Whether the index could be asked.
        """
        graph = self._store.graph
        new = graph.new_names(limit=self._names_at_once)
        looked_for = [name for name in new if name.newest and is_matchable(name.id)]
        entities = frozenset(name.entity for name in looked_for)
        try:
            places = list(_places_in(self._candidates(looked_for), names, near=entities))
        except IndexDamagedError as error:
            self._indexed = 0
            self._words.report_damage(error)
            return True
        except StoreUnavailableError:  # the names are kept, and are looked up once it answers
            return False
        with self._store.database.write():
            if self._store.documents.last_chunk() == last:
                self._write(places)
                graph.forget_new_names(name.entity for name in new)
        return True

    def _build_name_index(self, newest: int) -> NameIndex:
        """Return all names that came with the chunks up to one.

        The first call reads them, which takes seconds if there are many.
        """
        if self._names is not None and newest == self._newest:
            return self._names
        graph = self._store.graph
        linked = graph.link_watermark()  # later names are noted with this watermark or a higher one
        if self._names is None:
            self._names = NameIndex()
            for entity, id_ in graph.subjects():
                self._names.add(entity, id_)
        else:
            for name in graph.new_names(since=self._linked):
                self._names.add(name.entity, name.id)
        self._newest, self._linked = newest, linked
        return self._names

    def _candidates(self, new: Sequence[NewName]) -> Iterator[tuple[int, str]]:
        """Yield the chunks that may hold new names, with their texts."""
        if not new:
            return
        newest = self._store.documents.last_chunk()
        words = self._words.searcher() if max(name.newest for name in new) <= self._indexed else None
        if words is None:
            words = self._words.complete()
            self._indexed = newest
        candidates: defaultdict[int, list[bytes]] = defaultdict(list)
        for start in range(0, len(new), _ASKED_AT_ONCE):
            asked = new[start : start + _ASKED_AT_ONCE]
            queries = [LexicalQuery(lookup_tokens(name.id), match="all") for name in asked]
            for name, hits in zip(asked, words.search(queries), strict=True):
                letters = plain_latin(name.id)
                for key, _ in hits:
                    if key <= name.newest:
                        candidates[key].append(letters)
        chunks = sorted(candidates)
        for start in range(0, len(chunks), self._chunks_at_once):
            texts = self._store.graph.texts(chunks[start : start + self._chunks_at_once])
            # Most candidates hold the words of a name, but not the name.
            yield from (row for row in texts if _may_hold(row[1], candidates[row[0]]))

    def _write(self, found: Sequence[Sequence[MentionLink]]) -> None:
        """Write the links of chunks, given the places of names in each of them."""
        there = set(self._store.documents.existing(sorted({places[0].chunk for places in found})))
        # The names in memory may include some that are no longer subjects.
        alive = self._store.graph.still_subjects(sorted({place.entity for each in found for place in each}))
        touched = self._store.graph.add_links(
            link
            for places in found
            if places[0].chunk in there
            for link in first_places(place for place in places if place.entity in alive)
        )
        self._store.changes.note("entity", sorted(touched))


def _may_hold(text: str, names: Collection[bytes]) -> bool:
    letters = plain_latin(text)
    return any(name in letters for name in names)


def _places_in(
    texts: Iterable[tuple[int, str]], names: NameIndex, *, near: Collection[int] | None = None
) -> Iterator[list[MentionLink]]:
    """Yield the places of names in each text that has any; see `NameIndex.find`."""
    for chunk, text in texts:
        if places := places_of_names(chunk, text, names.find(text, near=near)):
            yield places
