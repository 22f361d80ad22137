"""How long a knowledge base waits for what it needs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WaitSettings"]


@dataclass(frozen=True, slots=True)
class WaitSettings:
    """Seconds.

    Attributes:
        embedder: for the vector of a question.
        reranker: for the order of an answer's passages.
        work: between two looks for work that nobody told of, such as other processes' jobs.
        retry: until work is tried again that failed, as when the disk is full.
        vectors: until an embedder that failed is asked again for those of passages.
        batch: that making vectors takes before it makes way for new documents.
    """

    embedder: float = 20.0
    reranker: float = 30.0
    work: float = 0.5
    retry: float = 5.0
    vectors: float = 30.0
    batch: float = 2.0
