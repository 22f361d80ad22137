"""The choices of an input and their titles: `enum`, or `oneOf` with `const`, `title` and `synonyms`.

A choice is meant by its title, by its number in the list, by a date or a time in the user's own words, or by
words of its title. What fits several is no choice yet: the user is asked which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import TYPE_CHECKING, Any, Final, cast

from loom_core.cjk import has_cjk
from loom_core.flow.expressions.expression import look_up, parse_pointer
from loom_core.flow.triggers.pattern_text import NormalText
from loom_core.flow.understanding.dates import date_parts
from loom_core.flow.understanding.formats import format_in_words
from loom_core.flow.understanding.language import in_language
from loom_core.flow.understanding.moments import common_values
from loom_core.flow.understanding.numbers import ENGLISH_ORDINALS, number_in, number_of
from loom_core.flow.understanding.times import hours_of_day, time_parts
from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language
    from loom_core.flow.understanding.moments import MomentPart

__all__ = [
    "OFFERED",
    "SHOWN",
    "ValueChoice",
    "choices_at",
    "choices_of",
    "choices_schema",
    "choices_text",
    "find_choices",
    "number_in_list",
    "properties_of",
    "with_titles",
]

OFFERED: Final = "x-offered"
"""Keyword of a schema whose choices are an API's: how many there are, those included that are not asked about
at the moment. The flow that asks reads any words about them."""

SHOWN: Final = 10
"""Maximum number of choices that a question lists."""

_BETWEEN = " / "
_MAX_REFERENCES = 8


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """A choice.

    Attributes:
        value: value for the API.
        title: its title, maybe bilingual (`牙科 / Dental`); empty for the value itself.
        synonyms: other words that users say for it; they are not shown.
    """

    value: Any
    title: str = ""
    synonyms: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the choice; none for a value that is no text and has no title."""
        named = [*self._titles, *([self.value] if isinstance(self.value, str) else []), *self.synonyms]
        return list(dict.fromkeys(each.strip() for each in named if each.strip()))

    @property
    def shown(self) -> list[str]:
        """Names of the choice that users have read."""
        return self._titles or [str(self.value)]

    @property
    def _titles(self) -> list[str]:
        return [self.title, *self.title.split(_BETWEEN)] if self.title else []

    def label_in(self, language: Language) -> str:
        """Return the label of the choice in a language."""
        return in_language(self.title, language) if self.title else str(self.value)


def choices_of(schema: Mapping[str, Any]) -> list[ValueChoice]:
    """Return the choices of an input, in order; empty if it has none."""
    if isinstance(listed := schema.get("enum"), list):
        return [ValueChoice(each) for each in cast("list[object]", listed)]
    forms: object = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(forms, list) or not forms:
        return []
    found: list[ValueChoice] = []
    for form in cast("list[object]", forms):
        if not isinstance(form, Mapping) or "const" not in form:
            return []
        part = cast("Mapping[str, Any]", form)
        title, synonyms = part.get("title"), part.get("synonyms")
        others = [str(each) for each in cast("list[object]", synonyms)] if isinstance(synonyms, list) else []
        found.append(ValueChoice(part["const"], title if isinstance(title, str) else "", tuple(others)))
    return found


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the properties of an object, by name; that of `true` is empty.

    They are for values that people give: a `$ref` within the schema is resolved, and null is left out.
    """
    return {
        name: _dereference(_without_null(_dereference(_as_mapping(part), schema)), schema)
        for name, part in _as_mapping(schema.get("properties")).items()
    }


def _as_mapping(found: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _dereference(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace a `$ref` to a part of `root` by it, through a few others at most."""
    for _ in range(_MAX_REFERENCES):
        reference = part.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        try:
            found = _as_mapping(look_up(root, parse_pointer(reference[1:])))
        except ValueError:
            break
        part = {**found, **_without(part, "$ref")}
    return part


def _without_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the only other value that may be given instead of null, if it is one."""
    for key in ("type", "anyOf", "oneOf"):
        listed = part.get(key)
        forms = cast("list[object]", listed) if isinstance(listed, list) else []
        others = [each for each in forms if each not in ("null", {"type": "null"})]
        if len(others) == 1 < len(forms):
            only = {"type": others[0]} if key == "type" else _as_mapping(others[0])
            return {**only, **_without(part, key)}
    return part


def _without(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def with_titles(schema: Mapping[str, Any], inputs: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """Replace choices in inputs by their titles, and dates and durations by words, for people."""
    parts, told = properties_of(schema), dict(inputs)
    for name in inputs.keys() & parts.keys():
        value, part = inputs[name], parts[name]
        told[name] = format_in_words(value, part, language)
        for choice in choices_of(part):
            if choice.title and choice.value == value:
                told[name] = choice.label_in(language)
    return told


def choices_schema(choices: Sequence[ValueChoice], *, offered: int) -> dict[str, Any]:
    """Return the schema of an answer that is one of an API's choices.

    `offered` is how many the API has given.
    """
    forms = [
        {"const": each.value, "title": each.title} if each.title else {"const": each.value}
        for each in choices
    ]
    return {"oneOf": forms, OFFERED: offered}


def choices_text(choices: Sequence[ValueChoice], language: Language) -> str:
    """Return the list of choices for people, numbered unless they are numbers themselves."""
    labels = [each.label_in(language) for each in choices[:SHOWN]]
    if any(number_of(label) is not None for label in labels):
        return "\n".join(f"- {label}" for label in labels)
    return "\n".join(f"{number}. {label}" for number, label in enumerate(labels, 1))


def find_choices(text: str, choices: Sequence[ValueChoice]) -> list[ValueChoice]:
    """Return the choices that a text may mean; several if it is ambiguous, or only narrows them down.

    They are in the order of the list that the user has read.
    """
    text = text[:_LONGEST]
    form = normalise(_WITHOUT.sub("", text)).strip(" .。!！,，\"'“”「」")
    named = [
        each for each in choices if any(normalise(name) in {form, normalise(text)} for name in each.shown)
    ]
    if named:
        return named
    number = number_in_list(text)
    found = _numbered(number, choices, counts=number_of(text) is not None) if number is not None else []
    found += [each for each in choices_at(text, choices) if each not in found]
    if (
        number is not None and 0 < number < _DAY and _BARE.fullmatch(form)
    ):  # "9" is the ninth, or nine o'clock
        found += [each for each in choices_at(f"{number}:00", choices) if each not in found]
    return found or _with_words(form, choices)


_BARE = re.compile(r"\d{1,2}")


def _numbered(number: int, choices: Sequence[ValueChoice], *, counts: bool) -> list[ValueChoice]:
    """Return the choice at a place of the list, and the one whose title counts so many: "4 people"."""
    listed = choices[:SHOWN]
    at_place = [listed[number - 1 if number > 0 else -1]] if -1 <= number <= len(listed) and number else []
    counting = [each for each in choices if counts and number_in(each.shown[0]) == number]
    return at_place + [each for each in counting if each not in at_place]


_TAKES = "好的?|嗯|那就?|就|请|帮?我|想?要|想|选择?|还是|用|订|约"
_TAKES_EN = (
    r"(?:ok(?:ay)?|yes|please|i(?:'ll| will| want|'d like)?|take|have|choose|pick|want|like|go (?:for|with)|"
    r"let's|to|book|the|with|option|number)\b|no\.?(?= ?\d)|#"
)
_NUMBERED = re.compile(
    rf"(?:(?:{_TAKES}|{_TAKES_EN})[ ,，]*)*+"
    rf"(?:(?P<last>last|最后)|(?P<ordinal>{'|'.join(ENGLISH_ORDINALS)})|"
    r"第?(?P<number>\d{1,3}|[一二两三四五六七八九十]{1,3}|one|two|three|four|five|six|seven|eight|nine|ten)"
    r"(?:st|nd|rd|th)?)"
    r" ?(?:一?[个项种号条位](?:时间|医生)?|one|option|slot|time)?"
    r"(?:[吧呢了 ,，]|就行|就好|好了|谢谢|please|thanks?)*+"
)


def number_in_list(text: str) -> int | None:
    """Return the number in a list that a text is: 2, 第二个, "the second one"; -1 for the last; else None."""
    found = _NUMBERED.fullmatch(normalise(text[:_LONGEST]).strip(" .。!！?？，,\"'“”「」"))
    if found is None:
        return None
    if found["last"]:
        return -1
    if found["ordinal"]:
        return ENGLISH_ORDINALS.index(found["ordinal"]) + 1
    number = number_of(found["number"])
    return int(number) if number is not None else None


# Dates and times

_DAY: Final = 24
_ISO = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)?[T ]?(?P<time>\d\d:\d\d)?(?::\d\d.*|Z|[+-]\d.*)?", re.ASCII)
_TIME = re.compile(r"(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?:\s*[ap]\.?m\b)?")


def choices_at(text: str, choices: Sequence[ValueChoice]) -> list[ValueChoice]:
    """Return the choices at the date, the time or the part of the day in a text; empty if it has none."""
    plain = _plain(text)
    days, times = date_parts(plain), time_parts(plain)
    hours = hours_of_day(plain) if not times else None
    if not days and not times and hours is None:
        return []
    wanted_days, wanted_times = _values_of(days), _values_of(times)
    found: list[ValueChoice] = []
    for each in choices:
        own_days, own_times = _moments_of(each)
        fits = (not days or wanted_days & own_days) and (not times or wanted_times & own_times)
        if fits and (hours is None or any(hours[0] <= at.hour < hours[1] for at in own_times)):
            found.append(each)
    return found


def _plain(text: str) -> str:
    return NormalText.of(text[:_LONGEST]).text.lower()


_LONGEST = 200  # characters of a text that are searched for dates and times


def _values_of(parts: Sequence[MomentPart]) -> frozenset[Any]:
    """Return the values that all parts may have, or else that any may have: "at 10 or at 11"."""
    return common_values(parts) or frozenset(value for part in parts for value in part.values)


def _moments_of(choice: ValueChoice) -> tuple[frozenset[date], frozenset[time]]:
    """Return the dates and times of a choice; of "9:00-10:00", its beginning."""
    for text in (choice.value, *choice.shown):
        found = _ISO.fullmatch(text) if isinstance(text, str) and text else None
        if found is not None and (found["day"] or found["time"]):
            try:
                day = frozenset({date.fromisoformat(found["day"])} if found["day"] else ())
                return day, frozenset({time.fromisoformat(found["time"])} if found["time"] else ())
            except ValueError:
                continue
    plain = _plain(choice.shown[0])
    clock = _TIME.search(plain)
    return _values_of(date_parts(plain)), _values_of(time_parts(clock[0] if clock else plain))


# Words

_ASKS = "找|看|换成?|有没有|还有|有"
_ASKS_EN = r"(?:any(?:thing)?|on|at|in|need|do you have|is there|are there|how about|what about)\b"
_WITHOUT = re.compile(
    rf"^(?:(?:{_TAKES}|{_TAKES_EN}|{_ASKS}|{_ASKS_EN})[ ,，]*(?=.))*+"
    r"|(?:的|那个|吧|呢|吗|请|谢谢|\bones?\b|\bplease\b|\bthanks?\b|[ ,，.。!！?？])++$",
    re.I,
)
_SMALL_WORDS = frozenset("a an and at for in is it my of on one or some that the this to with".split())
_LEAST = 2  # characters of words in a title


def _with_words(form: str, choices: Sequence[ValueChoice]) -> list[ValueChoice]:
    """Return the choices whose titles have the words of a text."""
    if len(form) < _LEAST:
        return []
    if has_cjk(form):
        return [each for each in choices if any(form in normalise(name) for name in each.shown)]
    words = {*re.findall(r"\w+", form)} - _SMALL_WORDS
    if not words:
        return []
    return [each for each in choices if words <= {*re.findall(r"\w+", normalise(" ".join(each.shown)))}]
