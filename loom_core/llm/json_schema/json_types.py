"""What JSON Schema calls the types of values."""

from __future__ import annotations

__all__ = ["json_type"]


def json_type(value: object) -> str:
    """The type of a JSON value; every number is a `number`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
