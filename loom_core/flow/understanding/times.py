"""Times of the day as people write them: 下午三点半, 差五分三点, "half past nine pm", "in two hours"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
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

__all__ = ["distant_parts", "hours_of_day", "time_parts"]

_Times: TypeAlias = frozenset[time]
_Reader: TypeAlias = Callable[["Match[str]", str], _Times]

_NOON: Final = 12
_DAY: Final = 24
_HOUR_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
_TENS = list(enumerate("twenty thirty forty fifty".split(), 2))
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_MINUTE_WORDS = {
    **{f"oh {word}": value for value, word in enumerate(_HOUR_WORDS[:9], 1)},
    **{word: value for value, word in enumerate(_TEENS, 10)},
    **{word: 10 * value for value, word in _TENS},
    **{
        f"{ten} {one}": 10 * value + unit
        for value, ten in _TENS
        for unit, one in enumerate(_HOUR_WORDS[:9], 1)
    },
}
_WORD = "|".join(_HOUR_WORDS)
_HOUR = rf"(?P<hour>\d{{1,2}}|{_WORD})"
_MINUTE = "|".join(each.replace(" ", "[ -]") for each in sorted(_MINUTE_WORDS, key=len, reverse=True))
_MERIDIEM = r"(?P<meridiem>[ap])\.?\s?m\b\.?"
_HAN_NUMBER = rf"(?:\d{{1,2}}|[{HAN}]{{1,3}})"
_NO_COUNT = (
    r"(?!\s*(?:days?|nights?|weeks?|months?|years?|people|persons?|guests?|adults?|of us|st\b|nd\b|rd\b|th\b|"
    r"[天个人位号日月周年块元]))"
)
_NO_TIME = r"(?!\s*[\w:/.-])"
_DAYPARTS = {
    "night": r"凌晨|半夜|深夜|\bin the (?:small|early) hours\b|\b(?:in|of) the night\b",
    "morning": r"早上|早晨|清晨|清早|一早|大早|上午|[今明后]早|\bmornings?\b|早(?=[\d一二三四五六七八九十])|"
    r"\bam(?=\s*\d)",
    "noon": r"中午|正午|\bnoon\b|\bmidday\b",
    "afternoon": r"下午|午后|\bafternoons?\b|\bpm(?=\s*\d)",
    "evening": (
        r"傍晚|晚上|晚间|夜里|夜晚|[今明后昨当]晚|今夜|晚(?=[\d一二三四五六七八九十])|"
        r"\bevenings?\b|\bat night\b|\btonight\b|\btomorrow night\b|day night\b"
    ),
}
_DAYPART = {name: re.compile(pattern) for name, pattern in _DAYPARTS.items()}
_GREETING = re.compile(r"\bgood (?:morning|afternoon|evening)\b|(?:早上|上午|中午|下午|晚上)好")
_ZONE = re.compile(r"\b(?:utc|gmt|cet|cest|est|edt|cst|cdt|mst|mdt|pst|pdt|bst|ist|jst)\b")
_NOON_ALONE = re.compile(r"中午|正午|\b(?:noon|midday)\b")


_HOURS = {"night": (0, 6), "morning": (5, 12), "noon": (11, 14), "afternoon": (12, 18), "evening": (17, 24)}


def hours_of_day(text: str) -> tuple[int, int] | None:
    """Return the first hour, and the one after the last, of the part of the day that a text tells: 下午.

    The text is as for `time_parts`.
    """
    plain = _GREETING.sub("", text)
    return next((_HOURS[name] for name, pattern in _DAYPART.items() if pattern.search(plain)), None)


def time_parts(text: str) -> list[MomentPart]:
    """Return the parts of a text that tell a time of the day.

    Hours from 1 to 11 are ambiguous unless they have a leading zero, or a word such as "pm" or 下午 says
    which half of the day is meant. It may stand anywhere in the text, or next to the time if there are
    several. The text is normalized, in lower case and simplified characters.
    """
    if distant := distant_parts(text):
        return [
            MomentPart(each.start, each.end, frozenset(_time_of(value) for value in each.values))
            for each in distant
        ]
    plain = _GREETING.sub(lambda match: " " * len(match[0]), text)
    said = [name for name, pattern in _DAYPART.items() if pattern.search(plain)]
    parts = longest_parts(
        MomentPart(*match.span(), frozenset(read(match, _daypart_at(plain, match, said))))
        for read, patterns in _RULES
        for pattern in patterns
        for match in pattern.finditer(plain)
    )
    if not parts and said == ["noon"] and (noon := _NOON_ALONE.search(plain)):
        parts = [MomentPart(*noon.span(), frozenset({time(_NOON)}))]
    if _ZONE.search(plain):  # of another place
        parts = [MomentPart(each.start, each.end, frozenset()) for each in parts]
    return without_spans(plain, parts)


def distant_parts(text: str) -> list[MomentPart]:
    """Return the moments that a text counts from now, in the time zone of the conversation."""
    now = current_situation().now
    found = [
        MomentPart(
            *match.span(),
            frozenset() if (away := _distance(match)) is None else frozenset({_after(now, away)}),
        )
        for pattern in _DISTANT
        for match in pattern.finditer(text)
    ]
    return longest_parts(found) or [
        MomentPart(*match.span(), frozenset({now})) for match in _NOW.finditer(text)
    ]


def _after(now: datetime, away: timedelta) -> datetime:
    """Return the moment so much later, also where the clocks change in between."""
    return (now.astimezone(UTC) + away).astimezone(now.tzinfo)


def _time_of(value: object) -> time:
    assert isinstance(value, datetime)
    return value.time().replace(second=0, microsecond=0)


def _daypart_at(text: str, match: Match[str], said: list[str]) -> str:
    """Return the part of the day of a time: the only one in the text, or the one next to the time."""
    if len(said) <= 1:
        return said[0] if said else ""
    before, behind = text[max(0, match.start() - 12) : match.start()], text[match.end() : match.end() + 20]
    for name in said:
        if re.search(rf"(?:{_DAYPARTS[name]})[\s,的]*(?:at )?$", before):
            return name
        if re.match(rf"\s*(?:in the |this )?(?:{_DAYPARTS[name]})", behind):
            return name
    return ""


def _hours(hour: int, daypart: str, *, exact: bool) -> set[int]:
    """Return the hours, from 0 to 23, that an hour as said may be."""
    if hour > _DAY:
        return set()
    if hour in {0, _DAY}:
        return {0}
    if hour > _NOON:
        return {hour}
    early, late = hour % _NOON, hour % _NOON + _NOON
    match daypart:
        case "am":
            return {early}
        case "pm" | "afternoon":
            return {late}
        case "morning":
            return {hour} if hour < _NOON else {0, _NOON}
        case "noon":
            return {hour} if hour >= 10 else {late}
        case "night":
            return {early} if hour <= 6 or hour == _NOON else {late}
        case "evening":
            return {0} if hour == _NOON else {late} if hour >= 5 else {early, late}
        case _:
            return {hour} if exact or hour == _NOON else {early, late}


def _times(hour: str, minute: int | None, daypart: str) -> _Times:
    named = {"noon": _NOON, "midday": _NOON, "midnight": 0}
    number = named[hour] if hour in named else count_of(hour)
    if number is None or minute is None or not 0 <= minute < 60:
        return frozenset()
    exact = len(hour) > 1 and hour.startswith("0")
    return frozenset(time(each, minute) for each in _hours(number, daypart, exact=exact))


def _minute_of(said: str | None) -> int | None:
    plain = " ".join((said or "").replace("-", " ").removeprefix("a ").split())
    named = {"": 0, "half": 30, "半": 30, "quarter": 15, "一刻": 15, "三刻": 45, **_MINUTE_WORDS}
    return named[plain] if plain in named else count_of(plain.lstrip("零〇") or "0")


def _half_of(match: Match[str], daypart: str) -> str:
    said = match.groupdict().get("meridiem")
    return f"{said}m" if said else daypart


def _clock(match: Match[str], daypart: str) -> _Times:
    minute = match.groupdict().get("minute")
    return _times(match["hour"], _minute_of(minute), _half_of(match, daypart))


def _before_hour(match: Match[str], daypart: str) -> _Times:
    """Read "quarter to nine", 差五分三点."""
    minute = _minute_of(match["minute"])
    hours = _times(match["hour"], 0, _half_of(match, daypart))
    if not minute:
        return frozenset()
    return frozenset(time((each.hour - 1) % _DAY, 60 - minute) for each in hours)


def _midnight(_: Match[str], __: str) -> _Times:
    return frozenset({time(0)})


def _same_time(_: Match[str], __: str) -> _Times:
    return frozenset({_time_of(current_situation().now)})


def _span(_: Match[str], __: str) -> _Times:
    """Return no time, as of "between two and three"."""
    return frozenset()


def _distance(match: Match[str]) -> timedelta | None:
    """Return how far away "in an hour and a half" is; None if that is not certain."""
    said, named = match[0], match.groupdict()
    if not named.get("count"):
        return timedelta(minutes=15 if re.search("刻|quarter", said) else 30)
    count = count_of(named["count"])
    if count is None:
        return None
    if re.search("分钟|min", said):
        return timedelta(minutes=count)
    return timedelta(hours=count, minutes=30 if re.search("half|半", said) else 0)


_PART_OF_HOUR = (
    r"(?P<minute>half|a quarter|quarter|\d{1,2}|five|ten|twenty[- ]five|twenty)(?:\s+min(?:ute)?s?)?"
)
_ANY_HOUR = rf"(?P<hour>\d{{1,2}}|{_WORD}|noon|midday|midnight)(?:\s*o'?clock)?(?:\s*{_MERIDIEM}|\b)"
_RULES = (
    moment_rule(
        _clock,
        r"(?<![\d:])(?P<hour>\d{1,2})\s*[:h]\s*(?P<minute>[0-5]\d)(?::[0-5]\d)?(?!\d)(?:\s*(?P<meridiem>[ap])(?:\.?\s?m)?\b\.?)?",
        rf"(?<![\d.])(?P<hour>\d{{1,2}})\.(?P<minute>[0-5]\d)\s*{_MERIDIEM}",
        r"\b(?:at|around|about)\s+(?P<hour>\d{1,2})\.(?P<minute>[0-5]\d)(?![\d.])",
        rf"(?<![\d:.]){_HOUR}(?:ish)?\s*(?:o'?\s?clock)?\s*{_MERIDIEM}",
        rf"(?<![\d:.])(?P<hour>\d{{1,2}})(?P<minute>[0-5]\d)\s*{_MERIDIEM}",
        rf"\b{_HOUR}\s*o'?\s?clock\b",
        rf"\b(?P<hour>{_WORD})[ -](?P<minute>{_MINUTE})\b(?:\s*{_MERIDIEM})?",
        rf"(?:\b(?:at|around|about|by)|@)\s*{_HOUR}{_NO_TIME}{_NO_COUNT}",
        rf"(?:\b(?:at|around|about|by)|@)\s*{_HOUR}(?=\s+(?:on|in|this|tomorrow|today|please|for|if|pls|ish|then)\b)",
        rf"\b{_HOUR}(?=(?:ish)?\s+(?:tonight|at night|"
        r"(?:in the|this|tomorrow|of the)\s+(?:early\s+)?(?:morning|afternoon|evening|night)))",
        rf"(?<=morning |ternoon |evening |tonight ){_HOUR}{_NO_TIME}{_NO_COUNT}",
        r"(?<!\d)(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)\s*(?:hours|hrs|h)\b",
        r"(?<![\d:])(?P<hour>1[3-9]|2[0-3]|0\d)h\b",
        r"^\s*(?:at\s+)?(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)\s*$",
        r"^\s*(?:at\s+)?(?P<hour>\d{1,2})\.(?P<minute>[0-5]\d)\s*$",
        rf"(?<![\d{HAN}])(?P<hour>{_HAN_NUMBER})\s*(?:点|时(?![间候长期]))(?![心餐赞击评])(?:钟|整)?"
        rf"(?:\s*(?P<minute>半|一刻|三刻|(?<=[点时])[0-5]\d(?!\d)))?",
        rf"(?<![\d{HAN}])(?P<hour>{_HAN_NUMBER})\s*[点时]\s*过?(?P<minute>\d{{1,2}}|[{HAN}]{{1,3}})\s*分(?!之)钟?",
        rf"(?<![\d{HAN}])(?P<hour>{_HAN_NUMBER})\s*[点时]\s*(?P<minute>[零〇][{HAN}]|[二三四五]?十[一二三四五六七八九]?)(?![个天人位])",
        rf"(?<=[上中下]午|早上|晚上)(?P<hour>\d{{1,2}}){_NO_TIME}{_NO_COUNT}",
    ),
    moment_rule(
        _clock,
        rf"\b{_PART_OF_HOUR}\s+(?:past|after)\s+{_ANY_HOUR}",
        rf"\b(?P<minute>half)\s+(?P<hour>{_WORD})\b(?:\s*{_MERIDIEM})?",
    ),
    moment_rule(
        _before_hour,
        rf"\b{_PART_OF_HOUR}\s+(?:to|till|before|of)\s+{_ANY_HOUR}",
        rf"差(?P<minute>一刻|{_HAN_NUMBER})(?:分钟?)?(?:到)?(?P<hour>{_HAN_NUMBER})点",
        rf"(?P<hour>{_HAN_NUMBER})点(?:钟)?[差欠](?P<minute>一刻|{_HAN_NUMBER})(?:分钟?)?",
    ),
    moment_rule(
        _span,
        rf"\b(?:\d{{1,2}}|{_WORD})(?::\d\d)?\s*(?:-|–|~|to|or|/)\s*(?:\d{{1,2}}|{_WORD})(?::\d\d)?\s*(?:[ap]\.?m|o'?clock)\b",
        rf"\bbetween\s+(?:\d{{1,2}}|{_WORD})(?::\d\d)?\s*(?:[ap]m)?\s*and\s+(?:\d{{1,2}}|{_WORD})(?::\d\d)?\s*(?:[ap]m)?",
        rf"{_HAN_NUMBER}(?:点半?)?\s*(?:-|–|~|到|至|或者?|还是|、)\s*[上下]?午?{_HAN_NUMBER}点(?:半|\d+)?",
        rf"{_HAN_NUMBER}点[多几]|[一二三四五六七八九]、?[二三四五六七八九十]点",
    ),
    moment_rule(
        _same_time,
        r"\b(?:at )?(?:this|the same) time\b(?! of)|这个(?:时候|时间|点儿?)|同一(?:个)?时间|现在这个点",
    ),
    moment_rule(_midnight, r"\bmidnight\b|午夜(?:十二点|12点)?|半夜(?:十二点|12点)|零点(?:整)?"),
)

_SPAN = r"(?:hours?|hrs?|minutes?|mins?)"
_DISTANT = [
    re.compile(each)
    for each in (
        r"\b(?:in )?(?:half an hour|a quarter of an hour)(?:'s time)?(?: from now)?\b",
        rf"\bin\s+(?P<count>{COUNT})(?: and a half)?\s*{_SPAN}(?: and a half)?(?:'s? time)?\b",
        rf"\b(?P<count>{COUNT})(?: and a half)?\s*{_SPAN}(?: and a half)?\s+(?:from now|later)\b",
        rf"(?P<count>{COUNT})\s*(?:个?半?(?:小时|钟头)|分钟)\s*(?:之后|以后|过后|后)",
        r"(?:半个?(?:小时|钟头)|一刻钟)\s*(?:之后|以后|过后|后)",
        rf"再?过(?:(?P<count>{COUNT})\s*(?:个?半?(?:小时|钟头)|分钟)|半个?(?:小时|钟头)|一刻钟)",
    )
]
_NOW = re.compile(r"(?<!from )\b(?:right )?(?<!from right )now\b(?! on)|现在|立刻")
