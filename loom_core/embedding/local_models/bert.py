"""BERT encoders of English in ONNX: WordPiece tokenizer, windows, pooling of the last layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.embedding.local_models.base import pool_windows
from loom_core.embedding.local_models.onnx_session import open_session, run_session
from loom_core.errors import EmbeddingError
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.local_models.wheel_file import WheelFile

__all__ = ["BERT_DIMENSION", "BertModel"]

BERT_DIMENSION = 384
"""Length of a state in the small models."""


class BertModel:
    """A small BERT of lower-case English, with the vocabulary of BERT base uncased.

    Args:
        file: its ONNX file.
        name: its name, for errors.
        window: tokens in one pass, without the marks of beginning and end.
        pooling: the text's vector: the mean of all states, or the state of the first mark, `[CLS]`.
        query_prefix: instruction before a query.

    Raises:
        EmbeddingError: the file or a package is missing, or onnxruntime cannot run it.
    """

    def __init__(
        self,
        file: WheelFile,
        name: str,
        *,
        window: int,
        pooling: Literal["mean", "first"],
        query_prefix: str = "",
    ) -> None:
        try:
            from tokenizers import Tokenizer
            from tokenizers.models import WordPiece
            from tokenizers.normalizers import BertNormalizer
            from tokenizers.pre_tokenizers import BertPreTokenizer
        except ImportError as error:
            raise EmbeddingError(
                f"The model {name} needs the package tokenizers, which is not installed.",
                advice=how_to_install("tokenizers"),
            ) from error

        path = file.verify(name)
        vocabulary = Path(__file__).parents[1] / "data" / "bert_uncased_vocab.txt"
        ids = {token: id_ for id_, token in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}
        # No token is special to this tokenizer: "[SEP]" in a text is four characters and a word.
        tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
        tokenizer.normalizer = BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = BertPreTokenizer()
        self._tokenizer = tokenizer
        self._begin, self._end = ids["[CLS]"], ids["[SEP]"]
        self._session = open_session(path.read_bytes(), model=name)
        self._name = name
        self._window = window
        self._pooling = pooling
        self._query_prefix = query_prefix

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Return unit vectors, one text after the other."""
        import numpy as np

        prefix = self._query_prefix if kind == "query" else ""
        vectors = np.empty((len(texts), BERT_DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            # A lone surrogate is no character; the tokenizer would refuse the whole text for it.
            text = text.encode("utf-8", "replace").decode("utf-8")
            tokens = self._tokenizer.encode(prefix + text, add_special_tokens=False).ids
            vectors[row] = pool_windows(tokens, size=self._window, pool=self._pool)
        return vectors

    def _pool(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the vector of one window, between its two marks."""
        import numpy as np

        ids = np.array([[self._begin, *tokens, self._end]], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = run_session(self._session, "last_hidden_state", inputs, model=self._name)[0]
        return states.mean(axis=0) if self._pooling == "mean" else states[0]
