from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loom_core.embedding.local_models.e5_weights import (
    FEED_FORWARD,
    HIDDEN,
    LAYERS,
    POSITIONS,
    read_e5_weights,
)
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.embedding.local_models.e5_weights import E5Weights


def test_the_vocabulary_is_that_of_xlm_roberta(e5_weights: E5Weights):
    assert len(e5_weights.pieces) == len(e5_weights.scores) == 250_002
    assert e5_weights.pieces[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert e5_weights.pieces[-1] == "<mask>"
    assert (e5_weights.begin, e5_weights.end, e5_weights.unknown) == (0, 2, 3)
    assert e5_weights.control == {0, 1, 2, 3, 250_001}
    assert e5_weights.normalisation[ord("Ａ")] == "A"


def test_tensors_have_the_shapes_of_the_model(e5_weights: E5Weights):
    assert e5_weights.tensor("emb.pos").size == POSITIONS * HIDDEN
    for layer in range(LAYERS):
        assert e5_weights.tensor(f"l{layer}.q.w").size == HIDDEN * HIDDEN
        assert e5_weights.tensor(f"l{layer}.fi.w").size == HIDDEN * FEED_FORWARD


@pytest.mark.slow
def test_word_rows_are_rows_of_the_whole_table(e5_weights: E5Weights):
    table = e5_weights.tensor("emb.word").reshape(-1, HIDDEN)
    ids = [0, 250_001, 7, 7]
    np.testing.assert_array_equal(e5_weights.word_rows(ids), table[ids])


def test_a_file_that_cannot_be_mapped_is_an_embedding_error(tmp_path: Path):
    with pytest.raises(EmbeddingError, match="mapped"):
        read_e5_weights(tmp_path)
