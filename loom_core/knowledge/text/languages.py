"""Language detection by script."""

from __future__ import annotations

import re

from loom_core.cjk import HAN, has_cjk

__all__ = ["detect_language", "language_group", "question_language_group"]

_HAN = re.compile(f"[{HAN}]+")
_KANA = re.compile("[\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_LATIN = re.compile("[A-Za-z]")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f]+")


def detect_language(text: str) -> str:
    """Return the ISO 639-1 code of the prevailing language by script: `zh`, `ja`, `ko`, `en`, or `und`.

    Latin script counts as `en`: the consequences (stemming, stop words, choice of embedder) do little harm to
    other languages in that script. Only the first 4,000 characters are read.
    """
    sample = text[:4000]
    if not has_cjk(sample):
        return "en" if _LATIN.search(sample) else "und"
    han = sum(map(len, _HAN.findall(sample)))
    kana, hangul = len(_KANA.findall(sample)), len(_HANGUL.findall(sample))
    latin = len(_LATIN.findall(sample))
    # A Han character has about as much content as three Latin letters.
    if 3 * (han + kana + hangul) >= latin and han + kana + hangul:
        if hangul > han + kana:
            return "ko"
        return "ja" if kana > han // 4 else "zh"
    return "en" if latin else "und"


def question_language_group(question: str) -> str:
    """Return the language group of a question, which is often a short sentence about long names.

    One that is mostly of Latin script, but has more Chinese characters than Latin words, is in Chinese:
    "Silas Hardy 和 Lee Mantle 谁出生更早？".
    """
    language = detect_language(question)
    if language == "en" and sum(map(len, _HAN.findall(question))) > len(_LATIN_WORD.findall(question)):
        return "zh"
    return language_group(language)


def language_group(language: str) -> str:
    """Return the language group of retrieval: `zh`, `ja`, `ko`, or `alphabetic` for all else, code too."""
    return language if language in {"zh", "ja", "ko"} else "alphabetic"
