"""Surface forms: tokens for name matching, normalised so that spellings agree.

Case, width, possessives, traditional and simplified characters do not count.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import CJK, HAN, cjk_parts, has_cjk, is_cjk
from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "POSSESSIVE",
    "SurfaceToken",
    "gap_keys",
    "name_form",
    "name_key",
    "surface_keys",
    "surface_spans",
    "surface_tokens",
]

_WORD = f"(?:[^\\W_{CJK}])+"
_SURFACE = re.compile(f"[{CJK}]|{_WORD}(?:['’]{_WORD})*")
# The same for text without CJK characters, many times faster, as the large CJK class is slow.
_PLAIN_SURFACE = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# Translation table: ASCII characters outside surface tokens become spaces.
_SURFACE_GAPS = bytes(c if c >= 128 or chr(c).isalnum() or chr(c) == "'" else 32 for c in range(256))
# Other marks outside surface tokens, in text without CJK characters.
_MARK = re.compile(r"[^\w\s'’]")
_LONE_APOSTROPHE = re.compile(r"['’](?![^\W_])|(?<![^\W_])['’]")
POSSESSIVE = re.compile(r"(?:['’]s?)+$")
_HAN = re.compile(f"[{HAN}]+")
_SHORTEST_FORM = 4
_MARKED = re.compile(r"(?:--?|\.)(?=[A-Za-z0-9])")
_PARENTHESES = re.compile(r"\s*[(（\[【][^()（）\[\]【】]*[)）\]】]\s*$")


class SurfaceToken(NamedTuple):
    """A word, or one CJK character, with its place in the text."""

    key: str
    start: int
    end: int


def surface_tokens(text: str) -> Iterator[SurfaceToken]:
    """Yield tokens for matching names: every word (possessive cut off) and every single CJK character.

    `key` is the comparable form. Offsets are code points of `text` itself.
    """
    for match in (_SURFACE if has_cjk(text) else _PLAIN_SURFACE).finditer(text):
        token = match.group()
        yield SurfaceToken(_surface_key(token), match.start(), match.end())


def surface_keys(text: str) -> list[str]:
    """Return the keys of `surface_tokens`, several times as fast, without their places."""
    if not has_cjk(text):
        tokens = _blank_gaps(text)
        if not text.isascii():
            return list(map(_surface_key, tokens.split()))
        keys = tokens.lower().split()
        return [_surface_key(key) if "'" in key else key for key in keys] if "'" in tokens else keys
    gaps, runs = cjk_parts(text)
    keys: list[str] = list(gap_keys(gaps[0]))
    characters = "".join(runs)
    is_plain = normalise(characters) == characters  # usually true; then the characters are the keys
    for run, gap in zip(runs, gaps[1:], strict=True):
        keys += run if is_plain else map(_surface_key, run)
        keys += gap_keys(gap)
    return keys


@memoize
def gap_keys(gap: str) -> tuple[str, ...]:
    """Return the surface keys of the text between two runs of CJK characters, mostly a mark."""
    return tuple(surface_keys(gap))


def _blank_gaps(text: str) -> str:
    """Replace characters outside surface tokens by spaces, in a text without CJK characters."""
    bare = text.encode(errors="surrogatepass").translate(_SURFACE_GAPS).decode(errors="surrogatepass")
    if not bare.isascii():
        bare = _MARK.sub(" ", bare)
    return _LONE_APOSTROPHE.sub(" ", bare) if "'" in bare or "’" in bare else bare


def surface_spans(text: str, tokens: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return start and end of some `surface_tokens`, given by their numbers from 0."""
    if not has_cjk(text):
        return _spans_between(text, sorted(tokens))
    gaps, runs = cjk_parts(text)
    spans: dict[int, tuple[int, int]] = {}
    left = sorted(tokens, reverse=True)
    offset = before = 0  # characters and tokens passed
    for gap, run in zip_longest(gaps, runs, fillvalue=""):
        if not left:
            break
        after = before + len(gap_keys(gap))
        inside: list[int] = []
        while left and left[-1] < after:
            inside.append(left.pop() - before)
        for number, (start, end) in _spans_between(gap, inside).items():
            spans[before + number] = offset + start, offset + end
        offset, before = offset + len(gap), after
        while left and left[-1] < before + len(run):
            number = left.pop()
            start = offset + number - before
            spans[number] = start, start + 1
        offset, before = offset + len(run), before + len(run)
    return spans


def _spans_between(text: str, tokens: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return the `surface_spans` of a text without CJK characters; the numbers are ascending."""
    spans: dict[int, tuple[int, int]] = {}
    rest, before = _blank_gaps(text), 0  # the remaining text, and the number of tokens before it
    size = len(rest)
    for number in tokens:
        # Splitting off the tokens in between is much faster than finding each; the rest begins with it.
        rest, before = rest.split(None, number - before)[-1], number
        token = rest.split(None, 1)[0]
        spans[number] = size - len(rest), size - len(rest) + len(token)
    return spans


@lru_cache(maxsize=65536)
def name_key(name: str) -> str:
    """Normalise a name: two spellings of a name have one key; empty if nothing is left.

    Case, width, possessives, punctuation, a leading English article and a disambiguation in
    parentheses (`Mercury (planet)`) do not count. The marks before an option or a hidden file do
    (`--all`, `.git`), and the case of a short option (`-f` and `-F`).
    """
    if _HAN.fullmatch(characters := name.replace(" ", "")):
        return "".join(map(_surface_key, characters))
    if name[:1] in "-." and (marked := _MARKED.match(name)):
        rest = name[marked.end() :]
        return marked[0] + (rest if len(rest) == 1 else name_key(rest))
    bare = name if name[-1:].isalnum() else _PARENTHESES.sub("", name)
    tokens = surface_keys(bare) or surface_keys(name)
    if len(tokens) > 1 and tokens[0] in {"the", "a", "an"}:
        tokens = tokens[1:]
    return " ".join(tokens) if name.isascii() else _join(tokens)


def name_form(key: str) -> str:
    """Return a `name_key` without spaces and plural, to look up other spellings.

    It is empty for Chinese and very short names, which have no such spellings.
    """
    form = key.replace(" ", "")
    if len(form) < _SHORTEST_FORM or has_cjk(form):
        return ""
    return form[:-1] if form.endswith("s") and not form.endswith(("ss", "us", "is")) else form


def _join(tokens: list[str]) -> str:
    joined = ""
    for token in tokens:
        if joined and not (is_cjk(joined[-1]) and is_cjk(token[0])):
            joined += " "
        joined += token
    return joined


@memoize
def _surface_key(token: str) -> str:
    if token.isascii() and token.isalnum():
        return token.lower()
    key = POSSESSIVE.sub("", normalise(token))
    if _SURFACE.fullmatch(key):
        return key
    # Normalisation may produce marks: `½` becomes "1⁄2", and a lower-case `İ` has a combining dot.
    key = "".join(_SURFACE.findall(key))
    return key if _SURFACE.fullmatch(key) else token
