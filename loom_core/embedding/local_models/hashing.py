"""`hashing`: feature hashing of words and letter groups; needs no model, not semantic."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.embedding.local_models.base import LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind

__all__ = ["HashingEmbedder"]

_DIMENSION = 512
_WORDS = re.compile(r"\w+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts written without spaces: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


class HashingEmbedder(LocalEmbedder):
    """Signed feature hashing of words, letter groups and, in Chinese, characters and their pairs.

    It finds only other spellings and forms of the same words: the last resort if no model is installed. The
    vectors are the same on every machine and in every process.

    Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Choose the number of threads."""
        super().__init__(
            f"hashing/{_DIMENSION}-1",
            dimension=_DIMENSION,
            load=_HashingModel,
            threads=threads,
            slice_size=16,
            cross_lingual=False,
        )

    @property
    def semantic(self) -> bool:
        """False: its vectors compare spellings, not meanings."""
        return False


class _HashingModel:
    """The model; it has nothing to load."""

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors, or zeros for a text without words; `kind` is ignored."""
        import numpy as np

        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            counts = Counter(_features(text))
            if not counts:
                continue
            hashes = np.fromiter(
                (zlib.crc32(f.encode("utf-8", "replace")) for f in counts), np.uint32, len(counts)
            )
            weights = 1 + np.log(np.fromiter(counts.values(), np.float32, len(counts)))
            signs = np.where(hashes >> 31, -1, 1)
            vector = np.bincount(hashes % _DIMENSION, weights * signs, _DIMENSION)
            length = np.linalg.norm(vector)
            if length > 0:  # features may cancel each other out
                vectors[row] = vector / length
        return vectors


def _features(text: str) -> Iterator[str]:
    """Iterate over the features of a text, with repetitions."""
    for word in _WORDS.findall(unicodedata.normalize("NFKC", text).casefold()):
        position = 0
        for run in _UNSPACED.finditer(word):
            yield from _word_features(word[position : run.start()])
            characters = run.group()
            yield from characters
            yield from map("".join, pairwise(characters))
            position = run.end()
        yield from _word_features(word[position:])


def _word_features(word: str) -> Iterator[str]:
    """Iterate over a word and its 4-grams, with marks at both ends."""
    if word:
        marked = f"<{word}>"
        yield marked
        for start in range(len(marked) - 3 if len(marked) > 4 else 0):
            yield marked[start : start + 4]
