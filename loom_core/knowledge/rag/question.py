"""From what somebody asks to what retrieval works with: the text checked, embedded, narrowed by filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.embedding.whole_numpy import import_numpy
from loom_core.errors import EmbeddingError
from loom_core.knowledge.language import detect_language
from loom_core.knowledge.question_check import check_limit, question_text
from loom_core.knowledge.rag.filtering import ChunkFilter
from loom_core.knowledge.rag.language_centroids import LanguageCentroids, covered_groups

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.chunk_keys import ChunkKeys
    from loom_core.knowledge.rag.channels import Question
    from loom_core.knowledge.rag.current_embedder import CurrentEmbedder
    from loom_core.knowledge.record import Record

__all__ = ["QuestionReader"]


class QuestionReader:
    """Reads questions for one knowledge base.

    Args:
        record: what is asked.
        embedder: embeds questions; None where there are no vectors.
        patience: seconds that this may take.
    """

    def __init__(self, record: Record, embedder: CurrentEmbedder | None, *, patience: float = 20.0) -> None:
        self.filter = ChunkFilter(record)
        self._record = record
        self._embedder = embedder
        self._patience = patience
        self._centroids = LanguageCentroids(record, embedder) if embedder is not None else None

    async def prepare(self) -> None:
        """Import what questions and the work beside them both need, before either begins."""
        if self._embedder is not None:
            await import_numpy()
            await to_thread.run_sync(self._embedder.follow)

    @property
    def space(self) -> str:
        """The vector space of questions; empty without an embedder."""
        return "" if self._embedder is None else self._embedder.id

    def is_in_space(self, question: Question) -> bool:
        """Whether the vectors of the record are still by the embedder that the question's is by. Blocks."""
        return question.space == self.space == self._record.get("embedder")

    def text(self, query: str, *, limit: int, most: int) -> str:
        """The question without white space around it, and not too long.

        Args:
            query: as it was given.
            limit: how many passages are asked for.
            most: how many may be asked for.

        Raises:
            InvalidInputError: it is empty, or the limit is no whole number from 1 to the most.
        """
        text = question_text(query)
        check_limit(limit, most=most)
        return text

    async def allowed(self, filters: dict[str, Any] | None) -> ChunkKeys | None:
        """The chunks that filters allow, see `ChunkFilter.allowed`."""
        return await to_thread.run_sync(self.filter.allowed, filters) if filters else None

    def uncovered(self, text: str) -> str:
        """Why a question is not embedded although there is an embedder: its language; or empty."""
        embedder, language = self._embedder, detect_language(text)
        if embedder is None or embedder.languages is None or language in {*embedder.languages, "und"}:
            return ""
        return f"the embedder {embedder.id} does not cover {language!r}"

    def covered(self, language: str) -> frozenset[str] | None:
        """Language groups of the passages that a question's vector may be compared with; None for all.

        Args:
            language: the question's own group, see `language_group`.
        """
        embedder = self._embedder
        if embedder is None:
            return None
        groups = covered_groups(embedder)
        if embedder.cross_lingual:
            return groups
        own = frozenset({language})
        return own if groups is None else own & groups

    @property
    def is_semantic(self) -> bool:
        """Whether a cosine tells how near a passage is in meaning."""
        return self._embedder is not None and self._embedder.semantic

    def centroids(self, question: Question, languages: frozenset[str]) -> dict[str, NDArray[np.float32]]:
        """The centroids of the passages' languages, see `LanguageCentroids.of`. Blocks.

        Args:
            question: what is asked.
            languages: the language groups of the passages.
        """
        return {} if self._centroids is None else self._centroids.of(languages, space=question.space)

    async def embed(self, text: str) -> NDArray[np.float32] | None:
        """The vector of a question; None without an embedder, or without one that covers its language.

        Raises:
            EmbeddingError: it fails, or takes too long.
        """
        if self._embedder is None or self.uncovered(text):
            return None
        try:
            with anyio.fail_after(self._patience):
                return (await self._embedder.embed([text], kind="query"))[0]
        except TimeoutError:
            raise EmbeddingError(
                f"Embedding the question took over {self._patience:g} s.",
                advice="Ask again when the machine has less to do, or use the strategy graph_only.",
            ) from None
