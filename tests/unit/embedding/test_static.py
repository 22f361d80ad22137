from __future__ import annotations

import sys

import numpy as np
import pytest

from loom_core.embedding.local_models.static import STATIC_FILE, StaticEmbedder
from loom_core.errors import EmbeddingError

installed = pytest.mark.skipif(STATIC_FILE.find() is None, reason="the wheel wordllama is not installed")


@pytest.fixture(scope="module")
def model() -> StaticEmbedder:
    return StaticEmbedder(threads=2)


@installed
async def test_meaning_is_found_in_english_and_chinese(model: StaticEmbedder):
    english = await model.embed(
        ["Cats are common pets.", "The bank raised interest rates.", "It rains today."]
    )
    chinese = await model.embed(["猫是常见的宠物。", "央行提高了利率。", "今天下雨。"])
    queries = await model.embed(["Which animals are kept as pets?", "哪些动物可以当宠物？"], kind="query")
    assert int(np.argmax(english @ queries[0])) == 0
    assert int(np.argmax(chinese @ queries[1])) == 0


@installed
async def test_rows_are_unit_vectors_or_zero_and_independent(model: StaticEmbedder):
    texts = ["short", "", "a longer text " * 500, "\ud800 和中文"]
    together = await model.embed(texts)
    assert np.linalg.norm(together, axis=1).round(4).tolist() == [1, 0, 1, 1]
    for row, text in zip(together, texts, strict=True):
        np.testing.assert_array_equal((await model.embed([text]))[0], row)


@installed
async def test_the_code_of_the_wheel_is_never_imported(model: StaticEmbedder):
    await model.embed(["x"])
    assert "wordllama" not in sys.modules


def test_the_id_names_the_table(model: StaticEmbedder):
    assert (model.id, model.dimension, model.languages) == ("wordllama-l2-supercat/256-1", 256, None)


async def test_without_the_wheel_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(EmbeddingError, match="pip install wordllama=="):
        await StaticEmbedder().embed(["x"])


async def test_without_the_tokenizer_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EmbeddingError, match="pip install tokenizers"):
        await StaticEmbedder().embed(["x"])
