"""Patterns that people write in configurations, and regular expressions that take linear time.

A pattern is a text in which `*` stands for any characters, also none and also `/`, and `?` for one; nothing
else has a meaning. With `re:` in front it is a regular expression (RE2's language) that has to fit the whole.
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
"""Whether a text fits."""

_KEPT = 2000
_LONGEST = 1000  # characters of an expression that a model writes
_EXPRESSION = "re:"
_REASON = re.compile(r"error: (.+)|: ([^\n:]+)\s*\Z")
_HALF = re.compile("[\ud800-\udfff]")
_WILD = re.compile(r"([*?]+)")


@lru_cache(maxsize=_KEPT)
def linear_search(expression: str) -> Matcher | None:
    """What says whether a regular expression is found in a text, in linear time; None if that cannot be done.

    It cannot where the expression is wrong, or looks around. A text with half a character, which UTF-8 cannot
    hold, fits nothing.
    """
    found = _compile_expression(expression)
    return None if isinstance(found, str) else found


def text_search(expression: str, *, ignore_case: bool = False) -> Matcher:
    """The same for an expression that a model has written.

    Raises:
        InvalidInputError: what is wrong with it, and what to do.
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
    return found


def _compile_expression(expression: str) -> Matcher | str:
    """What searches; or why there is no such thing."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=expression, regex_engine="rust-regex")
        ).isinstance_python
    except SchemaError as error:  # look-around, back references: no engine finds these in linear time
        match = _REASON.search(str(error))
        return (match[1] or match[2]).strip().rstrip(".") if match else "it is no regular expression"


@lru_cache(maxsize=_KEPT)
def matcher(pattern: str, *, any_form: bool = False) -> Matcher:
    """What says whether a text fits a pattern.

    Args:
        pattern: see the module.
        any_form: whether large and small letters are the same, so are the ways to compose an accent, and `.`
            in an expression is a line end, too: so nothing slips past by being written otherwise.

    Raises:
        ConfigError: the regular expression is none, or could take more than linear time; or the pattern is no
            text.
    """
    if pattern.strip("*") == "" and pattern:
        return _anything
    if _HALF.search(pattern):
        raise ConfigError(
            f"{pattern[:100]!r} has half a character in it, which fits nothing.", advice="Write it anew."
        )
    if pattern.startswith(_EXPRESSION):
        body = pattern.removeprefix(_EXPRESSION)
        if linear_search(body) is None:  # by itself: brackets around it could close what it leaves open
            raise ConfigError(
                f"{pattern!r} is no regular expression that can be used.",
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
        if not text.isascii():
            # The engine refuses half characters: a text with one must not slip past a rule.
            text = text.encode("utf-8", "replace").decode()
            text = normalize("NFC", text) if any_form else text
        return search(text)

    return fits
