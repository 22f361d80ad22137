"""Languages of a flow, bilingual texts, and texts that are given in both languages."""

from __future__ import annotations

from typing import Literal

from loom_core.cjk import has_cjk

__all__ = ["BilingualTexts", "Language", "Text", "in_language"]

Language = Literal["zh", "en"]

_BETWEEN = " / "


def in_language(text: str, language: Language) -> str:
    """Return the part of a text in a language if it is bilingual (`天数 / days`); else all of it.

    Only a text with one slash counts, with Chinese on one side of it alone.
    """
    first, between, second = text.partition(_BETWEEN)
    if not between or _BETWEEN in second or has_cjk(first) == has_cjk(second):
        return text
    return (first if has_cjk(first) == (language == "zh") else second).strip()


class BilingualTexts:
    """Base of a table of `Text`: an instance has the texts of its language."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language


class Text:
    """A text in English and Chinese; as an attribute of `BilingualTexts`, the one in their language."""

    def __init__(self, english: str, chinese: str) -> None:
        self._english = english
        self._chinese = chinese

    def __get__(self, texts: BilingualTexts, _: object) -> str:
        return self.of(texts.language)

    def of(self, language: Language) -> str:
        """Return the text in a language."""
        return self._chinese if language == "zh" else self._english
