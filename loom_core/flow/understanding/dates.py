"""Dates as people write them: 下周二, 12月1号, 大后天, "next Friday", "the 3rd", "a week from Tuesday"."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from loom_core.flow.understanding.moments import (
    COUNT,
    HAN,
    MomentPart,
    count_of,
    current_situation,
    longest_parts,
    moment_rule,
    without_spans,
)

if TYPE_CHECKING:
    from re import Match

__all__ = ["date_parts"]

_Dates: TypeAlias = frozenset[date]
_Reader: TypeAlias = Callable[["Match[str]", date], _Dates]

_WEEK: Final = 7
_YEARS: Final = 9  # within which 29 February comes
_WEEKDAYS = (
    "monday|mon|tuesday|tues|tue|wednesday|weds|wed|"
    "thursday|thurs|thur|thu|friday|fri|saturday|sat|sunday|sun"
)
_WEEKDAY = rf"(?P<weekday>{_WEEKDAYS})\b\.?"
_MONTH = (
    "(?P<month>january|jan|february|feb|march|mar|april|apr|may|june|jun|july|jul|august|aug|september|sept|sep|"
    r"october|oct|november|nov|december|dec)\b\.?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third "
    "twenty-fourth twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
).split()
_ORDINAL = "|".join(each.replace("-", "[ -]") for each in sorted(_ORDINALS, key=len, reverse=True))
_NUMBERED = r"\d{1,2}(?:st|nd|rd|th)"
_DAY = rf"(?P<day>{_NUMBERED}|\d{{1,2}}|{_ORDINAL})(?!\d)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_UNITS = {
    "day": "天|日|days?",
    "week": "个?(?:周|星期|礼拜)|weeks?",
    "fortnight": "fortnights?",
    "month": "个月|months?",
    "year": "年|years?",
}
_AMOUNT = rf"(?P<count>{COUNT})\s*(?P<unit>{'|'.join(_UNITS.values())})"
_HAN_DAY = rf"(?:\d{{1,2}}|[{HAN}廿]{{1,3}})"
_NO_DAY = r"(?!\s+(?:last|one|option|slot|time|week|floor|street|st\b|avenue|of us))"


def date_parts(text: str) -> list[MomentPart]:
    """Return the parts of a text that tell a date.

    Days to come are meant: "5 March" is the next one. 下周二 is the Tuesday of next week, which begins on
    Monday; "next Sunday" is ambiguous unless the first Sunday after today is in the next week. The text is
    normalized, in lower case and simplified characters.
    """
    today = current_situation().now.date()
    parts = longest_parts(
        MomentPart(*match.span(), frozenset(read(match, today)))
        for read, patterns in _RULES
        for pattern in patterns
        for match in pattern.finditer(text)
    )
    weekdays = {each for each in parts if _is_weekday(text, each)}
    told = {day for each in parts if each not in weekdays for day in _weekdays_of(each)}
    # The weekday next to the dates that it is of is none besides: "Tuesday, December 1st".
    repeated = {each for each in weekdays if told and told <= _weekdays_of(each)}
    return without_spans(text, [each for each in parts if each not in repeated])


def _weekdays_of(part: MomentPart) -> set[int]:
    return {day.weekday() for day in part.values if isinstance(day, date)}


def _is_weekday(text: str, part: MomentPart) -> bool:
    return bool(re.fullmatch(rf"(?:{_WEEKDAYS})\.?|(?:周|星期|礼拜).", text[part.start : part.end]))


def _named(days: int) -> _Reader:
    return lambda _, today: frozenset({today + timedelta(days=days)})


def _holiday(month: int, day: int) -> _Reader:
    return lambda _, today: _upcoming(month, day, today)


def _unclear(_: Match[str], __: date) -> _Dates:
    """Several days, days by the moon, and movable feasts: no date."""
    return frozenset()


def _calendar(year: int, month: int, day: int) -> _Dates:
    try:
        return frozenset({date(year, month, day)})
    except ValueError:
        return frozenset()


def _upcoming(month: int, day: int, today: date) -> _Dates:
    """The next day of this name, or today; none if there never is one."""
    found = (_calendar(today.year + years, month, day) for years in range(_YEARS))
    return next((each for each in found if each and min(each) >= today), frozenset[date]())


def _add_months(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _weekday_of(match: Match[str]) -> int:
    said = match["weekday"]
    if said.isascii():
        return ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(said[:3])
    return "一二三四五六日".index(said.replace("天", "日"))


def _first_after(today: date, weekday: int) -> date:
    return today + timedelta(days=(weekday - today.weekday() - 1) % _WEEK + 1)


def _in_week(today: date, weekday: int, *, weeks: int = 0) -> date:
    return today + timedelta(days=weekday - today.weekday(), weeks=weeks)


def _coming(today: date, weekday: int) -> _Dates:
    """The next day of this name; of today's name, today and in a week."""
    return frozenset({_first_after(today, weekday), *([today] if today.weekday() == weekday else [])})


def _chinese_weekday(match: Match[str], today: date) -> _Dates:
    said, weekday = match["which"] or "", _weekday_of(match)
    if not said:
        return _coming(today, weekday)
    return frozenset({_in_week(today, weekday, weeks=said.count("下") - said.count("上"))})


def _english_weekday(match: Match[str], today: date) -> _Dates:
    weekday = _weekday_of(match)
    first, this = _first_after(today, weekday), _in_week(today, weekday)
    match (match["which"] or "").split():
        case []:
            return _coming(today, weekday)
        case ["next"]:
            return frozenset({first, _in_week(today, weekday, weeks=1)})
        case ["this"]:
            return frozenset({this, *([] if this >= today else [first])})
        case ["last" | "past"]:
            before = first - timedelta(weeks=2 if first - timedelta(weeks=1) == today else 1)
            return frozenset({before, _in_week(today, weekday, weeks=-1)})
        case _:
            return frozenset({first})


def _weekday_of_week(match: Match[str], today: date) -> _Dates:
    weeks = 1 if "next" in match[0] else -1 if "last" in match[0] else 0
    return frozenset({_in_week(today, _weekday_of(match), weeks=weeks)})


def _week_after_weekday(match: Match[str], today: date) -> _Dates:
    return frozenset({_first_after(today, _weekday_of(match)) + timedelta(weeks=1)})


def _weeks_after_tomorrow(match: Match[str], today: date) -> _Dates:
    count = 1 if match["count"] in {"", "a"} else count_of(match["count"])
    return frozenset() if count is None else frozenset({today + timedelta(days=1, weeks=count)})


def _distant(match: Match[str], today: date) -> _Dates:
    count = count_of(match["count"])
    unit = next(name for name, form in _UNITS.items() if re.fullmatch(form, match["unit"]))
    if count is None:
        return frozenset()
    count = -count if re.search(r"\bago|前", match[0]) else count
    if unit in {"month", "year"}:
        return frozenset({_add_months(today, count * (12 if unit == "year" else 1))})
    return frozenset(
        {today + timedelta(days=count * {"day": 1, "week": _WEEK, "fortnight": 2 * _WEEK}[unit])}
    )


def _day_of(said: str) -> int:
    plain = re.sub(r"(?<=\d)(?:st|nd|rd|th)", "", said).replace(" ", "-").replace("廿", "二十")
    return _ORDINALS.index(plain) + 1 if plain in _ORDINALS else count_of(plain) or 0


def _full_year(year: str, today: date) -> int:
    """26 is 2026, and 74 is 1974: two digits are a year that is past, or at most twenty years away."""
    if len(year) > len("26"):
        return int(year)
    return int(year) + (2000 if int(year) <= today.year % 100 + 20 else 1900)


def _month_of(match: Match[str], today: date) -> tuple[int, int]:
    """Return year and month of "October 2027", "next month", 十月: the next one, unless the year is told."""
    if (which := match["which"]) is not None:
        there = _add_months(today.replace(day=1), int("next" in which or "下" in which))
        return there.year, there.month
    named = match.groupdict()
    han = named.get("han")
    month = count_of(han) or 0 if han else _MONTHS.index(match["month"][:3]) + 1
    if year := named["year"]:
        return int(year), month
    return today.year + int(month < today.month), month


def _numbered_weekday(match: Match[str], today: date) -> _Dates:
    """Read "the first Monday of October", 十月第一个星期一."""
    year, month = _month_of(match, today)
    if not _calendar(year, month, 1):
        return frozenset()
    weekday, said = _weekday_of(match), match["number"]
    days = [
        day
        for number in range(1, monthrange(year, month)[1] + 1)
        if (day := date(year, month, number)).weekday() == weekday
    ]
    if said in {None, "last"}:
        return frozenset(days[-1:])
    return frozenset({days["1234".index(said[0]) if said[0].isdigit() else _place_of(said)]})


def _place_of(said: str) -> int:
    return _ORDINALS.index(said) if said in _ORDINALS else "一二三四".index(said)


def _last_day(match: Match[str], today: date) -> _Dates:
    year, month = _month_of(match, today)
    return _calendar(year, month, monthrange(year, month)[1]) if 1 <= month <= 12 else frozenset()


def _english_date(match: Match[str], today: date) -> _Dates:
    month = _MONTHS.index(match["month"][:3]) + 1
    day, year = _day_of(match["day"]), match["year"] or match.groupdict().get("short")
    return _calendar(_full_year(year, today), month, day) if year else _upcoming(month, day, today)


def _chinese_date(match: Match[str], today: date) -> _Dates:
    month, day, year = count_of(match["month"]) or 0, _day_of(match["day"]), match["year"]
    if year is None:
        return _upcoming(month, day, today)
    years = {"去": -1, "今": 0, "明": 1, "后": 2}
    return _calendar(today.year + years[year] if year in years else count_of(year) or 0, month, day)


def _day_of_month(match: Match[str], today: date) -> _Dates:
    day, which = _day_of(match["day"]), match.groupdict().get("which")
    first = today.replace(day=1)
    if which is not None:
        months = which.count("下") - which.count("上") + which.count("next")
        months -= int(which in {"last", "previous"})
        there = _add_months(first, months)
        return _calendar(there.year, there.month, day)
    months_ahead = (_add_months(first, months) for months in range(12))
    found = (_calendar(there.year, there.month, day) for there in months_ahead)
    return next((each for each in found if each and min(each) >= today), frozenset[date]())


def _year_first(match: Match[str], _: date) -> _Dates:
    return _calendar(int(match["year"]), int(match["month"]), int(match["day"]))


def _two_numbers(match: Match[str], today: date) -> _Dates:
    """12/1: month and day in Chinese; else in any order that is possible."""
    one, other, year = int(match["one"]), int(match["other"]), match.groupdict().get("year")
    if year is not None:
        full = _full_year(year, today)
        return _calendar(full, one, other) | _calendar(full, other, one)
    if current_situation().language == "zh":
        return _upcoming(one, other, today)
    return _upcoming(one, other, today) | _upcoming(other, one, today)


_RULES = (
    moment_rule(
        _named(0), r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b|今(?:天|日|儿个?|晚|早|夜)"
    ),
    moment_rule(_named(1), r"\b(?:tomorr?ow|tommorr?ow|tmrw|tmr|tmw)\b|明(?:天|日|儿个?|晚|早|夜)"),
    moment_rule(_named(2), r"\b(?:the )?day after (?:tomorrow|tmrw)\b|(?<!大)后(?:天|日|儿个?|晚)"),
    moment_rule(_named(3), r"大后(?:天|日|儿)"),
    moment_rule(_named(-1), r"\byesterday\b|昨(?:天|日|儿|晚)"),
    moment_rule(_named(-2), r"\b(?:the )?day before yesterday\b|(?<!大)前(?:天|日|儿)"),
    moment_rule(_named(-3), r"大前天"),
    moment_rule(
        _chinese_weekday,
        r"(?P<which>(?:下|上){1,3}一?个?|[这今]一?个?|[本当])?(?<![第节圣色默])(?<!第.个)(?:周|星期|礼拜)"
        r"(?P<weekday>[一二三四五六日天])(?![天个次])",
    ),
    moment_rule(
        _english_weekday,
        rf"\b(?:(?P<which>(?:this |the )?(?:coming|upcoming)|this|next|last|past)\s+)?{_WEEKDAY}",
    ),
    moment_rule(
        _weekday_of_week,
        rf"\b{_WEEKDAY},?\s+(?:(?:of|in|from)\s+)?(?:next|this|last)\s+week\b",
        rf"\b(?:next|this|last)\s+week(?:'s)?,?\s+(?:on\s+)?{_WEEKDAY}",
    ),
    moment_rule(
        _week_after_weekday,
        rf"\b{_WEEKDAY}\s+week\b",
        rf"\b(?:a|one)\s+week\s+(?:from|on|after)\s+(?:this\s+|next\s+)?{_WEEKDAY}",
    ),
    moment_rule(
        _weeks_after_tomorrow,
        rf"\b(?P<count>{COUNT})\s+weeks?\s+(?:from\s+|after\s+)?tomorrow\b",
        r"\b(?P<count>)tomorrow\s+week\b",
    ),
    moment_rule(
        _numbered_weekday,
        rf"\b(?P<number>first|1st|second|2nd|third|3rd|fourth|4th|last)\s+{_WEEKDAY}\s+(?:of|in)\s+"
        rf"(?:{_MONTH}(?:\s+{_YEAR})?|(?:the\s+)?(?P<which>next|this|the)\s+month)(?!\w)",
        rf"(?:(?P<year>\d{{4}})年)?(?:(?P<han>{_HAN_DAY})月份?|(?P<which>(?:下|本|这)个?月))的?"
        r"(?:第(?P<number>[一二三四])|最后一)个(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])",
    ),
    moment_rule(
        _last_day,
        rf"\blast\s+day\s+(?:of|in)\s+(?:{_MONTH}(?:\s+{_YEAR})?|(?:the\s+)?(?P<which>next|this|the)\s+month)(?!\w)",
        rf"(?:(?P<year>\d{{4}})年)?(?:(?P<han>{_HAN_DAY})月份?|(?P<which>(?:下|本|这)个?月))的?最后一天",
    ),
    moment_rule(
        _unclear,
        rf"\b(?:black|good|great|holy|easter|whit|white|palm|branch|trinity|maundy|covenant|shrove|clean|lazarus|ash|"
        rf"cyber|every|each)\s+{_WEEKDAY}",
        rf"\b{_WEEKDAY}\s+after (?:next|that|this one)\b",
        r"(?:周|星期|礼拜)[一二三四五六日天][到至、和或-]?[一二三四五六日天]|每个?(?:周|星期).",
        rf"\b(?:{_NUMBERED}|\d{{1,2}})\s*(?:-|–|~|to|thru|through|till|until|or|and)\s*(?:the\s+)?"
        rf"(?:{_NUMBERED}|\d{{1,2}})(?:\s+of)?\s+{_MONTH}",
        rf"\b{_MONTH}\s*(?:{_NUMBERED}|\d{{1,2}})\s*(?:-|–|~|to|thru|through|till|until|or|and)\s*(?:the\s+)?"
        rf"(?:{_NUMBERED}|\d{{1,2}})(?![\d:]|\s*[ap]m)",
        rf"{_HAN_DAY}[号日]?\s*(?:-|–|~|到|至|或者?|还是|、)\s*{_HAN_DAY}[号日]",
    ),
    moment_rule(
        _distant,
        rf"\bin\s+{_AMOUNT}(?:'s? time)?(?![a-z])",
        rf"\b{_AMOUNT}'?\s+(?:from (?:now|today)|later|ago|hence|today)\b",
        rf"{_AMOUNT}\s*(?:之后|以后|过后|后(?!天)|之前|以前|前(?![台天]))",
        rf"再?过{_AMOUNT}",
    ),
    moment_rule(
        _english_date,
        rf"\b{_MONTH}\s*(?:the\s+)?{_DAY}(?:,?\s*{_YEAR})?(?![\d:])",
        rf"\b(?:the\s+)?{_DAY}(?:\s+|-|/)?(?:of\s+)?{_MONTH}(?:,?\s*{_YEAR}|[-/](?P<short>\d\d|\d{{4}})(?!\d))?",
    ),
    moment_rule(
        _chinese_date,
        rf"(?:(?P<year>\d{{4}}|[{HAN}]{{4}}|[今明后去])\s*年\s*的?)?(?P<month>{_HAN_DAY})\s*月\s*份?"
        rf"(?P<day>{_HAN_DAY})\s*[日号]?(?![\d点时:])",
    ),
    moment_rule(
        _day_of_month,
        rf"(?P<which>(?:下|上){{1,3}}一?个?月|这个?月|[本当]月)\s*的?(?P<day>{_HAN_DAY})\s*(?:[号日]|(?![\d天个]))",
        rf"(?<![\d月{HAN}])(?P<day>{_HAN_DAY})\s*(?:号|日)(?![数本元常子期线楼门])",
        rf"\b(?:the\s+)?(?P<day>{_NUMBERED}|{_ORDINAL}|\d{{1,2}})\s+(?:day\s+)?(?:of\s+)?(?:the\s+)?"
        r"(?P<which>next|this|last|previous)\s+month\b",
        rf"\bthe\s+(?P<day>{_NUMBERED}|{_ORDINAL})\b{_NO_DAY}",
        rf"(?<![\w-])(?P<day>{_NUMBERED})\b{_NO_DAY}",
    ),
    moment_rule(
        _year_first,
        r"(?<!\d)(?P<year>(?:19|20)\d\d)\s*[-/.年]\s*(?P<month>\d{1,2})\s*[-/.月]\s*(?P<day>\d{1,2})(?!\d)\s*[日号]?",
        r"(?<!\d)(?P<year>20\d\d)(?P<month>[01]\d)(?P<day>[0-3]\d)(?!\d)",
    ),
    moment_rule(
        _two_numbers,
        r"(?<![\d./-])(?P<one>\d{1,2})\s*/\s*(?P<other>\d{1,2})(?:\s*/\s*(?P<year>\d{4}|\d\d))?(?![\d/])",
        r"(?<![\d./-])(?P<one>\d{1,2})[.-](?P<other>\d{1,2})[.-](?P<year>\d{4})(?![\d/])",
        r"(?<![\d./:-])(?P<one>1[0-2]|0?[1-9])-(?P<other>[12]\d|3[01]|0\d)"
        r"(?![\d./:-]|\s*(?:[天日号点时人个岁万元块]|[a-z]))",
        r"(?<![\d./$¥￥€£-])(?<!at )(?P<one>1[0-2]|0?[1-9])\.(?P<other>[0-3]?\d)"
        r"(?![\d.]|\s*(?:[元块万折公米个%]|"
        r"(?:[kwmh]|cm|km|kg|hours?|hrs?|usd|rmb|yuan|dollars?|bucks?|[ap]\.?m)\b))",
    ),
    moment_rule(_holiday(12, 25), r"\b(?:christmas|xmas)(?: day)?\b|圣诞节?(?:当天)?"),
    moment_rule(_holiday(12, 24), r"\b(?:christmas|xmas) eve\b|平安夜|圣诞节?前夜"),
    moment_rule(_holiday(1, 1), r"\bnew year'?s?(?: day)?\b|元旦节?(?:当天)?"),
    moment_rule(_holiday(12, 31), r"\bnew year'?s? eve\b|跨年夜"),
    moment_rule(_holiday(2, 14), r"\bvalentine'?s?(?: day)?\b|情人节"),
    moment_rule(_holiday(3, 8), r"三八(?:妇女)?节|妇女节"),
    moment_rule(_holiday(5, 1), r"五一(?:劳动)?节?|劳动节"),
    moment_rule(_holiday(6, 1), r"六一(?:儿童)?节?|儿童节"),
    moment_rule(_holiday(10, 1), r"国庆节?(?:当天)?|十一国庆节?"),
    moment_rule(_holiday(3, 12), r"植树节"),
    moment_rule(_holiday(3, 17), r"\b(?:st|saint)\.? pat(?:rick'?s?|'?s|dy'?s?)(?: day)?\b"),
    moment_rule(_holiday(4, 1), r"\bapril fools'?(?: day)?\b|愚人节"),
    moment_rule(_holiday(9, 10), r"教师节"),
    moment_rule(_holiday(11, 11), r"双十一|光棍节"),
    moment_rule(_holiday(12, 12), r"双十二"),
    moment_rule(_holiday(12, 26), r"\bboxing day\b"),
    moment_rule(_holiday(10, 31), r"\bhalloween\b|万圣节"),
    moment_rule(
        _unclear,
        r"(?:农历|阴历|腊月|正月|大年)[^,，。]{0,8}|除夕|春节|中秋节?|端午节?|元宵节?|七夕(?:情人节)?",
        r"\b(?:chinese|lunar)(?: lunar)? new year'?s?(?: day| eve)?\b|\bspring festival\b",
    ),
)
