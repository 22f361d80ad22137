"""Languages of a flow, and bilingual texts."""

from __future__ import annotations

from typing import Literal

from loom_core.cjk import has_cjk

__all__ = ["Language", "in_language"]

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
