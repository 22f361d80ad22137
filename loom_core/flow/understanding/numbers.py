"""Numbers and units as people write them: 3, ３, 1,200, 三, 三十二, 两百, 半, three, a dozen, 三天."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from loom_core.knowledge.text.scripts import normalise, to_simplified

__all__ = [
    "ENGLISH_ORDINALS",
    "counts_other_unit",
    "find_own_unit",
    "has_own_unit",
    "has_unit",
    "number_in",
    "number_of",
    "without_fixed_words",
]


_DIGITS: Mapping[str, int] = {
    **{char: value for value, char in enumerate("零一二三四五六七八九")},
    **{char: value for value, char in enumerate("〇壹贰叁肆伍陆柒捌玖") if char != "〇"},
    "〇": 0,
    "两": 2,
    "俩": 2,
    "仨": 3,
}
_UNITS: Mapping[str, int] = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_WORDS: Mapping[str, float] = {
    **{
        word: value
        for value, word in enumerate("zero one two three four five six seven eight nine ten".split())
    },
    **{
        word: value
        for value, word in enumerate(
            "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(), 11
        )
    },
    **{
        word: 10 * value
        for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty".split(), 2)
    },
    "ninety": 90,
    "a": 1,
    "an": 1,
    "half": 0.5,
    "couple": 2,
}
_SCALES: Mapping[str, int] = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 1_000_000}
_HALVES = {"半": 0.5, "半打": 6}
_TEN = 10
_THOUSAND = 1000
_A_RANGE = 2  # 两三天 means two or three
_MAX_LENGTH = 40

_ARABIC = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,18})(?:\.[0-9]{1,10})?(?P<scale> ?万|k\b)?"
_HAN = (
    "["
    + "".join(sorted({*_DIGITS, *_UNITS, "万", "亿"}))
    + "]+(?:点["
    + "".join(_DIGITS)
    + "]+)?(?:打(?![电算车针折]))?|半打|半"
)
_WORD = "(?:" + "|".join(sorted({*_WORDS, *_SCALES}, key=len, reverse=True)) + ")"
_ENGLISH = rf"\b{_WORD}(?:(?:[ -]| and ){_WORD})*\b"
_ANY = re.compile(rf"(?P<arabic>{_ARABIC})|(?P<han>{_HAN})|(?P<english>{_ENGLISH})")

_NUMERAL = "[0-9" + "".join(sorted({*_DIGITS, *_UNITS, "万", "亿"})) + "]"
_FIXED = re.compile(
    rf"(?<!{_NUMERAL})(?:一(?:共|起|般|些|样|直|定|旦|切|向|律|致|再|并|同|齐|概|贯|经|边|时|连|早|模|次性|块儿|"
    r"下(?!午)|会(?!议)儿?|点(?:儿|也|都))|万一|千万(?=别|不|要|记|得))|[统唯同单逐专]一|进一步|多半"
)
"""Words with a numeral that count nothing. 一下午 counts, and 二十一起 does."""
_WEEKDAY = re.compile("(?:周|星期|礼拜)[一二三四五六]")
_ORDINAL = re.compile(rf"第\s*{_NUMERAL}+")
ENGLISH_ORDINALS: tuple[str, ...] = tuple(
    "first second third fourth fifth sixth seventh eighth ninth tenth".split()
)
_ENGLISH_ORDINAL = re.compile(rf"\b({'|'.join(ENGLISH_ORDINALS)})(?: (?:one|option|choice))?\b")
_AND_A_HALF = re.compile(rf"({_NUMERAL}+)个半(?!小时|钟头|月)")
_ALONE = re.compile(r"\b(?:just|only) (?:me|myself|one of us)\b|就我自己|只有我(?:自己)?")
_VAGUE = re.compile(
    rf"{_NUMERAL} ?[几多来](?!次)|几{_NUMERAL}|分之|"
    r"\b(?:third|quarter|fifth|tenth)s\b|\b(?:a|one) (?:third|quarter)\b|[0-9] ?/ ?[0-9]"
)
"""Numbers that are not known exactly, and fractions."""


def number_of(text: str) -> float | None:
    """Parse a text that is a number; whole numbers as int. None if it is not a number."""
    written = _plain(text)
    found = _ANY.fullmatch(written)
    return _value(found) if found else None


def number_in(text: str) -> float | None:
    """Return the only number in a text, such as 3 in 三天; None if there is none, or more than one.

    Words that count nothing are ignored: 一共, 周三. An ordinal counts only if there is no other number:
    第二个 is 2, and 第一次请，请三天 is 3.
    """
    plain = without_fixed_words(_WEEKDAY.sub(" ", _plain(text)))
    if _VAGUE.search(plain):
        return None
    if (halved := _AND_A_HALF.search(plain)) is not None and (whole := number_of(halved[1])) is not None:
        return whole + 0.5
    english = _ENGLISH_ORDINAL.findall(plain)
    found = _numbers(_ENGLISH_ORDINAL.sub(" ", _ORDINAL.sub(" ", plain)))
    if not found and len(set(english)) == 1:
        return ENGLISH_ORDINALS.index(english[0]) + 1
    found = found or _numbers(plain)
    if not found and _ALONE.search(plain):
        return 1
    return _value(found[0]) if len(found) == 1 else None


def without_fixed_words(text: str) -> str:
    """Remove words that contain a Chinese numeral and count nothing, such as 一共.

    The text is in simplified characters.
    """
    return _FIXED.sub(" ", text)


def _numbers(text: str) -> list[re.Match[str]]:
    return [match for match in _ANY.finditer(text) if match[0] not in {"a", "an"}]


def _plain(text: str) -> str:
    return to_simplified(unicodedata.normalize("NFKC", text[:_MAX_LENGTH])).strip().lower()


def _value(found: re.Match[str]) -> float | None:
    if found["arabic"]:
        scale = (found["scale"] or "").strip()
        digits = found["arabic"].removesuffix(found["scale"] or "").replace(",", "")
        if not scale:
            return float(digits) if "." in digits else int(digits)
        amount = float(digits) * (1000 if scale == "k" else 10_000)
        return int(amount) if amount.is_integer() else amount
    return _of_han(found["han"]) if found["han"] else _of_words(found["english"])


def _of_han(text: str) -> float | None:
    if text in _HALVES:
        return _HALVES[text]
    if text.endswith("打"):
        dozens = _of_han(text.removesuffix("打"))
        return None if dozens is None else 12 * dozens
    whole, _, fraction = text.partition("点")
    value = _of_whole_han(whole)
    if value is None or not fraction:
        return value
    return float(f"{value}.{''.join(str(_DIGITS[char]) for char in fraction)}")


def _of_whole_han(text: str) -> int | None:
    if all(char in _DIGITS for char in text):
        if len(text) == _A_RANGE and _DIGITS[text[0]] and _DIGITS[text[1]]:
            return None
        return int("".join(str(_DIGITS[char]) for char in text))
    total = part = section = 0  # the whole number, its part below 亿, and its part below 万
    digit: int | None = None
    last = 1  # the last unit
    for char in text:
        if char in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[char]
            last = 1 if digit == 0 else last
        elif char in _UNITS:
            if section and _UNITS[char] >= last > 1:
                return None
            section += (1 if digit is None else digit) * _UNITS[char]
            digit, last = None, _UNITS[char]
        elif not (total or part or section or digit):
            return None  # 万 without a number
        elif char == "万":
            part, section, digit, last = (part + section + (digit or 0)) * 10_000, 0, None, 10_000
        else:
            total = (total + part + section + (digit or 0)) * 100_000_000
            part, section, digit, last = 0, 0, None, 100_000_000
    if digit and last > _TEN:
        digit *= last // _TEN  # 一万二 is 12,000, 三百五 is 350
    return total + part + section + (digit or 0)


def _of_words(text: str) -> float | None:
    """Add up "two thousand and five", "half a dozen", "one and a half"; None if it is no number."""
    words = re.split("[ -]", text)
    if fixed := {"a half": 0.5, "half a dozen": 6, "a couple": 2}.get(" ".join(words)):
        return fixed
    half = words[-3:] == ["and", "a", "half"]
    total: float = 0
    group: float | None = None  # the part below the next scale
    for word in words[:-3] if half else words:
        if word == "and":
            continue
        if scale := _SCALES.get(word):
            group = (1 if group is None else group) * scale
            if scale >= _THOUSAND:
                total, group = total + group, None
        else:
            value = _WORDS[word]
            if group is not None and not _follows(group, value):
                return None
            group = value + (group or 0)
    return total + (group or 0) + (0.5 if half else 0)


def _follows(group: float, value: float) -> bool:
    """Whether a word may add to the number before it: "five" to "twenty", and anything to "two hundred"."""
    if value < 1:
        return False
    return group % 100 == 0 or (group % _TEN == 0 and group % 100 >= 2 * _TEN and value < _TEN)


_COUNTED = (
    r"(?:[0-9零〇一二两俩三四五六七八九十百千万半]|"
    r"\b(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten|\w+teen|\w+ty)\b)"
)
_AMOUNTS: Mapping[str, str] = {  # as written: words in the names of what is counted in them
    r"个?(?:工作|整)?天|(?:working )?days?": "天|日数|days?",
    r"个?晚上?|(?<!半)夜|nights?": "晚(?![上餐饭])|夜|nights?",
    r"个?(?:周|星期|礼拜)|weeks?": "周|星期|weeks?",
    r"个月|months?": "月|months?",
    r"个?(?:小时|钟头)|hours?|hrs?": "小时|时长|hours?",
    r"分钟|minutes?|mins?": "分钟|minutes?",
    r"岁|years? old": "岁|年龄|age",
    r"元|块|美元|dollars?|yuan|rmb|usd": "元|钱|额|价|费|amount|price|cost|fee|money",
    r"个?人|位|people|persons?|guests?": "人|位|people|persons?|guests?|seats?",
}
_MONTHS = "jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec"
_PLACES: Mapping[str, str] = {  # of dates and times: no amounts
    rf"(?:{_MONTHS})[a-z]*\.? ?{_COUNTED}|{_COUNTED}[- ](?:{_MONTHS})[a-z]*\b": "month",
    rf"{_COUNTED}(?:st|nd|rd|th)\b": "第|number|floor",
    rf"{_COUNTED} ?[号日]": "号|日(?!数)|number",
    rf"{_COUNTED} ?(?:点|时(?!候)|[:：][0-9]|(?:am|pm|o'?clock)\b)": "点|时|hour|time",
    rf"{_COUNTED} ?月": "月|month",
}


def has_own_unit(text: str, names: Iterable[str]) -> bool:
    """Return whether the number in a text has the unit of the input: 三天, for 天数."""
    return find_own_unit(text, names) is not None


def find_own_unit(text: str, names: Iterable[str]) -> re.Match[str] | None:
    """Return where the number has the unit of the input, in the normalized text; None if it has not."""
    said, called = normalise(text), _join_names(names)
    found = (_counts(said, unit) for unit, own in _AMOUNTS.items() if _is_of(called, own))
    return next(filter(None, found), None)


def counts_other_unit(text: str, names: Iterable[str]) -> bool:
    """Return whether the number in a text counts something else, or is part of a date or time.

    Without a unit in the names of the input, any unit is valid.
    """
    names = list(names)
    said, called = normalise(text), _join_names(names)
    if has_own_unit(text, names):
        return False
    if any(re.search(form, said) and not _is_of(called, own) for form, own in _PLACES.items()):
        return True
    return has_unit(names) and any(_counts(said, unit) for unit in _AMOUNTS)


def has_unit(names: Iterable[str]) -> bool:
    """Return whether an input is named after a unit, such as 天数, "days"."""
    called = _join_names(names)
    return any(_is_of(called, own) for own in _AMOUNTS.values())


def _counts(said: str, unit: str) -> re.Match[str] | None:
    plain = _WEEKDAY.sub(lambda found: " " * len(found[0]), said)
    return re.search(rf"{_COUNTED}[- ]?(?:{unit})(?![a-z])", plain)


def _is_of(called: str, words: str) -> bool:
    return re.search(rf"(?<![a-z])(?:{words})(?![a-z])", called) is not None


def _join_names(names: Iterable[str]) -> str:
    return normalise(" ".join(names)).replace("_", " ")
