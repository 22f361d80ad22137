from __future__ import annotations

import pytest

from loom_core.knowledge.text.languages import detect_language, language_group


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
