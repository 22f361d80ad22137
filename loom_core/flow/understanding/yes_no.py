"""Yes and no, in both languages: a message is divided into known words, and all of it has to be known.

The words are of four kinds: yes, no, an action (约吧, "book it"), which is a yes unless a no comes before it,
and words that change nothing, such as 那就 or "please".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from loom_core.knowledge.text.scripts import normalise

__all__ = ["leans_to", "yes_or_no"]

_Kind: TypeAlias = Literal["yes", "no", "act", "other"]

_LONGEST = 60  # characters of a message
_PARTS = re.compile(r"[,，。.!！;；、~…\n]+\s*|\s+[-–—]+\s+")
_DRAWN = re.compile(r"([a-z])\1{2,}")  # "nooo"
_AROUND = ' \t"“”「」'
_WORD_CHARACTER = re.compile(r"[a-z0-9']")


@cache
def _vocabulary() -> tuple[Mapping[str, _Kind], frozenset[str]]:
    """Return the kinds of words, and the words that make a message unclear."""
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for line in (
        resources.files("loom_core.flow.understanding").joinpath("yes_no.txt").read_text("utf-8").splitlines()
    ):
        kind, _, words = line.partition(": ")
        if not line.startswith("#"):
            listed[kind] += words.split(", ")
    for verb in listed.pop("verb"):
        listed["other"].append(verb)
        if verb.isascii():
            listed["act"] += [f"{verb}{what}" for what in (" it", " that", " this", " one", " me in")]
        else:
            listed["act"] += [
                f"{verb}{end}" for end in ("吧", "上", "上吧", "好了", "它", "了吧", "这个", "一下")
            ]
            listed["act"] += [f"{begin}{verb}" for begin in ("就", "帮我", "给我", "请", "直接")]
    blocked = frozenset(listed.pop("blocked"))
    kinds: dict[str, _Kind] = {}
    for kind in ("other", "act", "no", "yes"):
        kinds |= dict.fromkeys(listed[kind], kind)
    return kinds, blocked


def yes_or_no(message: str) -> bool | None:
    """Parse a message that is only yes or no; None if it is anything else, or both.

    Args:
        message: the user's message, of any script and width.
    """
    plain = normalise(message[: _LONGEST + 1]).replace("’", "'").strip()
    plain = _DRAWN.sub(r"\1", plain)
    if len(plain) > _LONGEST:
        return None
    if any(_holds(plain, word) for word in _vocabulary()[1]):
        return None
    said = {_answer_of(part.strip(_AROUND)) for part in _PARTS.split(plain) if part.strip(_AROUND)}
    said.discard("neither")
    return said == {"yes"} if said in ({"yes"}, {"no"}) else None


def _answer_of(part: str) -> Literal["yes", "no", "neither", "unclear"]:
    """Classify a part of a message between commas."""
    kinds = _divide(part)
    if kinds is None:
        return "unclear"
    if "no" in kinds:
        return "unclear" if "yes" in kinds or "act" in kinds[: kinds.index("no")] else "no"
    return "yes" if "yes" in kinds or "act" in kinds else "neither"


def _divide(text: str) -> list[_Kind] | None:
    """Return the kinds of the words of a text, in the division with the fewest; None if some are unknown."""
    vocabulary, _ = _vocabulary()
    best: list[list[_Kind] | None] = [[], *[None] * len(text)]
    for at in range(len(text)):
        if (until := best[at]) is None:
            continue
        if text[at] == " " and best[at + 1] is None:
            best[at + 1] = until
        for end in range(at + 1, len(text) + 1):
            kind = vocabulary.get(text[at:end])
            if kind is None or _cuts_word(text, at) or _cuts_word(text, end):
                continue
            if (known := best[end]) is None or len(known) > len(until) + 1:
                best[end] = [*until, kind]
    return best[-1]


def _holds(text: str, word: str) -> bool:
    at = text.find(word)
    return at >= 0 and not (word.isalpha() and (_cuts_word(text, at) or _cuts_word(text, at + len(word))))


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(map(_WORD_CHARACTER.match, around))


_LONGEST_LEANING = 100  # characters of a message with other words in it
_OPEN = re.compile(  # a message with one of these may be neither, or wants something else
    r"能不能|能否|可否|的话|好像|似乎|拿不准|不是[^，,]*[，, ]+(?:而)?是|应该|"
    r"不知道|不确定|不清楚|不好说|不一定|不着急|不急|不懂|不明白|没想好|没决定|没听懂|"
    r"想想|考虑|看看|看情况|商量|问问|问一下|等等|等一|等下|稍等|稍后|"
    r"可能|也许|或许|大概|随便|都行|如果|万一|要么|还是说|多少|怎么|什么|哪|几点|为啥|谁|"
    r"\b(?:maybe|perhaps|possibly|depends|unsure|not sure|not certain|no idea|don't know|dunno|can't decide|"
    r"undecided|wait|hang on|hold on|one sec|a sec|a minute|a moment|let me|think about|ask|check|"
    r"if|unless|whether|either|it'?s [\w ]+,? not|whatever|up to you|"
    r"what|which|who|when|where|how|why|remind|repeat|explain)\b",
)
_MORE = re.compile(  # a yes with one of these may want something else as well
    r"[0-9]|但|不过|只是|除了|改|换|另外|还有|还要|顺便|多加|再加|"
    r"周[一二三四五六日天]|星期|礼拜|明天|后天|今天|上午|下午|晚上|早上|"
    r"\b(?:but|except|instead|change|switch|rather|also|plus|another|other|different|make it|only|however|"
    r"though|(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|today|tonight|"
    r"morning|afternoon|evening|noon|later|earlier)\b"
)
_REFUSES = re.compile(  # at the beginning, at the end, or of the action itself
    r"^(?:不(?:用|要|需要|必)(?=[了啦,，。 ]|不|$)|不(?:行|对|可以|是|好意思?不|得行|中|成|想|感兴趣|同意)|"
    r"别(?:约|订|提交|发|弄|办|了|$|[,，。 ])|甭|莫(?!急)|没必要|木有必要|[唔冇](?:使|好|要|駛|需要))|"
    r"(?<!是)(?<!得)(?<!能)(?<!还)不(?:约|去|来|订|定|买|做|办|弄)|(?:不用|不要|不需要|不必)(?:了|啦|$)|"
    r"[约去来订]不了|没必要|木有必要|莫得必要|(?:打死|坚决|绝)[也都]?不|门儿?都没有|冲突了|唔(?:使|好|要|駛)|"
    r"^(?:no|nope|nop|noo|nah|naw|never)\b(?! (?:need|change|rush|hurry|doubt|issue|more changes))|"
    r"\b(?:no|nah|nope)(?: thanks| thank you| thx| sorry| more| stop asking)*$|"
    r"\b(?:decline|refuse|have to pass|pass on|gonna pass|prefer not|rather not|cancel|nvm|"
    r"(?:don't|dont|do not) want|don't need it|(?:won't|wont) be|(?:can't|cant) make|can't come|"
    r"not interested|that'?s not)\b"
)
_AGREES = re.compile(
    r"可以|好[的啊呀吧滴哒]|行[的啊吧]|没问题|木问题|冇问题|当然|必须|肯定要|[约订][吧上它]|就这个|就它|听你的|按你说的|"
    r"\b(?:yes|yess|yeah|yea|yep|yup|ok|okay|okk|sure|aight|alright|definitely|definately|certainly|"
    r"absolutely|of course|please do|go ahead|do it|go (?:for|with) (?:it|that)|hell yeah|heck yes|"
    r"you betcha|(?<!i'm )(?<!im )fine|right|correct|sounds good|delighted|book away)\b"
)
_NEGATION = re.compile(
    r"[不没别未无甭莫冇唔]|n't\b|\b(?:no|not|never|none|nothing|without|dont|wont|cant|isnt|nah|nope)\b"
)
_DOUBLE = re.compile(  # negated twice, or negative in form only
    r"不是不行|没什么不可以|没理由不|怎么会不|没有?不|不会不|不得不|"
    r"(?:can't|wouldn't|won't) say no|don't see why not|no reason not|why not|"
    r"no problem|no worries|no objections?"
)
_FILLERS = re.compile(
    r"^(?:(?:嗯+|呃|啊|那个|哎呀?|唉|不好意思|抱歉|um+|uh+|ugh|er+|well|oh|sorry|thanks|thank you)"
    r"[,，.。 …]*)+"
)


def leans_to(message: str) -> bool | None:
    """Return whether a message with other words in it means yes or no; None if that is doubtful.

    For a message that nothing else explains: "no that's the wrong day", 「正好我有空，约吧」. One that also
    asks, hesitates, or wants something else is doubtful.

    Args:
        message: the user's message, of any script and width.
    """
    plain = normalise(message[: _LONGEST_LEANING + 1]).replace("’", "'").strip()
    plain = _DRAWN.sub(r"\1", plain)
    if not plain or len(plain) > _LONGEST_LEANING or "?" in plain or "吗" in plain:
        return None
    rest, doubles = _DOUBLE.subn(" ", plain)
    parts = {_answer_of(part.strip(_AROUND)) for part in _PARTS.split(rest) if part.strip(_AROUND)}
    rest = _FILLERS.sub("", rest.strip())
    refuses = bool(_REFUSES.search(rest)) or "no" in parts
    agrees = bool(doubles or _AGREES.search(rest)) or "yes" in parts
    if _OPEN.search(rest) or refuses == agrees:
        return None
    return None if agrees and (_MORE.search(rest) or _NEGATION.search(rest)) else agrees
