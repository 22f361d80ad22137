"""Text cleaning: normalise text of any source to the form that offsets refer to."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean_line", "clean_text", "join_lines"]

_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
# Any of the three, so that clean text, as most is, is read once.
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")
_SPACES = re.compile(r"\s+")
_CJK = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
_CJK_BREAK = re.compile(f"(?<=[{_CJK}])\n+(?=[{_CJK}])")


def clean_text(text: str) -> str:
    """Normalise a text: NFC, line feeds, no BOM, no control characters but tabs, no surrogates.

    Vertical tabs, form feeds, NEL and the Unicode line and paragraph separators count as line ends. A lone
    surrogate (JSON escapes can make them) becomes U+FFFD, as it cannot be stored as UTF-8.
    """
    if text.isascii() and text.isprintable():
        return text
    if _UNCLEAN.search(text):
        text = _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))
        text = _SURROGATES.sub("\ufffd", text)
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def clean_line(text: str) -> str:
    """Normalise a title, heading or table cell: also collapse all white space."""
    return _SPACES.sub(" ", _CJK_BREAK.sub("", clean_text(text))).strip()


def join_lines(text: str) -> str:
    """Undo the line breaks of a wrapped paragraph: a space in place of each, nothing between CJK.

    Args:
        text: lines, each without leading or trailing white space.
    """
    return _CJK_BREAK.sub("", text).replace("\n", " ")
