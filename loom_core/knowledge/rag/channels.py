"""The first stage: words and vectors, each asked on its own, and their scores made one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from loom_core.knowledge.text import analyse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import LexicalIndex

__all__ = ["Channels", "DenseSearch", "Question", "convex"]

_LEXICAL_POOL = 400
_SEMANTIC_POOL = 1500
"""How many passages a channel brings at the most; those further down score nothing.

The last cosine of the pool counts as zero, so that a small pool makes little differences large: 1,500
was better than 400 by a point of nDCG@10 on scifact.
"""


class DenseSearch(Protocol):
    """What retrieval needs of vectors: neighbours of the question, and similarity of given chunks."""

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """The chunks most similar to a vector, with cosine, best first."""
        ...

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Cosine of given chunks; those without a vector are left out."""
        ...

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Vectors of given chunks, a row each; zeros where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        text: as it was given.
        vector: its embedding, or None without an embedder that covers its language.
        among: chunks that filters allow, or None for all.
        tokens: what the lexical index is asked.
    """

    text: str
    vector: NDArray[np.float32] | None = None
    among: frozenset[int] | None = None
    tokens: list[str] = field(default_factory=list[str])

    @classmethod
    def of(
        cls, text: str, *, vector: NDArray[np.float32] | None = None, among: frozenset[int] | None = None
    ) -> Question:
        """A question with its tokens."""
        return cls(text=text, vector=vector, among=among, tokens=analyse(text))


class Channels:
    """Words and vectors of one knowledge base at one moment."""

    def __init__(self, words: LexicalIndex | None, dense: DenseSearch | None) -> None:
        self.words = words
        self.dense = dense

    def lexical(self, question: Question, *, limit: int = _LEXICAL_POOL) -> dict[int, float]:
        """BM25 of the best passages."""
        if self.words is None or not question.tokens:
            return {}
        return dict(self.words.search(question.tokens, limit, among=question.among))

    def semantic(self, question: Question, *, limit: int = _SEMANTIC_POOL) -> dict[int, float]:
        """Cosine of the best passages."""
        if self.dense is None or question.vector is None:
            return {}
        return dict(self.dense.search(question.vector, limit, among=question.among))

    def without_vector(self, question: Question, keys: Collection[int]) -> set[int]:
        """Those of some passages that have no vector yet."""
        if self.dense is None or question.vector is None:
            return set()
        return set(keys) - self.dense.scores(question.vector, keys).keys()


def convex(
    lexical: dict[int, float],
    semantic: dict[int, float],
    *,
    lexical_weight: float,
    vector_weight: float,
    words_only: Collection[int] = (),
) -> dict[int, float]:
    """Convex combination of min-max scores, 0 to 1 (Bruch et al., "An Analysis of Fusion Functions").

    BM25 has a natural zero; a cosine's is that of the worst passage of the pool. A passage that a
    channel did not bring has 0 there, and a channel that brought nothing gives its weight away.

    Args:
        lexical: BM25 by passage.
        semantic: cosine by passage.
        lexical_weight: weight of BM25.
        vector_weight: weight of the cosine.
        words_only: passages that have no vector yet, and are judged by their words alone.
    """
    words, meaning = _min_max(lexical, low=0.0), _min_max(semantic, low=min(semantic.values(), default=0.0))
    total = (lexical_weight if lexical else 0.0) + (vector_weight if semantic else 0.0) or 1.0
    fused = {key: lexical_weight / total * part for key, part in words.items()}
    for key, part in meaning.items():
        fused[key] = fused.get(key, 0.0) + vector_weight / total * part
    fused |= {key: words[key] for key in words_only if key in words}
    return fused


def _min_max(scores: dict[int, float], *, low: float) -> dict[int, float]:
    high = max(scores.values(), default=0.0)
    if high <= low:
        return {key: float(score > 0) for key, score in scores.items()}
    return {key: (score - low) / (high - low) for key, score in scores.items()}
