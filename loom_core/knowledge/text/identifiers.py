"""Identifiers: words whose form differs from prose, such as `HTTPServer`, `snake_case` or `v2.3.1`."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.stopwords import ENGLISH_STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Identifier", "identifiers_between_cjk", "identifiers_in"]

Identifier: TypeAlias = tuple[str, float]
"""An identifier or option as written, and its weight."""

# Letters include accented Latin ones, so that `ÉcoleNormale` is not read as `coleNormale`.
_LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_PART = f"[{_LETTER}0-9_]++"
# A plain word is not a candidate; it is matched outside the group.
_CANDIDATE = re.compile(f"[{_LETTER}][a-zß-öø-ÿ]*+(?![.-]?[{_LETTER}0-9_])|({_PART}(?:[.-]{_PART})*+)")
_OPTION = re.compile(f"(?<![{_LETTER}0-9_-])--[A-Za-z][A-Za-z0-9_]*+(?:-[A-Za-z0-9_]++)*+")
# Runs that contain whole candidates and options; the first character is separate, so that the engine skips.
_STRETCH = re.compile(f"[{_LETTER}0-9_.-][{_LETTER}0-9_.-]*")

_CAPITALS = re.compile(r"[A-Z][A-Z0-9]+s?(?:-[A-Z0-9]+)*")
_CAMEL = re.compile(f"[{_LETTER}][{_LETTER}0-9]*")
_HUMP = re.compile(r"[a-zß-öø-ɏ0-9][A-Z]|[A-Z]{2}[a-z]")
_SNAKE = re.compile(r"__\w+__|_*[^\W_]\w*_\w*[^\W_]|_+[^\W_]+")
_VERSION = re.compile(r"[vV]\d+(?:\.\d+)+(?:[.-]?\w+)*")
_HYPHENED_FILE = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z][a-z0-9]{0,4}")

# Weights by form: an option or a path is specific, while capitals may be mere emphasis.
_PATH_WEIGHT = 3.0
_NAME_WEIGHT = 2.5
_CAPITALS_WEIGHT = 2.0

_AROUND = ",;:!?.()[]\"“”'‘’-–—/"  # marks with which no identifier begins or ends
_LONGEST = 80  # anything longer is data, such as base64
_ROMAN = frozenset("II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX".split())
_ABBREVIATIONS = frozenset(
    "a.d a.k.a a.m b.a b.c b.sc d.c e.g i.e m.a m.d m.sc p.m p.s ph.d q.e.d w.r.t".split()
)
_BEFORE_NAMES = frozenset(
    "dr eq eqs fig figs mr mrs ms no nos p pp prof ref refs sec st tab table vol vs".split()
)


def identifiers_between_cjk(text: str) -> Iterator[Identifier]:
    """Yield the identifiers and options of a text whose words are not separated by spaces."""
    return chain.from_iterable(map(_remembered_in, _STRETCH.findall(text)))


def identifiers_in(stretch: str) -> tuple[Identifier, ...]:
    """Return the identifiers and options in a stretch of text without blanks."""
    if _is_prose(stretch):
        return ()
    found: list[Identifier] = []
    for candidate in _CANDIDATE.findall(stretch):
        plain = candidate[1:].islower() and candidate.isalpha()
        if not plain and 1 < len(candidate) <= _LONGEST:
            found += _identifiers(candidate)
    if "--" in stretch:
        found += [(o, _PATH_WEIGHT) for o in _OPTION.findall(stretch) if len(o) <= _LONGEST]
    return tuple(found)


_remembered_in = memoize(identifiers_in)


def _is_prose(stretch: str) -> bool:
    """Whether a stretch is prose, as most are: a number, or lower case after the first letter.

    Marks may be around it, and single hyphens or apostrophes between letters.
    """
    bare = stretch.strip(_AROUND)
    if "-" in bare or "'" in bare:
        bare = bare.replace("-", "").replace("'", "")
    is_plain = (bare.isalpha() and bare[1:].islower()) or bare.isdecimal()
    return is_plain and "--" not in stretch


def _identifiers(candidate: str) -> tuple[Identifier, ...]:
    """Return the identifiers in a candidate of parts joined by dots and hyphens, each with its weight."""
    if _VERSION.fullmatch(candidate):
        return ((candidate, _NAME_WEIGHT),)
    if "." in candidate:
        if _is_path(candidate):
            return ((candidate, _PATH_WEIGHT),)
        return _each(candidate.split("."))
    if _CAPITALS.fullmatch(candidate):
        plain = candidate in _ROMAN or candidate.casefold() in ENGLISH_STOP_WORDS
        return () if plain else ((candidate, _CAPITALS_WEIGHT),)
    if "-" in candidate:
        return _each(candidate.split("-"))
    named = _SNAKE.fullmatch(candidate) or (_CAMEL.fullmatch(candidate) and _HUMP.search(candidate))
    return ((candidate, _NAME_WEIGHT),) if named else ()


def _each(candidates: list[str]) -> tuple[Identifier, ...]:
    return tuple(found for candidate in candidates for found in _identifiers(candidate))


def _is_path(candidate: str) -> bool:
    """Whether dots join the parts of a path or a file name, rather than end something."""
    first, *rest = parts = candidate.split(".")
    if candidate.casefold() in _ABBREVIATIONS or first.casefold() in _BEFORE_NAMES:
        return False
    if all(len(part) == 1 and part.isupper() for part in parts):
        return False  # initials
    if "-" in candidate and not _HYPHENED_FILE.fullmatch(candidate):
        return False
    if first.isdecimal():
        return len(rest) == 1 and len(rest[0]) > 1 and rest[0].isalpha() and rest[0].islower()  # 404.html
    if first[0].isdecimal() or (first.isalpha() and rest[0].isdecimal()):
        return False  # a number with a unit, or `Section.3`
    # A sentence, the space after its full stop left out.
    return not any(part.istitle() and part.casefold() in ENGLISH_STOP_WORDS for part in rest)
