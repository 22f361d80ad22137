"""Parts of a message that says several things, as far as its words show.

"Friday at ten. Do I need my card?" answers and asks; 「不约了，帮我查报告」 ends one thing and starts
another; "3 pm, and make it Thursday" answers and corrects. Each part is read by itself, by sentences, then
by clauses. If that does not find several things, the message is read as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.executor.inputs import missing_inputs, with_defaults
from loom_core.flow.policy.router import content_words
from loom_core.flow.understanding.reply_parser import ParsedReply
from loom_core.flow.understanding.slots import extract_slots, is_free_text
from loom_core.flow.understanding.small_talk import is_proposal, is_question
from loom_core.knowledge.text.scripts import to_simplified

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.flow.understanding.reply_parser import ReplyKind

__all__ = ["MessageParts", "PartReader", "answers_at_once", "split_reply", "split_request"]

_MAX_LENGTH = 500  # characters of a message that is split
_MAX_PARTS = 6
_PROPOSAL_WORDS = 3  # fewer words of a proposal ask for consent: "is that ok?"
_END = (
    r"(?<=[?!。？！;；\n])\s*|(?<=\.)(?<!\b[DM]r\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bNo\.)(?:\s+|(?<=\.\.\.))|"
    r"\s+[-—–]+\s+|\s*——\s*|……"
)
_SENTENCES = re.compile(_END)
_CLAUSES = re.compile(
    rf"{_END}|(?<![错岔]了)\s*[,，]\s*|\s+and\s+(?=(?:also|what|how|when|where|who|why|which|is|are|do|does|can|could|will|would|"
    r"should|make|change|cancel|let|please|just|tell|show|check|book)\b)|(?=对了|顺便|另外)",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^(?:(?:oh|and|also|but|btw|by the way|so|well|hi|hello|hey|hm+|one more thing|quick question|then|"
    r"just wondering|actually)\b[\s,:]*|"
    r"(?:对了|顺便(?:问(?:一下|下|一句)?)?|另外|还有|那个?|请问(?:一下)?|问一下|哦|噢|嗯|那么)[\s,，:：]*)+",
    re.IGNORECASE,
)

_ENDS_ZH = re.compile(
    r"(?:算了[,，]?)?(?:[^,，。]{1,8}?)?(?:先|暂时|就)?(?:不|别|甭)(?:想|要|用|打算|再)?"
    r"(?:约|订|改|续|查|办|挂|退|换|开|弄|搞|做|看|问|预约|申请|取消|买|寄|报)(?:[^,，。]{0,3})?了[吧啊]?[。.!！]?|"
    r"算了[吧啊]?[。.!！]?"
)
_ENDS_EN = re.compile(
    r"(?:(?:you know what|actually|no|oh|ok(?:ay)?|wait|sorry|please|just|let'?s)[,\s]+)*"
    r"(?:never ?mind|forget|drop|scrap|skip|stop|cancel|leave|"
    r"don'?t (?:move|book|change|do|bother|need|want)|"
    r"(?:i(?:'ve)? )?changed my mind|i(?:'d| would) rather not|(?:i )?no longer (?:need|want)|not booking)\b"
    r".*",
    re.IGNORECASE,
)
_LONGEST_END = 60
_FULL_STOPS = ".!。！"

PartReader: TypeAlias = (
    "Callable[[str], tuple[Literal['said', 'another', 'manners', 'unclear'], ParsedReply]]"
)
"""Reads a part of a message as a reply to the waiting run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageParts:
    """A message that says several things.

    Attributes:
        said: the reply to the waiting run, from all parts that are for it.
        aside: the question to answer besides; empty for none.
        rest: the request that takes the place of what is cancelled; empty for none.
    """

    said: ParsedReply
    aside: str = ""
    rest: str = ""


def split_reply(
    turn: TurnContext, read: PartReader, *, flow: FlowConfig | None, inputs: Mapping[str, Any]
) -> MessageParts | None:
    """Split a message to a waiting run; None if it says one thing, or its words do not show it.

    Args:
        turn: the turn.
        read: reads a part.
        flow: flow of the waiting run; None if a tool asks.
        inputs: schemas of its inputs, with those that it asks for, by name.
    """
    divided = (_combine(turn, parts, read, flow, inputs) for parts in _divisions(turn.message))
    return next(filter(None, divided), None)


def split_request(turn: TurnContext) -> str:
    """Return the question that a message asks besides its request for a flow; empty for none."""
    flow = turn.match.flow
    for parts in _divisions(turn.message):
        asides = [part for part in parts if is_aside(turn, part, {}, about=flow)]
        rest = " ".join(part for part in parts if part not in asides)
        if asides and rest and turn.runtime.router.match(rest).flow == flow:
            return " ".join(asides)
    return ""


def is_aside(turn: TurnContext, part: str, inputs: Mapping[str, Any], *, about: FlowConfig | None) -> bool:
    """Return whether a part is a question to answer besides, not an input in the form of a question.

    Args:
        turn: the turn.
        part: the part.
        inputs: schemas of the inputs that it could be for, by name.
        about: the flow that the rest is about.
    """
    proposes = is_proposal(part)
    if not is_question(part) or len(content_words(part)) < (_PROPOSAL_WORDS if proposes else 1):
        return False
    match = turn.runtime.router.match(part)
    if match.flow is not None and match.flow != about:
        return answers_at_once(turn, match.flow, match.parameters)
    if match.flow is not None and proposes:
        return False
    return not extract_slots(part, {name: each for name, each in inputs.items() if not is_free_text(each)})


def answers_at_once(turn: TurnContext, flow: FlowConfig, parameters: Mapping[str, Any]) -> bool:
    """Return whether a flow only looks something up, and has the inputs for that."""
    if turn.runtime.has_side_effects(flow) or flow.confirm == "always":
        return False
    return not missing_inputs(flow.input_schema, with_defaults(flow.input_schema, parameters))


def _divisions(message: str) -> Iterator[list[str]]:
    """Yield the sentences of a message, then its clauses, without the words that lead to them."""
    if len(message) > _MAX_LENGTH:
        return
    for pattern in (_SENTENCES, _CLAUSES):
        parts = [_LEADS.sub("", part).strip() for part in pattern.split(message)]
        if 1 < len(parts := [part for part in parts if part]) <= _MAX_PARTS:
            yield parts


def _combine(
    turn: TurnContext,
    parts: list[str],
    read: PartReader,
    flow: FlowConfig | None,
    inputs: Mapping[str, Any],
) -> MessageParts | None:
    values: dict[str, Any] = {}
    kinds: list[ReplyKind] = []
    asides: list[str] = []
    for number, part in enumerate(parts):
        reading, said = read(part)
        rest = " ".join(parts[number + 1 :])
        if reading == "said" and said.kind == "cancel":
            is_wish = turn.runtime.router.match(rest).flow or is_aside(turn, rest, inputs, about=flow)
            return MessageParts(said=said, rest=rest) if is_wish and not kinds else None
        if _ends(part) and not kinds and _begins_other(turn, rest, flow):
            return MessageParts(said=ParsedReply("cancel"), rest=rest)
        if is_aside(turn, part, inputs, about=flow) and not (reading == "said" and said.values):
            asides.append(part)
        elif reading == "said":
            if not said.values and part[-1] not in _FULL_STOPS:
                return None  # 「好吧，那订单到哪了」: no yes of its own
            if said.kind == "answer" and any(
                values.get(name, value) != value for name, value in said.values.items()
            ):
                return None  # a text of several sentences; 「周三，12月3号」 where that is a Thursday
            values |= said.values
            kinds.append(said.kind)
        elif reading == "another":
            return None
    if not kinds or len(kinds) + len(asides) < 2:
        return None
    if values:  # an answer or a correction holds against a yes or no next to it
        said = ParsedReply("answer" if "answer" in kinds else "correct", values)
    elif len({*kinds}) == 1 and asides:
        said = ParsedReply(kinds[0])
    else:
        return None
    return MessageParts(said=said, aside=" ".join(asides))


def _begins_other(turn: TurnContext, rest: str, flow: FlowConfig | None) -> bool:
    """Return whether the rest of a message asks for another flow, which is more than a question."""
    match = turn.runtime.router.match(rest)
    is_other = match.flow is not None and match.flow != flow
    return is_other and not (is_question(rest) and is_aside(turn, rest, {}, about=flow))


def _ends(part: str) -> bool:
    """Return whether a part ends what is in progress, if a request for another flow follows."""
    plain = part.replace("’", "'")
    return len(part) <= _LONGEST_END and bool(
        _ENDS_ZH.fullmatch(to_simplified(plain)) or _ENDS_EN.fullmatch(plain)
    )
