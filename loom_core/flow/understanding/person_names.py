"""Names of persons in messages: "my name is Li Wei", "for Li Wei", 「我叫王小明」."""

from __future__ import annotations

import re
from collections.abc import Iterable

from loom_core.cjk import HAN, has_cjk
from loom_core.knowledge.text.scripts import to_simplified

__all__ = ["is_for_person", "is_person_alone", "may_be_person", "person_in", "person_part"]

_FOR_PERSON = re.compile(
    r"姓名|名字|称呼|患者|病人|就诊人|客人|联系人|(?<![a-z])(?:full |first |last |your |patient'?s? |"
    r"customer'?s? |guest'?s? )?names?(?![a-z])|(?<![a-z])(?:patient|guest|attendee)(?![a-z])",
    re.I,
)
_FOR_ELSE = re.compile(
    r"公司|产品|文件|项目|店名|"
    r"(?:company|product|file|user|project|brand|street|city|account|pet)s?[ _-]?name",
    re.I,
)
_MAX_LENGTH = 40
_DIGIT = re.compile(r"[0-9０-９@/:：]|[零一二两三四五六七八九十]+[点號号时月日岁天个晚夜位间次]|[?？]")
_NO_NAME = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:january|february|march|april|june|july|august|"
    r"september|october|november|december)\b|\b(?:today|tomorrow|tonight|morning|afternoon|evening|noon|please|"
    r"yes|no|not|the|a|an|my|me|i|you|it|this|that|ill|sick|here|book|cancel|need|want|would|like)\b|"
    r"\b(?:he|she|they|we|is|are|was|ok|okay|fine|now|then)\b|"
    r"\b(?:same|last|time|before|again|friend|wife|husband|son|daughter|mother|father|self|myself|him|her|them)\b|"
    "[前昨今明后]天|上午|下午|晚上|中午|周[一二三四五六日天末]|星期|预约|取消|不|没|吗|呢|什么|"
    "我|你|您|他|她|上次|一样|朋友|家人|自己|老公|老婆|妈|爸|孩子|儿子|女儿|同事|还是|随便",
    re.I,
)
_WORD = r"[A-Z][a-zA-Z'’.-]*"
_SOME = rf"{_WORD}(?: {_WORD}){{0,3}}"
_LOWER = (
    r"(?!(?:at|on|in|by|to|if|when|back|later|after|before|any|some)\b)[a-z][a-z'’-]*"
    r"(?: (?!(?:and|age|aged|phone|tel|at|on|for|my|i|is|with|from|please|born)\b)[a-z][a-z'’-]*){0,2}"
)
_INTRODUCED = re.compile(
    rf"(?i:\b(?:my name is|my name's|the name is|name'?s|name is|i am called|i'm called|call me|this is|"
    rf"(?:put|book|reserve|it'?s|that'?s|make) (?:it |that )?(?:down )?(?:under|in the name of)|"
    rf"under(?: the)? name(?: of)?))\s+"
    rf"(?P<name>{_SOME}|{_LOWER})"
)
_RELATIVE = (
    "(?:son|daughter|child|kid|baby|wife|husband|partner|mother|father|mom|mum|dad|sister|brother|friend)"
)
_FOR = re.compile(rf"(?i:\bfor(?: (?:mr|mrs|ms|dr)\.?| my {_RELATIVE},?)?) (?P<name>{_SOME})")
_SURNAME = (
    "(?:欧阳|司马|诸葛|上官|"
    "[王李张刘陈杨赵黄周吴徐孙朱胡郭林罗郑梁谢宋唐邓冯韩曹曾彭萧蔡潘袁余叶蒋杜苏魏吕沈姚卢姜崔谭陆汪廖"
    "贾韦邹熊孟秦阎薛侯雷段郝邵])"
)
_GIVEN = f"[{HAN}]"
_ENDS = "(?=$|[\\s,，。.;；、!！]|预约|约|挂|订|定|报|办|申请|请|取消|改|查|，|的)"
_INTRODUCED_ZH = re.compile(
    "(?:我的?(?:名字)?(?:叫做?|名叫)|(?:姓名|名字|名)(?:就?[是写叫为]|[:：])?|(?:预约|预订|联系|入住|就诊)人(?:是|为|叫|[:：])|"
    "本人(?:是|叫)?|(?:就?写|登记|(?<!人)叫我))\\s*"
    f"(?P<name>{_GIVEN}{{2,4}}?(?=$|[\\s,，。.;；、!！吧呢啊]|就[行好]|的名)|[A-Za-z][A-Za-z .'-]*)|"
    f"挂(?P<listed>{_SURNAME}{_GIVEN}{{1,2}}?)(?=$|[\\s,，。.;；、!！吧呢啊]|的名)|"
    "(?:我(?:的名字)?是|(?:病人|患者|客人)(?:是|叫)|(?:^|[\\s,，。他她子儿人])叫)"
    f"(?P<am>{_SURNAME}{_GIVEN}{{1,2}}?){_ENDS}|"
    f"[给帮替](?P<other>{_SURNAME}{_GIVEN}{{1,2}}?){_ENDS}"
)

_PART = re.compile(rf"[^\s,，。;；、!！](?:(?!(?<=[{HAN}])\s|\s(?=[{HAN}]))[^,，。;；、!！])*")
_ALONE = re.compile(rf"{_SURNAME}{_GIVEN}{{1,2}}|{_WORD}(?: {_WORD}){{1,3}}")


def is_for_person(names: Iterable[str]) -> bool:
    """Return whether an input, by its names, is the name of a person."""
    called = to_simplified(" ".join(names)).replace("_", " ")
    return bool(_FOR_PERSON.search(called)) and not _FOR_ELSE.search(called)


def may_be_person(text: str) -> bool:
    """Return whether a text may be a person's name: no time, number, question or sentence."""
    plain = text.strip()
    if not plain or len(plain) > _MAX_LENGTH or _DIGIT.search(plain) or _NO_NAME.search(to_simplified(plain)):
        return False
    return any(map(str.isalpha, plain)) and (not has_cjk(plain) or len(plain) <= 12)


def person_in(text: str) -> tuple[int, int] | None:
    """Return the span of a person's name in a text; None if there is none, or several."""
    found: dict[str, tuple[int, int]] = {}
    for pattern in (_INTRODUCED, _INTRODUCED_ZH, _FOR):
        for match in pattern.finditer(text if pattern is not _INTRODUCED_ZH else to_simplified(text)):
            group = next(name for name, value in match.groupdict().items() if value)
            start, end = match.span(group)
            called = text[start:end].rstrip(" .'’-")
            if may_be_person(called):
                found.setdefault(called.casefold(), (start, start + len(called)))
        if found:
            break
    return next(iter(found.values())) if len(found) == 1 else None


def is_person_alone(text: str) -> bool:
    """Return whether a text is no more than a name, and looks like one: 王小明, "Li Wei"."""
    plain = text.strip().rstrip(".!。！")
    return bool(_ALONE.fullmatch(to_simplified(plain))) and may_be_person(plain)


def person_part(text: str) -> tuple[int, int] | None:
    """Return the span of the only part of a longer text that is no more than a name.

    Parts are between commas; in Chinese also between spaces.
    """
    parts = list(_PART.finditer(text))
    named = [part.span() for part in parts if is_person_alone(part[0])]
    return named[0] if len(parts) > 1 and len(named) == 1 else None
