"""`static`: static token vectors with mean pooling; far faster than a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.embedding.local_models.base import LocalEmbedder
from loom_core.embedding.local_models.wheel_file import WheelFile
from loom_core.errors import EmbeddingError
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from loom_core.embedding.interface import EmbeddingKind

__all__ = ["STATIC_FILE", "StaticEmbedder"]

_MODEL = "WordLlama l2_supercat"
_REQUIREMENT = "wordllama==0.4.0.post1"
_DIMENSION = 256
_HEADER = 96
"""Bytes before the table in the file (safetensors: length, JSON); known, as the checksum is."""

STATIC_FILE = WheelFile(
    requirement=_REQUIREMENT,
    package="wordllama",
    path="weights/l2_supercat_256.safetensors",
    sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
_TOKENIZER_FILE = WheelFile(
    requirement=_REQUIREMENT,
    package="wordllama",
    path="tokenizers/l2_supercat_tokenizer_config.json",
    sha256="93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)


class StaticEmbedder(LocalEmbedder):
    """WordLlama's token vectors, 256 dimensions, questions and passages alike.

    Only the wheel's two data files are read; its code, which would look for a tokenizer on the network, is
    never imported.

    Licence: the wheel is under the MIT licence, but its vectors were trained from the token embeddings of
    Llama 2, whose own licence may therefore apply. That is why it is never a dependency: the user decides
    to install it.

    Source: Miller, "WordLlama: Recycled Token Embeddings from Large Language Models", 2024.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Choose the number of threads."""
        super().__init__(
            "wordllama-l2-supercat/256-1",
            dimension=_DIMENSION,
            load=_load,
            threads=threads,
            slice_size=64,
        )


class _StaticModel:
    """The loaded table."""

    def __init__(self, tokenizer: Tokenizer, table: NDArray[np.float16]) -> None:
        self._tokenizer = tokenizer
        self._table = table

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors, or zeros for a text without tokens; `kind` is ignored."""
        import numpy as np

        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            # A lone surrogate is no character; the tokenizer would refuse the whole text for it.
            text = text.encode("utf-8", "replace").decode("utf-8")
            tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
            if tokens:
                vector = self._table[tokens].sum(axis=0, dtype=np.float32)
                vectors[row] = vector / np.linalg.norm(vector)
        return vectors


def _load() -> _StaticModel:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbeddingError(
            f"The model {_MODEL} needs the package tokenizers, which is not installed.",
            advice=how_to_install("tokenizers"),
        ) from error
    import numpy as np

    path = STATIC_FILE.verify(_MODEL)
    tokenizer = Tokenizer.from_file(str(_TOKENIZER_FILE.verify(_MODEL)))
    return _StaticModel(tokenizer, np.fromfile(path, "<f2", offset=_HEADER).reshape(-1, _DIMENSION))
