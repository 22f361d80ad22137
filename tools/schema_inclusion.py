"""Inclusion of JSON Schemas: whether one allows all that another does, to find breaking changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

__all__ = ["Refusal", "Schema", "refusals"]

Schema: TypeAlias = Mapping[str, Any]

_SAID = frozenset(
    {"title", "description", "default", "examples", "deprecated", "$comment", "$schema", "$defs"}
)
_PARTS = frozenset({"type", "enum", "const", "items", "properties", "required", "additionalProperties"})
_LOWER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A difference: the narrow schema allows it, and the wide one does not.

    Attributes:
        place: where in the value: names of properties with dots between, `[]` for the items of an array and
            `*` for properties without a name; empty for the value itself.
        keyword: the keyword that differs; `property` where a whole property is not known to one of them.
        narrow: what the narrow schema says there, None for nothing.
        wide: what the wide schema says there, None for nothing.
    """

    place: str
    keyword: str
    narrow: object
    wide: object


def refusals(narrow: Schema, wide: Schema) -> list[Refusal]:
    """Return all that the narrow schema allows and the wide one does not.

    The keywords that pydantic writes are understood. Any other that differs counts as a refusal: what cannot
    be judged is for a person to look at. `title`, `description` and the like say nothing about values.
    """
    return list(_Comparison(narrow, wide).refusals(narrow, wide, ""))


class _Comparison:
    """Comparison of two schemas, with resolved references."""

    def __init__(self, narrow: Schema, wide: Schema) -> None:
        self._narrow = narrow
        self._wide = wide
        self._open: list[tuple[str, str]] = []  # references being compared, for schemas that hold themselves

    def refusals(self, narrow: Schema, wide: Schema, place: str) -> list[Refusal]:
        if wide.keys() <= _SAID:
            return []
        references = (str(narrow.get("$ref", "")), str(wide.get("$ref", "")))
        if any(references) and references in self._open:
            return []
        self._open.append(references)
        try:
            forms, allowed = _forms(narrow, self._narrow), _forms(wide, self._wide)
            if len(forms) == len(allowed) == 1:
                return list(self._refusals(forms[0], allowed[0], place))
            return [
                Refusal(place, "type", _describe(form), " or ".join(map(_describe, allowed)))
                for form in forms
                if all(list(self._refusals(form, other, place)) for other in allowed)
            ]
        finally:
            self._open.pop()

    def _refusals(self, narrow: Schema, wide: Schema, place: str) -> Iterator[Refusal]:
        """Of two schemas without alternatives."""
        if (values := _values(wide)) is not None:
            given = _values(narrow)
            if given is None or any(value not in values for value in given):
                yield Refusal(place, "enum", given, values)
        elif not _is_a(narrow, wide.get("type")):
            yield Refusal(place, "type", _describe(narrow), _describe(wide))
            return
        for keyword in sorted({*narrow, *wide} - _SAID - _PARTS):
            if not _within(keyword, narrow.get(keyword), wide.get(keyword)):
                yield Refusal(place, keyword, narrow.get(keyword), wide.get(keyword))
        if "items" in wide:
            yield from self.refusals(narrow.get("items", {}), wide["items"], f"{place}[]")
        yield from self._properties(narrow, wide, f"{place}." if place else "")

    def _properties(self, narrow: Schema, wide: Schema, place: str) -> Iterator[Refusal]:
        given: Schema = narrow.get("properties", {})
        allowed: Schema = wide.get("properties", {})
        needed = {*wide.get("required", [])} - {*narrow.get("required", [])}
        others, allowed_others = _others(narrow), _others(wide)
        for name, schema in allowed.items():
            if name in given:
                yield from self.refusals(given[name], schema, place + name)
            elif others == {}:
                yield Refusal(place + name, "property", None, _describe(schema))
                continue
            elif others is not None:
                yield from self.refusals(others, schema, place + name)
            if name in needed:
                yield Refusal(place + name, "required", False, True)
        for name in (name for name in given if name not in allowed):
            if allowed_others is None:
                yield Refusal(place + name, "property", _describe(given[name]), None)
            else:
                yield from self.refusals(given[name], allowed_others, place + name)
        if others is not None and allowed_others is None:
            yield Refusal(f"{place}*", "property", _describe(others), None)
        elif others is not None and allowed_others is not None:
            yield from self.refusals(others, allowed_others, f"{place}*")


def _forms(schema: Schema, root: Schema) -> list[Schema]:
    """Return the alternatives of a schema, with resolved references and the common constraints."""
    if "$ref" in schema:
        rest = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target[part]
        return _forms({**target, **rest}, root)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            rest = {keyword: value for keyword, value in schema.items() if keyword != union}
            return [form for part in schema[union] for form in _forms({**part, **rest}, root)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


def _others(schema: Schema) -> Schema | None:
    """Return the schema of properties without a name: {} for anything, None where there may be none."""
    others = schema.get("additionalProperties", True)
    if isinstance(others, bool):
        return {} if others else None
    return cast("Schema", others)


def _values(schema: Schema) -> Sequence[object] | None:
    """Return the values that are listed, or None where they are not."""
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _is_a(schema: Schema, kind: object) -> bool:
    own = schema.get("type")
    return kind is None or own == kind or (own, kind) == ("integer", "number")


def _within(keyword: str, narrow: object, wide: object) -> bool:
    match narrow, wide:
        case _, None:
            return True
        case int() | float(), int() | float() if keyword in _LOWER:
            return narrow >= wide
        case int() | float(), int() | float() if keyword in _UPPER:
            return narrow <= wide
        case _:
            return narrow == wide


def _describe(schema: Schema) -> str:
    """Describe a schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if (values := _values(schema)) is not None:
        return f"one of {list(values)}"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(map(_describe, schema[union]))
    return str(schema.get("type", "anything"))
