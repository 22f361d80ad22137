"""Text of a passage for search: the embedded text, and the indexed tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.text.analysis import analyse, analyse_passage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dehyphenate", "embedding_text", "index_token_text", "index_tokens"]

_HEADINGS_SEEN = 200  # a heading in the first characters of a passage need not be repeated before it
_SURE = re.compile("(?<=[^\\W\\d_])[\u2010\u00ad]\n[ \t]*(?=[a-zß-öø-ÿ])")
_MAYBE = re.compile("([^\\W\\d_]{2,40})-\n[ \t]*([a-zß-öø-ÿ]{2,40})")


def embedding_text(title: str, heading_path: Sequence[str], text: str) -> str:
    """Return the text to embed of a chunk: title, headings and text, see `dehyphenate`."""
    return "\n".join([*_above(title, heading_path, text), dehyphenate(text)])


def _above(title: str, heading_path: Sequence[str], text: str) -> list[str]:
    head = text[:_HEADINGS_SEEN]
    return [name for name in (title, *heading_path) if name and name not in head]


def index_tokens(title: str, heading_path: Sequence[str], text: str) -> list[str]:
    """Return the tokens of a chunk for the lexical index: of the same text as is embedded.

    Those of the last heading come once more, as it says what the passage is about. In addition to the tokens
    of `analyse` there are lookup tokens that differ from these: `mcdonald` for `McDonald-Smith`, or a pair of
    characters with a mark between them.
    """
    return index_token_text(title, heading_path, text).split()


def index_token_text(title: str, heading_path: Sequence[str], text: str) -> str:
    """Return the `index_tokens`, joined by spaces."""
    # Title and headings are on separate lines, so that no token spans two of them.
    above = "".join(f"{name}\n" for name in _above(title, heading_path, text)) if text else ""
    tokens = analyse_passage(dehyphenate(text), above=above)
    if whole := _rejoin_words(text):
        tokens = f"{tokens} {analyse_passage(whole)}"
    if text and heading_path:
        tokens = f"{tokens} {' '.join(analyse(heading_path[-1]))}"
    return tokens


def dehyphenate(text: str) -> str:
    """Remove the hyphens that a formatter put at line ends, as `man` does: `imme‐` + `diately`.

    Only real hyphen characters count; a minus sign may belong to the word.
    """
    return _SURE.sub("", text) if "\u2010\n" in text or "\u00ad\n" in text else text


def _rejoin_words(text: str) -> str:
    """Return the words that result if minus signs at line ends are hyphens; their halves are indexed, too."""
    if "-\n" not in text:
        return ""
    return " ".join(left + right for left, right in _MAYBE.findall(text))
