"""Corrections of inputs in a message: 「改成两天」, "make it two"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loom_core.flow.expressions.values import MISSING, Missing
from loom_core.flow.understanding.choices import OFFERED, choices_of, find_choices
from loom_core.flow.understanding.numbers import has_own_unit, has_unit, number_of
from loom_core.flow.understanding.slots import (
    RejectedValue,
    Schema,
    extract_slots,
    find_rejected_value,
    hour_in_words,
    is_free_text,
    is_number,
    names_of,
    parse_value,
    without_beginning,
    without_ending,
)
from loom_core.flow.understanding.small_talk import is_cancel, is_past, is_question, is_request_or_refusal
from loom_core.knowledge.text.scripts import normalise, to_simplified

__all__ = ["find_corrections", "find_refused_correction", "find_restated_inputs", "is_retraction"]

_SHORT = 300  # maximum characters of a message that may be a correction

_CORRECTIONS = (
    re.compile(
        r"(?:把|将|请)?(?P<name>[^，,。；;]{0,16}?)\s*(?:应该)?"
        r"(?:改成|改为|改到|换成|换到|更正为|调整为|变成|改(?!一[下些点])(?=\s*[\d一二两三四五六七八九十半]))\s*"
        r"(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"不是\s*(?P<old>[^，,。；;]+?)\s*[，, ]?\s*(?:而)?(?:应该)?(?<!不)是\s*(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"^\s*(?:(?:不|不对|不是|错了|说错了|写错了)\s*[，,。 ]\s*(?:应该)?|应该)是\s*(?P<value>[^，,。；;]+)"
    ),
    re.compile(r"^\s*(?:不[，,。 ]?)?我?(?:是说|说的是|(?:的)?意思是)\s*(?P<value>[^，,。；;]+)"),
    re.compile(
        r"(?P<name>[^，,。；;]{1,16}?)(?:应该是|应为|我?[写说打填看记搞弄报][错岔]了?\s*[,，]?\s*(?:应该)?是)\s*"
        r"(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"\b(?:change|set|correct|update)\s+(?:the\s+|my\s+)?(?P<name>[\w ]{0,30}?)\s*\b(?:to|into)\s+"
        r"(?P<value>.+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:do|have|take|try|use|want|prefer|say)\s+(?P<value>[\w: ]+?)\s+instead"
        r"(?:\s+of\s+(?P<old>[\w: ]+))?",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:make|let)\s+(?:it|that|this)\s+(?:be\s+)?(?P<value>.+?)(?:\s*,?\s+(?:not|instead of)\b.*)?$",
        re.IGNORECASE,
    ),
    re.compile(
        r"^\s*(?:no[,\s]+|not [\w ]{1,30}?[,;]?\s+)?"
        r"(?:i meant|i mean|actually|rather|it should be|it'?s)[,\s]+(?P<value>.+)",
        re.IGNORECASE,
    ),
    re.compile(r"\bnot\s+(?P<old>[\w ]+?)\s*[,;]?\s*(?:but|rather)\s+(?P<value>.+)", re.IGNORECASE),
)
_MAY_BE = re.compile(
    r"(?:[吗么][?？]?|,? (?:please|is that ok(?:ay)?|possible)\?|\?)\s*$"
)  # 「能改成周五吗」
_INSTEAD_OF = (  # a correction only if the second value is the current one
    re.compile(
        r"^\s*(?:(?:no|sorry|oh|wait|actually|it'?s|that'?s|should be)[,\s]+)*"
        r"(?P<value>[\w: ]+?)\s*,?\s+not\s+(?P<old>[\w: ]+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:\b(?:but|and|on|at|say|for)\s+)*(?P<value>[\w: ]+?)\s+(?:rather than|instead of)\s+"
        r"(?:on |at |for )?(?P<old>[\w: ]+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?:应该)?是(?P<value>[^，,。；;不]+?)\s*[，, ]?\s*不是(?P<old>[^，,。；;]+)"),
    re.compile(
        r"^\s*(?:no[,\s]+)?not\s+(?:on |at )?(?P<old>[\w: ]+?)\s*[,;]\s*(?:on |at )?(?P<value>[\w: ]+)",
        re.IGNORECASE,
    ),
)
_NO_NAME = re.compile(
    r"(?:我|我要|我想|那|就|它|这个|那个|还是|帮我|请|但是?|不过|可是|只是|是的?|好的?|先|再|都|it|that|this|them)*",
    re.IGNORECASE,
)


_LEADS = re.compile(
    r"\s*(?P<lead>(?:(?:不对|不是|不|错了|好的?|是的?|对|嗯|行|可以|no|nope|nah|yes|yeah|yep|ok(?:ay)?|sure|sorry|but|但是?|"
    r"不过|还是|那就?|就)(?:\s*[,，。.;；]\s*|\s+|(?=[\d一二两三四五六七八九十半]|但|不过)))*+)(?P<value>.+)",
    re.IGNORECASE,
)
_MAX_VALUE_LENGTH = 24  # maximum characters of a value given alone


@dataclass(frozen=True, slots=True)
class _Correction:
    name: str
    value: str
    old: str
    only: bool = False  # whether it corrects nothing but the input whose value is `old`


def find_corrections(message: str, inputs: Schema, *, known: Schema, asked: Schema) -> dict[str, Any]:
    """Find the inputs that a message corrects, with new values; several, if it may mean any of them.

    Args:
        message: the user's message.
        inputs: schemas of the inputs that can be corrected, by name.
        known: current values.
        asked: inputs of the pending question.
    """
    for each in _corrections(message):
        found = _inputs_for(each, inputs, known, asked)
        if found:
            return found
    return {}


def find_restated_inputs(message: str, inputs: Schema, *, known: Schema) -> dict[str, Any]:
    """Find a corrected value that is given alone, or after a yes or no: 「下周一」, "no, two days".

    Only values with a form count: no free text, and no bare number except after a no.
    """
    found = _LEADS.fullmatch(message[:_SHORT].strip())
    if (
        found is None
        or len(value := found["value"]) > _MAX_VALUE_LENGTH
        or is_request_or_refusal(value)
        or is_past(value)
    ):
        return {}
    number = without_beginning(without_ending(to_simplified(value)))
    numbers = any(name in known and is_number(schema) for name, schema in inputs.items())
    fitting: dict[str, Any] = {}
    same: dict[str, Any] = {}
    for name, schema in inputs.items():
        if name not in known or is_free_text(schema) or schema.get("type") == "boolean":
            continue
        is_plain = bool(found["lead"]) and number_of(number) is not None
        if is_number(schema) and not is_plain and not has_own_unit(value, names_of(name, schema)):
            continue
        read = parse_value(value if numbers else hour_in_words(value, schema), name, schema, whole=True)
        if read is not MISSING:
            (same if read == known[name] else fitting)[name] = read
    return fitting or same


def is_retraction(message: str) -> bool:
    """Return whether a seeming correction cancels everything: "actually, never mind"."""
    return any(is_cancel(each.value, asked=True) for each in _corrections(message))


def find_refused_correction(message: str, inputs: Schema, *, known: Schema) -> RejectedValue | None:
    """Find the number in a correction that the schema rejects, or what is none of an API's choices."""
    for each in _corrections(message):
        for name, schema in inputs.items():
            if name in known and (refused := find_rejected_value(each.value, name, schema)):
                return refused
        offered = [name for name, schema in inputs.items() if name in known and OFFERED in schema]
        if len(offered) == 1:
            return RejectedValue(offered[0], None, inputs[offered[0]], said=each.value.strip())
    return None


def _corrections(message: str) -> Iterator[_Correction]:
    """Yield possible corrections, in the message's original characters."""
    message = " ".join(message[:_SHORT].split())  # long gaps would be scanned repeatedly
    for pattern in (*_INSTEAD_OF, *_CORRECTIONS):
        match = pattern.search(to_simplified(message))
        if match is None:
            continue
        parts = {name: message[slice(*match.span(name))] for name, part in match.groupdict().items() if part}
        called = parts.get("name", "").strip()
        named = "" if _NO_NAME.fullmatch(to_simplified(called)) else called
        value, old = without_ending(_MAY_BE.sub("", parts["value"])), parts.get("old", "")
        yield _Correction(named, value, old, only=pattern in _INSTEAD_OF)


def _inputs_for(said: _Correction, inputs: Schema, known: Schema, asked: Schema) -> dict[str, Any]:
    fitting = {
        name: read
        for name, schema in inputs.items()
        if name in known or name in asked or said.name
        if (read := _read(said.value, name, schema)) is not MISSING and read != known.get(name, MISSING)
    }
    formed = [name for name in fitting if not is_free_text(inputs[name])]
    if said.name:
        if any(_is_called(said.name, name, schema) for name, schema in inputs.items()):
            called = [name for name in fitting if _is_called(said.name, name, inputs[name])]
            return {called[0]: fitting[called[0]]} if len(called) == 1 else {}
        chosen = [name for name in formed if (name in known or name in asked) and not is_number(inputs[name])]
        return {name: fitting[name] for name in chosen}  # it has another name here: 电话 for 手机号
    if any(
        name in known and find_rejected_value(said.value, name, schema) for name, schema in inputs.items()
    ):
        return {}  # it is for that input and invalid, so it is no text for another
    if said.old:
        before = [
            name for name in fitting if name in known and _read(said.old, name, inputs[name]) == known[name]
        ]
        fitting = {name: fitting[name] for name in before} or ({} if said.only else fitting)
        formed = [name for name in formed if name in fitting]
    chosen = (
        [name for name in formed if name in asked]
        or [name for name in formed if name in known]
        or [name for name in fitting if name in known]
    )
    return {name: fitting[name] for name in chosen}


def _read(text: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    """Parse a new value: no words for a number that counts something else, no question for a text."""
    if is_free_text(schema) and (
        is_cancel(text, asked=True) or is_question(text) or is_request_or_refusal(text)
    ):
        return MISSING
    if OFFERED in schema:
        found = [each.value for each in find_choices(text, choices_of(schema))]
        found = found or [
            each.value for each in extract_slots(text, {name: schema})
        ]  # the time of a date and a time
        return found[0] if len(found) == 1 else MISSING
    if is_number(schema) and number_of(without_beginning(text)) is None:
        names = names_of(name, schema)
        if has_unit(names) and not has_own_unit(text, names):
            return MISSING
    return parse_value(hour_in_words(text, schema), name, schema)


def _is_called(said: str, name: str, schema: Schema) -> bool:
    form = normalise(said)
    return any(normalise(each) in form or form in normalise(each) for each in names_of(name, schema))
