"""What the number in a text counts: 三天 are days; 12月5日, "December 5" and "the 4th" are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from loom_core.knowledge.text.scripts import normalise

__all__ = ["counts_else", "has_own_unit", "has_unit"]

_NUMERAL = (
    r"(?:[0-9零〇一二两俩三四五六七八九十百千万半]|"
    r"\b(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten|\w+teen|\w+ty)\b)"
)
_AMOUNTS: Mapping[str, str] = {  # as they are written: words in the names of what is counted in them
    r"个?(?:工作|整)?天|(?:working )?days?": "天|日数|days?",
    r"个?(?:周|星期|礼拜)|weeks?": "周|星期|weeks?",
    r"个月|months?": "月|months?",
    r"个?(?:小时|钟头)|hours?|hrs?": "小时|时长|hours?",
    r"分钟|minutes?|mins?": "分钟|minutes?",
    r"岁|years? old": "岁|年龄|age",
    r"元|块|美元|dollars?|yuan|rmb|usd": "元|钱|额|价|费|amount|price|cost|fee|money",
    r"个?人|位|people|persons?|guests?": "人|位|people|persons?|guests?|seats?",
}
_MONTHS = "jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec"
_PLACES: Mapping[str, str] = {  # in the calendar, on the clock: no amounts
    rf"(?:{_MONTHS})[a-z]*\.? ?{_NUMERAL}|{_NUMERAL}[- ](?:{_MONTHS})[a-z]*\b": "month",
    rf"{_NUMERAL}(?:st|nd|rd|th)\b": "第|number|floor",
    rf"{_NUMERAL} ?[号日]": "号|日(?!数)|number",
    rf"{_NUMERAL} ?(?:点|时(?!候)|[:：][0-9]|(?:am|pm|o'?clock)\b)": "点|时|hour|time",
    rf"{_NUMERAL} ?月": "月|month",
}


def has_own_unit(text: str, names: Iterable[str]) -> bool:
    """Whether the number in a text has a unit of what is asked for: 三天, of 天数.

    Args:
        text: what somebody says.
        names: what the input is called.
    """
    said, called = normalise(text), _joined(names)
    return any(_counts(said, unit) and _is_of(called, own) for unit, own in _AMOUNTS.items())


def counts_else(text: str, names: Iterable[str]) -> bool:
    """Whether the number in a text counts something else, or is part of a date or time.

    Args:
        text: what somebody says.
        names: what the input is called; one without a unit in it may be counted in any.
    """
    names = list(names)
    said, called = normalise(text), _joined(names)
    if has_own_unit(text, names):
        return False
    if any(re.search(form, said) and not _is_of(called, own) for form, own in _PLACES.items()):
        return True
    return has_unit(names) and any(_counts(said, unit) for unit in _AMOUNTS)


def has_unit(names: Iterable[str]) -> bool:
    """Whether an input is called after a unit, such as 天数, "days"."""
    called = _joined(names)
    return any(_is_of(called, own) for own in _AMOUNTS.values())


def _counts(said: str, unit: str) -> bool:
    return re.search(rf"{_NUMERAL}[- ]?(?:{unit})(?![a-z])", said) is not None


def _is_of(called: str, words: str) -> bool:
    return re.search(rf"(?<![a-z])(?:{words})(?![a-z])", called) is not None


def _joined(names: Iterable[str]) -> str:
    return normalise(" ".join(names)).replace("_", " ")
