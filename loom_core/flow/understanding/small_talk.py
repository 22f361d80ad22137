"""Small talk and short replies: never mind, once more, thanks."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from loom_core.flow.understanding.yes_no import yes_or_no
from loom_core.knowledge.text.scripts import normalise, to_simplified

__all__ = [
    "SmallTalkKind",
    "classify_small_talk",
    "is_again",
    "is_cancel",
    "is_declined",
    "is_past",
    "is_proposal",
    "is_question",
    "is_request_or_refusal",
    "is_status_question",
]

SmallTalkKind: TypeAlias = Literal["hello", "thanks", "bye", "assent"]

_MAX_LENGTH = 60
_PARTS = re.compile(r"[,，。.!！;；、~…]+\s*")
_ENDINGS = re.compile(r"(?:吧|啊|呀|呢|哦|啦|嘛|谢谢|please|thanks|thank you)$")

_CANCEL_ONCE = (
    r"(?:那|那就|还是|请|帮我|我要|我想|麻烦)*"
    r"(?:算了|取消(?:掉|它|这个|申请|流程|操作|办理)?|(?:先)?不(?:想|要)?(?:办|弄|做|填|搞)(?:理)?|别(?:办|弄|做)|"
    r"退出|停止|终止|放弃|结束|当我没说|不需要|不要)(?:了)?"
    r"|我?(?:先|暂时)?不(?:想|要)?(?:申请|预约|报销|提交|请|订|买|约|报|退|换|寄|交|查|问|去)了"
    r"|(?:(?:please|ok|okay|no|actually|oh|well|wait|sorry|just) )*"
    r"(?:cancel|stop|quit|exit|abort|never ?mind|forget|drop|leave)"
    r"(?: it| that| this| about it| the (?:request|whole thing|process|flow))?"
    r"|i(?:'ve| have)? changed my mind|let's not"
)
_CANCEL = re.compile(rf"(?:{_CANCEL_ONCE})(?:\s*(?:{_CANCEL_ONCE}))?")  # 「算了不约了」
_CANCEL_NOT = re.compile(r"不要|不需要|leave|drop|forget")  # alone, they answer no to a question
_WELL = re.compile(r"oh|well|wait|actually|sorry|h?mm+|哦|噢|呃|那|那个|等等|等一下")
_DECLINED = re.compile(r"不(?:用|需要|要|必)了|no thank(?:s| you)|not any ?more")
_AGAIN = re.compile(
    r"(?:请|那|那就|帮我)*(?:再试(?:一次|一下|试)?|重试(?:一次|一下)?|再(?:来|发|做|提交|办|约|订|交)一次|"
    r"重新(?:提交|来|办理|发)(?:一次|一下)?)(?:吧)?"
    r"|(?:please )?(?:try (?:it )?again|retry(?: it)?|once more|again)(?: please)?"
)
_HELLO = re.compile(
    r"(?:你好|您好|大家好|嗨|哈喽|hello|hi|hey|hiya|howdy|早|早上好|上午好|中午好|下午好|晚上好|在吗|"
    r"good (?:morning|afternoon|evening)|how are you|你是谁|你能做什么|who are you|what can you do|help).*"
)
_THANKS = re.compile(r".*(?:谢|辛苦|麻烦了|thank|thx|cheers|\bty\b).*")
_BYE = re.compile(r".*(?:再见|拜拜|回头见|晚安|\bbye\b|goodbye|see you|good night).*")
_QUESTION_END = re.compile(r"[?？]\s*$|(?:吗|么|呢)\s*[。.]?\s*$")
_QUESTION_ZH = re.compile(
    r"什么|怎么|怎样|如何|多[少久长远大]|哪[里儿个些]?|谁|为什么|为啥|是不是|能不能|可不可以|有没有|几[天个次点号]|"
    r"(?:[收要用能行好远贵开有疼会]|到[账期])[^,，。不]{0,3}不[?？]?$|([\u4e00-\u9fff])不\1"
)
_ASIDE_ZH = re.compile(
    r"(?:帮我|帮忙|帮一下|请你|麻烦[你您]|[你您]先|给我(?:查|看|转|找|接|换))|^(?:我要|我想)?投诉|"
    r"^(?:我要|我想|请|帮我)?(?:转|接|找|要)?人工(?:客服|服务)?吧?$|找(?:个)?(?:真人|人工|客服)|"
    r"^(?:先|还|暂时)?(?:不急|不着急|不知道|不清楚|不确定|没想好|待定|随便)(?:了|吧|呢|啊|哦)?[。.!！]?$|"
    r"(?:不想|不愿意?|不方便|不用|不必|懒得|不能)(?:说|填|回答|告诉|讲|透露)|(?:^|[,，。;；\s])别(?:再)?.{1,2}了"
)
_ASIDE_EN = re.compile(
    r"\b(?:can|could|would|will) you\b|\bplease (?:check|find|show|tell|get|connect|transfer|let|help)\b|"
    r"\b(?:speak|talk) (?:to|with) (?:a|an|the|some|your)\b|\brather not (?:say|tell|answer)|"
    r"\bnone of your business\b|\b(?:don['’]?t|do not) want to (?:say|tell|answer)\b",
    re.I,
)
_PAST = re.compile(
    r"(?:昨天|前天|上(?:个)?(?:周|星期|礼拜|月)|去年|以前|之前|刚才|曾经).{0,8}[了过]|"
    r"\b(?:yesterday|last (?:week|month|year)|(?:days?|weeks?|months?|years?) ago)\b",
    re.I,
)
_QUESTION_EN = re.compile(
    r"^(?:what|how|when|where|who|why|which|can|could|may|do|does|did|is|are|am|will|would|should)\b", re.I
)
_PROPOSAL = re.compile(
    r"^(?:(?:ok|okay|hi|hello|so|well|then|and),? )*(?:(?:how|what) about\b|any chance\b|"
    r"(?:can|could|may|might|shall) (?:i|we|you)\b|"
    r"do you have (?:anything|a slot|space|an? (?:opening|appointment))|"
    r"(?:would|will|does|is|are) .*\b(?:work|ok|okay|fine|possible|good|suit|free|available|do)\b)|"
    r",\s*(?:ok|okay|right|alright|please|yes|is that (?:ok|okay|fine|possible)|does that work)\?$|"
    r"(?:可以|行|好|方便|成|有空|有号|有位|对)(?:吗|么|不|吧)[?？]?$|行不行|可不可以|怎么样|如何[?？]?$|"
    r"(?:能|可以|可否|来得及)(?:不能)?.{0,8}(?:约|订|挂|来|去|到|看|见|做|住|送|取).{0,4}[吗么?？]",
    re.I,
)

_STATUS_LONGEST = 60
_STATUS_ZH = re.compile(
    r"(?:(?:办|约|订|定|弄|做|搞|处理|改|退|报|挂|请|提交|申请|预约|预订|取消|完成|安排|发)"
    r"(?:上|好|成|完|成功|完成|下来)?了|(?:办|约|订|定|弄|做|搞|挂)(?:好|成|完|上)|好了|成功了?|成了)(?:没有|没|吗|么|嘛)[?？]?$|"
    r"(?:进度|结果)(?:如何|怎么?样|呢|是什么|出来)|怎么样了|什么情况了?[?？]?$|到哪一?步|有(?:结果|消息)了?(?:吗|没)|"
    r"还没(?:好|办好|约好|办完|弄好)"
)
_STATUS_EN = re.compile(
    r"^(?:(?:so|and|well|hi|hello|ok(?:ay)?),? )*(?:is|was|has|did|are|have) "
    r"(?:it|that|this|everything|(?:my|the) (?:\w+ ){0,2}?(?:booking|appointment|request|order|reservation)) "
    r".{0,30}\b(?:booked|done|ready|finished|through|completed?|confirmed|submitted|cancell?ed|work(?:ed)?|"
    r"succeed(?:ed)?|made|sent|happen(?:ed)?|approved|processed|arranged)\b"
    r"(?: (?:now|yet|already|for me))*[?.]*$|"
    r"\bany (?:news|update)s?\b|\bwhat(?:'s| is| was) (?:the (?:status|result|outcome)|happening)\b|"
    r"\bhow (?:is it going|did it go)\b|^(?:is it )?(?:done|finished|booked)(?: yet| now)?\?$|"
    r"\b(?:am i|are we) booked\b|"
    r"\b(?:did|have) you (?:book|do|cancel|submit|finish|make|send|change)\w* (?:it|that)\b",
    re.I,
)


def is_cancel(message: str, *, asked: bool = False) -> bool:
    """Return whether a message only cancels.

    While a question is pending (`asked`), 「不要」 may be the answer.
    """
    parts = _parts(message)
    ends = [part for part in parts if _CANCEL.fullmatch(part)]
    if not ends or (asked and all(_CANCEL_NOT.fullmatch(part) for part in ends)):
        return False
    return all(part in ends or _WELL.fullmatch(part) or yes_or_no(part) is not None for part in parts)


def is_declined(message: str) -> bool:
    """Return whether a message declines what was asked: 「不用了，谢谢」."""
    plain = normalise(message).strip(" .!。").replace(",", "")
    return bool(_DECLINED.fullmatch(plain)) or any(map(_DECLINED.fullmatch, _parts(message)[:1]))


def is_again(message: str) -> bool:
    """Return whether a message only asks to try again."""
    parts = _parts(message)
    return len(parts) == 1 and bool(_AGAIN.fullmatch(parts[0]))


def is_question(message: str) -> bool:
    """Return whether a message is a question."""
    plain = to_simplified(message)
    return bool(_QUESTION_END.search(plain) or _QUESTION_ZH.search(plain) or _QUESTION_EN.search(plain))


def is_proposal(message: str) -> bool:
    """Return whether a question proposes something: "how about Saturday?", "can I come at 3 pm?"."""
    return bool(_PROPOSAL.search(to_simplified(message).strip()))


def is_status_question(message: str) -> bool:
    """Return whether a message asks for the state, 「约好了吗」, "is it booked?"; or is empty."""
    plain = " ".join(to_simplified(message).replace("’", "'").split())
    if not plain:
        return True
    short = len(plain) <= _STATUS_LONGEST
    return short and bool(_STATUS_ZH.search(plain) or _STATUS_EN.search(plain))


def is_request_or_refusal(message: str) -> bool:
    """Return whether a message makes a request, or refuses to answer: 「你先帮我…」, 「不想说」."""
    plain = to_simplified(message).strip()
    return bool(_ASIDE_ZH.search(plain) or _ASIDE_EN.search(plain))


def is_past(message: str) -> bool:
    """Return whether a message is about the past: 「昨天请了三天假」."""
    return bool(_PAST.search(to_simplified(message)))


def classify_small_talk(message: str) -> SmallTalkKind:
    """Classify a message that is only small talk (`needs_retrieval`)."""
    plain = " ".join(normalise(message).split())
    if _THANKS.fullmatch(plain):
        return "thanks"
    if _BYE.fullmatch(plain):
        return "bye"
    return "hello" if not plain or _HELLO.fullmatch(plain) else "assent"


def _parts(message: str) -> list[str]:
    """Split a message at commas and stops, without polite words."""
    if len(message) > _MAX_LENGTH:
        return []
    plain = normalise(message).replace("’", "'").strip()
    found: list[str] = []
    for part in _PARTS.split(plain):
        said = part.strip(" ?\n\t\"'“”「」")
        while (shorter := _ENDINGS.sub("", said).strip()) != said and shorter:
            said = shorter
        if said and not re.fullmatch(r"谢谢|多谢|please|thanks|thank you", said):
            found.append(said)
    return found
