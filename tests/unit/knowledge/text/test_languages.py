from __future__ import annotations

import pytest

from loom_core.knowledge.text.languages import detect_language, language_group, question_language_group


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The quick brown fox", "en"),
        ("敏捷的棕色狐狸", "zh"),
        ("すばやい茶色の狐", "ja"),
        ("カタカナだけ", "ja"),
        ("빠른 갈색 여우", "ko"),
        ("GraphRAG 是一种检索增强生成方法", "zh"),
        ("The Chinese word for dog is 狗, and it is read aloud", "en"),
        ("12345 !?", "und"),
        ("", "und"),
        ("Ελληνικά", "und"),
    ],
)
def test_the_prevailing_language_is_told_by_script(text: str, language: str):
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("language", "group"),
    [
        ("zh", "zh"),
        ("ja", "ja"),
        ("ko", "ko"),
        ("en", "alphabetic"),
        ("de", "alphabetic"),
        ("und", "alphabetic"),
    ],
)
def test_chinese_japanese_and_korean_are_told_apart_from_every_alphabet(language: str, group: str):
    assert language_group(language) == group


@pytest.mark.parametrize(
    ("question", "group"),
    [
        ("Silas Hardy 和 Lee Mantle 谁出生更早？", "zh"),
        ("What ingredients are listed for Changbiwang (长鼻王) snack rolls?", "alphabetic"),
        ("Who painted it?", "alphabetic"),
        ("这是谁画的？", "zh"),
        ("すばやい茶色の狐", "ja"),
    ],
)
def test_a_question_about_long_names_is_in_the_language_of_the_rest(question: str, group: str):
    assert question_language_group(question) == group
