"""Criteria as in Arazzo: a regular expression, a JSONPath query, or a "simple" condition.

Such a condition is `$statusCode == 200 && $response.body#/code != 'x'`.

Operators, from the loosest: `||`, `&&`, then `==`, `!=`, `<`, `<=`, `>`, `>=`, which do not chain, then `!`;
brackets group. Literals: numbers, `true`, `false`, `null`, and texts in single quotes (`''` is a quote) or
double quotes.

Texts are compared without case, as in Arazzo. A number and a numeric text (of a header, for example) are
compared as numbers; values of other different types are unequal, and an order comparison of them is an error,
so that a flow never continues on a response without its number. A value alone holds unless it is false, null,
0, empty or missing; a missing value equals null, so `$x != null && $x < 3` is valid for any value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

from loom_core.errors import LoomError, UnreadableTextError
from loom_core.flow.expressions.expression import (
    MISSING,
    Expression,
    ExpressionValues,
    check_expression,
    parse_expression,
)
from loom_core.flow.expressions.json_query import check_query, query
from loom_core.flow.expressions.template import text_of
from loom_core.tools.patterns import linear_search

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = [
    "Condition",
    "CriterionLike",
    "IncomparableError",
    "all_hold",
    "check_criterion",
    "criterion_holds",
    "equal",
]


_MAX_LENGTH = 4000
_MAX_DEPTH = 50
_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?(?![\w.])")
_WORD = re.compile(r"(?:true|false|null)(?![\w-])")
_TEXT = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")
_COMPARING = re.compile(r"==|!=|<=|>=|<|>")
_NUMERIC = re.compile(r"\s*-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?\s*")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


class IncomparableError(LoomError):
    """An order comparison of values that are missing or of different types."""


@dataclass(frozen=True, slots=True)
class _Literal:
    found: JsonValue

    def value(self, _values: ExpressionValues) -> JsonValue:
        return self.found


@dataclass(frozen=True, slots=True)
class _Reference:
    expression: Expression

    def value(self, values: ExpressionValues) -> JsonValue:
        found = self.expression.value(values)
        return None if found is MISSING else found


@dataclass(frozen=True, slots=True)
class _Not:
    part: _Part

    def value(self, values: ExpressionValues) -> JsonValue:
        return not self.part.value(values)


@dataclass(frozen=True, slots=True)
class _Comparison:
    left: _Part
    operator: str
    right: _Part

    def value(self, values: ExpressionValues) -> JsonValue:
        left, right = self.left.value(values), self.right.value(values)
        if self.operator in _EQUALITIES:
            return equal(left, right) == (self.operator == "==")
        pair = _comparable(left, right)
        if pair is None:
            raise IncomparableError(
                f"{_describe(self.left, left)} {self.operator} {_describe(self.right, right)} "
                "cannot be compared.",
                advice="Check the response; if it may lack the value, write `… != null && …`.",
            )
        return _ORDERS[self.operator](*pair)


@dataclass(frozen=True, slots=True)
class _Junction:
    every: bool
    parts: tuple[_Part, ...]

    def value(self, values: ExpressionValues) -> JsonValue:
        held = (bool(part.value(values)) for part in self.parts)
        return all(held) if self.every else any(held)


_Part: TypeAlias = _Literal | _Reference | _Not | _Comparison | _Junction


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition.

    Attributes:
        source: the original text.
        expressions: its expressions, in order.
    """

    source: str
    expressions: tuple[Expression, ...]
    _root: _Part

    @classmethod
    def of(cls, text: str) -> Condition:
        """Parse a condition.

        Raises:
            UnreadableTextError: it is invalid; a `ConfigError` with line and column.
        """
        return _parse(text)

    def holds(self, values: ExpressionValues) -> bool:
        """Return whether the condition holds.

        Raises:
            IncomparableError: it compares the order of missing values or different types.
        """
        return bool(self._root.value(values))


@lru_cache(maxsize=2048)
def _parse(text: str) -> Condition:
    reader = _ConditionParser(text)
    root = reader.read()
    return Condition(text, tuple(reader.expressions), root)


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.expressions: list[Expression] = []

    def read(self) -> _Part:
        if len(self._text) > _MAX_LENGTH:
            raise UnreadableTextError.at(
                self._text, _MAX_LENGTH, f"it has more than {_MAX_LENGTH:,} characters"
            )
        part = self._parse_or()
        if self._at < len(self._text):
            self._fail("nothing more is allowed here")
        return part

    def _fail(self, reason: str) -> NoReturn:
        raise UnreadableTextError.at(self._text, self._at, reason)

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at

    def _accept(self, token: str) -> bool:
        self._skip()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _parse_or(self) -> _Part:
        return self._parse_junction("||", self._parse_and)

    def _parse_and(self) -> _Part:
        return self._parse_junction("&&", self._parse_comparison)

    def _parse_junction(self, operator: str, inner: Callable[[], _Part]) -> _Part:
        parts = [inner()]
        while self._accept(operator):
            parts.append(inner())
        return parts[0] if len(parts) == 1 else _Junction(operator == "&&", tuple(parts))

    def _parse_comparison(self) -> _Part:
        left = self._parse_negation()
        if not (operator := self._parse_operator()):
            return left
        compared = _Comparison(left, operator, self._parse_negation())
        self._skip()
        if _COMPARING.match(self._text, self._at):
            self._fail("comparisons cannot be chained; write && between two")
        return compared

    def _parse_operator(self) -> str:
        self._skip()
        found = _COMPARING.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def _parse_negation(self) -> _Part:
        negations = 0
        while self._accept("!"):
            negations += 1
        part = self._parse_operand()
        if negations % 2:
            return _Not(part)
        return _Not(_Not(part)) if negations else part

    def _parse_operand(self) -> _Part:
        self._skip()
        text, at = self._text, self._at
        if text.startswith("(", at):
            return self._parse_group()
        if text.startswith("$", at):
            expression, self._at = parse_expression(text, at)
            self.expressions.append(expression)
            return _Reference(expression)
        for kind, literal in _LITERALS:
            if found := kind.match(text, at):
                self._at = found.end()
                try:
                    return _Literal(literal(found[0]))
                except ValueError:
                    self._at = at
                    break
        return self._fail("expected an expression, a number, a text in quotes, true, false or null")

    def _parse_group(self) -> _Part:
        if self._depth == _MAX_DEPTH:
            self._fail(f"more than {_MAX_DEPTH} nested brackets")
        self._depth += 1
        self._at += 1
        part = self._parse_or()
        if not self._accept(")"):
            self._fail("expected a closing bracket")
        self._depth -= 1
        return part


def _literal_text(quoted: str) -> JsonValue:
    return quoted[1:-1].replace("''", "'") if quoted[0] == "'" else str(json.loads(quoted))


def _number(text: str) -> float:
    return float(text) if any(each in text for each in ".eE") else int(text)


_LITERALS: tuple[tuple[re.Pattern[str], Callable[[str], JsonValue]], ...] = (
    (_NUMBER, _number),
    (_WORD, _WORDS.__getitem__),
    (_TEXT, _literal_text),
)


def equal(left: JsonValue, right: JsonValue) -> bool:
    """Return whether two values are equal; texts are compared without case, also within lists and objects."""
    waiting: list[tuple[JsonValue, JsonValue]] = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if one.keys() != other.keys():
                return False
            waiting += ((value, other[name]) for name, value in one.items())
        elif _is_list(one) and _is_list(other):
            pairs = list(_pairs(one, other))
            if not pairs and (one or other):
                return False
            waiting += pairs
        elif isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
            if one is not other:
                return False
        else:
            pair = _comparable(one, other)
            if pair is None or pair[0] != pair[1]:
                return False
    return True


def _is_list(value: JsonValue) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _pairs(one: JsonValue, other: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
    if isinstance(one, Sequence) and isinstance(other, Sequence) and len(one) == len(other):
        yield from zip(one, other, strict=True)


def _comparable(one: JsonValue, other: JsonValue) -> tuple[float, float] | tuple[str, str] | None:
    """Convert two values to a comparable pair; None if they are not comparable."""
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold(), other.casefold()
    numbers = _as_number(one), _as_number(other)
    if numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def _as_number(value: JsonValue) -> float | None:
    if isinstance(value, str):
        return _number(value.strip()) if _NUMERIC.fullmatch(value) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _describe(part: _Part, value: JsonValue) -> str:
    """Return one side of a comparison as text for people."""
    if isinstance(part, _Reference):
        what = "not there" if value is None else "a text" if isinstance(value, str) else "no number"
        return (
            part.expression.source if _as_number(value) is not None else f"{part.expression.source} ({what})"
        )
    return json.dumps(value, ensure_ascii=False)


_EQUALITIES = frozenset({"==", "!="})
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


class CriterionLike(Protocol):
    """A criterion."""

    @property
    def condition(self) -> str:
        """The condition."""
        ...

    @property
    def type(self) -> Literal["simple", "regex", "jsonpath"]:
        """The type of the condition."""
        ...

    @property
    def context(self) -> str:
        """The expression whose value `regex` and `jsonpath` examine."""
        ...


def criterion_holds(criterion: CriterionLike, values: ExpressionValues) -> bool:
    """Return whether a criterion holds.

    `regex` searches a text, or the JSON of any other value; `jsonpath` holds if it has a match. Neither holds
    for a missing value.

    Raises:
        UnreadableTextError: it cannot be parsed.
        InvalidInputError: the response is nested too deeply for a query.
    """
    if criterion.type == "simple":
        return Condition.of(criterion.condition).holds(values)
    value = Expression.of(criterion.context).value(values)
    if value is MISSING:
        return False
    if criterion.type == "jsonpath":
        return bool(query(criterion.condition, value, limit=1))
    search = linear_search(criterion.condition)
    if search is None:
        raise _pattern_error(criterion.condition)
    return search(text_of(value))


def all_hold(criteria: Iterable[CriterionLike], values: ExpressionValues, *, lenient: bool = False) -> bool:
    """Return whether all criteria hold; see `criterion_holds`.

    If lenient, an order comparison of a missing value does not hold; otherwise it is an error.

    Raises:
        IncomparableError: an order comparison of values that are missing or of different types.
    """
    try:
        return all(criterion_holds(each, values) for each in criteria)
    except IncomparableError:
        if lenient:
            return False
        raise


def check_criterion(criterion: CriterionLike) -> None:
    """Check that a criterion can be parsed.

    Raises:
        UnreadableTextError: it cannot be parsed; a `ConfigError` with line and column.
    """
    if criterion.type == "simple":
        Condition.of(criterion.condition)
        return
    check_expression(criterion.context)
    if criterion.type == "jsonpath":
        check_query(criterion.condition)
    elif linear_search(criterion.condition) is None:
        raise _pattern_error(criterion.condition)


def _pattern_error(pattern: str) -> UnreadableTextError:
    return UnreadableTextError.at(
        pattern,
        0,
        "it is not a valid regular expression: look-around and back references are not supported",
    )
