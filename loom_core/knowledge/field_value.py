"""`FieldValue`: one value of a document's field, in every form that filters compare it in."""

from __future__ import annotations

import math
import re
import unicodedata
from calendar import isleap, monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TypeAlias

__all__ = ["FOLDED_FIELDS", "FieldValue", "Period", "Scalar"]

Scalar: TypeAlias = str | int | float | bool | date
"""What a field may hold and a filter may ask for; a `datetime` is a `date`."""

FOLDED_FIELDS = frozenset({"author", "description", "lang", "language", "subject", "tags", "title", "type"})
"""Fields compared without regard to case and width: those that people write and Loom's loaders read.

All others are exact, because they may be keys of another system (`tenant_id`, an order number).
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400.0
_EXACT = 2**53  # up to here a float holds every whole number
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?[ ]?(Z|[+-]\d{2}(?::?\d{2})?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_CHINESE_DATE = re.compile(r"(\d{4})年(?:(\d{1,2})月(?:(\d{1,2})[日号])?)?(?= |$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a date means, in seconds since 1970: `2024` a year, `2024-05-03T10:00` a minute.

    Attributes:
        local: when it begins by the clock of whoever wrote it, read as if that were UTC.
        instant: when it begins; without an offset the same as `local`.
        length: how long it lasts.
    """

    local: float
    instant: float
    length: float

    @property
    def is_clock_time(self) -> bool:
        """Whether it is shorter than a day."""
        return self.length < _DAY


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value as text, and as a number and a date where it is one.

    Attributes:
        text: the value in Unicode's form C, `true` or `false` for a truth value, and the shortest digits
            for a number: 1 and 1.0 are both `1`.
        number: the number, or None; text counts if it is nothing but digits, with a sign and a point.
        period: the date, or None.
    """

    text: str
    number: float | None = None
    period: Period | None = None

    @classmethod
    def of(cls, value: Scalar, *, fold: bool = False) -> FieldValue:
        """The forms of a value.

        Dates are ISO 8601 from the year to the second, with `-` or `/` and a `T` or a blank, or written
        as in `2024年5月3日`; a time without an offset is UTC. Halves of surrogate pairs become question
        marks, as in the text of documents.

        Args:
            value: the value.
            fold: make text the same whatever its case and its width, see `FOLDED_FIELDS`.
        """
        text = _text(value)
        number: float | None = None
        if isinstance(value, str):
            number = float(text) if _NUMBER.fullmatch(text) else None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = _finite(value)
        period = _period(text)
        if fold:
            text = unicodedata.normalize("NFKC", text).casefold()
        return cls(text, number, period)

    @property
    def is_exact(self) -> bool:
        """Whether two values with this number must be the same number."""
        return self.number is not None and abs(self.number) < _EXACT


def _text(value: Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < _EXACT:
            return str(int(value))
        case str():
            well_formed = value if value.isascii() else value.encode("utf-8", "replace").decode()
            return unicodedata.normalize("NFC", well_formed).strip()
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _finite(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        return None
    return number if math.isfinite(number) else None


def _period(text: str) -> Period | None:
    plain = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    if chinese := _CHINESE_DATE.match(plain):
        plain = "-".join(part for part in chinese.groups() if part) + plain[chinese.end() :]
    match = _DATE.fullmatch(plain)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        begin = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "").ljust(6, "0")),
            tzinfo=UTC,
        )
    except ValueError:  # the thirteenth month
        return None
    if fraction:
        length = 10.0 ** -len(fraction)
    elif second:
        length = 1.0
    elif minute:
        length = 60.0
    elif day:
        length = _DAY
    elif month:
        length = _DAY * monthrange(begin.year, begin.month)[1]
    else:
        length = _DAY * (366 if isleap(begin.year) else 365)
    local = (begin - _EPOCH).total_seconds()
    return Period(local, local - _ahead(offset), length)


def _ahead(offset: str | None) -> float:
    """How many seconds a clock with an offset is ahead of UTC."""
    if offset is None or offset in "Zz":
        return 0.0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    seconds = 3600.0 * int(digits[:2]) + 60.0 * int(digits[2:])
    return -seconds if offset[0] == "-" else seconds
