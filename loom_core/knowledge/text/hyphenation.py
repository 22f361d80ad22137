"""Words that are hyphenated at a line's end, as search sees them: the text itself stays as it is."""

from __future__ import annotations

import re

__all__ = ["hyphenated_words", "unhyphenated"]

_SURE = re.compile("(?<=[^\\W\\d_])[\u2010\u00ad]\n[ \t]*(?=[a-zß-öø-ÿ])")
_MAYBE = re.compile("([^\\W\\d_]{2,40})-\n[ \t]*([a-zß-öø-ÿ]{2,40})")


def unhyphenated(text: str) -> str:
    """A text without the hyphens that a formatter put at line ends, as `man` does: `imme‐` + `diately`.

    Only hyphens with a character of their own count; a minus sign may belong to the word.
    """
    return _SURE.sub("", text) if "\u2010\n" in text or "\u00ad\n" in text else text


def hyphenated_words(text: str) -> str:
    """The words that there are if the minus signs at line ends are hyphens; their halves are found anyway."""
    if "-\n" not in text:
        return ""
    return " ".join(left + right for left, right in _MAYBE.findall(text))
