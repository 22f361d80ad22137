"""Plan for a message, as far as it needs no model. It has no effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.config.models import may_wait
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.inputs import missing_inputs, with_defaults, with_properties
from loom_core.flow.policy.decision import FurtherRequest
from loom_core.flow.policy.router import DECLINED, content_words, split_requests
from loom_core.flow.triggers.negation import negates
from loom_core.flow.understanding.choices import properties_of
from loom_core.flow.understanding.reply_parser import (
    ParsedReply,
    find_corrections,
    find_restated_inputs,
    parse_reply,
)
from loom_core.flow.understanding.slots import extract_slots, is_free_text, names_input
from loom_core.flow.understanding.small_talk import (
    is_again,
    is_cancel,
    is_proposal,
    is_question,
    is_request_or_refusal,
    is_status_question,
)
from loom_core.knowledge.sources.small_talk import needs_retrieval
from loom_core.knowledge.text.scripts import normalise, to_simplified

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.policy.router import RouteMatch
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.flow.understanding.reply_parser import ReplyKind
    from loom_core.runs.run import Pending, Run

__all__ = [
    "Interpretation",
    "PlanKind",
    "TurnPlan",
    "answers_at_once",
    "flow_to_cancel",
    "interpret_reply",
    "make_plan",
]

_MAX_NAMING_LENGTH = 60
_CANCELS = re.compile(
    r"(?:(?:please|i(?:'d like| want) to|i'll|can you|could you|actually|no|ok|okay|let's)[ ,]+)*"
    r"(?:cancel|stop|drop|abort|forget|call off) (?:my|the|this|that) (?P<en>[a-z][\w -]{1,30}?)(?: please)?"
    r"|(?:那|就|我要|我想|帮我|请|麻烦|先)*(?:取消|停止|终止|放弃)(?:掉|我的|这个|这次|那个)?(?P<zh>[^了吧,。]{2,10})"
    r"|(?:那|就|我要|我想|帮我|请|麻烦|先)*(?:把|将)?(?:我的|这个|这次|那个)?(?P<front>[^,。]{2,10}?)(?:给)?取消(?:掉)?"
)
_ENDINGS = "了吧啊啦 .。!！,，"

PlanKind: TypeAlias = Literal[
    "choose",  # it chooses a candidate flow
    "decline",  # it chooses none of them
    "tell",  # it replies to a waiting run
    "cancel",  # it cancels a run, or one that does not exist
    "retry",  # it retries a failed run
    "status",  # it asks for the state or result of a run
    "pass_on",  # it is for the operator who has the conversation
    "manners",  # it is only small talk
    "begin",  # it asks for a flow
    "ask",  # it fits several flows, and the user has to choose
    "open",  # the words do not decide: the model does, or knowledge answers
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """A plan for a message.

    Attributes:
        kind: the kind.
        flow: the flow to start.
        parameters: its inputs; for `retry`, changed inputs.
        message: its message, if not the current one.
        reason: reason of the disambiguation question.
        run: the run; for `open` and `manners`, the one that waits for an answer.
        said: the reply to the run; for `open`, as far as words show.
        asking: flow of that run; None if a tool asks.
        aside: a question in the message that is answered besides; empty for none.
        then: the requests to process after it.
    """

    kind: PlanKind
    flow: FlowConfig | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    message: str = ""
    reason: str = ""
    run: Run | None = None
    said: ParsedReply | None = None
    asking: FlowConfig | None = None
    aside: str = ""
    then: tuple[FurtherRequest, ...] = ()


async def make_plan(turn: TurnContext) -> TurnPlan:
    """Plan the action: first for pending questions, then by the words of the message."""
    handed_over = turn.handed_over
    if handed_over is not None and not turn.message.strip():
        return TurnPlan(kind="status", run=handed_over)
    if handed_over is not None and any(each.taken_by for each in handed_over.pending):
        return TurnPlan(kind="pass_on", run=handed_over)
    chosen = _plan_choice(turn)
    if chosen is not None:
        return chosen
    match = turn.match
    asking = next((run for run in turn.waiting if run.status == "input_required" and run.pending), None)
    told = None if asking is None else _plan_reply(turn, asking)
    ended = (
        _find_named_run(turn)
        if match.flow is None and not (told and told.said and told.said.is_choice)
        else None
    )
    if ended is not None:
        return TurnPlan(kind="cancel", run=ended)
    status = None if told and told.kind not in {"open", "manners"} else await _plan_status(turn)
    if status is not None:
        return status
    if told is not None:
        return told
    if is_cancel(turn.message) and (turn.waiting or match.kind == "none"):
        return TurnPlan(kind="cancel", run=next(iter(turn.waiting), None))
    several = split_requests(turn.message, turn.runtime.router, match)
    if several:
        return _plan_requests(turn, *several)
    if match.flow is not None:
        return TurnPlan(
            kind="begin", flow=match.flow, parameters=match.parameters, aside=_split_request(turn)
        )
    if match.kind == "ambiguous":
        asks = match.policy == "ask" or turn.runtime.decider is None
        return TurnPlan(kind="ask" if asks else "open")
    if handed_over is not None:  # nothing else is asked for, so it is for the operator who comes
        return TurnPlan(kind="pass_on", run=handed_over)
    retried = None if turn.waiting else await _plan_retry(turn)
    return retried or TurnPlan(kind="open" if needs_retrieval(turn.message) else "manners")


def _plan_requests(turn: TurnContext, first: RoutingDecision, *others: RoutingDecision) -> TurnPlan:
    """Plan several requests: the first one now, with the answer to a question, and then the others."""
    flows = {flow.flow_id: flow for flow in turn.runtime.flows}
    asides = [each for each in others if answers_at_once(turn, flows[each.target], each.parameters)][:1]
    return TurnPlan(
        kind="begin",
        flow=flows[first.target],
        parameters=first.parameters,
        aside="".join(each.text for each in asides),
        then=tuple(FurtherRequest(message=each.text, decision=each) for each in others if each not in asides),
    )


async def _plan_status(turn: TurnContext) -> TurnPlan | None:
    """Plan a status report, if the message asks only for the state of what was started."""
    match = turn.match
    if match.flow is not None or not is_status_question(turn.message):
        return None
    run = next(iter([*turn.waiting, *turn.late]), None)
    if run is None and turn.message.strip():
        run = await turn.conversations.latest_run(turn.conversation)
    elsewhere = match.hints and not (run and any(run.request.profile == each.flow_id for each in match.hints))
    return None if run is None or elsewhere else TurnPlan(kind="status", run=run)


async def _plan_retry(turn: TurnContext) -> TurnPlan | None:
    """Plan a retry of the latest run, if it has failed: with the same inputs, or with a correction."""
    last = await turn.conversations.latest_run(turn.conversation)
    if last is None or last.status != "failed" or last.request.metadata.get("kind") != "flow":
        return None
    if is_again(turn.message):
        return TurnPlan(kind="retry", run=last)
    flow = turn.file.flow(last.request.profile)
    inputs = {} if flow is None else properties_of(flow.input_schema)
    steps = iter_steps(flow.steps if flow else ())
    chosen = {step.ask.into for step in steps if step.ask and step.ask.options}
    inputs = {name: each for name, each in inputs.items() if name not in chosen}  # only a question asks again
    known = dict.fromkeys(inputs)
    values = find_corrections(turn.message, inputs, known=known, asked={})
    if not values and len(alone := find_restated_inputs(turn.message, inputs, known=known)) == 1:
        values = alone
    return TurnPlan(kind="retry", run=last, parameters=values) if values else None


def _plan_choice(turn: TurnContext) -> TurnPlan | None:
    offer = turn.conversation.offer
    flows = [flow for each in (offer.flows if offer else ()) if (flow := turn.file.flow(each)) is not None]
    chosen = offer.resolve_choice(turn.message, flows) if offer and flows else None
    if offer is None or chosen is None:
        return None
    if chosen == DECLINED:
        return TurnPlan(kind="decline")
    return TurnPlan(
        kind="choose",
        flow=next(each for each in flows if each.flow_id == chosen),
        parameters=offer.parameters.get(chosen, {}),
        message=offer.message,
        reason=offer.reason,
    )


def _find_named_run(turn: TurnContext) -> Run | None:
    """Return the run that a message cancels by its name."""
    flow = flow_to_cancel(turn.message, turn.file.flows) if turn.unfinished else None
    return next((run for run in turn.unfinished if flow and run.request.profile == flow.flow_id), None)


def _plan_reply(turn: TurnContext, run: Run) -> TurnPlan | None:
    """Plan a reply to a waiting run; None if the message asks for another flow."""
    pending = run.pending[0]
    flow = turn.file.flow(pending.tool) if pending.tool else None
    reading, said = interpret_reply(turn.message, run, turn.match, flow=flow)
    parts = _plan_parts(turn, run, flow, whole=said if reading == "said" else None)
    if parts is not None:
        return parts
    if reading == "another":
        return None
    kinds: Mapping[str, PlanKind] = {"said": "tell", "manners": "manners", "unclear": "open"}
    return TurnPlan(kind=kinds[reading], run=run, said=said, asking=flow)


def _plan_parts(
    turn: TurnContext, run: Run, flow: FlowConfig | None, *, whole: ParsedReply | None
) -> TurnPlan | None:
    """Plan a reply that says several things; None if it says one, or as a whole says as much."""
    router = turn.runtime.router
    asked = properties_of(run.pending[0].schema)
    inputs = asked if flow is None else properties_of(with_properties(flow.input_schema, asked))

    def read(part: str) -> tuple[Interpretation, ParsedReply]:
        if flow is not None and flow_to_cancel(part, turn.file.flows) == flow:
            return "said", ParsedReply("cancel")
        return interpret_reply(part, run, router.match(part), flow=flow)

    parts = _split_reply(turn, read, flow=flow, inputs=inputs)
    if parts is None:
        return None
    is_more = parts.aside or parts.rest or whole is None or parts.said.values.keys() - whole.values.keys()
    if not is_more:
        return None
    then = (FurtherRequest(message=parts.rest, replaces=True),) if parts.rest else ()
    return TurnPlan(kind="tell", run=run, said=parts.said, asking=flow, aside=parts.aside, then=then)


Interpretation: TypeAlias = Literal["said", "another", "manners", "unclear"]
"""Meaning of a message for a waiting run: a reply; another flow; only small talk; or unclear."""

_MAX_OF_IT = 0.5  # share of a message that a pattern must match if free text is asked for


def interpret_reply(
    message: str, run: Run, match: RouteMatch, *, flow: FlowConfig | None
) -> tuple[Interpretation, ParsedReply]:
    """Interpret a message by its words as a reply to a waiting run.

    `flow` is that of the run; None if a tool asks.
    """
    pending = run.pending[0]
    own = {run.request.profile, pending.tool}
    is_negated = any(each.flow_id in own and each.negated for each in match.matches)
    if is_negated and not _is_certain(match, own) and not is_question(message):
        return "said", ParsedReply("cancel")
    offered = properties_of(pending.arguments_schema)  # the choices of inputs from lists
    said = parse_reply(message, pending, inputs=with_properties(flow.input_schema, offered) if flow else {})
    is_elsewhere = match.flow is not None and match.flow.flow_id not in own
    if said.kind in {"approve", "deny", "cancel", "correct"} and (said.is_sure or not is_elsewhere):
        return "said" if said.is_sure else "unclear", said
    if said.kind == "answer" and said.is_sure and names_input(message, properties_of(pending.schema)):
        return "said", said  # 「预约号K1024」, though a pattern of another flow has 预约
    fits_whole = said.kind == "answer" and _is_free(said, pending)
    is_most_of_it = _share(match, message) >= _MAX_OF_IT
    if match.flow is not None and (not fits_whole or is_most_of_it or is_request_or_refusal(message)):
        if match.flow.flow_id not in own:
            return "another", said
        given: dict[str, Any] = dict(match.parameters)
        if said.kind == "answer" and not fits_whole:
            given.update(said.values)
        given = {name: value for name, value in given.items() if pending.arguments.get(name) != value}
        return ("said", ParsedReply("answer", given)) if given else ("manners", said)
    elsewhere = any(each.flow_id not in own for each in (*match.flows, *match.hints))
    if fits_whole and ((elsewhere and is_most_of_it) or not said.is_sure):
        # It seems to be a question, a request, or about another flow.
        said = replace(said, kind="unclear", values={}, is_sure=False)
    if not needs_retrieval(message) and (fits_whole or not said.is_sure):
        return "manners", said
    if fits_whole and (elsewhere or negates(message)):
        said = replace(said, is_sure=False)
    return ("said" if said.kind == "answer" and said.is_sure else "unclear"), said


def _is_free(said: ParsedReply, pending: Pending) -> bool:
    """Return whether an answer is free text that could be about anything."""
    asked = properties_of(pending.schema)
    texts = (name for name, value in said.values.items() if isinstance(value, str) and name in asked)
    return any(is_free_text(asked[name]) for name in texts)


def _is_certain(match: RouteMatch, own: set[str]) -> bool:
    return any(each.flow_id in own and each.certain for each in match.matches)


def _share(match: RouteMatch, message: str) -> float:
    """Return the share of a message that the patterns of its flow match."""
    meant = {flow.flow_id for flow in (match.flows or match.hints)}
    longest = max((each.length for each in match.matches if each.flow_id in meant), default=0)
    return longest / max(len(message.strip()), 1)


def flow_to_cancel(message: str, flows: Sequence[FlowConfig]) -> FlowConfig | None:
    """Return the only flow that a message cancels by its name, or part of it; None if there is none."""
    plain = normalise(message).strip().rstrip(_ENDINGS)
    found = _CANCELS.fullmatch(plain) if len(plain) <= _MAX_NAMING_LENGTH else None
    if found is None:
        return None
    called = (found["en"] or found["zh"] or found["front"]).rstrip(_ENDINGS)
    named = [flow for flow in flows if _is_called(called, flow)]
    return named[0] if len(named) == 1 else None


def _is_called(called: str, flow: FlowConfig) -> bool:
    title, words = normalise(flow.title), re.split(r"[\W_]+", normalise(flow.flow_id))
    if called.isascii():
        return called in title or {*called.split()} <= {*words}
    return called in title or title in called


# Parts of a message that says several things, as far as its words show: "Friday at ten. Do I need my card?"
# answers and asks; 「不约了，帮我查报告」 ends one thing and starts another. Each part is read by itself, by
# sentences, then by clauses. If that does not find several things, the message is read as a whole.

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

_PartReader: TypeAlias = (
    "Callable[[str], tuple[Literal['said', 'another', 'manners', 'unclear'], ParsedReply]]"
)
"""Reads a part of a message as a reply to the waiting run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageParts:
    """A message that says several things.

    Attributes:
        said: the reply to the waiting run, from all parts that are for it.
        aside: the question to answer besides; empty for none.
        rest: the request that takes the place of what is cancelled; empty for none.
    """

    said: ParsedReply
    aside: str = ""
    rest: str = ""


def _split_reply(
    turn: TurnContext, read: _PartReader, *, flow: FlowConfig | None, inputs: Mapping[str, Any]
) -> _MessageParts | None:
    """Split a message to a waiting run; None if it says one thing, or its words do not show it.

    `flow` is that of the waiting run, None if a tool asks; `inputs` are those that it has or asks for.
    """
    divided = (_combine(turn, parts, read, flow, inputs) for parts in _divisions(turn.message))
    return next(filter(None, divided), None)


def _split_request(turn: TurnContext) -> str:
    """Return the question that a message asks besides its request for a flow; empty for none."""
    flow = turn.match.flow
    for parts in _divisions(turn.message):
        asides = [part for part in parts if _is_aside(turn, part, {}, about=flow)]
        rest = " ".join(part for part in parts if part not in asides)
        if asides and rest and turn.runtime.router.match(rest).flow == flow:
            return " ".join(asides)
    return ""


def _is_aside(turn: TurnContext, part: str, inputs: Mapping[str, Any], *, about: FlowConfig | None) -> bool:
    """Return whether a part is a question to answer besides, not an input in the form of a question.

    `about` is the flow that the rest is about.
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
    """Return whether a flow only looks something up, has the inputs for that, and asks nothing else."""
    if turn.runtime.has_side_effects(flow) or may_wait(turn.file, flow, parameters):
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
    read: _PartReader,
    flow: FlowConfig | None,
    inputs: Mapping[str, Any],
) -> _MessageParts | None:
    values: dict[str, Any] = {}
    kinds: list[ReplyKind] = []
    asides: list[str] = []
    for number, part in enumerate(parts):
        reading, said = read(part)
        rest = " ".join(parts[number + 1 :])
        if reading == "said" and said.kind == "cancel":
            is_wish = turn.runtime.router.match(rest).flow or _is_aside(turn, rest, inputs, about=flow)
            return _MessageParts(said=said, rest=rest) if is_wish and not kinds else None
        if _ends(part) and not kinds and _begins_other(turn, rest, flow):
            return _MessageParts(said=ParsedReply("cancel"), rest=rest)
        if _is_aside(turn, part, inputs, about=flow) and not (reading == "said" and said.values):
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
    return _MessageParts(said=said, aside=" ".join(asides))


def _begins_other(turn: TurnContext, rest: str, flow: FlowConfig | None) -> bool:
    """Return whether the rest of a message asks for another flow, which is more than a question."""
    match = turn.runtime.router.match(rest)
    is_other = match.flow is not None and match.flow != flow
    return is_other and not (is_question(rest) and _is_aside(turn, rest, {}, about=flow))


def _ends(part: str) -> bool:
    """Return whether a part ends what is in progress, if a request for another flow follows."""
    plain = part.replace("’", "'")
    return len(part) <= _LONGEST_END and bool(
        _ENDS_ZH.fullmatch(to_simplified(plain)) or _ENDS_EN.fullmatch(plain)
    )
