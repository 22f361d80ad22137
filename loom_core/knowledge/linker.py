"""Linking passages to the subjects they name, as documents come."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.linking import NameIndex, bare
from loom_core.knowledge.text import lookup_tokens, surface_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loom_core.knowledge.indexing import WordIndex
    from loom_core.knowledge.record import Record
    from loom_core.knowledge.record.graph import NewName

__all__ = ["Linker"]

_NAMES = 1000  # looked for in earlier chunks at a time
_PAGE = 1000

_Link = tuple[int, int, int, int, str]  # chunk, entity, start, end, name


class Linker:
    """Keeps the links of the record complete: every known name in every chunk.

    Names are looked for in a chunk when it is written. A name that is new is looked for in the chunks that
    were there before, which the index of words finds. The record remembers the names for which that is
    still to be done, so that it does not matter when it is, or by which process.

    Args:
        record: where names, chunks and links are.
        words: finds the chunks that may hold a name.
    """

    def __init__(self, record: Record, words: WordIndex) -> None:
        self._record = record
        self._words = words
        self._names: NameIndex | None = None

    def forget(self) -> None:
        """Drop what is held in memory, as it may not be in the record, or there may be more by now."""
        self._names = None

    def link_new(self, chunks: Sequence[tuple[int, list[str], str]], *, before: int) -> None:
        """Look for all known names in new chunks; part of the transaction that writes them.

        Args:
            chunks: keys, `surface_keys` and texts.
            before: key of the last chunk that was there before this transaction.
        """
        names = self.names()
        for name in self._record.graph.new_names(since=before):
            names.add(name.entity, name.id)
        self._add_links(
            (key, match.entity, match.start, match.end, text[match.start : match.end])
            for key, keys, text in chunks
            for match in names.find_in(keys, text)
        )

    def link_earlier(self) -> bool:
        """Look for some new names in the chunks that were there before them. Blocks.

        Returns:
            Whether there were any.
        """
        graph = self._record.graph
        new = graph.new_names(limit=_NAMES)
        if not new:
            return False
        names = NameIndex()
        try:
            candidates = self._candidates(new, names)
        except IndexDamagedError as error:
            self._words.report_damage(error)
            return True
        links = list(self._links_in(candidates, names))
        with self._record.database.write():
            there = set(self._record.documents.existing(sorted({chunk for chunk, *_ in links})))
            self._add_links(link for link in links if link[0] in there)
            graph.forget_new_names(name.entity for name in new)
        return True

    def names(self) -> NameIndex:
        """All known names. The first time they are read, which takes seconds where there are many."""
        if self._names is None:
            self._names = NameIndex()
            for entity, id_ in self._record.graph.subjects():
                self._names.add(entity, id_)
        return self._names

    def _candidates(self, new: Sequence[NewName], names: NameIndex) -> dict[int, list[bytes]]:
        """The chunks that may hold some new names, which are added to an index of names.

        In chunks that came with a name or after it, it was looked for when they were written.

        Returns:
            By chunk the `bare` names.
        """
        self._words.sync_all()
        words = self._words.searcher()
        if words is None:
            raise IndexDamagedError("The index of words does not open.")
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        for name in new:
            if names.add(name.entity, name.id):
                letters = bare(name.id)
                for key in words.containing(lookup_tokens(name.id)):
                    if key <= name.newest:
                        found[key].append(letters)
        return found

    def _links_in(self, candidates: Mapping[int, Sequence[bytes]], names: NameIndex) -> Iterator[_Link]:
        chunks = sorted(candidates)
        for start in range(0, len(chunks), _PAGE):
            for key, text in self._record.graph.texts(chunks[start : start + _PAGE]).items():
                letters = bare(text)
                if not any(name in letters for name in candidates[key]):
                    continue  # most have the words of a name somewhere, and not the name
                for match in names.find_in(surface_keys(text), text):
                    yield key, match.entity, match.start, match.end, text[match.start : match.end]

    def _add_links(self, links: Iterable[_Link]) -> None:
        found = list(links)
        # The index in memory may know names whose last title is gone.
        alive = self._record.graph.still_subjects(sorted({entity for _, entity, *_ in found}))
        touched = self._record.graph.add_links(link for link in found if link[1] in alive)
        self._record.changes.note("entity", sorted(touched))
