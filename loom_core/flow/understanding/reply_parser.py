"""Parser of replies to a pending question: an answer, a correction, yes or no, or a cancellation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.expressions.expression import MISSING, Missing
from loom_core.flow.triggers.negation import negates
from loom_core.flow.understanding.choices import (
    OFFERED,
    choices_of,
    find_choices,
    number_in_list,
    properties_of,
)
from loom_core.flow.understanding.formats import find_by_format, has_format
from loom_core.flow.understanding.numbers import has_own_unit, has_unit, number_of
from loom_core.flow.understanding.person_names import is_person_alone, may_be_person, person_in, person_part
from loom_core.flow.understanding.slots import (
    RejectedValue,
    Schema,
    SlotMatch,
    accepts_any_text,
    extract_slots,
    find_rejected_value,
    hour_in_words,
    is_free_text,
    is_number,
    is_person,
    label_of,
    names_of,
    parse_value,
    without_beginning,
    without_ending,
)
from loom_core.flow.understanding.small_talk import (
    is_again,
    is_cancel,
    is_declined,
    is_past,
    is_proposal,
    is_question,
    is_request_or_refusal,
)
from loom_core.flow.understanding.yes_no import leans_to, yes_or_no
from loom_core.knowledge.sources.small_talk import needs_retrieval
from loom_core.knowledge.text.scripts import normalise, to_simplified

if TYPE_CHECKING:
    from loom_core.runs.run import Pending

__all__ = [
    "ParsedReply",
    "ReplyKind",
    "find_corrections",
    "find_refused_correction",
    "find_restated_inputs",
    "is_retraction",
    "parse_reply",
]

# Corrections of inputs: 「改成两天」, "make it two"

_SHORT = 300  # maximum characters of a message that may be a correction

_CORRECTIONS = (
    re.compile(
        r"(?:把|将|请)?(?P<name>[^，,。；;]{0,16}?)\s*(?:应该)?"
        r"(?:改成|改为|改到|换成|换到|更正为|调整为|变成|改(?!一[下些点])(?=\s*[\d一二两三四五六七八九十半]))\s*"
        r"(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"不是\s*(?P<old>[^，,。；;]+?)\s*[，, ]?\s*(?:而)?(?:应该)?(?<!不)是\s*(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"^\s*(?:(?:不|不对|不是|错了|说错了|写错了)\s*[，,。 ]\s*(?:应该)?|应该)是\s*(?P<value>[^，,。；;]+)"
    ),
    re.compile(r"^\s*(?:不[，,。 ]?)?我?(?:是说|说的是|(?:的)?意思是)\s*(?P<value>[^，,。；;]+)"),
    re.compile(
        r"(?P<name>[^，,。；;]{1,16}?)(?:应该是|应为|我?[写说打填看记搞弄报][错岔]了?\s*[,，]?\s*(?:应该)?是)\s*"
        r"(?P<value>[^，,。；;]+)"
    ),
    re.compile(
        r"\b(?:change|set|correct|update)\s+(?:the\s+|my\s+)?(?P<name>[\w ]{0,30}?)\s*\b(?:to|into)\s+"
        r"(?P<value>.+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:do|have|take|try|use|want|prefer|say)\s+(?P<value>[\w: ]+?)\s+instead"
        r"(?:\s+of\s+(?P<old>[\w: ]+))?",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:make|let)\s+(?:it|that|this)\s+(?:be\s+)?(?P<value>.+?)(?:\s*,?\s+(?:not|instead of)\b.*)?$",
        re.IGNORECASE,
    ),
    re.compile(
        r"^\s*(?:no[,\s]+|not [\w ]{1,30}?[,;]?\s+)?"
        r"(?:i meant|i mean|actually|rather|it should be|it'?s)[,\s]+(?P<value>.+)",
        re.IGNORECASE,
    ),
    re.compile(r"\bnot\s+(?P<old>[\w ]+?)\s*[,;]?\s*(?:but|rather)\s+(?P<value>.+)", re.IGNORECASE),
)
_MAY_BE = re.compile(
    r"(?:[吗么][?？]?|,? (?:please|is that ok(?:ay)?|possible)\?|\?)\s*$"
)  # 「能改成周五吗」
_INSTEAD_OF = (  # a correction only if the second value is the current one
    re.compile(
        r"^\s*(?:(?:no|sorry|oh|wait|actually|it'?s|that'?s|should be)[,\s]+)*"
        r"(?P<value>[\w: ]+?)\s*,?\s+not\s+(?P<old>[\w: ]+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:\b(?:but|and|on|at|say|for)\s+)*(?P<value>[\w: ]+?)\s+(?:rather than|instead of)\s+"
        r"(?:on |at |for )?(?P<old>[\w: ]+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?:应该)?是(?P<value>[^，,。；;不]+?)\s*[，, ]?\s*不是(?P<old>[^，,。；;]+)"),
    re.compile(
        r"^\s*(?:no[,\s]+)?not\s+(?:on |at )?(?P<old>[\w: ]+?)\s*[,;]\s*(?:on |at )?(?P<value>[\w: ]+)",
        re.IGNORECASE,
    ),
)
_NO_NAME = re.compile(
    r"(?:我|我要|我想|那|就|它|这个|那个|还是|帮我|请|但是?|不过|可是|只是|是的?|好的?|先|再|都|it|that|this|them)*",
    re.IGNORECASE,
)


_LEADS = re.compile(
    r"\s*(?P<lead>(?:(?:不对|不是|不|错了|好的?|是的?|对|嗯|行|可以|no|nope|nah|yes|yeah|yep|ok(?:ay)?|sure|sorry|but|但是?|"
    r"不过|还是|那就?|就)(?:\s*[,，。.;；]\s*|\s+|(?=[\d一二两三四五六七八九十半]|但|不过)))*+)(?P<value>.+)",
    re.IGNORECASE,
)
_MAX_VALUE_LENGTH = 24  # maximum characters of a value given alone


@dataclass(frozen=True, slots=True)
class _Correction:
    name: str
    value: str
    old: str
    only: bool = False  # whether it corrects nothing but the input whose value is `old`


def find_corrections(message: str, inputs: Schema, *, known: Schema, asked: Schema) -> dict[str, Any]:
    """Find the inputs that a message corrects, with new values; several, if it may mean any of them.

    `known` has the current values of the inputs, and `asked` those of the pending question.
    """
    for each in _corrections(message):
        found = _inputs_for(each, inputs, known, asked)
        if found:
            return found
    return {}


def find_restated_inputs(message: str, inputs: Schema, *, known: Schema) -> dict[str, Any]:
    """Find a corrected value that is given alone, or after a yes or no: 「下周一」, "no, two days".

    Only values with a form count: no free text, and no bare number except after a no.
    """
    found = _LEADS.fullmatch(message[:_SHORT].strip())
    if (
        found is None
        or len(value := found["value"]) > _MAX_VALUE_LENGTH
        or is_request_or_refusal(value)
        or is_past(value)
    ):
        return {}
    number = without_beginning(without_ending(to_simplified(value)))
    numbers = any(name in known and is_number(schema) for name, schema in inputs.items())
    fitting: dict[str, Any] = {}
    same: dict[str, Any] = {}
    for name, schema in inputs.items():
        if name not in known or is_free_text(schema) or schema.get("type") == "boolean":
            continue
        is_plain = bool(found["lead"]) and number_of(number) is not None
        if is_number(schema) and not is_plain and not has_own_unit(value, names_of(name, schema)):
            continue
        read = parse_value(value if numbers else hour_in_words(value, schema), name, schema, whole=True)
        if read is not MISSING:
            (same if read == known[name] else fitting)[name] = read
    return fitting or same


def is_retraction(message: str) -> bool:
    """Return whether a seeming correction cancels everything: "actually, never mind"."""
    return any(is_cancel(each.value, asked=True) for each in _corrections(message))


def find_refused_correction(message: str, inputs: Schema, *, known: Schema) -> RejectedValue | None:
    """Find the number in a correction that the schema rejects, or what is none of an API's choices."""
    for each in _corrections(message):
        for name, schema in inputs.items():
            if name in known and (refused := find_rejected_value(each.value, name, schema)):
                return refused
        offered = [name for name, schema in inputs.items() if name in known and OFFERED in schema]
        if len(offered) == 1:
            return RejectedValue(offered[0], None, inputs[offered[0]], said=each.value.strip())
    return None


def _corrections(message: str) -> Iterator[_Correction]:
    """Yield possible corrections, in the message's original characters."""
    message = " ".join(message[:_SHORT].split())  # long gaps would be scanned repeatedly
    for pattern in (*_INSTEAD_OF, *_CORRECTIONS):
        match = pattern.search(to_simplified(message))
        if match is None:
            continue
        parts = {name: message[slice(*match.span(name))] for name, part in match.groupdict().items() if part}
        called = parts.get("name", "").strip()
        named = "" if _NO_NAME.fullmatch(to_simplified(called)) else called
        value, old = without_ending(_MAY_BE.sub("", parts["value"])), parts.get("old", "")
        yield _Correction(named, value, old, only=pattern in _INSTEAD_OF)


def _inputs_for(said: _Correction, inputs: Schema, known: Schema, asked: Schema) -> dict[str, Any]:
    fitting = {
        name: read
        for name, schema in inputs.items()
        if name in known or name in asked or said.name
        if (read := _read(said.value, name, schema)) is not MISSING and read != known.get(name, MISSING)
    }
    formed = [name for name in fitting if not is_free_text(inputs[name])]
    if said.name:
        if any(_is_called(said.name, name, schema) for name, schema in inputs.items()):
            called = [name for name in fitting if _is_called(said.name, name, inputs[name])]
            return {called[0]: fitting[called[0]]} if len(called) == 1 else {}
        chosen = [name for name in formed if (name in known or name in asked) and not is_number(inputs[name])]
        return {name: fitting[name] for name in chosen}  # it has another name here: 电话 for 手机号
    if any(
        name in known and find_rejected_value(said.value, name, schema) for name, schema in inputs.items()
    ):
        return {}  # it is for that input and invalid, so it is no text for another
    if said.old:
        before = [
            name for name in fitting if name in known and _read(said.old, name, inputs[name]) == known[name]
        ]
        fitting = {name: fitting[name] for name in before} or ({} if said.only else fitting)
        formed = [name for name in formed if name in fitting]
    chosen = (
        [name for name in formed if name in asked]
        or [name for name in formed if name in known]
        or [name for name in fitting if name in known]
    )
    return {name: fitting[name] for name in chosen}


def _read(text: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    """Parse a new value: no words for a number that counts something else, no question for a text."""
    if is_free_text(schema) and (
        is_cancel(text, asked=True) or is_question(text) or is_request_or_refusal(text)
    ):
        return MISSING
    if OFFERED in schema:
        found = [each.value for each in find_choices(text, choices_of(schema))]
        found = found or [
            each.value for each in extract_slots(text, {name: schema})
        ]  # the time of a date and a time
        return found[0] if len(found) == 1 else MISSING
    if is_number(schema) and number_of(without_beginning(text)) is None:
        names = names_of(name, schema)
        if has_unit(names) and not has_own_unit(text, names):
            return MISSING
    return parse_value(hour_in_words(text, schema), name, schema)


def _is_called(said: str, name: str, schema: Schema) -> bool:
    form = normalise(said)
    return any(normalise(each) in form or form in normalise(each) for each in names_of(name, schema))


ReplyKind: TypeAlias = Literal["answer", "correct", "approve", "deny", "cancel", "unclear"]

_MAX_LENGTH = 2000  # characters of a message that are read

_CANCELS = re.compile(r"\bcancel(?: (?:it|that|this))?\b|取消(?:掉|吧|了|它)*", re.I)
_KEEPS = re.compile(
    r"\bkeep (?:it|that|this|the (?:booking|appointment))\b|\b(?:don['’]?t|do not) cancel\b|"
    r"留着|保留|(?:不|不要|不用|别)取消",
    re.I,
)

_ENDS_SOMETHING = re.compile(
    r"\b(?:cancel|terminat|clos|block|freez|delet|unsubscrib|return|refund|stop)\w*|"
    r"取消|终止|停[机用止卡]|注销|销户|解[约除绑]|退[货款订房租]|冻结|挂失|删除|撤[销回单]|关闭",
    re.I,
)
_UNWANTED = re.compile(
    r"[来去用]不|不(?:去|来|约|订|续|办|参加)|不(?:要|需要|想要|想用)了|没(?:空|时间)|太[贵远]|"
    r"(?<![别不要用甭])(?:停|冻|锁|封|注销|退|取消)|"
    r"\b(?:(?:don['’]?t|no longer|not) (?:need|want|use)|can['’]?t|cannot|won['’]?t (?:be|make|come)|"
    r"not coming|(?<!don't )(?<!don’t )(?<!not )(?:stop|block|freeze|close|cancel))\b",
    re.I,
)

_FEW = 3  # parts of a message that asks to repeat

_SEGMENTS = re.compile(r"\s*(?:[,，;；、\n]|\band\b|和)\s*")
_GAP = re.compile(r"(\s{2})\s+")  # long ones would be scanned repeatedly


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply.

    Attributes:
        kind: the kind.
        values: for an answer or a correction: valid inputs, by name.
        is_sure: whether the words are unambiguous; free text may mean anything, and a yes or no among other
            words is for the model, if there is one.
        is_choice: whether it is an answer that is one of the choices.
        refused: a value that the schema rejects; or what is wanted.
        either: inputs, by name, any of which it may correct.
    """

    kind: ReplyKind
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_sure: bool = True
    is_choice: bool = False
    refused: RejectedValue | None = None
    either: Mapping[str, Any] = field(default_factory=dict[str, Any])


_UNCLEAR = ParsedReply("unclear", is_sure=False)


def parse_reply(message: str, pending: Pending, *, inputs: Schema) -> ParsedReply:
    """Parse a message as a reply to a pending question.

    The inputs of the flow can be corrected; their schema is empty if a tool asks.
    """
    message = _GAP.sub(r"\1", message[:_MAX_LENGTH])
    asked = properties_of(pending.schema if pending.kind == "question" else {})
    given = _parse_answer(message, asked) if asked else _UNCLEAR
    if given.is_sure and given.kind == "answer" and _is_choice(given, asked):
        return replace(given, is_choice=True)  # an answer may be named 取消
    is_question_open = pending.kind == "question"
    if (decided := _read_decision(message, pending, asked=bool(asked))) is not None:
        return decided
    known, correctable = pending.arguments, properties_of(inputs)
    corrects = find_corrections(message, correctable, known=known, asked=asked)
    if not corrects and is_retraction(message):
        return ParsedReply("cancel")
    if not corrects and given.kind == "answer":
        return _with_more(given, message, correctable, asked, known)
    refused = _find_refused(message, asked)
    if refused is None or refused.value is None:  # else 1.5, where a number is asked for, would be 5 January
        corrects = corrects or find_restated_inputs(message, correctable, known=known)
    if len(corrects) == 1 or _has_each(message, corrects, correctable):
        return ParsedReply("correct", corrects)
    if (
        is_question_open
        and not corrects
        and (kept := _find_additional_inputs(message, correctable, asked, known))
    ):
        return ParsedReply("correct", kept)  # for another question, which is not asked again
    refused = refused or find_refused_correction(message, correctable, known=known)
    if pending.kind == "approval" and not corrects and refused is None:
        leaning = leans_to(message)
        if leaning or (leaning is False and not _ends_something(pending)):
            return ParsedReply("approve" if leaning else "deny", is_sure=False)
    if (answer := _any_words(message, asked)) is not None and not corrects:
        return answer
    return replace(_UNCLEAR, refused=refused or _find_wanted(asked), either=corrects)


def _find_refused(message: str, asked: Schema) -> RejectedValue | None:
    """Return the first value of a message that the schema of what is asked for rejects."""
    for name, schema in asked.items():
        if refused := find_rejected_value(hour_in_words(message, schema), name, schema):
            return refused
    return None


def _find_wanted(asked: Schema) -> RejectedValue | None:
    """Return what is asked for, first of all what is no free text."""
    wanted = [RejectedValue(name, None, schema) for name, schema in asked.items()]
    return next((each for each in wanted if not is_free_text(each.schema)), next(iter(wanted), None))


def _read_decision(message: str, pending: Pending, *, asked: bool) -> ParsedReply | None:
    """Return a message that is only a yes, a no, or a cancellation; None for another one."""
    is_open = pending.kind == "question"
    if not is_open and (decided := _decide_to_cancel(message, pending.reason)) is not None:
        return ParsedReply("approve" if decided else "deny")
    if not is_open and _ends_something(pending) and _UNWANTED.search(message) and not yes_or_no(message):
        return None
    if is_cancel(message, asked=asked or not is_open) or (is_open and is_declined(message)):
        return ParsedReply("cancel")
    said = _wants_again(message) if pending.kind == "unknown" else None
    said = yes_or_no(message) if said is None and not is_open else said
    return None if said is None else ParsedReply("approve" if said else "deny")


def _ends_something(pending: Pending) -> bool:
    """Return whether it is asked to end something, so that "I don't need it" is no refusal."""
    return bool(_ENDS_SOMETHING.search(pending.reason))


def _decide_to_cancel(message: str, question: str) -> bool | None:
    """Parse "yes, cancel it" or "keep it" as the reply to whether to cancel something; None if unclear."""
    if not _CANCELS.search(question):
        return None
    if _KEEPS.search(message) and not is_question(message):
        return False
    rest, count = _CANCELS.subn(" ", message)
    return True if count and yes_or_no(rest) is True else None


def _with_more(given: ParsedReply, message: str, inputs: Schema, asked: Schema, known: Schema) -> ParsedReply:
    """Return an answer with additional inputs in it; unclear, if its text is a correction that is refused."""
    is_text = any(is_free_text(asked[name]) for name in given.values)
    if is_text and (refused := find_refused_correction(message, inputs, known=known)):
        return replace(_UNCLEAR, refused=refused)
    return replace(given, values={**_find_additional_inputs(message, inputs, asked, known), **given.values})


def _find_additional_inputs(message: str, inputs: Schema, asked: Schema, known: Schema) -> dict[str, Any]:
    """Find additional inputs in a reply: 「三天病假」 to how many days, a phone number to the time."""
    is_taken = any(
        is_free_text(schema)
        and not (
            is_person(name, schema)
            and (person_in(message) or person_part(message) or not may_be_person(message))
        )
        for name, schema in asked.items()
    )
    if is_taken or negates(message) or is_question(message):
        return {}
    others = {
        name: schema
        for name, schema in inputs.items()
        if name not in asked and (choices_of(schema) or name not in known)
    }
    texts = [name for name, schema in others.items() if is_free_text(schema)]
    if len(texts) == 1 and is_person(texts[0], others[texts[0]]) and _is_name(message):
        return {texts[0]: message.strip().rstrip(".!。！")}
    return {each.name: each.value for each in extract_slots(message, others)}


def _is_name(message: str) -> bool:
    return is_person_alone(message) and yes_or_no(message) is None and needs_retrieval(message)


def _has_each(message: str, corrects: Mapping[str, Any], inputs: Schema) -> bool:
    """Return whether a message has all corrected values in different places: 「改成周五下午两点」."""
    found = extract_slots(message, {name: inputs[name] for name in corrects})
    spans = sorted((each.start, each.end) for each in found)
    apart = all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    return len(found) > 1 and apart and {each.name: each.value for each in found} == dict(corrects)


def _wants_again(message: str) -> bool | None:
    """Parse the reply to whether to repeat a step, such as 「没有成功，再发一次吧」; None if unclear."""
    parts = [part for part in _SEGMENTS.split(message) if part]
    return True if parts and is_again(parts[-1]) and len(parts) <= _FEW else None


def _is_choice(said: ParsedReply, asked: Schema) -> bool:
    return all(
        asked[name].get("type") == "boolean" or any(value == each.value for each in choices_of(asked[name]))
        for name, value in said.values.items()
    )


def _parse_choice(message: str, name: str, schema: Schema) -> ParsedReply | None:
    """Parse an answer that is one of some choices; or words that fit several of an API's choices."""
    is_open = is_question(message) and not is_proposal(message)
    is_negated = number_in_list(message) is None and (negates(message) or _EXCEPT.search(message))
    if is_negated or (is_open and not _ASKS_FOR.search(to_simplified(message))):
        return None
    found = find_choices(message, choices_of(schema))
    if len(found) == 1 and not is_open:
        return ParsedReply("answer", {name: found[0].value})
    return ParsedReply("answer", {name: message}) if found and OFFERED in schema else None


_EXCEPT = re.compile(r"除了|以外|\bexcept\b|\bother than\b|\bnot\b", re.IGNORECASE)
_ASKS_FOR = re.compile(
    r"^(?:那|请问)?(?:还?有|有没有).{1,12}[吗么?？]*$|(?:有吗|有没有|呢)[?？]?$|"
    r"\b(?:any(?:thing)?|do you have|have you got|(?:is|are) there|what about|how about)\b",
    re.IGNORECASE,
)


def _any_words(message: str, asked: Schema) -> ParsedReply | None:
    """Return words that are no choice as an unsure answer: the flow says that they are none."""
    if len(asked) != 1 or is_question(message) or is_request_or_refusal(message):
        return None
    name, schema = next(iter(asked.items()))
    return ParsedReply("answer", {name: message.strip()}, is_sure=False) if OFFERED in schema else None


def _parse_answer(message: str, asked: Schema) -> ParsedReply:
    if len(asked) == 1:
        name, schema = next(iter(asked.items()))
        if choices_of(schema) and (chosen := _parse_choice(message, name, schema)) is not None:
            return chosen
        value = parse_value(hour_in_words(message, schema), name, schema)
        if value is MISSING:
            return _UNCLEAR
        about_it = (
            not is_free_text(schema) or accepts_any_text(name, schema) or label_of(message, name, schema) > 0
        )
        return ParsedReply("answer", {name: value}, is_sure=about_it or not _is_additional(message))
    is_told = not negates(message) and (not is_question(message) or is_proposal(message))
    given = extract_slots(message, asked) if is_told else []
    found = {each.name: each.value for each in given if each.labelled} | _parse_labelled(message, asked)
    found = {each.name: each.value for each in given if _is_whole(each, message, asked)} | found
    values = [message[each.start : each.end] for each in given if each.name in found]
    rest = [
        part
        for part in _SEGMENTS.split(message)
        if part and not _is_labelled(part, asked) and not any(value and value in part for value in values)
    ]
    used: set[str] = set()
    for name, schema in asked.items():
        if name in found or is_free_text(schema):
            continue
        rivals = [
            other for other in asked if other != name and asked[other].get("type") == schema.get("type")
        ]
        fitting = {part: value for part in rest if (value := parse_value(part, name, schema)) is not MISSING}
        if len(fitting) == 1 and not _fits_others(
            next(iter(fitting)), _inputs_with_pattern(rivals, asked), asked
        ):
            used.update(fitting)
            found[name] = next(iter(fitting.values()))
    rest = _take_name([part for part in rest if part not in used], asked, found)
    free = [name for name, schema in asked.items() if name not in found and is_free_text(schema)]
    texts = free if len(free) == 1 else [name for name in free if not is_person(name, asked[name])]
    if (
        len(texts) == 1
        and len(rest) == 1
        and not _is_additional(rest[0])
        and (found or is_person(texts[0], asked[texts[0]]))
        and not _holds_moment(rest[0], asked)
    ):
        value = parse_value(without_beginning(rest[0]), texts[0], asked[texts[0]])
        if value is not MISSING:
            found[texts[0]] = value
            rest = []
    if not found and is_told and (words := _parse_words(message, asked)):
        return ParsedReply("answer", words)
    missing = {name: schema for name, schema in asked.items() if name not in found and has_format(schema)}
    reasons = [
        (part, reason)
        for part in rest
        for each in missing.items()
        if (reason := find_rejected_value(part, *each)) is not None
    ]
    refused = reasons[0][1] if reasons else None
    rest = [part for part in rest if all(part != of for of, _ in reasons)]  # the user reads why
    return ParsedReply("answer", found, is_sure=not rest, refused=refused) if found else _UNCLEAR


def _take_name(rest: list[str], asked: Schema, found: dict[str, Any]) -> list[str]:
    """Add the only part that is no more than a name to the values, 「李伟，牙疼」; return the other parts."""
    persons = [
        name
        for name, schema in asked.items()
        if name not in found and is_free_text(schema) and is_person(name, schema)
    ]
    named = [part for part in rest if is_person_alone(part)]
    if len(persons) != 1 or len(named) != 1:
        return rest
    value = parse_value(named[0], persons[0], asked[persons[0]])
    if value is MISSING:
        return rest
    found[persons[0]] = value
    return [part for part in rest if part != named[0]]


def _holds_moment(text: str, asked: Schema) -> bool:
    """Return whether a text has a date, a time or the like, be it refused."""
    return any(find_by_format(text, schema) for schema in asked.values() if has_format(schema))


def _parse_words(message: str, asked: Schema) -> dict[str, Any]:
    """Parse a few words as the only requested input that they can be, a name or another text.

    They hold no number and no time, which would be for another input, and are no sentence.
    """
    if _is_additional(message) or not may_be_person(message):
        return {}
    persons = [name for name, schema in asked.items() if is_free_text(schema) and is_person(name, schema)]
    texts = [name for name, schema in asked.items() if is_free_text(schema) and name not in persons]
    wanted = persons if persons and is_person_alone(message) else texts
    if len(wanted) != 1:
        return {}
    value = parse_value(without_beginning(message), wanted[0], asked[wanted[0]])
    return {} if value is MISSING else {wanted[0]: value}


def _is_whole(found: SlotMatch, message: str, asked: Schema) -> bool:
    """Return whether a value has a form that no other requested input has."""
    text, schema = message[found.start : found.end], asked[found.name]
    others = [name for name in _inputs_with_pattern(asked, asked) if name != found.name]
    return (
        bool(text) and ("pattern" in schema or has_format(schema)) and not _fits_others(text, others, asked)
    )


def _is_additional(text: str) -> bool:
    """Return whether a text is a remark or about something else, instead of an answer."""
    return is_question(text) or is_request_or_refusal(text)


def _fits_others(part: str, others: Iterable[str], asked: Schema) -> bool:
    return any(parse_value(part, other, asked[other]) is not MISSING for other in others)


def _inputs_with_pattern(names: Iterable[str], asked: Schema) -> list[str]:
    return [name for name in names if not is_free_text(asked[name])]


def _parse_labelled(message: str, asked: Schema) -> dict[str, Any]:
    """Find values after the names of requested inputs: 「天数：3，事由是感冒」."""
    found: dict[str, Any] = {}
    for part in re.split(r"[,，;；\n]", message):
        for name, schema in asked.items():
            label = label_of(part, name, schema)
            if label and name not in found:
                value = parse_value(part[label:], name, schema)
                if value is not MISSING:
                    found[name] = value
    return found


def _is_labelled(part: str, asked: Schema) -> bool:
    return any(label_of(part, name, schema) for name, schema in asked.items())
