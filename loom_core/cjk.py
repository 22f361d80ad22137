"""Where Chinese, Japanese and Korean script stands in a text."""

from __future__ import annotations

import re

__all__ = ["CJK", "HAN", "cjk_parts", "holds_cjk", "is_cjk"]

# For patterns: Chinese characters with their extensions and compatibility forms.
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# These, kana, bopomofo and hangul: scripts whose writers put no space between words, or whose words are
# best found through their parts.
CJK = (
    "\u3005-\u3007\u3021-\u3029\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    f"\uac00-\ud7af\uff66-\uff9d{HAN}"
)
# The first character stands alone, so that the engine leaps to it.
_PARTS = re.compile(f"([{CJK}][{CJK}]*)")
_CJK_CHAR = re.compile(f"[{CJK}]")


def is_cjk(char: str) -> bool:
    """Whether a character is Han, kana, bopomofo or hangul."""
    return _CJK_CHAR.match(char) is not None


def holds_cjk(text: str) -> bool:
    """Whether any character of a text is Han, kana, bopomofo or hangul."""
    return not text.isascii() and _CJK_CHAR.search(text) is not None


def cjk_parts(text: str) -> tuple[list[str], list[str]]:
    """A text cut into runs of CJK characters and the gaps around them, which are one more."""
    parts = [text] if text.isascii() else _PARTS.split(text)
    return parts[::2], parts[1::2]
