from __future__ import annotations

import subprocess
import sys

import anyio
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.embedding.local_models.hashing import HashingEmbedder


async def test_similar_words_are_nearer_than_other_words():
    vectors = await HashingEmbedder().embed(
        ["indexing documents quickly", "the index of a document", "rain in Norway"]
    )
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1


async def test_chinese_is_compared_by_characters_and_pairs():
    vectors = await HashingEmbedder().embed(["向量检索的原理", "什么是向量检索？", "今天下大雨"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


async def test_width_and_case_make_no_difference():
    vectors = await HashingEmbedder().embed(["Loom 检索 ＡＰＩ", "loom 检索 api"])
    np.testing.assert_array_equal(vectors[0], vectors[1])


async def test_a_text_without_words_is_all_zero():
    vectors = await HashingEmbedder().embed(["", "  ", "!?…", "word"])
    assert np.linalg.norm(vectors, axis=1).round(5).tolist() == [0, 0, 0, 1]


def test_vectors_are_the_same_in_another_process():
    program = (
        "import anyio; from loom_core.embedding.local_models.hashing import HashingEmbedder as H;"
        "print(anyio.run(H().embed, ['Loom 检索', 'words']).tobytes().hex())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == anyio.run(HashingEmbedder().embed, ["Loom 检索", "words"]).tobytes().hex()


def test_the_id_says_what_it_is():
    model = HashingEmbedder()
    assert (model.id, model.dimension, model.languages) == ("hashing/512-1", 512, None)
    assert model.cross_lingual is False  # words of different languages have nothing in common


@settings(max_examples=40)
@given(st.lists(st.text(alphabet=st.characters(exclude_categories=[])), max_size=4))
async def test_any_texts_give_unit_or_zero_rows(texts: list[str]):
    vectors = await HashingEmbedder(threads=1).embed(texts)
    assert vectors.shape == (len(texts), 512)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
