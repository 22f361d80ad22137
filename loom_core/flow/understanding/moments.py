"""Parts of a message that tell a date or a time, and the situation in which they are said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from loom_core.flow.understanding.numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from loom_core.flow.understanding.language import Language

__all__ = [
    "COUNT",
    "HAN",
    "MomentPart",
    "MomentValue",
    "Situation",
    "common_values",
    "count_of",
    "current_situation",
    "longest_parts",
    "moment_rule",
    "situation",
    "situation_in",
    "without_spans",
    "zone_of",
]

HAN = "〇零一二两俩三四五六七八九十"
"""Chinese numerals of small numbers."""

COUNT = (
    rf"(?:\d{{1,3}}|[{HAN}]{{1,3}}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    "fourteen|fifteen|twenty|thirty|forty[- ]five|forty)"
)
"""Pattern of a whole number in digits or words."""

MomentValue: TypeAlias = date | time | datetime
_Reader = TypeVar("_Reader")


@dataclass(frozen=True, slots=True)
class Situation:
    """When and in which language something is said.

    Attributes:
        now: the time, in the time zone of the conversation.
        language: the language of the conversation: 12/1 is 1 December in Chinese.
    """

    now: datetime
    language: Language


@dataclass(frozen=True, slots=True)
class MomentPart:
    """A part of a text that tells a date or a time.

    Attributes:
        start: where it begins.
        end: where it ends.
        values: its possible values; several are ambiguous, none is impossible or a span of time.
    """

    start: int
    end: int
    values: frozenset[MomentValue]


class _LocalZone(tzinfo):
    """The time zone of this machine, with its offset at each date: `astimezone` alone keeps that of now."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else self._at(dt).utcoffset()

    def dst(self, dt: datetime | None) -> None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else self._at(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        return dt.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)

    @staticmethod
    def _at(moment: datetime) -> datetime:
        try:
            return moment.replace(tzinfo=None).astimezone()
        except (OverflowError, ValueError, OSError):  # a year that the clock of this system does not have
            return datetime.now().astimezone()


_LOCAL = _LocalZone()
_situation: ContextVar[Situation | None] = ContextVar("situation", default=None)


def zone_of(name: object) -> ZoneInfo | None:
    """Return the time zone with an IANA name; None if there is none."""
    try:
        return ZoneInfo(name) if isinstance(name, str) and name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):  # as of "Asia", a folder
        return None


@contextmanager
def situation(now: datetime, language: Language) -> Generator[None]:
    """Return a context in which relative dates and times count from `now`, in its time zone."""
    token = _situation.set(Situation(now, language))
    try:
        yield
    finally:
        _situation.reset(token)


def situation_in(zones: Iterable[object], language: Language) -> AbstractContextManager[None]:
    """Return the same for the current time, in the first of some time zones that exists."""
    zone = next(filter(None, map(zone_of, zones)), None)
    now = current_situation().now
    return situation(now if zone is None else now.astimezone(zone), language)


def current_situation() -> Situation:
    """Return the situation of the context; else now, in this machine's time zone and in English."""
    return _situation.get() or Situation(datetime.now(_LOCAL), "en")


def count_of(said: str) -> int | None:
    """Parse a text that is a whole number; None if it is none."""
    number = number_of(said)
    return int(number) if number is not None and number == int(number) else None


_BEFORE = re.compile(
    r"(?:\b(?:after|before|until|till|than|since|past|minutes? from|hours? from)\s*(?:the\s*)?|[早晚]于)$"
)
_BEHIND = re.compile(
    r"\s*(?:以后|之后|过后|以前|之前|前(?!台|面)|后(?!天|面)|开外|or (?:later|earlier|after)\b|onwards?\b)"
)
_NEGATED = re.compile(r"(?:不是|不要|不想|别|除了|\bnot(?: on| at| for)?|\bexcept|\bno)\s*$")
_NOT_THEN = "不行|不可以|不能|不方便|不合适|没空|没时间|没法|来不了|去不了|不在|有事|不要|不去|不来"
_NOT_THEN_EN = (
    "doesn'?t|does not|won'?t|will not|can'?t|isn'?t|is not|is no good|is out|is impossible|i can'?t|i'm busy"
)
_REFUSED = re.compile(
    rf"\s*(?:之前|以前|之后|以后)?(?:我|就|都|也|可能)?(?:{_NOT_THEN})|\s*(?:{_NOT_THEN_EN})\b"
)
_SEEN = 40  # characters that are looked at before a part


def moment_rule(read: _Reader, *patterns: str) -> tuple[_Reader, list[re.Pattern[str]]]:
    """Return a rule: the function that reads a match of any of the patterns."""
    return read, [re.compile(each) for each in patterns]


def common_values(parts: Sequence[MomentPart]) -> frozenset[MomentValue]:
    """Return the values that all parts may have; those of "Tuesday, the 1st" agree on one."""
    common = parts[0].values if parts else frozenset[MomentValue]()
    for part in parts[1:]:
        common &= part.values
    return common


def longest_parts(found: Iterable[MomentPart]) -> list[MomentPart]:
    """Return the longest parts that do not overlap, in their order."""
    kept: list[MomentPart] = []
    for part in sorted(found, key=lambda each: each.start - each.end):
        if all(part.end <= other.start or other.end <= part.start for other in kept):
            kept.append(part)
    return sorted(kept, key=lambda each: each.start)


def without_spans(text: str, parts: Sequence[MomentPart]) -> list[MomentPart]:
    """Return parts without those that are refused; "after 3 pm" has no value, as it is a span of time."""
    kept: list[MomentPart] = []
    for part in parts:
        before = text[max(0, part.start - _SEEN) : part.start]
        if not _NEGATED.search(before) and not _REFUSED.match(text, part.end):
            bound = _BEFORE.search(before) or _BEHIND.match(text, part.end)
            kept.append(MomentPart(part.start, part.end, frozenset()) if bound else part)
    return kept
