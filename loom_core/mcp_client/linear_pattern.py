"""Patterns of others, matched in time that grows with the text only: by an engine without back-tracking."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_linear", "matches", "states"]

_MOST_STATES = 300_000  # about as many as the engine allows a pattern to have
_KEPT = 2000

_REPEATED = re.compile(r"(\d{1,6})\s*,?\s*\}", re.ASCII)  # the larger number of `{2,10}`


def is_linear(pattern: str) -> bool:
    """Whether a pattern can be looked for in linear time: no look-around, no back references."""
    return _search(pattern) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text; also if it cannot be looked for in linear time."""
    found = _search(pattern)
    return found is None or found(text)


@lru_cache(maxsize=_KEPT)
def states(pattern: str) -> int:
    """How many states a pattern has at most: what is repeated ten times counts ten times."""
    found = len(pattern)
    for repeated in _REPEATED.findall(pattern):
        found *= max(1, int(repeated))
        if found > _MOST_STATES:
            return _MOST_STATES
    return found


@lru_cache(maxsize=_KEPT)
def _search(pattern: str) -> Callable[[str], bool] | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(
            core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        ).isinstance_python
    except SchemaError:
        return None
