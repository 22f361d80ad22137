"""The bilingual dictionary: English words and their Chinese translations, looked up in both directions."""

from __future__ import annotations

import pytest

from loom_core.knowledge.text.bilingual_dictionary import BilingualDictionary, load_dictionary

TEXT = """\
bank\t1\t银行,堤岸
Bank\t\t班克
deal\t1\t交易,处理
may\t0\t可以
May\t2\t五月
stem cell\t\t干细胞
study\t1\t学习,研究
trade\t1\t贸易,交易
transaction\t5\t交易
US\t3\t美国
vacuum cleaner\t8\t真空吸尘器
vacuum pump\t\t真空吸尘泵
"""
DICTIONARY = BilingualDictionary(TEXT.encode("utf-16-le"))


@pytest.mark.parametrize(
    ("phrase", "translations"),
    [
        ("stem cell", ["干细胞"]),
        ("Stem Cells", ["干细胞"]),
        ("studies", ["学习", "研究"]),
        ("studying", ["学习", "研究"]),
        ("Bank", ["银行", "班克", "堤岸"]),  # a name, or the first word of a sentence
        ("bank", ["银行", "堤岸"]),
        ("BANK", ["银行", "班克", "堤岸"]),
        ("may", ["可以"]),
        ("us", []),
        ("Us", []),
        ("US", ["美国"]),
        ("cell", []),
        ("aardvark", []),
        ("zymurgy", []),
        ("", []),
    ],
)
def test_an_english_phrase_has_the_translations_of_the_words_that_it_may_be(
    phrase: str, translations: list[str]
):
    assert [*DICTIONARY.into_chinese(phrase)] == translations


@pytest.mark.parametrize(
    ("word", "translations"),
    [
        ("干细胞", ["stem cell"]),
        ("交易", ["deal", "trade", "transaction"]),  # by place and frequency
        ("研究", ["study"]),
        ("真空吸尘器", ["vacuum cleaner"]),
        ("真空吸尘泵", ["vacuum pump"]),  # of the same first four characters
        ("真空吸尘", []),
        ("真空", []),
        ("细胞", []),
        ("美", []),
        ("", []),
    ],
)
def test_a_chinese_word_has_the_english_words_that_it_translates(word: str, translations: list[str]):
    assert [*DICTIONARY.into_english(word)] == translations


def test_earlier_translations_and_frequent_words_are_likelier():
    assert DICTIONARY.into_chinese("bank") == pytest.approx({"银行": 2 / 3, "堤岸": 1 / 3})
    shares = DICTIONARY.into_english("交易")
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["deal"] == pytest.approx(2 * shares["trade"])


def test_the_dictionary_that_loom_ships_is_loaded_once():
    dictionary = load_dictionary()
    assert dictionary is load_dictionary()
    assert next(iter(dictionary.into_chinese("mathematicians"))) == "数学家"
    assert next(iter(dictionary.into_chinese("took"))) == "拿"
    assert next(iter(dictionary.into_chinese("Aachen"))) == "亚琛"
    assert next(iter(dictionary.into_english("数学家"))) == "mathematician"
