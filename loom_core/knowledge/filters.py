"""Filters: restrict a question to some documents; parsed and validated for the store."""

from __future__ import annotations

import math
import re
import unicodedata
from calendar import isleap, monthrange
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import quote

from loom_core.errors import InvalidInputError

__all__ = [
    "ADDRESS_FIELDS",
    "FILTERS_DESCRIPTION",
    "FILTERS_SCHEMA",
    "FOLDED_FIELDS",
    "FieldCondition",
    "FieldFilter",
    "FieldValue",
    "Filters",
    "Operator",
    "Period",
    "Scalar",
    "filter_conditions",
    "filter_mapping",
    "filter_names",
    "parse_filters",
]

Operator: TypeAlias = Literal["eq", "ne", "gte", "gt", "lte", "lt", "contains"]
"""Comparison operator of a filter; `eq` is implied by a plain value or a list."""

ADDRESS_FIELDS = frozenset({"source", "document", "path"})
"""Filters by the origin of a document, which every knowledge base supports."""

FILTERS_DESCRIPTION = (
    "Conditions that documents must all fulfil. A list means any of its values. Dates are ISO, also in part."
)
"""Description of the syntax of filters, for a model."""

_VALUES: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "number"},
    {"type": "array", "items": {"type": "string"}},
]
FILTERS_SCHEMA: Mapping[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "field": {"type": "string"},
            "op": {"type": "string", "enum": [*get_args(Operator)]},
            "value": {"anyOf": _VALUES},
        },
        "required": ["field", "op", "value"],
        "additionalProperties": False,
    },
    "examples": [[{"field": "path", "op": "eq", "value": "docs/"}]],
}
"""JSON Schema of filters as a model gives them: a list of conditions.

A mapping from any field to its filter is an open object, which strict function calling (OpenAI) does not
allow. `filter_mapping` accepts both forms. Booleans, and numbers in a list, are also accepted.
"""

_BUILT_IN = ("source", "path", "language", "type", "title")
_CONDITION_KEYS = {"field", "op", "value"}
_FILTER_KEYS = [name for name in get_args(Operator) if name != "eq"]
_RANGES = frozenset({"gte", "gt", "lte", "lt"})
_PERIOD_FIELD = "date"
_MAX_FIELDS = 20
_MAX_VALUES = 100
_MAX_TEXT = 2_000  # characters of one value
_MAX_WHOLE = 2**63
_SHOWN = 60  # maximum characters of a wrong name or value in a message
_LISTED = 30  # maximum names in a message
_PLACE = re.compile(r"#\d+-\d+$")


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """A comparison of a field with values.

    Attributes:
        operator: the comparison.
        values: the values to compare with: one for a range; any of them for `eq` and `contains`; none of them
            for `ne`. Their number or period is None if it is not compared.
    """

    operator: Operator
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Conditions on a field: one value of it meets all conditions but `ne`, and no value a `ne`."""

    name: str
    conditions: tuple[FieldCondition, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on fields, all of which a document must meet. Hashable; false if empty."""

    fields: tuple[FieldFilter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fields)


def filter_names(field_names: Iterable[str]) -> list[str]:
    """Return the filter names for documents with these fields, those of every document first."""
    return list(dict.fromkeys([*_BUILT_IN, *sorted(field_names)]))


def filter_mapping(given: object) -> object:
    """Convert a list of conditions, as `FILTERS_SCHEMA` describes it, to what `parse_filters` takes.

    Anything else is returned unchanged, for `parse_filters` to check.

    Raises:
        InvalidInputError: a condition lacks something, or two of one field cannot be combined.
    """
    conditions: object = given
    if isinstance(given, Mapping) and {"field", "value"} <= given.keys() <= _CONDITION_KEYS:
        conditions = [cast("object", given)]  # a single condition, not in a list
    if not isinstance(conditions, list):
        return conditions
    filters: dict[str, Any] = {}
    for condition in cast("list[object]", conditions):
        field, operator, value = _parts(condition)
        before = filters.get(field)
        if field not in filters:
            filters[field] = value if operator == "eq" else {operator: value}
        elif operator != "eq" and isinstance(before, dict) and operator not in before:
            before[operator] = value
        else:
            raise InvalidInputError(
                f"Several filters of {field[:_SHOWN]!r} cannot be combined.",
                advice="Give one with a list of values for any of them, or two ends of a range.",
            )
    return filters


def filter_conditions(filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert a mapping of filters to a list of conditions: the inverse of `filter_mapping`."""
    conditions: list[dict[str, Any]] = []
    for field, given in filters.items():
        operators = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"eq": given}
        conditions += [{"field": field, "op": op, "value": value} for op, value in operators.items()]
    return conditions


def _parts(condition: object) -> tuple[str, str, object]:
    """Split a condition into its field, operator and value."""
    if isinstance(condition, Mapping):
        given = cast("Mapping[str, object]", condition)
        field, operator = given.get("field"), given.get("op", "eq")
        if (
            isinstance(field, str)
            and isinstance(operator, str)
            and "value" in given
            and given.keys() <= _CONDITION_KEYS
        ):
            return field, operator, given["value"]
    raise InvalidInputError(
        f"One of the filters is {_quote_value(cast('object', condition))}, not a condition.",
        advice='Give each as {"field": "tags", "op": "eq", "value": "plan"}.',
    )


def parse_filters(filters: Mapping[str, object] | None, known: Sequence[str]) -> Filters:
    """Validate filters, and parse them for the store.

    A field's filter is a value, a list of values (any of them), or an object with one or more of the
    operators `gte`, `gt`, `lte`, `lt` (one value each), `ne` and `contains` (one, or a list). Documents
    that lack the field fulfil `ne` and nothing else. The rules of comparison are in docs/knowledge.md.

    Args:
        filters: filter by field name; None and an empty mapping mean no filters.
        known: names that are allowed, as from `filter_names`; `document` always is.

    Raises:
        InvalidInputError: a field or operator is unknown, a value is invalid, a list is empty, or there are
            too many.
    """
    if not filters:
        return Filters()
    if not isinstance(cast("object", filters), Mapping):
        raise InvalidInputError(
            f"The filters are {_quote_value(filters)}.",
            advice="Give an object of fields, such as {'tags': 'plan'}.",
        )
    if len(filters) > _MAX_FIELDS:
        raise InvalidInputError(
            f"There are filters for {len(filters)} fields.", advice=f"Use at most {_MAX_FIELDS}."
        )
    for name in filters:
        if name not in known and name not in ADDRESS_FIELDS:
            raise _unknown(name, known)
    return Filters(tuple(FieldFilter(name, _conditions(name, filters[name])) for name in sorted(filters)))


def _unknown(name: object, known: Sequence[str]) -> InvalidInputError:
    near = get_close_matches(str(name)[:_SHOWN].casefold(), known, n=1)
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    listed = ", ".join(item[:_SHOWN] for item in known[:_LISTED])
    return InvalidInputError(
        f"There is no filter {_quote_value(name)}.",
        advice=(f"Did you mean {near[0]!r}? " if near else "") + f"Use: {listed}{more}.",
    )


def _conditions(name: str, given: object) -> tuple[FieldCondition, ...]:
    if not isinstance(given, Mapping):
        return (FieldCondition("eq", _values(name, "eq", given)),)
    operators = cast("Mapping[object, object]", given)
    if not operators:
        raise InvalidInputError(f"The filter {name!r} is an empty object.", advice=_advice(name))
    for operator in operators:
        if operator not in _FILTER_KEYS:
            raise InvalidInputError(
                f"The filter {name!r} has no operator {_quote_value(operator)}.", advice=_advice(name)
            )
        if name in ADDRESS_FIELDS and operator in _RANGES:
            raise InvalidInputError(
                f"The filter {name!r} is an address and has no order.",
                advice="Give an address, a list of addresses, or an object with `ne` or `contains`.",
            )
    return tuple(
        FieldCondition(operator, _values(name, operator, operators[operator]))
        for operator in cast("Iterable[Operator]", _FILTER_KEYS)
        if operator in operators
    )


def _values(name: str, operator: Operator, given: object) -> tuple[FieldValue, ...]:
    if isinstance(given, Sequence | Set) and not isinstance(given, str | bytes):
        listed = list(cast("Iterable[object]", given))
        if operator in _RANGES:
            raise InvalidInputError(
                f"The filter {name!r} compares with a list.", advice=f"Give {operator!r} a single value."
            )
        if not listed:
            raise InvalidInputError(
                f"The filter {name!r} allows no value.", advice="Give at least one, or leave the filter out."
            )
        if len(listed) > _MAX_VALUES:
            raise InvalidInputError(
                f"The filter {name!r} has {len(listed)} values.", advice=f"Use at most {_MAX_VALUES}."
            )
    else:
        listed = [given]
    values = (value for item in listed for value in _forms(name, operator, item))
    return tuple(dict.fromkeys(values))


def _forms(name: str, operator: Operator, given: object) -> Iterable[FieldValue]:
    """Return the values to compare a field with, for one value of the caller."""
    if given is None:
        raise InvalidInputError(f"The filter {name!r} has no value.", advice=_advice(name))
    if isinstance(given, float) and not math.isfinite(given):
        raise InvalidInputError(
            f"The filter {name!r} has {given} as a value.", advice="Give a finite number."
        )
    if isinstance(given, int) and abs(given) >= _MAX_WHOLE:
        raise InvalidInputError(
            f"The filter {name!r} has a whole number of over 18 digits.", advice="Give long numbers as text."
        )
    if not isinstance(given, str | int | float | date):  # bool is an int, datetime a date
        raise InvalidInputError(
            f"The filter {name!r} cannot compare with {_quote_value(given)}.", advice=_advice(name)
        )
    if isinstance(given, str) and not 0 < len(given.strip()) <= _MAX_TEXT:
        raise InvalidInputError(
            f"The filter {name!r} has a value of {len(given):,} characters."
            if given.strip()
            else f"The filter {name!r} has an empty value.",
            advice=f"Give 1 to {_MAX_TEXT:,} characters, or leave the filter out.",
        )
    if operator in _RANGES and isinstance(given, bool):
        raise InvalidInputError(
            f"The filter {name!r} compares with {str(given).lower()}, which has no order.",
            advice=f"Give {operator!r} a number, a date or text.",
        )
    if name in ADDRESS_FIELDS:
        return [FieldValue(form) for form in _addresses(FieldValue.of(given).text, whole=name != "path")]
    value = FieldValue.of(given, fold=name in FOLDED_FIELDS)
    if operator in _RANGES:
        return [value]
    # Text is equal to the same text only: version 1.10 is not 1.1, nor is the title 2024 a day of that year.
    by_number = operator != "contains" and not isinstance(given, str) and value.is_exact
    by_period = operator != "contains" and name == _PERIOD_FIELD
    return [
        replace(
            value,
            number=value.number if by_number else None,
            period=value.period if by_period else None,
        )
    ]


def _addresses(given: str, *, whole: bool) -> list[str]:
    """Return the forms in which a URI may write an address: verbatim and percent-encoded.

    Args:
        given: a URI, a path, an id, or a part of one; a citation's `#10-90` at its end is left out.
        whole: whether it has to be a whole URI, so that a path becomes one.
    """
    given = _PLACE.sub("", given)
    scheme = "file://" if given.startswith("file://") else ""
    path = given.removeprefix(scheme)
    if re.match(r"[A-Za-z]:\\|\\\\", path) or (not whole and "\\" in path):
        path = path.replace("\\", "/")
    if whole and not scheme and re.match(r"/|[A-Za-z]:/", path):
        scheme = "file://" if path.startswith("/") else "file:///"
    # File systems have names composed or decomposed, and a colon may be that of a drive.
    forms = (unicodedata.normalize(form, path) for form in ("NFC", "NFD"))
    encoded = [scheme + quote(form, safe=safe) for form in forms for safe in ("/", "/:")]
    return list(dict.fromkeys([given, *encoded]))


def _advice(name: str) -> str:
    operators = ", ".join(f"`{operator}`" for operator in _FILTER_KEYS)
    return (
        f"Give {name!r} text, a number, true or false, a list of these, or an object with "
        f'{operators}, such as {{"gte": "2024-05"}}; in a list of conditions, one of these as `op`.'
    )


def _quote_value(value: object) -> str:
    text = repr(value) if not isinstance(value, Mapping | list) else type(cast("object", value)).__name__
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


Scalar: TypeAlias = str | int | float | bool | date
"""Values of a field and of a filter; a `datetime` is a `date`."""

FOLDED_FIELDS = frozenset({"author", "description", "lang", "language", "subject", "tags", "title", "type"})
"""Fields compared without regard to case and width: those that people write and Loom's loaders extract.

All others are exact, because they may be keys of another system (`tenant_id`, an order number).
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400.0
_EXACT = 2**53  # up to here a float holds every whole number
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?[ ]?(Z|[+-]\d{2}(?::?\d{2})?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_CHINESE_DATE = re.compile(r"(\d{4})年(?:(\d{1,2})月(?:(\d{1,2})[日号])?)?(?= |$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """The period that a date denotes, in seconds since 1970: `2024` a year, `2024-05-03T10:00` a minute.

    Attributes:
        local: its start in local time, read as if that were UTC.
        instant: its start in UTC; without an offset the same as `local`.
        length: its length.
    """

    local: float
    instant: float
    length: float

    @property
    def is_clock_time(self) -> bool:
        """Whether it is shorter than a day."""
        return self.length < _DAY


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value as text, and as a number and a date where it is one.

    Attributes:
        text: the value in Unicode's form C, `true` or `false` for a truth value, and the shortest digits
            for a number: 1 and 1.0 are both `1`.
        number: the number, or None; a text counts if it has only digits, a sign and a point.
        period: the date, or None.
    """

    text: str
    number: float | None = None
    period: Period | None = None

    @classmethod
    def of(cls, value: Scalar, *, fold: bool = False) -> FieldValue:
        """Return the forms of a value.

        Dates are ISO 8601 from the year to the second, with `-` or `/` and a `T` or a blank, or written
        as in `2024年5月3日`; a time without an offset is UTC. Lone surrogates become question marks, and
        U+0000 is left out, as in the text of documents.

        Args:
            value: the value.
            fold: whether to fold the case and width of text, see `FOLDED_FIELDS`.
        """
        text = _text(value)
        number: float | None = None
        if isinstance(value, str):
            number = float(text) if _NUMBER.fullmatch(text) else None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = _finite(value)
        period = _period(text)
        if fold:
            text = unicodedata.normalize("NFKC", text).casefold()
        return cls(text, number, period)

    @property
    def is_exact(self) -> bool:
        """Whether the number is exact, so that equal floats mean equal numbers."""
        return self.number is not None and abs(self.number) < _EXACT


def _text(value: Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < _EXACT:
            return str(int(value))
        case str():
            well_formed = value if value.isascii() else value.encode("utf-8", "replace").decode()
            return unicodedata.normalize("NFC", well_formed.replace("\0", "")).strip()
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _finite(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        return None
    return number if math.isfinite(number) else None


def _period(text: str) -> Period | None:
    plain = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    if chinese := _CHINESE_DATE.match(plain):
        plain = "-".join(part for part in chinese.groups() if part) + plain[chinese.end() :]
    match = _DATE.fullmatch(plain)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        begin = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "").ljust(6, "0")),
            tzinfo=UTC,
        )
    except ValueError:  # the thirteenth month
        return None
    if fraction:
        length = 10.0 ** -len(fraction)
    elif second:
        length = 1.0
    elif minute:
        length = 60.0
    elif day:
        length = _DAY
    elif month:
        length = _DAY * monthrange(begin.year, begin.month)[1]
    else:
        length = _DAY * (366 if isleap(begin.year) else 365)
    local = (begin - _EPOCH).total_seconds()
    return Period(local, local - _ahead(offset), length)


def _ahead(offset: str | None) -> float:
    """Return how many seconds a clock with an offset is ahead of UTC."""
    if offset is None or offset in "Zz":
        return 0.0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    seconds = 3600.0 * int(digits[:2]) + 60.0 * int(digits[2:])
    return -seconds if offset[0] == "-" else seconds
