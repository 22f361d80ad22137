"""Values by the `format` of a schema: dates, times, durations, money, phone numbers and e-mail addresses.

A message is read by rules in English and Chinese, and the value is in one standard form, in which an API
gets it. What is ambiguous, vague or a span of time is no value: the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from loom_core.flow.expressions.expression import MISSING, Missing
from loom_core.flow.triggers.pattern_text import NormalText
from loom_core.flow.understanding.dates import date_parts
from loom_core.flow.understanding.moments import MomentPart, MomentValue, common_values, current_situation
from loom_core.flow.understanding.numbers import number_of
from loom_core.flow.understanding.times import distant_parts, time_parts

if TYPE_CHECKING:
    from re import Match

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
    """Return the only value in a text; `MISSING` if there is none, or it is not certain."""
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
    return (not low or value >= low) and (not high or value[: len(high)] <= high)  # all of the day "today"


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
    for start, end, value in _duration_parts(text):
        yield FormatMatch(value, start, end)


def _money(text: str, schema: Schema) -> Iterator[FormatMatch]:
    """Amounts: a number, or a text with the currency; not in another currency than the schema's."""
    currency = schema.get("currency")
    for start, end, money in _money_parts(text):
        if money is None or (currency and money[1] not in {"", currency}):
            yield FormatMatch(None, start, end)
            continue
        amount = f"{money[0].normalize():f}"
        if schema.get("type") in ("number", "integer"):
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


_HAN = "零〇一二两俩三四五六七八九十百千万亿壹贰叁肆伍陆柒捌玖拾佰仟"
_ENGLISH = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
)
_COUNT = (
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?|\d{1,9}(?:\.\d{1,2})?|"
    rf"[{_HAN}]{{1,12}}(?:点[{_HAN}]+)?|\b(?:an?|{_ENGLISH})(?:[ -](?:and )?(?:{_ENGLISH}))*\b)"
)
_RANGE: Final = re.compile(
    rf"{_COUNT}\s*(?:or|to|-|–|~|到|至|或者?|还是)\s*$|\bbetween\b[^.,]*\band\s*$|[几多]\s*$|\b(?:several|few)\s*$"
)
_MINUS: Final = re.compile(r"(?:负|\bminus )\s?$|(?<!\w)-$")
_MORE: Final = re.compile(r"\s*(?:多|几|来|\bor so many\b|以上|以下|以内|\bor more\b|\bor less\b|\+)")


def _count(said: str) -> Decimal | None:
    """Parse an amount; None for a range such as 两三."""
    number = number_of(said.replace(" and ", " "))
    return None if number is None else Decimal(str(number))


def _is_range(text: str, start: int, end: int) -> bool:
    return bool(_RANGE.search(text[max(0, start - 40) : start]) or _MORE.match(text, end))


# Durations

_UNITS = {  # by letter: months and minutes share one
    "Y": r"年|years?\b|yrs?\b",
    "m": r"个月|months?\b",
    "W": r"个?(?:周|星期|礼拜)|weeks?\b|wks?\b",
    "F": r"fortnights?\b",
    "D": r"个?(?:整?天|晚上?|夜)|日|宿|days?\b|nights?\b",
    "H": r"个?(?:小时|钟头)|hours?\b|hrs?\b|h(?![a-z])",
    "M": r"分钟?|minutes?\b|mins?\b|m(?![a-z])",
    "S": r"秒钟?|seconds?\b|secs?\b",
}
_UNIT = "|".join(f"(?P<{letter}>{form})" for letter, form in _UNITS.items())
_HALVES = {"Y": ("m", 6), "H": ("M", 30), "M": ("S", 30), "D": ("H", 12)}
_DURATIONS = [
    re.compile(each)
    for each in (
        rf"(?P<count>{_COUNT})(?P<half>个?半|\s+and a half)?\s*-?\s*(?:{_UNIT})"
        r"(?P<behind>半(?![天夜])|\s+and a half\b)?",
        r"(?:\bhalf an? |\bhalf-)(?:(?P<Y>year)|(?P<H>hour)|(?P<M>minute))\b(?P<count>)(?P<half>)",
        r"(?<![个\d一二两三四五六七八九十])半个?(?:(?P<Y>年)|(?P<H>小时|钟头)|(?P<M>分钟))(?P<count>)(?P<half>)",
    )
]
_QUARTERS = re.compile(
    r"(?P<count>[一三])刻钟?|\b(?P<three>three quarters|a quarter) of an hour\b|\bquarter of an hour\b"
)
_JOINT = re.compile(r"[\s,，]*(?:and|又|零|加)?\s*")


def _duration_parts(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Yield the parts of a text that tell a duration: start, end, and ISO 8601; None where it is vague.

    The text is normalized, in lower case and simplified characters.
    """
    found = sorted(_duration_matches(text), key=lambda each: (each[0], -each[1]))
    at, whole = -1, dict[str, Decimal]()
    begin = end = -1
    vague = False
    for start, stop, amounts in found:
        if start < at:
            continue
        if begin >= 0 and (not _JOINT.fullmatch(text, end, start) or set(whole) & set(amounts or ())):
            yield begin, end, None if vague else _iso(whole)
            begin, whole, vague = -1, {}, False
        begin = start if begin < 0 else begin
        vague = vague or amounts is None or _is_range(text, start, stop)
        whole = {**whole, **(amounts or {})}
        at = end = stop
    if begin >= 0:
        yield begin, end, None if vague else _iso(whole)


def _duration_matches(text: str) -> Iterator[tuple[int, int, dict[str, Decimal] | None]]:
    for match in _QUARTERS.finditer(text):
        minutes = 45 if match["count"] == "三" or "three" in match[0] else 15
        yield *match.span(), {"M": Decimal(minutes)}
    for pattern in _DURATIONS:
        for match in pattern.finditer(text):
            yield *match.span(), _amounts(match)


def _amounts(match: Match[str]) -> dict[str, Decimal] | None:
    named = match.groupdict()
    letter = next(each for each in _UNITS if named.get(each))
    count = _count(match["count"]) if match["count"] else Decimal(0)
    if count is None:
        return None
    half = bool(match["half"] or named.get("behind") or not match["count"])
    if letter == "F":
        letter, count = "W", 2 * count
    amounts = {letter: Decimal(int(count))}
    if half or count != int(count):
        if letter not in _HALVES or (not half and count - int(count) != Decimal("0.5")):
            return None
        smaller, value = _HALVES[letter]
        amounts[smaller] = Decimal(value)
    return {unit: value for unit, value in amounts.items() if value}


def _iso(amounts: dict[str, Decimal]) -> str:
    if "W" in amounts and len(amounts) > 1:  # ISO 8601 has weeks alone
        amounts = {**amounts, "D": amounts.get("D", Decimal(0)) + 7 * amounts["W"]}
        del amounts["W"]
    if amounts.keys() == {"Y", "m"}:
        amounts = {"m": 12 * amounts["Y"] + amounts["m"]}
    days = "".join(f"{amounts[unit]}{unit.upper()}" for unit in "YmWD" if unit in amounts)
    times = "".join(f"{amounts[unit]}{unit}" for unit in "HMS" if unit in amounts)
    return f"P{days}{f'T{times}' if times else ''}"


# Money

_Money = tuple[Decimal, str]
"""An amount, and the code of its currency (ISO 4217); empty if none is said."""

_CURRENCIES = {  # forms without alternatives of their own
    "CNY": r"¥|￥|元|块|圆|人民币|rmb|cny|yuan|kuai",
    "USD": r"us\$|\$|美元|美金|美刀|刀|usd|bucks?|us dollars?|dollars?",
    "EUR": r"€|欧元?|eur|euros?",
    "GBP": r"£|英镑|镑|gbp|quid|pounds? sterling|pounds?",
    "HKD": r"hk\$|港币|港元|hkd|hong kong dollars?",
    "JPY": r"日元|日圆|jpy|yen",
    "TWD": r"nt\$|新台币|台币|twd",
    "CAD": r"(?<![a-z])ca?\$|加元|加币|cad|canadian dollars?",
    "AUD": r"(?<![a-z])au?\$|澳元|澳币|aud|australian dollars?",
    "SGD": r"(?<![a-z])s\$|新加坡元|新币|sgd|singapore dollars?",
    "CHF": r"瑞郎|chf|swiss francs?",
    "KRW": r"₩|韩元|韩币|krw|won(?!')",
    "THB": r"泰铢|thb|baht",
    "INR": r"₹|卢比|inr|rupees?",
}
_CURRENCY = "|".join(sorted("|".join(_CURRENCIES.values()).split("|"), key=len, reverse=True))
_OTHER_CURRENCY = re.compile(r"\s*[a-z]+ (?:dollars?|pounds?|francs?|pesos?|rupees?|crowns?)\b")
_SCALE = {"k": 1000, "w": 10_000, "万": 10_000, "千": 1000, "grand": 1000, "m": 1_000_000, "亿": 100_000_000}
_MONEY = [
    re.compile(each)
    for each in (
        rf"(?:(?P<before>{_CURRENCY})\s{{0,2}})?(?P<count>{_COUNT})\s{{0,2}}(?P<scale>k\b|w\b|grand\b|[万千亿](?![{_HAN}]))?\s*"
        rf"(?P<behind>(?:{_CURRENCY})(?![a-z])(?:人民币)?)?钱?"
        r"(?:(?P<more>[一二两三四五六七八九]|[1-9](?!\d))(?P<jiao>毛|角)?钱?(?:(?P<fen>[一二三四五六七八九1-9])分)?)?",
        r"(?P<count>[一二两三四五六七八九]|[1-9])(?P<alone>毛|角|分)钱?",
    )
]


def _money_parts(text: str) -> Iterator[tuple[int, int, _Money | None]]:
    """Yield the parts of a text that tell an amount of money; None where it is vague: 几百块."""
    at = -1
    found = [(*match.span(), match) for pattern in _MONEY for match in pattern.finditer(text)]
    for start, end, match in sorted(found, key=lambda each: (each[0], -each[1])):
        if start < at or not match[0].strip() or _is_article(match):
            continue
        at = end
        vague = _is_range(text, start, end) or _MINUS.search(text[:start]) or _OTHER_CURRENCY.match(text, end)
        yield start, end, None if vague else _amount_of(match)


def _is_article(match: Match[str]) -> bool:
    """Whether a match is the word of "a night"."""
    named = match.groupdict()
    return named["count"] in {"a", "an"} and not (named.get("behind") or named.get("scale"))


def _amount_of(match: Match[str]) -> _Money | None:
    named = match.groupdict()
    if alone := named.get("alone"):
        count = _count(match["count"])
        return None if count is None else (count * Decimal("0.01" if alone == "分" else "0.1"), "CNY")
    said = named["before"] or (named["behind"] or "").removesuffix("人民币") or named["behind"]
    code = next((code for code, form in _CURRENCIES.items() if said and re.fullmatch(form, said)), "")
    amount = _count(match["count"])
    if amount is None:
        return None
    amount *= _SCALE.get(named["scale"] or "", 1)
    if more := named["more"]:
        if not named["behind"]:
            return None
        amount += Decimal(str(number_of(more))) / 10
    if fen := named["fen"]:
        amount += Decimal(str(number_of(fen))) / 100
    return amount, code
