"""Values on the command line, as NAME=VALUE."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from loom_core.errors import InvalidInputError

__all__ = ["parse_values"]

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
