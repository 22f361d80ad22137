"""Values by the `format` of a schema: dates, times, durations, money, phone numbers and e-mail addresses.

A message is read by rules in English and Chinese, and the value is in one standard form, in which an API
gets it. What is ambiguous, vague or a span of time is no value: the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Final

from loom_core.flow.expressions.values import MISSING, Missing
from loom_core.flow.triggers.normal_text import NormalText
from loom_core.flow.understanding.amounts import duration_parts, money_parts
from loom_core.flow.understanding.dates import date_parts
from loom_core.flow.understanding.moments import MomentPart, MomentValue, common_values, current_situation
from loom_core.flow.understanding.times import distant_parts, time_parts

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language
    from loom_core.tools.interface import JsonValue

__all__ = ["FormatMatch", "find_by_format", "format_in_words", "has_format", "is_in_format", "read_by_format"]

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FormatMatch:
    """A value in a message.

    Attributes:
        value: in the standard form; None where it is ambiguous or vague.
        start: where it begins in the message.
        end: where it ends.
        choices: the values that an ambiguous part may have, in order; empty for a vague one.
    """

    value: JsonValue
    start: int
    end: int
    choices: tuple[str, ...] = ()


def has_format(schema: Schema) -> bool:
    """Return whether values of a schema are read by its `format`."""
    return schema.get("format") in _READERS


def read_by_format(text: str, schema: Schema) -> JsonValue | Missing:
    """Return the only value in a text; `MISSING` if there is none, or it is not certain.

    Args:
        text: the user's message.
        schema: with a `format` of `has_format`.
    """
    said = [text]
    if corrected := list(_CORRECTED.finditer(text)):
        said = [text[corrected[-1].end() :], text]  # "Thursday, sorry, I mean Wednesday"
    found = next((found for each in said if (found := find_by_format(each, schema))), list[FormatMatch]())
    values = {str(each.value): each.value for each in found}
    value = next(iter(values.values())) if len(values) == 1 else None
    return MISSING if value is None else value


_LONGEST: Final = 600  # characters of a message that are read
_CORRECTED: Final = re.compile(
    r"\b(?:sorry|i mean|i meant|no,? wait|wait,? no|actually|make that|make it|scratch that|"
    r"correction|or rather)\b|"
    r"不对|说错了?|写错了?|搞错了?|应该是|哦不|改成|改为|还是.{0,6}吧",
    re.I,
)


def find_by_format(text: str, schema: Schema) -> list[FormatMatch]:
    """Return the values in a text, in their order; those that are not certain have none."""
    normal = NormalText.of(text[:_LONGEST])
    plain = normal.text.lower()
    if len(plain) != len(normal.text):  # as of İ
        plain = normal.text
    name = schema["format"]
    return [
        FormatMatch(each.value, *normal.span(each.start, each.end), each.choices)
        for each in _READERS[name](normal.text if name in _AS_WRITTEN else plain, schema)
    ]


def is_in_format(value: object, schema: Schema) -> bool:
    """Return whether a value has the standard form, and is within `formatMinimum` and `formatMaximum`."""
    form = _FORMS.get(str(schema.get("format")))
    if form is None or not isinstance(value, str):
        return True
    return form.fullmatch(value) is not None and _exists(value, schema) and _is_within(value, schema)


def _exists(value: str, schema: Schema) -> bool:
    """Whether a date is in the calendar."""
    try:
        return schema["format"] not in {"date", "date-time"} or bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def format_in_words(value: JsonValue, schema: Schema, language: Language) -> JsonValue:
    """Return a value for people: a date with its day of the week, a duration in words."""
    if not has_format(schema) or not isinstance(value, str) or not is_in_format(value, schema):
        return value
    match schema["format"]:
        case "date":
            return _day_in_words(date.fromisoformat(value), language)
        case "date-time":
            moment = datetime.fromisoformat(value)
            return f"{_day_in_words(moment.date(), language)} {moment:%H:%M}"
        case "duration":
            return _duration_in_words(value, language)
        case _:
            return value


def _day_in_words(day: date, language: Language) -> str:
    if language == "zh":
        return f"{day.year}年{day.month}月{day.day}日（周{'一二三四五六日'[day.weekday()]}）"
    return f"{day:%A}, {day.day} {day:%B} {day.year}"


_UNIT_WORDS = {
    "Y": ("年", "year"),
    "M": ("个月", "month"),
    "W": ("周", "week"),
    "D": ("天", "day"),
    "TH": ("小时", "hour"),
    "TM": ("分钟", "minute"),
    "TS": ("秒", "second"),
}


def _duration_in_words(value: str, language: Language) -> str:
    days, _, times = value[1:].partition("T")
    counts = re.findall(r"(\d+)([YMWD])", days) + [
        (count, f"T{unit}") for count, unit in re.findall(r"(\d+)([HMS])", times)
    ]
    if language == "zh":
        return "".join(f"{count}{_UNIT_WORDS[unit][0]}" for count, unit in counts)
    return " ".join(f"{count} {_UNIT_WORDS[unit][1]}{'s' * (count != '1')}" for count, unit in counts)


# Forms

_FORMS: Final = {
    "date": re.compile(r"\d{4}-\d\d-\d\d", re.ASCII),
    "time": re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?", re.ASCII),
    "duration": re.compile(
        r"P(?!$)(?:\d+Y)?(?:\d+M)?(?:\d+W)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?"
    ),
    "phone": re.compile(r"\+[1-9]\d{5,14}", re.ASCII),
    "email": re.compile(r"[^\s@]+@[^\s@]+\.[^\s@.]+"),
}


def _is_within(value: str, schema: Schema) -> bool:
    low, high = (_bound(schema.get(name)) for name in ("formatMinimum", "formatMaximum"))
    return (not low or value >= low) and (not high or value <= high)


def _bound(said: object) -> str:
    if said == "today":
        return current_situation().now.date().isoformat()
    return said if isinstance(said, str) else ""


# Readers


def _certain(
    parts: Sequence[MomentPart], schema: Schema, form: Callable[[Any], str]
) -> Iterator[FormatMatch]:
    """Yield the values of parts; bounds decide between several."""
    common = common_values(parts)
    for part in parts:
        values = sorted(form(value) for value in (common or part.values))
        within = [value for value in values if _is_within(value, schema)]
        if len(values) > 1 and len(within) == 1:
            values = within
        value = values[0] if len(values) == 1 else None
        yield FormatMatch(value, part.start, part.end, tuple(values) if len(values) > 1 else ())


def _dates(text: str, schema: Schema) -> Iterator[FormatMatch]:
    return _certain(date_parts(text), schema, lambda day: day.isoformat())


def _time_form(moment: time) -> str:
    return f"{moment:%H:%M}"


def _times(text: str, schema: Schema) -> Iterator[FormatMatch]:
    return _certain(time_parts(text), schema, _time_form)


_ZERO_HOUR = re.compile(r"(?<!\d)0?0:00|零点|(?<!\d)0点")


def _date_times(text: str, schema: Schema) -> Iterator[FormatMatch]:
    zone = current_situation().now.tzinfo
    if distant := distant_parts(text):
        yield from _certain(distant, schema, lambda moment: moment.isoformat(timespec="seconds"))
        return
    days, times = date_parts(text), time_parts(text)
    if not days or not times:
        return
    start, end = min(each.start for each in (*days, *times)), max(each.end for each in (*days, *times))
    common_days, common_times = common_values(days), common_values(times)
    if time(0) in common_times and not _ZERO_HOUR.search(text):
        common_times = frozenset[MomentValue]()  # midnight: at the beginning or at the end of the day?
    moments = frozenset(
        datetime.combine(day, hour, zone)
        for day in common_days
        for hour in common_times
        if isinstance(day, date) and isinstance(hour, time)
    )
    yield from _certain(
        [MomentPart(start, end, moments)], schema, lambda moment: moment.isoformat(timespec="seconds")
    )


def _durations(text: str, _: Schema) -> Iterator[FormatMatch]:
    for start, end, value in duration_parts(text):
        yield FormatMatch(value, start, end)


def _money(text: str, schema: Schema) -> Iterator[FormatMatch]:
    """Amounts: a number, or a text with the currency; not in another currency than the schema's."""
    currency = schema.get("currency")
    for start, end, money in money_parts(text):
        if money is None or (currency and money[1] not in {"", currency}):
            yield FormatMatch(None, start, end)
            continue
        amount = f"{money[0].normalize():f}"
        if schema.get("type") in {"number", "integer"}:
            whole = money[0] == int(money[0])
            yield FormatMatch(int(money[0]) if whole else float(money[0]), start, end)
        else:
            yield FormatMatch(f"{amount} {money[1] or currency or ''}".strip(), start, end)


_HAN_DIGITS = str.maketrans("零〇幺一二三四五六七八九", "001123456789")
_DIGIT_WORDS = {
    "oh": "0",
    **{
        word: str(value)
        for value, word in enumerate("zero one two three four five six seven eight nine".split())
    },
}
_DIGIT_WORD = "|".join(_DIGIT_WORDS)
_SPELLED = re.compile(
    rf"[零〇幺一二三四五六七八九]{{7,}}|\b(?:plus )?(?:(?:double |triple )?(?:{_DIGIT_WORD})\b[\s,.-]*){{7,}}"
)
_IN_WORDS = re.compile(rf"(?:(double|triple) )?({_DIGIT_WORD})\b")
_ABROAD = re.compile(r"(?<![\d+])00(?=[1-9]\d{1,2}[\s\d-]{6,})")


def _phones(text: str, schema: Schema) -> Iterator[FormatMatch]:
    """Phone numbers that exist, with the plan of their country: the schema's `region`, or as they say."""
    from phonenumbers import PhoneNumberFormat, PhoneNumberMatcher, format_number

    region = schema.get("region") or ("CN" if current_situation().language == "zh" else None)
    spelled = [(*match.span(), _digits_of(match[0])) for match in _SPELLED.finditer(text)]
    for start, end, digits in spelled or [(0, len(text), _ABROAD.sub(" +", text))]:  # as long as before
        for match in PhoneNumberMatcher(digits, region):
            span = (start, end) if spelled else (match.start, match.end)
            yield FormatMatch(format_number(match.number, PhoneNumberFormat.E164), *span)


def _digits_of(spelled: str) -> str:
    if not spelled.isascii():
        return spelled.translate(_HAN_DIGITS)
    times = {"": 1, "double": 2, "triple": 3}
    digits = "".join(_DIGIT_WORDS[word] * times[many] for many, word in _IN_WORDS.findall(spelled))
    return f"+{digits}" if spelled.startswith("plus") else digits


_EMAIL = re.compile(
    r"[a-z0-9][\w.+-]*@[a-z0-9](?:[\w-]*[a-z0-9])?(?:\.[a-z0-9-]+)*\.[a-z]{2,}", re.I | re.ASCII
)
_SPOKEN_EMAIL = re.compile(
    r"\b[a-z0-9]{1,30}(?: (?:dot|underscore|dash) [a-z0-9]{1,30}){0,4} at "
    r"[a-z0-9]{1,30}(?: dot [a-z0-9]{1,30}){1,3}",
    re.ASCII,
)


def _emails(text: str, _: Schema) -> Iterator[FormatMatch]:
    for match in _EMAIL.finditer(text):
        local, domain = match[0].split("@")
        yield FormatMatch(f"{local}@{domain.lower()}", *match.span())
    for match in _SPOKEN_EMAIL.finditer(text.lower()):
        said = match[0].replace(" dot ", ".").replace(" underscore ", "_").replace(" dash ", "-")
        yield FormatMatch(said.replace(" at ", "@"), *match.span())


_LEAD = re.compile(
    r"^.*(?:住在|地址(?:是|为|[:：])?|[送寄到]到?|位于|我(?:这边|家|们)?[是在]|"
    r"\baddress(?: is|:)?|\blive (?:at|on|in)|\bto)\s*",
    re.I,
)
_HAN_ADDRESS = re.compile(
    r"[\u4e00-\u9fffA-Za-z0-9]{2,30}?(?:路|街|大道|道|巷|弄|胡同|小区|花园|公寓|大厦|广场|村|园|苑|里)"
    r"\s?[\u4e00-\u9fffA-Za-z0-9－-]{0,12}?\d[\dA-Za-z-]{0,8}\s?(?:号楼|号|弄|栋|幢|座|单元|楼|层|室)?"
    r"(?:[\s,，]{0,2}[\u4e00-\u9fffA-Za-z]{0,12}\d[\dA-Za-z-]{0,8}\s?"
    r"(?:号楼|号|弄|栋|幢|座|单元|楼|层|室|(?![\d\u4e00-\u9fff]))){0,5}"
)
_ENGLISH_ADDRESS = re.compile(
    r"(?:(?:apartment|apt|flat|room|rm|unit|suite|building)\.? ?#?\w{1,8},? ){0,3}"
    r"\b\d{1,5}[a-z]?(?:[-/]\d{1,4})? (?:[\w'.]{1,20} ){1,4}?"
    r"(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|boulevard|blvd|way|square|court|place|terrace|park|close|"
    r"crescent|highway|gardens?)\b\.?(?: (?:north|south|east|west))?(?:,? ?[\w' -]{1,30}){0,4}",
    re.I,
)
_PLEASE = re.compile(r"[\s,，]*(?:please|thanks|thank you|谢谢)?[\s,，。.!！]*$", re.I)


def _addresses(text: str, _: Schema) -> Iterator[FormatMatch]:
    lead = _LEAD.match(text)
    start = lead.end() if lead is not None else 0
    for pattern in (_HAN_ADDRESS, _ENGLISH_ADDRESS):
        if match := pattern.search(text, start):
            said = _PLEASE.sub("", match[0])
            yield FormatMatch(said, match.start(), match.start() + len(said))
            return


_READERS: Final[Mapping[str, Callable[[str, Schema], Iterator[FormatMatch]]]] = {
    "date": _dates,
    "time": _times,
    "date-time": _date_times,
    "duration": _durations,
    "money": _money,
    "phone": _phones,
    "email": _emails,
    "address": _addresses,
}
_AS_WRITTEN: Final = {"email", "address"}
