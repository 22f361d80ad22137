"""Validation of values against a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.references import iter_subschemas, resolve_reference

if TYPE_CHECKING:
    from jsonschema.exceptions import SchemaError, ValidationError
    from jsonschema.protocols import Validator

__all__ = ["check_schema", "find_problems", "json_type", "readable_path", "without_nulls"]

_Json: TypeAlias = Mapping[str, Any]

_LONGEST = 200  # characters of one problem
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check that a schema can validate any value, before there are values.

    Raises:
        InvalidInputError: as for `find_problems`; or its references loop.
    """
    validator = _validator(schema)
    parts = list(iter_subschemas(schema))
    if any("$id" in part for part in parts[1:]):  # their references depend on their base URI
        parts = parts[:1]
    with _translate_schema_errors():
        for part in parts:
            for _ in validator.evolve(schema=part).iter_errors({}):
                pass


def find_problems(value: object, schema: Mapping[str, Any], *, most: int = 10) -> list[str]:
    """Return the validation errors of a value, a line each, in words that a model can act on.

    Args:
        value: a JSON value.
        schema: its schema; the draft is that of `$schema`, else 2020-12.
        most: maximum number of errors.

    Raises:
        InvalidInputError: the schema is invalid, or has external references. Nothing is fetched.
    """
    from jsonschema.exceptions import best_match

    with _translate_schema_errors():
        errors = sorted(_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
        return [_describe(best_match([error]) or error) for error in errors[:most]]


def without_nulls(value: object, schema: Mapping[str, Any]) -> object:
    """Convert a value of `to_strict_schema(schema)` to one of the schema: drop optional nulls.

    Nulls that the schema allows stay.

    Raises:
        InvalidInputError: as for `find_problems`.
    """
    with _translate_schema_errors():
        return _NullRemover(schema).without(value, schema)


@contextmanager
def _translate_schema_errors() -> Generator[None]:
    """Translate errors about an unusable schema in the block."""
    from referencing.exceptions import Unresolvable

    try:
        yield
    except Unresolvable as error:
        raise InvalidInputError(
            f"The schema refers to {error.ref[:_LONGEST]!r}, which is not in it.",
            advice="Put it under $defs.",
        ) from None
    except RecursionError:
        raise InvalidInputError(
            "The value or its schema is nested too deeply.", advice="Use flatter ones."
        ) from None


def _validator(schema: _Json) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise InvalidInputError(
            f"The schema is wrong: {_describe(error)}.", advice="Correct it; see json-schema.org."
        ) from None
    return kind(schema, registry=Registry())  # the default registry would fetch remote references


def _describe(error: ValidationError | SchemaError) -> str:
    message = error.message
    if len(message) > _LONGEST:  # the value comes first, the error last
        message = f"{message[: _LONGEST // 3]} … {message[-2 * _LONGEST // 3 :]}"
    return f"{readable_path(error.absolute_path)}: {message}"


def readable_path(steps: Iterable[object]) -> str:
    """Format a path inside a value, such as `entities[2].name`."""
    path = ""
    for step in steps:
        if isinstance(step, str) and _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{step!r}]"
    return path or "the whole"


class _NullRemover:
    """Removes optional nulls from values of one schema."""

    def __init__(self, root: _Json) -> None:
        self._root = root
        self._validator = _validator(root)

    def without(self, value: object, schema: object) -> object:
        if not isinstance(schema, Mapping):
            return value
        part = cast("_Json", schema)
        if "$ref" in part:
            value = self.without(value, resolve_reference(self._root, part["$ref"]))
        for each in part.get("allOf", ()):
            value = self.without(value, each)
        for keyword in ("anyOf", "oneOf"):
            value = self._of_choice(value, part.get(keyword, ()))
        if isinstance(value, list):
            items = part.get("items")
            return [self.without(item, items) for item in cast("list[object]", value)]
        return self._of_object(cast("_Json", value), part) if isinstance(value, Mapping) else value

    def _of_choice(self, value: object, choices: list[object]) -> object:
        for choice in choices:
            meant = self.without(value, choice)
            if self._fits(meant, choice):
                return meant
        return value

    def _of_object(self, value: _Json, part: _Json) -> dict[str, Any]:
        properties = cast("_Json", part.get("properties", {}))
        required = part.get("required", ())
        return {
            name: self.without(each, properties.get(name))
            for name, each in value.items()
            if each is not None
            or name in required
            or name not in properties
            or self._fits(None, properties[name])
        }

    def _fits(self, value: object, schema: object) -> bool:
        return self._validator.evolve(schema=schema).is_valid(value)


def json_type(value: object) -> str:
    """Return the type of a JSON value; every number is a `number`."""
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
