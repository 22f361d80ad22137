"""Retrieval trigger: which messages of a conversation need retrieval, and which are small talk."""

from __future__ import annotations

import re

from loom_core.knowledge.text.analysis import words

__all__ = ["needs_retrieval"]

_LONGEST = 60  # maximum characters of small talk

_ENGLISH = (
    "hi|hello|hey|hiya|howdy|there|good (?:morning|afternoon|evening|night|day)|bye|goodbye|"
    "see you(?: later)?|"
    "thanks?(?: you)?(?: (?:so|very) much| a lot)?|thx|ty|cheers|please|sorry|welcome|"
    "ok|okay|k|sure|fine|great|good|nice|cool|perfect|awesome|excellent|well done|got it|i see|understood|"
    "yes|yep|yeah|yup|no|nope|right|correct|exactly|true|"
    "continue|go on|go ahead|keep going|proceed|do it|carry on|next|more|again|stop|cancel|wait|never ?mind|"
    "how are you(?: today)?|what can you do|who are you|help|test"
)
_CHINESE = (
    "你好|您好|大家好|嗨|哈喽|早|早上好|上午好|中午好|下午好|晚上好|晚安|再见|拜拜|回头见|"
    "谢谢|多谢|感谢|谢了|谢谢你|谢谢您|非常感谢|辛苦了|麻烦了|不客气|抱歉|对不起|没关系|"
    "好|好的|好吧|好啊|行|可以|嗯|哦|噢|是|是的|对|对的|没错|不|不是|不用|不用了|不对|"
    "明白|明白了|知道了|懂了|了解|收到|没问题|当然|太好了|很好|不错|厉害|"
    "继续|接着说|往下|下一个|再来|再来一次|停|停止|取消|等等|等一下|算了|"
    "你是谁|你能做什么|在吗|帮帮我|测试|了|吧|啊|呀|哈|呢"
)
_LONGEST_FIRST = "|".join(sorted(_CHINESE.split("|"), key=len, reverse=True))
# Atomic and possessive, to avoid backtracking: some texts can be split in several ways (不是 and 不, 是).
_SMALL_TALK = re.compile(f"(?>(?:{_ENGLISH})(?=\\s|$)\\s*|(?:{_LONGEST_FIRST})\\s*)++")
_NOT_A_WORD = re.compile(r"[^\w]+|_+")


def needs_retrieval(message: str) -> bool:
    """Whether the sources may help to answer a user's message.

    They do not if there is no word in it, or only greetings, thanks, assent and requests to continue, in
    English or Chinese. When in doubt it does: a search is cheap, and a missed passage is not.
    """
    if not words(message):
        return False
    plain = _NOT_A_WORD.sub(" ", message).strip().casefold()
    return len(plain) > _LONGEST or _SMALL_TALK.fullmatch(plain) is None
