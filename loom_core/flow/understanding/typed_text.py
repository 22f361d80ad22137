"""What somebody has said as a value of the type that a schema wants."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, cast

from loom_core.flow.expressions.values import MISSING, Missing
from loom_core.flow.understanding.choices import Choice, choices_of
from loom_core.flow.understanding.numbers import number_in, number_of
from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["typed"]

_YES = frozenset(
    "是 是的 要 对 对的 好 好的 可以 需要 行 嗯 同意 确认 yes y yeah yep true ok okay sure 1".split()
)
_NO = frozenset("否 不 不是 不要 不用 不需要 不行 不同意 没有 no n nope false 0".split())
_DATE = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*[日号]?", re.ASCII)
_SIMPLE = ("integer", "number", "boolean", "string")


def typed(text: str, schema: JsonValue) -> JsonValue | Missing:
    """A text as a value for a schema; `MISSING` if it says none.

    Numbers may be in Chinese or English words and have a unit behind them (三天, "3 days"), dates may be
    written 2026年11月3日, one of an `enum` may be in another case or width. Whether the value is allowed is
    for the schema to check.
    """
    said = text.strip()
    if not said:
        return MISSING
    wanted: Mapping[str, JsonValue] = schema if isinstance(schema, Mapping) else {}
    if choices := choices_of(wanted):
        return _choice(said, choices)
    named = wanted.get("type", "string")
    types = [named] if isinstance(named, str) else cast("Sequence[JsonValue]", named or ["string"])
    for kind in _SIMPLE:
        if kind in types:
            value = _of_kind(kind, said, wanted)
            if value is not MISSING:
                return value
    return MISSING


def _of_kind(kind: str, said: str, schema: Mapping[str, JsonValue]) -> JsonValue | Missing:
    if kind == "string":
        return _dated(said) if schema.get("format") == "date" else said
    if kind == "boolean":
        word = normalise(said).rstrip("。.!,")
        return True if word in _YES else False if word in _NO else MISSING
    number = number_of(said)
    number = number_in(said) if number is None else number
    if number is None:
        return MISSING
    if kind == "number":
        return number
    return int(number) if number == int(number) else MISSING


def _choice(said: str, choices: Sequence[Choice]) -> JsonValue | Missing:
    form = normalise(said)
    number = number_of(said)
    for choice in choices:
        value = choice.value
        if any(normalise(name) == form for name in choice.names):
            return value
        if isinstance(value, bool):
            if _of_kind("boolean", said, {}) is value:
                return value
        elif isinstance(value, int | float) and value == number:
            return value
    return MISSING


def _dated(said: str) -> str:
    found = _DATE.fullmatch(unicodedata.normalize("NFKC", said))
    if not found:
        return said
    try:
        return date(*map(int, found.groups())).isoformat()
    except ValueError:
        return said
