"""CJK script in a text: detection and segmentation."""

from __future__ import annotations

import re

__all__ = ["CJK", "HAN", "cjk_parts", "has_cjk", "is_chinese", "is_cjk"]

# For patterns: Chinese characters with their extensions and compatibility forms.
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Han, kana, bopomofo and hangul: scripts without spaces between words, or whose words are best matched by
# their parts.
CJK = (
    "\u3005-\u3007\u3021-\u3029\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    f"\uac00-\ud7af\uff66-\uff9d{HAN}"
)
# The first character is separate, so that the regex engine can jump to it.
_PARTS = re.compile(f"([{CJK}][{CJK}]*)")
_CJK_CHAR = re.compile(f"[{CJK}]")
_HAN_CHAR = re.compile(f"[{HAN}]")
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uff66-\uff9d\uac00-\ud7af]")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f]+")
# Paths and URLs, which occur in texts of any language. The lookbehind keeps the search linear.
_PLACE = re.compile(r"(?<![!-~])[!-~]*[/\\][!-~]*")
_LONGEST_READ = 4000


def is_cjk(char: str) -> bool:
    """Return whether a character is Han, kana, bopomofo or hangul."""
    return _CJK_CHAR.match(char) is not None


def has_cjk(text: str) -> bool:
    """Return whether any character of a text is Han, kana, bopomofo or hangul."""
    return not text.isascii() and _CJK_CHAR.search(text) is not None


def is_chinese(text: str) -> bool:
    """Return whether a text is written in Chinese, apart from names in other scripts.

    A word of Latin script counts as much as two Han characters; words in paths and URLs do not count. Only
    the first 4,000 characters are read.
    """
    sample = text[:_LONGEST_READ]
    if not has_cjk(sample) or _KANA_OR_HANGUL.search(sample):
        return False
    return len(_HAN_CHAR.findall(sample)) > 2 * len(_LATIN_WORD.findall(_PLACE.sub(" ", sample)))


def cjk_parts(text: str) -> tuple[list[str], list[str]]:
    """Split a text, and return its gaps and its runs of CJK characters; there is one more gap than runs."""
    parts = [text] if text.isascii() else _PARTS.split(text)
    return parts[::2], parts[1::2]
