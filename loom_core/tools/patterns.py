"""Wildcard patterns for configurations, and regular expressions in linear time.

In a pattern `*` matches any characters, also none and also `/`, and `?` matches one; nothing else is special.
With the prefix `re:` it is a regular expression (RE2 syntax) that has to match the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias
from unicodedata import normalize

from loom_core.errors import ConfigError, InvalidInputError

__all__ = ["Matcher", "linear_search", "matcher", "text_search"]

Matcher: TypeAlias = Callable[[str], bool]
"""Returns whether a text matches."""

_KEPT = 2000
_LONGEST = 1000  # characters of an expression that a model writes
_EXPRESSION = "re:"
_REASON = re.compile(r"error: (.+)|: ([^\n:]+)\s*\Z")
_HALF = re.compile("[\ud800-\udfff]")
_WILD = re.compile(r"([*?]+)")


@lru_cache(maxsize=_KEPT)
def linear_search(expression: str) -> Matcher | None:
    """Compile a regular expression for a linear-time search; return None if that is impossible.

    It is impossible if the expression is invalid, or has look-around. A text with a lone surrogate matches
    nothing.
    """
    found = _compile_expression(expression)
    return None if isinstance(found, str) else found


def text_search(expression: str, *, ignore_case: bool = False) -> Matcher:
    """Compile a model's regular expression for a linear-time search.

    Raises:
        InvalidInputError: it names the error, and what to do.
    """
    if len(expression) > _LONGEST:
        raise InvalidInputError(
            f"The pattern has more than {_LONGEST:,} characters.", advice="Search for several shorter ones."
        )
    found = _compile_expression(f"(?i){expression}" if ignore_case else expression)
    if isinstance(found, str):
        raise InvalidInputError(
            f"The pattern cannot be used: {found}.",
            advice="Correct it, do without look-arounds and back references, or search for a plain text.",
        )
    return lambda text: found(_without_surrogates(text))


def _compile_expression(expression: str) -> Matcher | str:
    """Return the compiled search, or the error."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=expression, regex_engine="rust-regex")
        ).isinstance_python
    except SchemaError as error:  # look-around, back references: impossible in linear time
        match = _REASON.search(str(error))
        return (match[1] or match[2]).strip().rstrip(".") if match else "it is not a regular expression"


@lru_cache(maxsize=_KEPT)
def matcher(pattern: str, *, any_form: bool = False) -> Matcher:
    """Compile a pattern.

    Args:
        pattern: see the module.
        any_form: whether to ignore case and Unicode normalization, and let `.` match line ends: so no text
            evades the pattern by another spelling.

    Raises:
        ConfigError: the regular expression is invalid, or needs more than linear time; or the pattern is
            invalid text.
    """
    if pattern.strip("*") == "" and pattern:
        return _anything
    if _HALF.search(pattern):
        raise ConfigError(
            f"{pattern[:100]!r} contains a lone surrogate, which matches nothing.", advice="Correct it."
        )
    if pattern.startswith(_EXPRESSION):
        body = pattern.removeprefix(_EXPRESSION)
        if linear_search(body) is None:  # alone: brackets around it could close an open group
            raise ConfigError(
                f"{pattern!r} is not a usable regular expression.",
                advice="Look-around and back references are not known; see the syntax of RE2.",
            )
        return _whole(f"\\A(?:{body})\\z", any_form=any_form)
    if not any_form and not _WILD.search(pattern):
        return pattern.__eq__
    parts = "".join(map(_expression, _WILD.split(pattern)))
    return _whole(f"(?s)\\A{parts}\\z", any_form=any_form)


def _expression(part: str) -> str:
    return part.replace("?", ".").replace("*", ".*") if _WILD.fullmatch(part) else re.escape(part)


def _anything(_text: str) -> bool:
    return True


def _whole(expression: str, *, any_form: bool) -> Matcher:
    search = linear_search(f"(?is){normalize('NFC', expression)}" if any_form else expression)
    if search is None:
        raise ConfigError(
            f"The pattern {expression[:100]!r} is too large to be used.", advice="Write a shorter one."
        )

    def fits(text: str) -> bool:
        text = _without_surrogates(text)
        return search(normalize("NFC", text) if any_form else text)

    return fits


def _without_surrogates(text: str) -> str:
    """Return a text that the engine can search: it refuses lone surrogates, which must not evade a rule."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
