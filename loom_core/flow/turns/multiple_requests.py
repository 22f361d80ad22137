"""Several requests in one message: 「取消A1001再约一个牙科」, "cancel A1001 and book a dentist"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.flow.policy.disambiguation import Offer
from loom_core.flow.understanding.found_inputs import found_inputs
from loom_core.flow.understanding.small_talk import is_aside, is_cancel
from loom_core.knowledge.text.analysis import analyse

if TYPE_CHECKING:
    from loom_core.flow.policy.router import FlowRouter, RouteMatch

__all__ = ["content_words", "requests_of", "unread_request"]

_LONGEST = 500
_MOST = 4  # requests of one message
_JOINTS = re.compile(
    r"\s*[,，;；。.!！]\s*(?:(?:and|then|also)\b\s*)*|\s+(?:and then|and also|and|then|also|plus)\s+|"
    r"\s*(?:，|,)?\s*(?:然后|接着|顺便|并且|而且|另外|同时|还要|以及|再(?!见|说|次|三)|并(?!不|非|没))\s*",
    re.I,
)
_FURTHER = re.compile(  # joints that hardly join anything but requests
    r"\s*[,;.!]?\s+(?:and also|and then|plus|also)\s+|\s*[，；。,]?\s*(?:另外|顺便|然后再?|此外|还要)\s*",
    re.I,
)
_FEW = 3  # words that are no request of their own
_POLITE = re.compile(
    r"\b(?:please|thanks?|thank you|hello|hi|would|could|can|like|want|need|kindly|i'd)\b|"
    r"麻烦|谢谢|请|您好|你好|我们?|你们?|您|想要?|需要|可以|能不能|能否|能|帮忙?|一下|个|吗|吧|了|的",
    re.I,
)


def requests_of(message: str, router: FlowRouter, whole: RouteMatch) -> list[tuple[Offer, RouteMatch]]:
    """The requests of a message that makes several, in its order; empty for one that makes a single one.

    Each part has to ask for a flow by itself, without doubt, and for another flow or other inputs than those
    before; and the first has to stand in the whole message, too: what is taken back in the end is no request.

    Args:
        message: what the user says.
        router: knows which flow a part asks for.
        whole: what it says of all of the message.
    """
    if len(message) > _LONGEST or not whole.flows:
        return []
    places = [0, *(match.end() for match in _JOINTS.finditer(message)), len(message)]
    found: list[tuple[Offer, RouteMatch]] = []
    start = 0
    for end in places[1:]:
        part = message[start:end]
        match = router.match(part)
        if is_cancel(_JOINTS.sub("", part)):
            return []
        if match.flow is None and end != len(message):
            continue  # it belongs to what follows: "on Monday, please book …"
        if match.flow is None:
            if found:  # and so does what follows the last
                offer, before = found[-1]
                rest = f"{offer.message}{part}"
                found[-1] = (Offer(rest, offer.flows, offer.parameters), before)
            break
        known = [other for _, other in found if other.flow == match.flow]
        if not any(_is_same(other, match) for other in known):
            flow_id = match.flow.flow_id
            found.append((Offer(part, (flow_id,), {flow_id: match.parameters}), match))
        start = end
    if not 1 < len(found) <= _MOST:
        return []
    first = found[0][0].flows[0]
    if not any(match.flow_id == first and match.certain for match in whole.matches):
        return []
    return [(_with_all(offer, router), match) for offer, match in found]


def unread_request(message: str, router: FlowRouter, match: RouteMatch) -> str:
    """What a message asks for behind what a pattern has read, if no pattern reads it; empty for nothing.

    Args:
        message: what the user says.
        router: knows which flow a part asks for.
        match: what it says of all of the message: a flow.
    """
    if match.flow is None or len(message) > _LONGEST:
        return ""
    end = max(each.end for each in match.matches if each.flow_id == match.flow.flow_id)
    joint = _FURTHER.search(message, end)
    part = message[joint.end() :].strip() if joint else ""
    named: Any = match.flow.input_schema.get("properties") or {}
    if not part or is_cancel(part) or is_aside(part) or len(content_words(part)) < _FEW:
        return ""
    found = found_inputs(part, {name: each for name, each in named.items() if isinstance(each, Mapping)})
    return "" if found or router.match(part).matches else part


def content_words(text: str) -> set[str]:
    """The words of a text that say more than politeness does."""
    return {word for word in analyse(_POLITE.sub(" ", text)) if word.isascii() or len(word) > 1}


def _is_same(one: RouteMatch, other: RouteMatch) -> bool:
    """Whether two parts ask for the same: neither says an input otherwise than the other does."""
    shared = one.parameters.keys() & other.parameters.keys()
    return all(one.parameters[name] == other.parameters[name] for name in shared)


def _with_all(offer: Offer, router: FlowRouter) -> Offer:
    match = router.match(offer.message)
    same = match.flow is not None and match.flow.flow_id == offer.flows[0]
    return Offer(offer.message, offer.flows, {offer.flows[0]: match.parameters}) if same else offer
