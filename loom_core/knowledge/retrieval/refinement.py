"""Refinement of ranked passages before they are shown: deduplicate, rerank, diversify, expand to sections."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
from anyio import from_thread

from loom_core.errors import InvalidInputError, LoomError
from loom_core.knowledge.text.query_identifiers import comparable_text, extract_identifiers
from loom_core.knowledge.text.shingles import shingles
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.vectors import VectorIndexes
    from loom_core.knowledge.interface import Reranker
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.config import RAGConfig, SearchOptions
    from loom_core.knowledge.store import ChunkRow, KnowledgeStore
    from loom_core.knowledge.text.query_identifiers import QueryIdentifier

__all__ = [
    "ParentDocument",
    "Refinement",
    "Refiner",
    "diverse",
    "with_parents",
    "without_copies",
    "without_near_duplicates",
]

_log = logging.getLogger(__name__)

_CANDIDATES = 20  # minimum number of passages to refine; else four for each that is requested


@dataclass(frozen=True, slots=True)
class Refinement:
    """Refinement options of one answer.

    Attributes:
        drop_duplicates: whether near duplicates are dropped.
        diversity: weight of variety against relevance, 0 to 1.
        sections: whether passages are expanded to their section.
        reranker: reorders them, or None.
    """

    drop_duplicates: bool
    diversity: float
    sections: bool
    reranker: Reranker | None

    @classmethod
    def of(cls, options: SearchOptions | None, *, config: RAGConfig, reranker: Reranker | None) -> Refinement:
        """Return the options of a search; those it leaves out come from the knowledge base's configuration.

        Raises:
            InvalidInputError: reranking is requested, but there is no reranker.
        """
        if options is None:
            return cls(
                drop_duplicates=config.near_duplicates == "drop",
                diversity=config.diversity,
                sections=config.expand_to == "section",
                reranker=reranker,
            )
        chosen = options.reranker or reranker
        if options.rerank and chosen is None:
            raise InvalidInputError(
                "There is no reranker.", advice="Give one with the question, or to the knowledge base."
            )
        return cls(
            drop_duplicates=(options.near_duplicates or config.near_duplicates) == "drop",
            diversity=config.diversity if options.diversity is None else options.diversity,
            sections=(options.expand_to or config.expand_to) == "section",
            reranker=None if options.rerank is False else chosen,
        )

    def candidates(self, limit: int) -> int:
        """Return how many candidates to retrieve, so that enough are left after refinement."""
        if self.drop_duplicates or self.diversity or self.sections or self.reranker is not None:
            return max(_CANDIDATES, 4 * limit)
        return limit


class Refiner:
    """Refines the passages of one knowledge base.

    Args:
        store: the store with their documents.
        vectors: for the similarity of two passages.
        reranker_timeout: seconds that a reranker may take.
    """

    def __init__(
        self, store: KnowledgeStore, vectors: VectorIndexes, *, reranker_timeout: float = 30.0
    ) -> None:
        self._store = store
        self._vectors = vectors
        self._reranker_timeout = reranker_timeout

    def refine(
        self, query: str, found: dict[int, KnowledgeItem], *, limit: int, wanted: Refinement
    ) -> tuple[list[KnowledgeItem], list[str]]:
        """Return the refined passages, and notes on steps that failed. Blocks.

        With `diversity` the order is no longer that of relevance. A reranker runs on the event loop that the
        thread belongs to.

        Args:
            query: the question.
            found: passages by key, best first.
            limit: how many to show.
            wanted: the options.
        """
        items, notes = list(found.values()), list[str]()
        keys = {item.id: key for key, item in found.items()}
        # The next steps may drop or merge passages, and need more than are shown.
        room = len(items) if wanted.diversity or wanted.sections else limit
        if wanted.drop_duplicates:
            most = room if wanted.reranker is None else len(items)
            items = self._without_repeats(items, query, most)
        if wanted.reranker is not None:
            items, notes = from_thread.run(partial(self._rerank, wanted.reranker, query, items, limit=room))
        if wanted.diversity:
            items = self._diversify(items, keys, wanted.diversity)
        if wanted.sections:
            items = with_parents(items, self._parent, limit=limit)
        return items[:limit], notes

    def _without_repeats(
        self, items: Sequence[KnowledgeItem], question: str, limit: int
    ) -> list[KnowledgeItem]:
        kept = without_near_duplicates(items, question=question)
        return without_copies(kept, self._store.duplicates.groups_among, limit=limit, question=question)

    def _diversify(
        self, items: Sequence[KnowledgeItem], keys: dict[str, int], diversity: float
    ) -> list[KnowledgeItem]:
        vectors = self._vectors.current() if items else None
        if vectors is None:
            return list(items)
        return diverse(
            items,
            [item.relevance for item in items],
            vectors.vectors([keys[item.id] for item in items]),
            limit=len(items),
            trade_off=1 - diversity,
        )

    def _parent(self, document_id: str) -> ParentDocument | None:
        documents = self._store.documents
        with self._store.database.snapshot():
            document = documents.get(document_id)
            if document is None:
                return None
            return ParentDocument(text=documents.text(document.key), chunks=documents.chunks_of(document.key))

    async def _rerank(
        self, reranker: Reranker, query: str, items: Sequence[KnowledgeItem], *, limit: int
    ) -> tuple[list[KnowledgeItem], list[str]]:
        """Rerank the passages; if that fails, keep their order and return a note with the reason."""
        try:
            with anyio.fail_after(self._reranker_timeout):
                return await reranker.rerank(query, items, limit=limit), []
        except TimeoutError:
            reason = f"it took over {self._reranker_timeout:g} s"
        except LoomError as error:
            reason = str(error)
        _log.warning("A reranker failed: %s", reason)
        return list(items[:limit]), [f"not reranked: {reason}"]


_Key = TypeVar("_Key")

_SHINGLE = 5
"""Words, or CJK characters, of a shingle: few enough that a changed word spoils few of them, and enough
that two passages about the same thing share none by chance."""

_PUNCTUATION = 20
"""Characters by which two short passages with the same words may differ in length."""

_COPIED = 0.5
"""Minimum share of a passage's shingles that a better one of a near-duplicate document has."""

_SAME = 1e-6
"""Cosines that differ by less count as equal: the rounding error of single precision."""

_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
_TOKEN = re.compile(f"[^\\W{_CJK}]+|\\w")
_NUMBER = re.compile(r"\d+")


def without_near_duplicates(
    items: Sequence[KnowledgeItem], *, threshold: float = 0.9, question: str = ""
) -> list[KnowledgeItem]:
    """Drop passages that repeat a better one almost word for word.

    Two passages are near duplicates if the Jaccard index of their shingles (sequences of five words, or
    of five CJK characters) reaches the threshold and they hold the same numbers: the reports of two
    years may differ in nothing else. They are not if they hold different identifiers that the question names.
    Case, punctuation and white space do not count.

    Source: Broder, "On the Resemblance and Containment of Documents", 1997.

    Args:
        items: passages, best first.
        threshold: from 0 to 1; 1 drops only passages with the same shingles.
        question: the question of the search.

    Returns:
        The kept passages, in their order. A kept passage has the ids of its dropped duplicates in
        `metadata["duplicates"]`, best first.
    """
    kept: list[_Candidate] = []
    identifiers = extract_identifiers(question)
    alike: dict[frozenset[str], list[_Candidate]] = {}
    for item in items:
        candidate = _Candidate(item)
        text = comparable_text(item.content) if identifiers else ""
        held = {identifier.form for identifier in identifiers if identifier.grade_in(text)}
        others = alike.setdefault(frozenset([*_NUMBER.findall(item.content), *held]), [])
        twin = next((other for other in others if candidate.repeats(other, threshold)), None)
        if twin is not None:
            twin.duplicates.append(item.id)
            continue
        others.append(candidate)
        kept.append(candidate)
    return [candidate.to_item() for candidate in kept]


def without_copies(
    items: Sequence[KnowledgeItem],
    groups_of: Callable[[Sequence[str]], Mapping[str, int]],
    *,
    limit: int,
    question: str = "",
) -> list[KnowledgeItem]:
    """Drop passages of which a better one, from a near-duplicate document, has half or more.

    The same manual as HTML, text and PDF is split at other places, so that few of its passages are near
    duplicates. The rest of a dropped passage is next to the better one. Yearly reports are near-duplicate
    documents, too: a passage is kept if a larger share of its numbers than of its words is missing in the
    better one, or an identifier that the question names.

    Args:
        items: passages, best first.
        groups_of: returns the group of each document, by id; near-duplicate documents have the same one.
            Called if the passages are of different documents; only those of one group are compared.
        limit: how many to keep; the rest is not read.
        question: the question of the search.

    Returns:
        As for `without_near_duplicates`.
    """
    identifiers = extract_identifiers(question)
    documents = {item.metadata.get("document_id", "") for item in items}
    groups = groups_of(sorted(documents)) if len(documents) > 1 else dict[str, int]()
    sizes = Counter(groups.values())
    kept: list[KnowledgeItem] = []
    compared: dict[int, list[_Passage]] = defaultdict(list)  # those that are kept, by group
    copies: dict[str, list[str]] = defaultdict(list)  # by the id of the better passage
    for item in items:
        group = groups.get(item.metadata.get("document_id", ""))
        if group is not None and sizes[group] > 1:
            passage = _Passage.of(item, identifiers)
            if original := passage.find_original(compared[group]):
                copies[original.item.id] += [item.id, *item.metadata.get("duplicates", [])]
                continue
            compared[group].append(passage)
        kept.append(item)
        if len(kept) == limit:
            break
    return [_with_duplicates(item, copies[item.id]) if item.id in copies else item for item in kept]


def _with_duplicates(item: KnowledgeItem, ids: Sequence[str]) -> KnowledgeItem:
    duplicates = [*item.metadata.get("duplicates", []), *ids]
    return replace(item, metadata={**item.metadata, "duplicates": duplicates})


def diverse(
    keys: Sequence[_Key],
    scores: Sequence[float],
    vectors: NDArray[np.float32],
    *,
    limit: int,
    trade_off: float,
) -> list[_Key]:
    """Return the best passages by maximal marginal relevance.

    Each place goes to the passage with the highest `trade_off * relevance - (1 - trade_off) *
    similarity`. Relevance is the score as a share of the highest score. Similarity is the cosine to the
    nearest passage chosen before, counted from the lowest cosine among the candidates: every model has a
    band of cosines, and so the trade-off means the same for all of them.

    Source: Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998.

    Args:
        keys: passages in any form.
        scores: relevance of each, not negative.
        vectors: a unit vector for each, a row a passage; a row of zeros stands for a passage without a
            vector, which counts as similar to none.
        limit: maximum number to choose.
        trade_off: from 0 (variety alone, after the best passage) to 1 (relevance alone).

    Returns:
        Keys in the order in which they were chosen. Ties go to the one that came first.
    """
    import numpy as np

    count = len(keys)
    if not count:
        return []
    highest = max(scores)
    relevance = np.array(scores, dtype=np.float64) / (highest if highest > 0 else 1.0)
    similarity = _similarity(vectors)
    nearest = np.zeros(count)
    chosen: list[int] = []
    open_ = np.ones(count, dtype=bool)
    for _ in range(min(limit, count)):
        # The first choice is the most relevant one, whatever the trade-off.
        gain = trade_off * relevance - (1 - trade_off) * nearest if chosen else relevance
        best = int(np.argmax(np.where(open_, gain, -np.inf)))
        chosen.append(best)
        open_[best] = False
        nearest = np.maximum(nearest, similarity[best])
    return [keys[place] for place in chosen]


@dataclass(frozen=True, slots=True)
class ParentDocument:
    """The document of some passages: its whole text, and all its chunks in order."""

    text: str
    chunks: Sequence[ChunkRow]


def with_parents(
    items: Sequence[KnowledgeItem],
    parent: Callable[[str], ParentDocument | None],
    *,
    limit: int,
    max_tokens: int = 800,
) -> list[KnowledgeItem]:
    """Return the passages with their surrounding text: as much of their section as fits.

    A passage is joined by its neighbours before and after, in turn, as long as they are under the same
    headings and all together keep to the token budget. Hits that meet in one section become one.

    Args:
        items: passages, best first.
        parent: the document with an id, or None if it is gone; asked once for each document.
        limit: maximum number of hits; the rest is left out.
        max_tokens: budget of a hit, in estimated tokens; hits that are merged bring theirs together.

    Returns:
        Hits in the order of their best passages, with the id and the scores of that passage. The
        metadata `start`, `end` and `page` are of the text that is shown, `passage_start` and
        `passage_end` of the passage; `merged` lists the ids of other hits inside, if there are any.
        A passage whose document is gone or has changed is left as it is.
    """
    documents: dict[str, ParentDocument | None] = {}
    hits: list[_Hit] = []
    for item in items:
        id_ = str(item.metadata.get("document_id", ""))
        if id_ not in documents:
            documents[id_] = parent(id_) if id_ else None
        hit = _expand_to_section(item, documents[id_], max_tokens)
        met = [other for other in hits if other.adjoins(hit)]
        if met:
            met[0].absorb([hit, *met[1:]])
            hits = [other for other in hits if other not in met[1:]]
        elif len(hits) < limit:
            hits.append(hit)
        else:
            break
    return [hit.to_item() for hit in hits]


@dataclass(slots=True)
class _Candidate:
    """A candidate for near-duplicate detection. Shingles are costly and made lazily."""

    item: KnowledgeItem
    duplicates: list[str] = field(default_factory=list[str])
    _made: frozenset[tuple[str, ...]] | None = None

    def repeats(self, other: _Candidate, threshold: float) -> bool:
        """Whether it is a near duplicate of another passage with the same numbers."""
        shorter, longer = sorted((len(self.item.content), len(other.item.content)))
        if self.item.content == other.item.content:
            return True
        # Far from the same length, punctuation included, they cannot have nearly the same shingles.
        if shorter + _PUNCTUATION < threshold * threshold * longer:
            return False
        own, others = self.shingles(), other.shingles()
        shared = len(own & others)
        return shared > 0 and shared >= threshold * (len(own) + len(others) - shared)

    def shingles(self) -> frozenset[tuple[str, ...]]:
        if self._made is None:
            tokens = _TOKEN.findall(self.item.content.casefold())
            runs = zip(*(tokens[skip:] for skip in range(_SHINGLE)), strict=False)
            self._made = frozenset(runs) or frozenset([tuple(tokens)] if tokens else [])
        return self._made

    def to_item(self) -> KnowledgeItem:
        """Return the passage, with the ids of its duplicates if it has any."""
        return _with_duplicates(self.item, self.duplicates) if self.duplicates else self.item


class _Passage(NamedTuple):
    """A passage of a document that has near duplicates."""

    item: KnowledgeItem
    document: str
    shingles: frozenset[int]
    numbers: list[str]
    identifiers: frozenset[str]

    @classmethod
    def of(cls, item: KnowledgeItem, identifiers: Sequence[QueryIdentifier]) -> _Passage:
        text = comparable_text(item.content) if identifiers else ""
        return cls(
            item,
            item.metadata.get("document_id", ""),
            frozenset(shingles(item.content).tolist()),
            _NUMBER.findall(item.content),
            frozenset(identifier.form for identifier in identifiers if identifier.grade_in(text)),
        )

    def find_original(self, others: Sequence[_Passage]) -> _Passage | None:
        """Return the passage of another document that has the most of this one, if it has enough."""
        nearest = sorted(others, key=lambda other: -len(self.shingles & other.shingles))
        return next((other for other in nearest if self._is_copy(other)), None)

    def _is_copy(self, other: _Passage) -> bool:
        share = len(self.shingles & other.shingles) / (len(self.shingles) or 1)
        missing = sum(number not in other.numbers for number in self.numbers)
        return (
            other.document != self.document
            and share >= _COPIED
            and missing <= (1 - share) * len(self.numbers)
            and self.identifiers <= other.identifiers
        )


def _similarity(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of every two rows, scaled so that the lowest is 0; 0 for rows of zeros."""
    import numpy as np

    cosines = vectors.astype(np.float64) @ vectors.T
    there = vectors.any(axis=1, keepdims=True)
    known = np.logical_and(there, there.T)
    if not known.any():
        return np.zeros_like(cosines)
    lowest = cosines[known].min()
    span = 1.0 - lowest
    # All the same vector: each is as similar to the others as can be.
    scaled = (cosines - lowest) / span if span > _SAME else np.ones_like(cosines)
    return np.where(known, scaled, 0.0)


@dataclass(slots=True, eq=False)
class _Hit:
    """A passage with its neighbours, or unchanged if `document` is None.

    Attributes:
        item: the passage, the best one of those that were merged.
        document: what it was cut from.
        first: number of the first chunk that is shown.
        last: number of the last one.
        merged: ids of the other passages, best first.
    """

    item: KnowledgeItem
    document: ParentDocument | None = None
    first: int = 0
    last: int = 0
    merged: list[str] = field(default_factory=list[str])

    def adjoins(self, other: _Hit) -> bool:
        """Whether another one overlaps or adjoins it in the same section."""
        if self.document is None or self.document is not other.document:
            return False
        chunks = self.document.chunks
        near = other.first <= self.last + 1 and self.first <= other.last + 1
        return near and chunks[self.first].heading_path == chunks[other.first].heading_path

    def absorb(self, others: Sequence[_Hit]) -> None:
        """Extend it to the text of others."""
        self.first = min(self.first, *(other.first for other in others))
        self.last = max(self.last, *(other.last for other in others))
        for other in others:
            self.merged += [other.item.id, *other.merged]

    def to_item(self) -> KnowledgeItem:
        """Return the item, with the shown text and its offsets."""
        if self.document is None:
            return self.item
        own = self.item.metadata
        first, last = self.document.chunks[self.first], self.document.chunks[self.last]
        shown = {"start": first.start, "end": last.end, "page": first.page}
        passage = {"passage_start": own.get("start"), "passage_end": own.get("end")}
        merged = {"merged": self.merged} if self.merged else {}
        return replace(
            self.item,
            content=self.document.text[first.start : last.end],
            metadata={**own, **shown, **passage, **merged},
        )


def _expand_to_section(item: KnowledgeItem, document: ParentDocument | None, max_tokens: int) -> _Hit:
    """Return a passage with as much of its section as fits."""
    chunks = document.chunks if document is not None else ()
    place = next((place for place, chunk in enumerate(chunks) if chunk.id == item.id), None)
    if document is None or place is None or chunks[place].text != item.content:
        return _Hit(item)
    section = chunks[place].heading_path
    first = last = place
    after = before = True  # the sides that may still grow
    while after or before:
        after = after and last + 1 < len(chunks) and chunks[last + 1].heading_path == section
        if after := after and _tokens(document, first, last + 1) <= max_tokens:
            last += 1
        before = before and first > 0 and chunks[first - 1].heading_path == section
        if before := before and _tokens(document, first - 1, last) <= max_tokens:
            first -= 1
    return _Hit(item, document, first, last)


def _tokens(document: ParentDocument, first: int, last: int) -> int:
    return estimate_tokens(document.text[document.chunks[first].start : document.chunks[last].end])
