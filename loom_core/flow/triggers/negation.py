"""Whether a message that names a piece of business asks for it: 「我不请假了」 only names it.

Decided by the words around the place where a pattern fits, in its clause, and by what is taken back
later. To take a request for less costs a question; to take a refusal for a request does what nobody
wanted. So what is unclear is in doubt, with these rules:

- **Negation.** 不, 没, 别, 取消, "don't", "not", "nobody" and their like in front, with words between that
  do not begin a new wish: 「我不想这么早就请假」 and "I don't think I want to take leave" are negated,
  「今天不能来上班要请假」 is not. Who lets, tells or asks somebody leads on to what they are to do: in
  「老板不让我请假」 and "nobody asked you to take leave" it is negated too. Behind it 「请假算了」, "never
  mind"; later 「等等，先别提交」, "or maybe not". Within it only if the pattern does not say so itself:
  「取消.*订单」 is certain.
- **Double negation** stays in doubt (「我不是不想请假」), except where it means that something must
  be: 「不得不请假」, 「不请假不行」, "no choice but to".
- **Questions** about how it is done, who may, whether it must be, or its rules are in doubt: 「怎么请假」,
  「谁能请假」, 「转账多久到账」, "what is the leave policy". Requests in the form of questions are not:
  「能不能帮我请假」, "could you book". Nor are the questions that a flow is there to answer:
  「我的订单到哪了」. A pattern that asks, 「怎么请假」, is certain where it fits.
- **Mentions** are in doubt: of what has been done, came of it or might be (「我已经请过假了」,
  「付款失败了」, "if I take leave"); of what somebody else wants, or wants of one (「我同事要请假」,
  「他让我转账」, "she asked to"). To want it for somebody else is a request: 「帮他请假」.
"""

from __future__ import annotations

from loom_core.flow.triggers import negation_chinese as doubt_chinese
from loom_core.flow.triggers import negation_english as doubt_english
from loom_core.flow.triggers.place import Doubt, Place

__all__ = ["Doubt", "doubt", "negates"]


def doubt(text: str, start: int, end: int, *, pattern: str) -> Doubt:
    """Whether a part of a message is only named, not asked for.

    Args:
        text: the message in the form in which patterns are searched for.
        start: where the part begins; a part of no length is the whole message.
        end: where it ends.
        pattern: what fits there: words of doubt that it holds itself are meant.
    """
    place = Place.of(text, start, end, pattern=pattern)
    languages = [each for each in (doubt_chinese, doubt_english) if place.holds(each.SCRIPT)]
    if any(each.is_negated(place) for each in languages):
        return "negation"
    if any(each.is_asked_about(place) for each in languages):
        return "question"
    return "mention" if any(each.is_mentioned(place) for each in languages) else ""


def negates(text: str) -> bool:
    """Whether a text denies or refuses something: it may be no answer, but a refusal."""
    return doubt_chinese.negates(text) or doubt_english.negates(text)
