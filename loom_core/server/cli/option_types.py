"""Types of options and arguments: numbers, and values as NAME=VALUE."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from loom_core.errors import InvalidInputError

__all__ = ["fraction", "parse_values", "whole_number"]


def whole_number(most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that takes a whole number from 1 to a maximum; None for any number."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 0
        if number < 1 or (most is not None and number > most):
            expected = "1 or more" if most is None else f"from 1 to {most}"
            raise argparse.ArgumentTypeError(f"{text} is not {expected}")
        return number

    return convert


def fraction(text: str) -> float:
    """Convert the value of an option that takes a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return number


_TYPES: Mapping[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"integer", "number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}


def parse_values(given: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parse arguments; values are JSON, or plain texts.

    Args:
        given: the arguments.
        schema: their schema; an input of type string is not parsed as a number.

    Raises:
        InvalidInputError: an argument has no name or no `=`.
    """
    values: dict[str, Any] = {}
    properties = cast("Mapping[str, Any]", (schema or {}).get("properties", {}))
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise InvalidInputError(f"{each!r} has no name or no value.", advice="Write NAME=VALUE.")
        values[name] = _value(text, properties.get(name))
    return values


def _value(text: str, schema: object) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    named = cast("Mapping[str, Any]", schema).get("type", ()) if isinstance(schema, Mapping) else ()
    wanted = {named} if isinstance(named, str) else set(cast("Sequence[str]", named))
    return text if "string" in wanted and not wanted & _TYPES[type(value)] else value
