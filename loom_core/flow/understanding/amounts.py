"""Durations and money as people write them: 一个半小时, "1h 15m", 三块五, "fifty bucks", "$1,200.50"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from loom_core.flow.understanding.numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Match

__all__ = ["Money", "duration_parts", "money_parts"]

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


def duration_parts(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Yield the parts of a text that tell a duration: start, end, and ISO 8601; None where it is vague.

    Args:
        text: normalized, in lower case and simplified characters.
    """
    found = sorted(_durations(text), key=lambda each: (each[0], -each[1]))
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


def _durations(text: str) -> Iterator[tuple[int, int, dict[str, Decimal] | None]]:
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

Money = tuple[Decimal, str]
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


def money_parts(text: str) -> Iterator[tuple[int, int, Money | None]]:
    """Yield the parts of a text that tell an amount of money; None where it is vague: 几百块."""
    at = -1
    found = [(*match.span(), match) for pattern in _MONEY for match in pattern.finditer(text)]
    for start, end, match in sorted(found, key=lambda each: (each[0], -each[1])):
        if start < at or not match[0].strip() or _is_article(match):
            continue
        at = end
        vague = _is_range(text, start, end) or _OTHER_CURRENCY.match(text, end)
        yield start, end, None if vague else _money(match)


def _is_article(match: Match[str]) -> bool:
    """Whether a match is the word of "a night"."""
    named = match.groupdict()
    return named["count"] in {"a", "an"} and not (named.get("behind") or named.get("scale"))


def _money(match: Match[str]) -> Money | None:
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
