"""Inputs found in a whole message: by their names, by pattern, by type, by what they are chosen from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loom_core.flow.expressions.values import MISSING
from loom_core.flow.understanding.choices import choices_of
from loom_core.flow.understanding.language import in_language
from loom_core.flow.understanding.numbers import number_of
from loom_core.flow.understanding.person_names import is_for_person, person_in
from loom_core.flow.understanding.refusal import Schema
from loom_core.flow.understanding.slots import (
    fits,
    holds_words,
    is_free,
    is_number,
    names_of,
    spans_within,
    value_of,
)
from loom_core.flow.understanding.typed_text import typed
from loom_core.flow.understanding.units import has_own_unit
from loom_core.knowledge.text.scripts import normalise, simplified

__all__ = ["FoundInput", "found_inputs"]

_LONGEST = 2000
_SEGMENT = re.compile(r"[^,，;；。、\n]+")
_NEGATED = re.compile(r"(?:不是|不要|不想|别|除了|\bnot(?: on| at| for)?|\bexcept|\bno)\s*$", re.I)
_OR = re.compile(r"\s*(?:\bor\b|或|还是)", re.I)
_PROBES = ("hello there, please", "你好请问一下")
_BEHIND = r"\s*(?:[:：=]|是|为|\bis\b|\bof\b|号码?|\bnumber\b)?\s*"
_VALUE = re.compile(r"[^\s,，;；。、]+")
_DATE = re.compile(r"(?<!\d)\d{4}\s*[-/.年]\s*\d{1,2}\s*[-/.月]\s*\d{1,2}(?!\d)\s*[日号]?", re.ASCII)
_SHORT = 2  # characters of a name in Latin letters that is too short to be looked for


@dataclass(frozen=True, slots=True)
class FoundInput:
    """An input that a message gives.

    Attributes:
        name: of the input.
        value: fitting its schema.
        start: where in the message it stands.
        end: the index behind that.
        labelled: whether the message says which input it is.
    """

    name: str
    value: Any
    start: int
    end: int
    labelled: bool = False


def found_inputs(message: str, schemas: Schema) -> list[FoundInput]:
    """The inputs that a message gives without doubt.

    Left out is an input for which it holds several values, and a part of it that may be several inputs: they
    are asked for. A text without a form is found by its name only (`reason: …`), and the name of a person
    where it is introduced as one.

    Args:
        message: what the user says.
        schemas: of the inputs that are looked for, by name.
    """
    message = message[:_LONGEST]
    everything = [each for name, schema in schemas.items() for each in _of(message, name, schema)]
    open_ = {each.name for each in everything if _OR.match(message, each.end)}
    found = [
        each for each in everything if each.name not in open_ and not _NEGATED.search(message[: each.start])
    ]
    told = {each.name for each in found if each.labelled}
    found = [each for each in found if each.labelled or each.name not in told]
    single = [
        each for each in found if all(other.value == each.value for other in found if other.name == each.name)
    ]
    sure = [each for each in single if not any(_contests(other, each) for other in found)]
    return list({each.name: each for each in reversed(sure)}.values())


def _contests(other: FoundInput, one: FoundInput) -> bool:
    """Whether another input may be the same part of the message, with as good reason."""
    overlap = other.name != one.name and other.start < one.end and one.start < other.end
    if not overlap or (one.labelled and not other.labelled):
        return False
    within = (
        one.start <= other.start and other.end <= one.end and other.end - other.start < one.end - one.start
    )
    return not within  # 「2026-12-01」 holds a number, and is a date


def _of(message: str, name: str, schema: Schema) -> Iterator[FoundInput]:
    names = _called(name, schema)
    labelled = list(_labelled(message, name, schema, names))
    yield from labelled
    if choices_of(schema):
        yield from _chosen(message, name, schema)
    elif isinstance(pattern := schema.get("pattern"), str):
        yield from _formed(message, name, schema, pattern)
    elif schema.get("format") == "date":
        spans = [match.span() for match in _DATE.finditer(message)]
        yield from _typed(message, name, schema, spans)
    elif is_number(schema):
        for match in _SEGMENT.finditer(message):
            if has_own_unit(match[0], names) and (value := value_of(match[0], name, schema)) is not MISSING:
                yield FoundInput(name, value, *match.span())
    elif is_free(schema) and not labelled and is_for_person(names) and (span := person_in(message)):
        value = message[slice(*span)]
        if fits(value, name, schema):
            yield FoundInput(name, value, *span, labelled=True)


def _chosen(message: str, name: str, schema: Schema) -> Iterator[FoundInput]:
    form = normalise(message)
    held = [
        (normalise(called), choice.value)
        for choice in choices_of(schema)
        for called in choice.names
        if holds_words(form, normalise(called))
    ]
    for called, value in held:
        if any(called != other and called in other for other, _ in held):
            continue
        start = form.find(called) if len(form) == len(message) else 0
        yield FoundInput(name, value, start, start + len(called) if len(form) == len(message) else 0)


def _formed(message: str, name: str, schema: Schema, pattern: str) -> Iterator[FoundInput]:
    """Values with a pattern; one that fits any words is none that they could be found by."""
    if any(True for probe in _PROBES for _ in spans_within(probe, pattern)):
        return
    for start, end in spans_within(message, pattern):
        if fits(message[start:end], name, schema) and not _cuts_number(message, start, end):
            yield FoundInput(name, message[start:end], start, end)


def _typed(message: str, name: str, schema: Schema, spans: Sequence[tuple[int, int]]) -> Iterator[FoundInput]:
    for start, end in spans:
        value = typed(message[start:end], schema)
        if value is not MISSING and fits(value, name, schema):
            yield FoundInput(name, value, start, end)


def _labelled(message: str, name: str, schema: Schema, names: list[str]) -> Iterator[FoundInput]:
    """Values behind what an input is called: "age 34", 「电话：13800138000」; a text wants a sign between."""
    plain = simplified(message)
    for called in names:
        if called.isascii() and len(called) <= _SHORT:
            continue
        label = rf"(?<![A-Za-z0-9]){re.escape(simplified(called))}(?![a-z])"
        if is_free(schema) or choices_of(schema) or schema.get("type") == "boolean":
            for match in re.finditer(
                rf"{label}\s*(?:[:：=]|是|为|\bis\b)\s*(?P<value>[^,，;；。\n]+)", plain, re.I
            ):
                text = message[slice(*match.span("value"))].strip()
                if (value := value_of(text, name, schema)) is not MISSING:
                    yield FoundInput(name, value, *match.span("value"), labelled=True)
            continue
        for match in re.finditer(rf"{label}{_BEHIND}", plain, re.I):
            behind = _VALUE.match(message, match.end())
            if behind is None:
                continue
            text = behind[0].rstrip(".!！?？")
            if is_number(schema) and number_of(text) is None and not has_own_unit(text, names):
                continue
            value = value_of(text, name, schema, whole=is_number(schema))
            if value is not MISSING:
                yield FoundInput(name, value, *behind.span(), labelled=True)


def _called(name: str, schema: Schema) -> list[str]:
    """What an input may be called, in either language."""
    names = [name.replace("_", " "), *names_of(name, schema)]
    parts = [part for each in names for part in (each, in_language(each, "zh"), in_language(each, "en"))]
    return list(dict.fromkeys(each for each in parts if each))


def _cuts_number(text: str, start: int, end: int) -> bool:
    """Whether a part is cut out of a longer time, date or number: the 9 of 9:30."""
    before = re.search(r"[0-9][:：./-]$", text[:start]) and text[start : start + 1].isdigit()
    behind = re.match(r"[:：./-][0-9]", text[end:]) and text[end - 1 : end].isdigit()
    return bool(before or behind)
