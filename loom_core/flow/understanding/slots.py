"""Slot filling: extract the values of inputs from messages, by the schemas of a flow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.flow.expressions.expression import MISSING, Missing
from loom_core.flow.triggers.engines import MatchClock, compile_pattern
from loom_core.flow.triggers.pattern_text import NormalText
from loom_core.flow.understanding.choices import ValueChoice, choices_at, choices_of
from loom_core.flow.understanding.formats import find_by_format, has_format, is_in_format, read_by_format
from loom_core.flow.understanding.language import in_language
from loom_core.flow.understanding.numbers import (
    counts_other_unit,
    find_own_unit,
    has_own_unit,
    number_in,
    number_of,
)
from loom_core.flow.understanding.person_names import is_for_person, may_be_person, person_in, person_part
from loom_core.flow.understanding.small_talk import is_past, is_proposal, is_question
from loom_core.flow.understanding.yes_no import yes_or_no
from loom_core.knowledge.text.scripts import normalise, to_simplified
from loom_core.tools.arguments import ToolArguments

if TYPE_CHECKING:
    from loom_core.flow.understanding.formats import FormatMatch
    from loom_core.tools.interface import JsonValue

__all__ = [
    "RejectedValue",
    "Schema",
    "SlotMatch",
    "accepts_any_text",
    "extract_slots",
    "find_rejected_value",
    "fits",
    "holds_words",
    "hour_in_words",
    "is_free_text",
    "is_number",
    "is_person",
    "label_of",
    "names_input",
    "names_of",
    "parse_typed",
    "parse_value",
    "spans_within",
    "texts_within",
    "without_beginning",
    "without_ending",
]

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A value in a message that the schema rejects.

    Attributes:
        name: name of the input.
        value: the number in the message; None for another value.
        schema: schema of the input.
        choices: the values that an ambiguous text may mean.
        said: a text that is none of the choices which an API has offered; or a value outside of the bounds
            of a `format`.
    """

    name: str
    value: float | None
    schema: Schema
    choices: tuple[str, ...] = ()
    said: str = ""

    @property
    def title(self) -> str:
        """Title of the input."""
        return str(self.schema.get("title") or self.name)

    @property
    def low(self) -> float | None:
        """Minimum, or exclusive minimum."""
        return self._bound("minimum", "exclusiveMinimum")

    @property
    def high(self) -> float | None:
        """Maximum, or exclusive maximum."""
        return self._bound("maximum", "exclusiveMaximum")

    @property
    def is_whole(self) -> bool:
        """Whether the input is an integer."""
        return self.schema.get("type") == "integer"

    def _bound(self, name: str, exclusive: str) -> float | None:
        step = 1 if self.is_whole else 0
        if isinstance(bound := self.schema.get(exclusive), int | float):
            return bound + (step if exclusive == "exclusiveMinimum" else -step)
        return bound if isinstance(bound := self.schema.get(name), int | float) else None


_ENDS = re.compile(
    r"(?:开始|起)?(?:就好|就行|吧|呢|啊|呀|哦|的话|左右|please|"
    r"[,，]?\s*(?:(?:可以|行|好|成|方便)[吗么不]|行不行|好不好|可不可以|怎么样)[?？]?)?[\s。.!！,，]*$",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"^(?:我?(?:想|要|需要|打算|准备)?(?:请|选择|选|填|是|为|因为|由于|从|在)|"
    r"(?:it is|it's|i'?d like|because(?: of)?|on|from|starting(?: on| from)?)\s)\s*",
    re.IGNORECASE,
)
_HOUR_ALONE = re.compile(
    r"(?:(?:ok|well|um|at|那就?|就)[,\s]*)*(?P<hour>[0-2]?[0-9])(?:\s*(?:then|please|pls|吧|好了))*[.!。]?",
    re.I,
)
_AROUND_NAME = re.compile(r"^(?:my|the|it'?s|我的|是)|[\s:：=是为]|(?:\bis|'s)\s*$", re.I)
_ANYTHING = re.compile(
    r"问题|疑问|咨询|留言|内容|备注|\b(?:question|message|comment|feedback|note)s?\b", re.I
)


def parse_value(text: str, name: str, schema: Schema, *, whole: bool = False) -> Any | Missing:  # noqa: ANN401 - JSON
    """Parse a text as a valid value; `MISSING` if there is none.

    If `whole`, the text must be the value, with little around it; otherwise it may contain it.
    """
    said = text.strip()[label_of(text.strip(), name, schema) :]
    if is_free_text(schema):
        plain = said.strip().strip("。.!！") or said
        if is_person(name, schema):
            given = person_in(plain) or person_part(plain)
            plain = plain[slice(*given)] if given is not None else plain
            if given is None and not may_be_person(plain):
                return MISSING
        return _validate(name, plain, schema)
    if has_format(schema):
        if is_question(without_ending(to_simplified(said))) and not is_proposal(said):
            return MISSING
        value = read_by_format(said, schema)
        return MISSING if value is MISSING else _validate(name, value, schema)
    written, said = said, to_simplified(said)
    if is_question(without_ending(said)) or (is_number(schema) and is_past(said)):
        return MISSING
    for words in _shorten(said):
        if schema.get("type") == "boolean" and (yes := yes_or_no(words)) is not None:
            return yes
        value = _parse_words(words, name, schema)
        if value is not MISSING and (value := _validate_code(name, value, schema)) is not MISSING:
            return value
    if whole:
        return MISSING
    return _find_value_within(written, name, schema) if _pattern(schema) else _only_choice(said, name, schema)


def hour_in_words(text: str, schema: Schema) -> str:
    """Return a bare number as a time of the day, where that is asked for: "9" as "at 9"; else the text."""
    hour = _HOUR_ALONE.fullmatch(text.strip()) if schema.get("format") == "time" else None
    return f"at {hour['hour']}" if hour else text


def names_input(text: str, schemas: Schema) -> bool:
    """Return whether a text begins with the name of an input, and its value: 「预约号K1024」."""
    return any(
        each.labelled and _holds_name(text[: each.start], each.name, schemas[each.name])
        for each in extract_slots(text, schemas)
    )


def _holds_name(text: str, name: str, schema: Schema) -> bool:
    """Return whether a text is no more than the name of an input."""
    plain = _AROUND_NAME.sub("", to_simplified(text)).casefold()
    return any(
        plain == _AROUND_NAME.sub("", to_simplified(each)).casefold() for each in _label_names(name, schema)
    )


def find_rejected_value(text: str, name: str, schema: Schema) -> RejectedValue | None:
    """Find the number in a text that the schema rejects, or an ambiguous value; None if there is none."""
    if has_format(schema):
        rejections = (_rejection_of(each, text, name, schema) for each in find_by_format(text, schema))
        return next(filter(None, rejections), None)
    said = to_simplified(text.strip()[label_of(text.strip(), name, schema) :])
    for words in _shorten(said) if is_number(schema) and not is_question(said) else ():
        value = _parse_words(words, name, {**schema, "type": "number"})
        if isinstance(value, int | float) and not isinstance(value, bool):
            return RejectedValue(name, value, schema) if _validate(name, value, schema) is MISSING else None
    return None


def _rejection_of(found: FormatMatch, text: str, name: str, schema: Schema) -> RejectedValue | None:
    """Return why a value of a `format` is rejected: it is ambiguous, or outside of its bounds."""
    choices = [each for each in found.choices if is_in_format(each, schema)]
    if len(choices) > 1:
        return RejectedValue(name, None, schema, tuple(choices))
    if found.choices or (found.value is not None and not is_in_format(found.value, schema)):
        said = str(found.value or text[found.start : found.end].strip())
        return RejectedValue(name, None, schema, said=said)
    return None


def fits(value: object, name: str, schema: Schema) -> bool:
    """Return whether a value is valid by a schema."""
    return _validate(name, value, schema) is not MISSING


def label_of(text: str, name: str, schema: Schema) -> int:
    """Return the length of the input's name, with its joint, at the beginning of a text; 0 if none."""
    for called in names_of(name, schema):
        pattern = rf"\s*{re.escape(to_simplified(called))}\s*(?:[:：=]|是|为|is\b)\s*"
        if match := re.match(pattern, to_simplified(text), re.IGNORECASE):
            return match.end()
    return 0


def names_of(name: str, schema: Schema) -> list[str]:
    """Return the names of an input."""
    return [
        name,
        *(each for key in ("title", "description") if isinstance(each := schema.get(key), str) and each),
    ]


def is_free_text(schema: Schema) -> bool:
    """Return whether an input is free text."""
    kinds = schema.get("type", "string")
    plain = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    has_form = _pattern(schema) or has_format(schema) or choices_of(schema) or "const" in schema
    return plain and not has_form


def is_number(schema: Schema) -> bool:
    """Return whether an input is a number."""
    return schema.get("type") in ("integer", "number") and not choices_of(schema) and not has_format(schema)


def accepts_any_text(name: str, schema: Schema) -> bool:
    """Return whether a question or a request may be the answer: 「您的留言」."""
    return is_free_text(schema) and any(
        _ANYTHING.search(to_simplified(each)) for each in names_of(name, schema)
    )


def is_person(name: str, schema: Schema) -> bool:
    """Return whether an input is the name of a person, by its `format` or its names."""
    return schema.get("format") == "person" or is_for_person(names_of(name, schema))


def holds_words(text: str, words: str) -> bool:
    """Return whether a text contains words; whole words, if they are separated by spaces."""
    found = text.find(words)
    while found >= 0 and words:
        if not _cuts_word(text, found) and not _cuts_word(text, found + len(words)):
            return True
        found = text.find(words, found + 1)
    return False


def without_beginning(text: str) -> str:
    """Remove 「我想请」, "because of" and the like from the beginning."""
    found = _BEGINS.match(to_simplified(text))
    return text[found.end() :] if found else text


def without_ending(text: str) -> str:
    """Remove 「吧」, "please" and the like from the end."""
    found = _ENDS.search(to_simplified(text))
    return text[: found.start()] if found else text


def _shorten(said: str) -> list[str]:
    """Return a text as it is, and without the words around a value."""
    short = without_ending(said)
    return list(dict.fromkeys((said, short, without_beginning(short))))


def _parse_words(words: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    if is_number(schema) and number_of(words) is None and counts_other_unit(words, names_of(name, schema)):
        return MISSING
    return cast("Any", parse_typed(words, schema))


def _pattern(schema: Schema) -> str:
    pattern = schema.get("pattern")
    return pattern if isinstance(pattern, str) else ""


def _find_value_within(text: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    """Return the only value in a text that matches the pattern."""
    found: list[Any] = []
    last = ""
    for part in texts_within(text, _pattern(schema)):
        value = _validate_code(name, part, schema)
        if value is not MISSING and (not found or to_simplified(str(value)).casefold() != last):
            found.append(value)
            last = to_simplified(str(value)).casefold()
    return found[0] if len(found) == 1 else MISSING


def _choices_within(text: str, schema: Schema) -> list[tuple[str, Any]]:
    """Return the normalized names of choices in a text, with their values; none within a longer one."""
    form = normalise(text)
    held = [
        (normalise(called), choice.value)
        for choice in choices_of(schema)
        for called in choice.names
        if holds_words(form, normalise(called)) and _is_meant(called, choice, text)
    ]
    return [(name, value) for name, value in held if not any(name != n and name in n for n, _ in held)]


def _is_meant(called: str, choice: ValueChoice, text: str) -> bool:
    """Return whether a name of a choice is no other word of a text: "I'm" and "a" contain M and A.

    A code of one character does not count if users read a title instead, and A only as a capital.
    """
    if len(called) > 1 or not called.isascii():
        return True
    if called in "iI" or (called == choice.value and choice.title):
        return False
    alone = rf"(?<![A-Za-z0-9'’]){re.escape(called)}(?![A-Za-z0-9'’])"
    return re.search(alone, text, re.NOFLAG if called in "aA" else re.IGNORECASE) is not None


def _only_choice(said: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    longest = [value for _, value in _choices_within(said, schema)]
    longest = longest or [each.value for each in choices_at(said, choices_of(schema))]
    same = all(value == longest[0] for value in longest)
    return _validate(name, longest[0], schema) if longest and same else MISSING


def _validate(name: str, value: object, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    if not is_in_format(value, schema):
        return MISSING
    try:
        arguments = ToolArguments("", {"type": "object", "properties": {name: schema}})
        return arguments.validate({name: value})[name]
    except (InvalidInputError, KeyError):
        return MISSING


def _validate_code(name: str, value: object, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    """Validate a value; one that its pattern wants in capitals may be in small letters: k1024."""
    read = _validate(name, value, schema)
    if read is MISSING and _pattern(schema) and isinstance(value, str):
        return _validate(name, value.upper(), schema)
    return read


def texts_within(text: str, pattern: str) -> Iterator[str]:
    """Yield parts of a text that a schema's pattern may match, as written and normalized.

    A part of a longer word or number does not count. The schema decides whether the pattern matches. The
    pattern is for a whole value; `^` and `$` at its ends are dropped for the search.
    """
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.original[slice(*normal.span(start, end))]
        yield normal.text[start:end]


def spans_within(text: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of such parts; see `texts_within`."""
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.span(start, end)


def _places(normal: NormalText, pattern: str) -> Iterator[tuple[int, int]]:
    core = pattern.removeprefix("^").removesuffix("$")
    try:
        search = compile_pattern(core)[1]
    except UnreadableTextError:
        return
    for found in search.find(normal.text, MatchClock()):
        if not _cuts_word(normal.text, found.start) and not _cuts_word(normal.text, found.end):
            yield found.start, found.end


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(char.isascii() and char.isalnum() for char in around)


_MAX_SEARCHED_LENGTH = 2000
_SEGMENT = re.compile(r"[^,，;；。、\n]+")
_NEGATED = re.compile(r"(?:不是|不要|不想|别|除了|\bnot(?: on| at| for)?|\bexcept|\bno)\s*$", re.I)
_OR = re.compile(r"\s*(?:\bor\b|或|还是)", re.I)
# What does not suit is not wanted: 「周五来不了」, "can't make it on Friday".
_UNSUITABLE = re.compile(
    r"(?:can['’]?t|cannot|won['’]?t) (?:make(?: it)?|come|do(?: it)?|be there)(?: (?:on|at|for))?\s*$", re.I
)
_UNSUITED = re.compile(
    r"[上中下]?午?(?:我|他|她)?(?:都|可能|又)?(?:来不了|去不了|来不及|不行|没空|没时间|不方便|有事)|"
    r"\s*(?:does|wo|is|did)n['’]?t (?:work|suit|good|possible)|\s*is (?:no good|not (?:good|possible))",
    re.I,
)
_REPAIR = re.compile(
    r"\W*(?:no,? (?:wait|sorry)|wait,? no|sorry|i mean|make (?:it|that)|scratch that|or rather|"
    r"不对|哦不|啊不|不不|说错了|应该是)(?:\W+(?:on|at|for|the))*\W*",
    re.I,
)
_PROBES = ("hello there, please", "你好请问一下")
_BEHIND = r"\s*(?:[:：=]|是|为|\bis\b|\bof\b|号码?|\bnumber\b)?\s*"
_VALUE = re.compile(r"[^\s,，;；。、]+")
_WORD_END = r"(?![a-z])"
_SHORT = 2  # characters of a Latin name that is too short to search for


@dataclass(frozen=True, slots=True)
class SlotMatch:
    """A value for an input in a message, valid by its schema; `labelled`: the message names the input."""

    name: str
    value: Any
    start: int
    end: int
    labelled: bool = False


def extract_slots(message: str, schemas: Schema) -> list[SlotMatch]:
    """Extract the values of inputs that are certain in a message.

    An input with several values is left out, and so is a value that may belong to several inputs: the run
    asks for them. Free text is found only after its name (`reason: …`), and the name of a person only if
    it is introduced as one, or is all between two commas where no other text can be meant.
    """
    message = message[:_MAX_SEARCHED_LENGTH]
    everything = [each for name, schema in schemas.items() for each in _candidates(message, name, schema)]
    everything += _find_person_part(message, schemas, everything)
    open_ = {each.name for each in everything if _OR.match(message, each.end)}
    found = [each for each in everything if each.name not in open_ and not _is_rejected(each, message)]
    found = [each for each in found if not any(_is_repaired(each, other, message) for other in found)]
    chosen = {(each.start, each.end) for each in found if choices_of(schemas[each.name])}
    found = [
        each for each in found if (each.start, each.end) not in chosen or not is_free_text(schemas[each.name])
    ]  # of "for ENT"
    told = {each.name for each in found if each.labelled}
    found = [each for each in found if each.labelled or each.name not in told]
    single = [
        each for each in found if all(other.value == each.value for other in found if other.name == each.name)
    ]
    sure = [each for each in single if not any(_contests(other, each) for other in found)]
    return list({each.name: each for each in reversed(sure)}.values())


def _is_rejected(found: SlotMatch, message: str) -> bool:
    before = message[: found.start]
    unsuitable = _UNSUITABLE.search(before) or _UNSUITED.match(message, found.end)
    return bool(_NEGATED.search(before) or unsuitable)


def _is_repaired(found: SlotMatch, other: SlotMatch, message: str) -> bool:
    """Return whether the speaker replaces a value by another one: "Monday, no wait, Tuesday"."""
    return found.name == other.name and bool(_REPAIR.fullmatch(message, found.end, other.start))


def _contests(other: SlotMatch, one: SlotMatch) -> bool:
    """Return whether another input has an equal claim to the same part of the message."""
    overlap = other.name != one.name and other.start < one.end and one.start < other.end
    if not overlap or (one.labelled and not other.labelled):
        return False
    within = (
        one.start <= other.start and other.end <= one.end and other.end - other.start < one.end - one.start
    )
    return not within  # 「2026-12-01」 contains a number, and is a date


def _candidates(message: str, name: str, schema: Schema) -> Iterator[SlotMatch]:
    names = _label_names(name, schema)
    labelled = list(_find_labelled(message, name, schema, names))
    yield from labelled
    if choices_of(schema):
        chosen = list(_find_choices(message, name, schema))
        yield from chosen or _find_formatted(message, name, schema)
    elif isinstance(pattern := schema.get("pattern"), str):
        yield from _find_patterned(message, name, schema, pattern)
    elif has_format(schema):
        yield from _find_formatted(message, name, schema)
    elif is_number(schema):
        for match in _SEGMENT.finditer(message):
            own = find_own_unit(match[0], names)
            if own is not None and (value := parse_value(match[0], name, schema)) is not MISSING:
                is_as_long = len(own.string) == len(match[0])  # normalized as it is
                start, end = own.span() if is_as_long else (0, len(match[0]))
                yield SlotMatch(name, value, match.start() + start, match.start() + end)
    elif is_free_text(schema) and not labelled and is_person(name, schema) and (span := person_in(message)):
        value = message[slice(*span)]
        if fits(value, name, schema):
            yield SlotMatch(name, value, *span, labelled=True)


def _find_person_part(message: str, schemas: Schema, found: Sequence[SlotMatch]) -> Iterator[SlotMatch]:
    """Find a name that nothing introduces, where only one input takes words: 「牙科，王小明，周四」."""
    texts = [name for name, schema in schemas.items() if is_free_text(schema)]
    if (
        len(texts) != 1
        or not is_person(texts[0], schemas[texts[0]])
        or any(each.name in texts for each in found)
    ):
        return
    span = person_part(message)
    if span and fits(value := message[slice(*span)], texts[0], schemas[texts[0]]):
        yield SlotMatch(texts[0], value, *span)


def _find_choices(message: str, name: str, schema: Schema) -> Iterator[SlotMatch]:
    form = normalise(message)
    for called, value in _choices_within(message, schema):
        start = form.find(called) if len(form) == len(message) else 0
        yield SlotMatch(name, value, start, start + len(called) if len(form) == len(message) else 0)


def _find_formatted(message: str, name: str, schema: Schema) -> Iterator[SlotMatch]:
    for found in find_by_format(message, schema) if has_format(schema) else ():
        if found.value is not None and fits(found.value, name, schema):
            yield SlotMatch(name, found.value, found.start, found.end)


def _find_patterned(message: str, name: str, schema: Schema, pattern: str) -> Iterator[SlotMatch]:
    """Find values that match a pattern; a pattern of any words is ignored."""
    if any(True for probe in _PROBES for _ in spans_within(probe, pattern)):
        return
    for start, end in spans_within(message, pattern):
        if _cuts_number(message, start, end):
            continue
        if (value := _validate_code(name, message[start:end], schema)) is not MISSING:
            yield SlotMatch(name, value, start, end)


def _find_labelled(message: str, name: str, schema: Schema, names: list[str]) -> Iterator[SlotMatch]:
    """Find values after an input's name: "age 34", 「电话：13800138000」; a text needs a sign between."""
    plain = to_simplified(message)
    for called in names:
        if called.isascii() and len(called) <= _SHORT:
            continue
        label = (
            rf"(?<![A-Za-z0-9]){re.escape(to_simplified(called))}{_WORD_END if called[-1].isascii() else ''}"
        )
        if is_free_text(schema) or choices_of(schema) or schema.get("type") == "boolean":
            for match in re.finditer(
                rf"{label}\s*(?:[:：=]|是|为|\bis\b)\s*(?P<value>[^,，;；。\n]+)", plain, re.I
            ):
                text = message[slice(*match.span("value"))].strip()
                if (value := parse_value(text, name, schema)) is not MISSING:
                    yield SlotMatch(name, value, *match.span("value"), labelled=True)
            continue
        for match in re.finditer(rf"{label}{_BEHIND}", plain, re.I):
            behind = _VALUE.match(message, match.end())
            if behind is None:
                continue
            text = behind[0].rstrip(".!！?？")
            if is_number(schema) and number_of(text) is None and not has_own_unit(text, names):
                continue
            value = parse_value(text, name, schema, whole=is_number(schema))
            if value is not MISSING:
                yield SlotMatch(name, value, *behind.span(), labelled=True)


def _label_names(name: str, schema: Schema) -> list[str]:
    """Return the names of an input, in both languages."""
    names = [name.replace("_", " "), *names_of(name, schema)]
    parts = [part for each in names for part in (each, in_language(each, "zh"), in_language(each, "en"))]
    return list(dict.fromkeys(each for each in parts if each))


def _cuts_number(text: str, start: int, end: int) -> bool:
    """Return whether a span cuts a longer time, date or number: the 9 of 9:30."""
    before = re.search(r"[0-9][:：./-]$", text[:start]) and text[start : start + 1].isdigit()
    behind = re.match(r"[:：./-][0-9]", text[end:]) and text[end - 1 : end].isdigit()
    return bool(before or behind)


_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}
_SIMPLE = ("integer", "number", "boolean", "string")


def parse_typed(text: str, schema: JsonValue) -> JsonValue | Missing:
    """Parse a text by the type of a schema; `MISSING` if it does not fit.

    Numbers may be in Chinese or English words and have a unit after them (三天, "3 days"), a `format` is read
    as people write it, and a value of an `enum` may have another case or width. The schema decides whether
    the value is valid.
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
    if has_format(schema):
        return read_by_format(said, schema)
    if kind == "string":
        return said
    if kind == "boolean":
        found = _BOOLEANS.get(normalise(said), yes_or_no(said))
        return MISSING if found is None else found
    number = number_of(said)
    number = number_in(said) if number is None else number
    if number is None:
        return MISSING
    if kind == "number":
        return number
    return int(number) if number == int(number) else MISSING


def _choice(said: str, choices: Sequence[ValueChoice]) -> JsonValue | Missing:
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
