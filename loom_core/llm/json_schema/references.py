"""References inside a schema: resolution and inlining."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

__all__ = ["ANNOTATION_KEYWORDS", "inline_references", "iter_subschemas", "resolve_reference"]

_Json: TypeAlias = Mapping[str, Any]

ANNOTATION_KEYWORDS = frozenset(
    "$comment $defs $id $schema default definitions deprecated description discriminator examples "
    "readOnly title writeOnly".split()
)
"""Keywords that do not constrain values."""

_REFERENCES = frozenset({"$anchor", "$defs", "$dynamicAnchor", "$dynamicRef", "$ref", "definitions"})
# Keywords that hold a schema, a list of schemas, or schemas by name.
_ONE = frozenset(
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then "
    "unevaluatedItems unevaluatedProperties".split()
)
_LISTED = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"dependentSchemas", "patternProperties", "properties"})
_KEPT = frozenset({"$defs", "definitions"})


def iter_subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over a schema and all of its subschemas, definitions included."""
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        keywords = cast("_Json", part)
        yield keywords
        for keyword, value in keywords.items():
            if keyword in _NAMED | _KEPT and isinstance(value, Mapping):
                waiting += cast("_Json", value).values()
            elif keyword in _LISTED and isinstance(value, list):
                waiting += cast("list[object]", value)
            elif keyword in _ONE:
                waiting.append(value)


def resolve_reference(root: Mapping[str, Any], reference: object) -> object:
    """Return the target of a local `$ref` such as `#/$defs/Person`, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    if reference != "#" and "/" not in reference:  # the name of an anchor
        return None
    here: Any = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            here = here[int(key) if isinstance(here, list) else key]
        except (IndexError, KeyError, TypeError, ValueError):
            return None
    return here


def inline_references(schema: Mapping[str, Any], *, most: int) -> dict[str, Any]:
    """Replace references by their targets.

    A recursive schema is cut off where it repeats, and becomes its type and a description. So does every
    reference after `most` parts.
    """
    return _Inliner(schema, most).schema(schema, frozenset())


def _with_parts(schema: _Json, change: Callable[[object], object]) -> dict[str, Any]:
    """Copy a schema, and apply `change` to each direct subschema."""
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            value = {name: change(part) for name, part in cast("_Json", value).items()}
        elif keyword in _LISTED and isinstance(value, list):
            value = [change(part) for part in cast("list[object]", value)]
        elif keyword in _ONE:
            value = change(value)
        result[keyword] = value
    return result


class _Inliner:
    """Replaces references by their targets."""

    def __init__(self, root: _Json, most: int) -> None:
        self._root = root
        self._left = most

    def schema(self, schema: object, within: frozenset[str]) -> Any:  # noqa: ANN401 - JSON in, JSON out
        """Inline a part of the schema; `within` are the references that led here."""
        if not isinstance(schema, Mapping):
            return schema
        self._left -= 1
        part = cast("_Json", schema)
        reference = part.get("$ref")
        rest = {keyword: value for keyword, value in part.items() if keyword not in _REFERENCES}
        own = _with_parts(rest, lambda each: self.schema(each, within))
        target = resolve_reference(self._root, reference)
        if not isinstance(target, Mapping):  # missing or external: nothing is known of the target
            return own
        target = cast("_Json", target)
        if reference in within or self._left < 0:
            inside = _recursion_stub(target, str(reference))
        else:
            inside = self.schema(target, within | {str(reference)})
        if own.keys() <= ANNOTATION_KEYWORDS:
            return {**inside, **own}
        return {**own, "allOf": [*own.get("allOf", ()), inside]}


def _recursion_stub(target: _Json, reference: str) -> dict[str, Any]:
    name = str(target.get("title") or reference.rpartition("/")[2].strip("#"))
    again = f"Of the same form as {name} above." if name else "Of the same form as the whole."
    return {**({"type": target["type"]} if "type" in target else {}), "description": again}
