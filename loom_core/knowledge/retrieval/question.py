"""Preparation of a question for retrieval: validate its text, embed it, resolve its filters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.embedding.numpy_import import import_numpy
from loom_core.errors import EmbeddingError
from loom_core.knowledge.filters import Filters, filter_names, parse_filters
from loom_core.knowledge.retrieval.current_embedder import LanguageCentroids, embedder_language_groups
from loom_core.knowledge.store.chunk_keys import ChunkKeys
from loom_core.knowledge.text.languages import detect_language, language_group
from loom_core.knowledge.validation import check_limit, question_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.retrieval.channels import PreparedQuestion
    from loom_core.knowledge.retrieval.confidence import LanguageSimilarity
    from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["ChunkFilter", "QuestionPreparer"]


class QuestionPreparer:
    """Prepares questions for one knowledge base.

    Args:
        store: the store.
        embedder: embeds questions; None where there are no vectors.
        timeout: seconds for the embedding of a question.
    """

    def __init__(
        self, store: KnowledgeStore, embedder: CurrentEmbedder | None, *, timeout: float = 20.0
    ) -> None:
        self.filter = ChunkFilter(store)
        self._store = store
        self._embedder = embedder
        self._timeout = timeout
        self._centroids = LanguageCentroids(store, embedder) if embedder is not None else None

    async def prepare(self) -> None:
        """Import what questions and concurrent work both need, before either begins."""
        if self._embedder is not None:
            await import_numpy()
            await to_thread.run_sync(self._embedder.follow)

    @property
    def space(self) -> str:
        """The vector space of questions; empty without an embedder."""
        return "" if self._embedder is None else self._embedder.id

    def is_in_space(self, question: PreparedQuestion) -> bool:
        """Whether the store's vectors are still by the embedder of the question. Blocks."""
        return question.space == self.space == self._store.get("embedder", remembered=False)

    def text(self, query: str, *, limit: int, most: int) -> str:
        """Return the question, stripped and cut to the maximum length.

        Args:
            query: the question as received.
            limit: number of passages requested.
            most: upper bound of `limit`.

        Raises:
            InvalidInputError: it is empty, or the limit is not a whole number from 1 to the maximum.
        """
        text = question_text(query)
        check_limit(limit, most=most)
        return text

    async def filter_chunks(self, filters: dict[str, Any] | None) -> ChunkKeys | None:
        """Return the chunks that filters allow, see `ChunkFilter.filter_chunks`."""
        return await to_thread.run_sync(self.filter.filter_chunks, filters) if filters else None

    def explain_language_gap(self, text: str) -> str:
        """Return why the embedder cannot embed a question (its language is not covered); or empty."""
        embedder, language = self._embedder, detect_language(text)
        if embedder is None or embedder.languages is None or language in {*embedder.languages, "und"}:
            return ""
        return f"the embedder {embedder.id} does not cover {language!r}"

    def comparable_groups(self, language: str) -> frozenset[str] | None:
        """Return the language groups that a question's vector may be compared with; None for all.

        Args:
            language: the question's own group, see `language_group`.
        """
        embedder = self._embedder
        if embedder is None:
            return None
        groups = embedder_language_groups(embedder)
        if embedder.cross_lingual:
            return groups
        own = frozenset({language})
        return own if groups is None else own & groups

    def calibrate_nearness(
        self, text: str, nearness: Sequence[LanguageSimilarity]
    ) -> list[LanguageSimilarity] | None:
        """Return similarities with 1 as the highest cosine of every language.

        Args:
            text: the question.
            nearness: how near it is to the passages of each language.

        Returns:
            None if the cosine does not measure similarity in meaning.
        """
        embedder = self._embedder
        if embedder is None or not embedder.semantic:
            return None
        if (ceiling := embedder.cross_script_ceiling) == 1:
            return list(nearness)
        is_alphabetic = language_group(detect_language(text)) == "alphabetic"
        return [
            each if (each.language == "alphabetic") == is_alphabetic else each.relative_to(ceiling)
            for each in nearness
        ]

    def centroids(
        self, question: PreparedQuestion, languages: frozenset[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the centroids of the passages' languages, see `LanguageCentroids.of`. Blocks.

        Args:
            question: the question.
            languages: the language groups of the passages.
        """
        return {} if self._centroids is None else self._centroids.of(languages, space=question.space)

    async def embed(self, text: str) -> NDArray[np.float32] | None:
        """Return the vector of a question; None without an embedder, or without one that covers its language.

        Raises:
            EmbeddingError: it fails, or takes too long.
        """
        if self._embedder is None or self.explain_language_gap(text):
            return None
        vectors = await self.embed_all([text])
        return None if vectors is None else vectors[0]

    async def with_vectors(self, question: PreparedQuestion) -> PreparedQuestion:
        """Return a question with its vector and, if its translation has a text, one for that language.

        The latter is the mean of both vectors.

        Raises:
            EmbeddingError: see `embed`.
        """
        text = "" if question.translation is None else question.translation.text
        if not text:
            return replace(question, vector=await self.embed(question.text))
        vectors = await self.embed_all([question.text, text])
        if vectors is None:
            return question
        import numpy as np

        mean = vectors.mean(axis=0)
        return replace(question, vector=vectors[0], translated=mean / np.linalg.norm(mean))

    async def embed_all(
        self, texts: Sequence[str], *, seconds: float | None = None
    ) -> NDArray[np.float32] | None:
        """Return the vectors of questions whose language is covered, a row each; None without an embedder.

        Args:
            texts: the questions.
            seconds: limit for all; None for that of a question.

        Raises:
            EmbeddingError: see `embed`.
        """
        if self._embedder is None:
            return None
        seconds = self._timeout if seconds is None else seconds
        try:
            with anyio.fail_after(seconds):
                return await self._embedder.embed(texts, kind="query")
        except TimeoutError:
            raise EmbeddingError(
                f"Embedding the question took over {seconds:g} s.",
                advice="Ask again when the machine has less to do, or use the strategy graph_only.",
            ) from None


_REMEMBERED = 8
"""Size of the cache of chunks by filters: a conversation repeats the same filters."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Cached field names and filter results, valid for one state (`head`) of the store."""

    head: int
    names: list[str]
    chunks: OrderedDict[Filters, ChunkKeys] = field(default_factory=OrderedDict[Filters, ChunkKeys])


class ChunkFilter:
    """Finds the chunks that match filters, and caches them until the store changes.

    Args:
        store: the store with the documents and their fields.
    """

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store
        self._moment: _Moment | None = None
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the field names that filters may use. Blocks."""
        return list(self._now().names)

    def filter_chunks(self, filters: dict[str, Any]) -> ChunkKeys | None:
        """Return the chunks of the documents that match all filters; None without filters. Blocks.

        Raises:
            InvalidInputError: a filter is not supported, or malformed.
        """
        moment = self._now()
        parsed = parse_filters(filters, moment.names)
        if not parsed:
            return None
        with self._lock:
            if parsed in moment.chunks:
                moment.chunks.move_to_end(parsed)
                return moment.chunks[parsed]
        found = self._store.documents.chunk_keys_where(parsed)
        # If the store has changed since, the next question replaces this cache entry's `_Moment`.
        with self._lock:
            moment.chunks[parsed] = found
            if len(moment.chunks) > _REMEMBERED:
                moment.chunks.popitem(last=False)
        return found

    def _now(self) -> _Moment:
        head = self._store.changes.head()  # read first: a later change can only make the cache look stale
        moment = self._moment
        if moment is None or moment.head != head:
            moment = _Moment(head, filter_names(self._store.documents.field_names()))
            self._moment = moment
        return moment
