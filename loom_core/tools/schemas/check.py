"""Validation of values against a server's schema: by `jsonschema`, in bounded time, without the network.

It is safe against hostile schemas: patterns are matched by a linear-time engine (an unsupported pattern is
not checked: the server does that); every step costs something, and the number of steps is limited; values are
compared by hash, not pairwise; references to other documents are not fetched, and allow everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.tools.patterns import linear_search
from loom_core.tools.schemas.form import parts_of

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

__all__ = ["SchemaCheck", "quick_check"]

_MOST_STEPS = 50_000  # half a second
_FOLLOWING = 5  # cost in steps of entering a subschema
_AT_ONCE = 16  # values per step
_CHARACTERS = 100  # characters of an error message per step
_MATCHED = 50_000  # characters of a text times states of a pattern, per step
_MOST_STATES = 300_000  # about the engine's limit for a pattern
_MOST_ERRORS = 200
_PATTERNS_KEPT = 2000

_REPEATED = re.compile(r"(\d{1,6})\s*,?\s*\}", re.ASCII)  # the larger number of `{2,10}`

_Schema: TypeAlias = Mapping[str, Any]
_Keyword: TypeAlias = Callable[["Validator", Any, Any, _Schema], "Iterable[ValidationError] | None"]


@dataclass(slots=True)
class _Run:
    """State of one validation.

    Attributes:
        left: number of steps left.
        by_pattern: whether the schema has `patternProperties`.
        choices: values of each visited `enum`, by its `id`: the schema keeps it alive.
    """

    left: int
    by_pattern: bool
    choices: dict[int, frozenset[Hashable]] = field(default_factory=dict[int, frozenset[Hashable]])

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _endless()


_run: ContextVar[_Run] = ContextVar("_run")


class SchemaCheck:
    """Validates values against one schema.

    Args:
        schema: a schema accepted by `schema_problem`. Its draft is that of `$schema`, else 2020-12.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Validator | None = None
        self._by_pattern = False
        self._quick = quick_check(schema)

    def errors(self, value: object) -> list[ValidationError]:
        """Return the first 200 errors of a value, sorted by path.

        Raises:
            InvalidInputError: validation takes too many steps: schema and value are too large together, or
                the schema refers to itself too often.
        """
        if self._quick is not None and self._quick(value):
            return []
        from jsonschema.exceptions import relevance

        validator = self._build()
        token = _run.set(_Run(_MOST_STEPS, self._by_pattern))
        try:
            found = list(islice(validator.iter_errors(value), _MOST_ERRORS))
        except RecursionError:
            raise _endless() from None
        finally:
            _run.reset(token)
        return sorted(found, key=lambda error: (list(map(str, error.absolute_path)), relevance(error)))

    def _build(self) -> Validator:
        if self._validator is None:
            from jsonschema import Draft7Validator, Draft202012Validator
            from jsonschema.validators import validator_for
            from referencing import Registry

            keywords = set[str]()
            tuples = False
            waiting: list[object] = [self._schema]
            while waiting:
                if isinstance(part := waiting.pop(), dict):
                    schema = cast("_Schema", part)
                    keywords |= schema.keys()
                    tuples = tuples or isinstance(schema.get("items"), list)
                    waiting += parts_of(schema)
            # A list of `items` is the tuple form before 2020-12, often without `$schema`.
            kind = validator_for(self._schema, default=Draft7Validator if tuples else Draft202012Validator)
            self._by_pattern = "patternProperties" in keywords
            self._validator = _bound_validator(kind)(self._schema, registry=Registry())
        return self._validator


@lru_cache(maxsize=16)
def _bound_validator(kind: type[Validator]) -> type[Validator]:
    """Return the validator of a draft with the bounded keywords of this module."""
    from jsonschema.validators import extend

    known = kind.VALIDATORS
    own: dict[str, _Keyword] = {
        **known,
        "const": _const,
        "enum": _enum,
        "uniqueItems": _unique_items,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    if "unevaluatedProperties" in known:
        own["unevaluatedProperties"] = _unless_by_pattern(known["unevaluatedProperties"])
    return extend(kind, {name: _count_steps(keyword, name) for name, keyword in own.items()})


def _count_steps(keyword: _Keyword, name: str) -> _Keyword:
    following = name in {"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "$recursiveRef"}
    steps = _FOLLOWING if following else 1

    def check(
        validator: Validator, value: object, instance: object, schema: _Schema
    ) -> Iterator[ValidationError]:
        from referencing.exceptions import Unresolvable

        run = _run.get()
        run.spend(steps + (len(cast("list[object]", value)) // _AT_ONCE if _is_container(value) else 0))
        try:
            for error in keyword(validator, value, instance, schema) or ():
                run.spend(len(error.message) // _CHARACTERS)
                yield error
        except Unresolvable:
            return  # an external reference: nothing is known of its target

    return check


def _unless_by_pattern(keyword: _Keyword) -> _Keyword:
    """Skip `unevaluatedProperties` if there are patterns: it would match them in unbounded time."""

    def check(
        validator: Validator, value: object, instance: object, schema: _Schema
    ) -> Iterator[ValidationError]:
        if not _run.get().by_pattern:
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _const(
    _validator: Validator, expected: object, instance: object, _schema: _Schema
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if _identity(instance) != _identity(expected):
        yield ValidationError(f"{expected!r} was expected")


def _enum(
    _validator: Validator, choices: Iterable[object], instance: object, _schema: _Schema
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    kept = _run.get().choices
    if id(choices) not in kept:
        kept[id(choices)] = frozenset(map(_identity, choices))
    if _identity(instance) not in kept[id(choices)]:
        yield ValidationError(f"{instance!r} is not one of {choices!r}")


def _unique_items(
    _validator: Validator, wanted: object, instance: object, _schema: _Schema
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    items = cast("list[object]", instance)
    if len(set(map(_identity, items))) < len(items):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _identity(value: object) -> Hashable:
    """Return a hashable key that is equal exactly for equal JSON values: 1 is 1.0, and is not true.

    Numbers are not their own hashes in it: a server could choose colliding ones.
    """
    if _is_container(value):
        _run.get().spend(1 + len(cast("list[object]", value)) // 4)
    if isinstance(value, Mapping):
        return frozenset((name, _identity(part)) for name, part in cast("_Schema", value).items())
    if isinstance(value, list):
        return tuple(_identity(part) for part in cast("list[object]", value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ("number", repr(int(value) if value == value // 1 else value))
    return cast("Hashable", value)


def _is_container(value: object) -> bool:
    return isinstance(value, list | Mapping)


def _pattern(
    validator: Validator, pattern: str, instance: object, _schema: _Schema
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, str):
        return
    _run.get().spend(_states(pattern) * len(instance) // _MATCHED)
    if not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Validator, patterns: _Schema, instance: object, _schema: _Schema
) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    _run.get().spend(len(patterns) * len(cast("_Schema", instance)) // _AT_ONCE)
    for pattern, part in patterns.items():
        for name, value in cast("_Schema", instance).items():
            if linear_search(pattern) is not None and _matches(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Validator, allowed: object, instance: object, schema: _Schema
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, Mapping):
        return
    named = schema.get("properties", ())
    patterns = tuple(schema.get("patternProperties", ()))
    _run.get().spend((1 + len(patterns)) * len(cast("_Schema", instance)) // _AT_ONCE)
    for name, value in cast("_Schema", instance).items():
        if name in named or any(_matches(pattern, name) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"{name!r} is not expected", path=(name,))
        else:
            yield from validator.descend(value, cast("_Schema", allowed), path=name)


def _matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern; True if the pattern has no linear-time form."""
    found = linear_search(pattern)
    return found is None or found(text)


@lru_cache(maxsize=_PATTERNS_KEPT)
def _states(pattern: str) -> int:
    """Return an upper bound of a pattern's states: a part repeated ten times counts ten times."""
    states = len(pattern)
    for repeated in _REPEATED.findall(pattern):
        states *= max(1, int(repeated))
        if states > _MOST_STATES:
            return _MOST_STATES
    return states


def _endless() -> InvalidInputError:
    return InvalidInputError(
        "It takes too long to check this against the tool's schema: they are too large together, or it refers"
        " to itself too often.",
        advice="Use fewer and flatter arguments, or another tool.",
    )


_Check: TypeAlias = Callable[[object], bool]

_SAYS_NOTHING = frozenset(
    "$comment $schema default deprecated description examples readOnly title writeOnly".split()
)
_DRAFTS = ("draft-07/", "2019-09/", "2020-12/")
_DEEPEST = 16
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "enum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}


def quick_check(schema: Mapping[str, Any]) -> Callable[[object], bool] | None:
    """Compile a fast path for plain schemas: it checks most arguments in a microsecond or two.

    Values that the result accepts are valid. Values that it refuses may be valid: `SchemaCheck` decides. None
    if the schema has unsupported keywords.

    Args:
        schema: a schema accepted by `schema_problem`.
    """
    written = schema.get("$schema", _DRAFTS[-1])
    if not isinstance(written, str) or not any(draft in written for draft in _DRAFTS):
        return None
    return _compile_check(schema, 0)


def _compile_check(schema: object, depth: int) -> _Check | None:
    if schema is True:
        return _anything
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    part = cast("Mapping[str, Any]", schema)
    says = part.keys() - _SAYS_NOTHING - {"type"}
    kind = part.get("type")
    if kind is None and not says:
        return _anything
    if not isinstance(kind, str) or not says <= _KEYWORDS.get(kind, frozenset()):
        return None
    match kind:
        case "object":
            return _object(part, depth)
        case "array":
            return _array(part, depth)
        case "string":
            return _string(part)
        case "boolean":
            return _boolean
        case "null":
            return _null
        case _:
            return _number(part, int if kind == "integer" else (int, float))


def _anything(_value: object) -> bool:
    return True


def _boolean(value: object) -> bool:
    return type(value) is bool


def _null(value: object) -> bool:
    return value is None


def _string(schema: Mapping[str, Any]) -> _Check | None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    if "enum" in schema:
        choices = frozenset(each for each in schema["enum"] if isinstance(each, str))
        return lambda value: type(value) is str and value in choices and least <= len(value) <= most
    if least <= 0 and "maxLength" not in schema:
        return lambda value: type(value) is str
    return lambda value: type(value) is str and least <= len(value) <= most


def _number(schema: Mapping[str, Any], kinds: type | tuple[type, ...]) -> _Check:
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    # NaN fails both comparisons. 1.0 is an integer, too, but this fast path does not accept it.
    return lambda value: (
        isinstance(value, kinds) and type(value) is not bool and least <= cast("float", value) <= most
    )


def _array(schema: Mapping[str, Any], depth: int) -> _Check | None:
    item = _compile_check(schema.get("items", True), depth + 1)
    if item is None:
        return None
    least, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))

    def check(value: object) -> bool:
        if type(value) is not list:
            return False
        items = cast("list[object]", value)
        return least <= len(items) <= most and all(map(item, items))

    return check


def _object(schema: Mapping[str, Any], depth: int) -> _Check | None:
    properties: dict[str, _Check] = {}
    for name, part in schema.get("properties", {}).items():
        check = _compile_check(part, depth + 1)
        if check is None:
            return None
        properties[name] = check
    others = _compile_check(schema.get("additionalProperties", True) or None, depth + 1)
    if others is None and schema.get("additionalProperties", True) is not False:
        return None
    return _members(properties, others, tuple(schema.get("required", ())))


def _members(properties: Mapping[str, _Check], others: _Check | None, required: Sequence[str]) -> _Check:
    """Return the check of an object's members; `others` is None if no others are allowed."""

    def check(value: object) -> bool:
        if type(value) is not dict:
            return False
        members = cast("dict[str, object]", value)
        for name in required:
            if name not in members:
                return False
        for name, member in members.items():
            fits = properties.get(name, others)
            if fits is None or not fits(member):
                return False
        return True

    return check
