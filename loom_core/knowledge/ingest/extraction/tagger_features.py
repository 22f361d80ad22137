"""Features of the tokens of a passage, for the entity tagger.

Training (`benchmarks/tagger`) and extraction share this module, so that both see the same features.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import HAN, has_cjk
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.segmentation import tag_characters

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BUCKETS", "CONTEXTS", "Token", "context_features", "token_key", "tokens_of", "word_features"]

BUCKETS = 1 << 15
"""Rows of the feature table; a feature's row is a hash of it."""

_LETTER = rf"[^\W{HAN}]"
# A Han character, a possessive, an option, a word with inner marks, line ends, or a mark.
_TOKEN = re.compile(
    rf"[{HAN}]|[’']s\b"
    rf"|(?<![\w-])--?[A-Za-z0-9?@#]{_LETTER}*(?:[-_.]{_LETTER}+)*"
    rf"|{_LETTER}+(?:(?!['’]s\b)[-.’'+&@:/·~](?=[^\W{HAN}]){_LETTER}+)*(?:\+\+|#)?"
    r"|\n+|[^\w\s]"
)
_SHAPES = {
    "opt": r"--?[A-Za-z0-9?@#]",
    "path": r"[^/]*/",
    "dot": r"\w+(\.\w+)+$",
    "snake": r"\w*[a-z0-9]_\w+$",
    "const": r"[A-Z][A-Z0-9]*_[A-Z0-9_]+$",
    "camel": r"[a-z]+[A-Z]\w*$",
    "pascal": r"([A-Z][a-z0-9]+){2,}$",
    "caps": r"[A-Z][A-Z0-9-]+s?$",
    "year": r"(1[5-9]|20)\d\d$",
    "num": r"\d+$",
    "ver": r"v?\d+(\.\d+)+",
    "ext": r".*\.[a-z]{1,5}$",
    "exc": r".*(Error|Exception|Warning)$",
    "errno": r"E[A-Z]{3,}$",
    "sig": r"SIG[A-Z]+$",
    "mail": r"\S+@\S+\.",
    "hex": r"[0-9a-f]{7,}$",
    "hash": r"#\d",
    "hyphen": r"\w+-\w+",
    "at": r"@",
}
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in _SHAPES.items()]
_REPEATED = re.compile(r"(.)\1{2,}")
_SHAPE = str.maketrans(
    {**{chr(c): "X" for c in range(65, 91)}, **{chr(c): "x" for c in range(97, 123)}}
    | {chr(c): "d" for c in range(48, 58)}
)
_LONGEST_SHAPE = 8
_LONGEST_LENGTH = 12
_SENTENCE_END = frozenset(".!?:;。！？；：")

CONTEXTS = (
    "line start", "sentence start", "call", "parenthesis", "line end", "spaced", "code", "also lower case",
    "repeated", "in headings", "in headings, other case",
)  # fmt: skip
"""Features of a token's place, by number."""


class Token(NamedTuple):
    """A token: its text and span in the passage."""

    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a passage: words, Han characters, marks and line ends."""
    return [Token(match[0], match.start(), match.end()) for match in _TOKEN.finditer(text)]


def token_key(token: str, han: tuple[str, str, str] | None) -> str:
    """Return the key of a token's features: itself, or a Han character with its word, tag and place in it."""
    return token if han is None else "\t".join((token, *han))


def word_features(key: str) -> list[int]:
    """Return the features of a token as rows of the feature table; see `token_key`."""
    names = _han_features(*key.split("\t")) if "\t" in key else _word_features(key)
    return [zlib.crc32(name.encode()) % BUCKETS for name in names]


def _han_features(char: str, word: str, tag: str, place: str) -> list[str]:
    return [
        f"w={char}", "han", f"zt={tag}", f"zp={place}", f"zw={word}", f"ztp={tag}{place}",
        f"cp={char}{place}", f"zl={min(len(word), 5)}", f"zl1={word[-1]}", f"zf1={word[0]}",
    ]  # fmt: skip


def _word_features(word: str) -> list[str]:
    if word[0] == "\n":
        return ["NL", "NL2" if len(word) > 1 else "NL1"]
    if len(word) == 1 and not word.isalnum():
        return [f"p={word}", "punct"]
    folded = word.lower()
    shape = _REPEATED.sub(r"\1\1", word.translate(_SHAPE))[:_LONGEST_SHAPE]
    names = [f"w={folded}", f"s={shape}", "bias", f"len={min(len(word), _LONGEST_LENGTH)}"]
    if len(folded) > 2:
        names += [f"s2={folded[-2:]}", f"s3={folded[-3:]}", f"p2={folded[:2]}"]
    if len(folded) > 4:
        names += [f"s4={folded[-4:]}", f"p3={folded[:3]}"]
    if word[0].isupper():
        names.append("cap")
    elif word.islower():
        names.append("low")
    if is_stop_word(folded):
        names.append("stop")
    if not (word.isalpha() and word[1:].islower()):  # most words are plain
        names += [f"i={name}" for name, pattern in _PATTERNS if pattern.match(word)]
    return names


def context_features(
    text: str, tokens: Sequence[Token], title: str = "", headings: Sequence[str] = ()
) -> tuple[list[str], list[int]]:
    """Return the key and the context features of each token.

    Args:
        text: the passage.
        tokens: its tokens.
        title: title of its document.
        headings: the headings above it.

    Returns:
        The keys (`token_key`), and the context features as bits, by their numbers in `CONTEXTS`.
    """
    han = tag_characters(text) if has_cjk(text) else {}
    seen: set[str] = set()
    repeated: set[str] = set()
    for word, _, _ in tokens:
        (repeated if word in seen else seen).add(word)
    above = set(_TOKEN.findall(" ".join([title, *headings]))) if title or headings else set[str]()
    above_folded = {word.lower() for word in above}
    keys: list[str] = []
    contexts: list[int] = []
    before, in_code = "\n", False
    following = [*tokens[1:], Token("", -1, -1)]
    for (word, start, end), after in zip(tokens, following, strict=True):
        keys.append(token_key(word, han.get(start)))
        bits = 1 if before[0] == "\n" else 2 if before in _SENTENCE_END else 0
        if after.text == "(":
            bits |= 4 if after.start == end else 8
        elif after.text[:1] == "\n":
            bits |= 16
        if start and text[start - 1] in " \t\u00a0":
            bits |= 32
        if word == "`":
            in_code = not in_code
        elif word[0] == "\n":
            in_code = False
        elif in_code:
            bits |= 64
        if word[0].isupper() and word.isalpha():
            bits |= 128 * (word.lower() in seen) + 256 * (word in repeated)
        if above and word.isalnum():
            bits |= 512 if word in above else 1024 * (word.lower() in above_folded)
        contexts.append(bits)
        before = word
    return keys, contexts
