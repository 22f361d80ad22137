"""Rule-based routing of a message to a flow, or to several in turn.

「取消A1001再约一个牙科」 and "cancel A1001 and book a dentist" are two requests. If the words do not decide,
a model gets a description of the flows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from anyio import to_thread

from loom_core.flow.expressions.expression import MISSING
from loom_core.flow.policy.decision import RoutingDecision
from loom_core.flow.responses.reply import CHOICE
from loom_core.flow.triggers.matcher import TriggerMatch, TriggerMatcher
from loom_core.flow.triggers.negation import negates
from loom_core.flow.understanding.choices import choices_of, number_in_list, properties_of
from loom_core.flow.understanding.slots import extract_slots, parse_typed
from loom_core.flow.understanding.small_talk import (
    is_cancel,
    is_proposal,
    is_question,
    is_request_or_refusal,
)
from loom_core.flow.understanding.yes_no import yes_or_no
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.scripts import normalise
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.config.models import Ambiguous, FlowConfig
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.tools.interface import JsonValue

__all__ = [
    "DECLINED",
    "Disambiguation",
    "FlowRouter",
    "RouteKind",
    "RouteMatch",
    "content_words",
    "find_unread_request",
    "split_requests",
]

RouteKind: TypeAlias = Literal["flow", "ambiguous", "none"]

_MAX_LENGTH = 500  # characters of a description that a model reads
_MAX_EXAMPLES = 3
_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]+")

_MAX_READ_LENGTH = 500  # characters of a message that are split into requests
_MAX_REQUESTS = 4  # requests of one message
_JOINTS = re.compile(
    r"\s*[,，;；。.!！?？]\s*(?:(?:and|then|also)\b\s*)*|\s+(?:and then|and also|and|then|also|plus)\s+|"
    r"\s*(?:，|,)?\s*(?:然后|接着|顺便|并且|而且|另外|同时|还要|以及|再(?!见|说|次|三)|并(?!不|非|没))\s*",
    re.I,
)
_FURTHER = re.compile(  # conjunctions that join hardly anything but requests
    r"\s*[,;.!]?\s+(?:and also|and then|plus|also)\s+|\s*[，；。,]?\s*(?:另外|顺便|然后再?|此外|还要)\s*",
    re.I,
)
_FEW_WORDS = 3  # words that are no request by themselves
_POLITE = re.compile(
    r"\b(?:please|thanks?|thank you|hello|hi|would|could|can|like|want|need|kindly|i'd)\b|"
    r"麻烦|谢谢|请|您好|你好|我们?|你们?|您|想要?|需要|可以|能不能|能否|能|帮忙?|一下|个|吗|吧|了|的",
    re.I,
)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The routing of a message by its words.

    Attributes:
        kind: `flow`: one matches; `ambiguous`: several match equally; `none`: none matches.
        flow: the matching flow.
        flows: the candidates, the most likely first; for `flow` that one.
        parameters: inputs of `flow` in the message, in the types of its schema.
        policy: for `ambiguous`, who decides: `llm` or `ask`.
        hints: flows that the message names without asking for them, as far as its words show (negated, or
            asked about): the model or the user may still choose them.
        matches: all pattern matches, with their spans.
    """

    kind: RouteKind
    flow: FlowConfig | None = None
    flows: tuple[FlowConfig, ...] = ()
    parameters: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    policy: Ambiguous = "first"
    hints: tuple[FlowConfig, ...] = ()
    matches: tuple[TriggerMatch, ...] = ()


class FlowRouter:
    """Router by trigger patterns.

    Args:
        flows: the flows; disabled ones are ignored.
        ambiguous: policy for a message that fits several flows equally, unless the most likely one has its
            own.

    Raises:
        ConfigError: a pattern is invalid.
    """

    def __init__(self, flows: Iterable[FlowConfig], *, ambiguous: Ambiguous = "first") -> None:
        self._flows = {flow.flow_id: flow for flow in flows if flow.enabled}
        self._policy: Ambiguous = ambiguous
        self._matcher = TriggerMatcher(self._flows.values())

    def match(self, message: str) -> RouteMatch:
        """Route a message by its words.

        Of several flows, the one with the highest priority wins. Of equals, one wins whose match contains
        those of all others; else the policy `ambiguous` of the most likely one decides, or the router's:
        `first` takes the one with the longest match, and of these the first in the file.
        """
        matches = tuple(self._matcher.match(message))
        best: dict[str, TriggerMatch] = {}
        for match in matches:
            best.setdefault(match.flow_id, match)
        certain = [match for match in best.values() if match.certain]
        hints = tuple(self._flows[match.flow_id] for match in best.values() if not match.certain)
        if not certain:
            return RouteMatch("none", hints=hints, matches=matches)
        first = certain[0]
        rivals = [match for match in certain if match.priority == first.priority]
        flow = self._flows[first.flow_id]
        policy = flow.ambiguous or self._policy
        if policy != "first" and not _holds_all(first, rivals):
            flows = tuple(self._flows[match.flow_id] for match in rivals)
            return RouteMatch("ambiguous", flows=flows, policy=policy, hints=hints, matches=matches)
        parameters = self.inputs_of(flow, message, matches)
        return RouteMatch("flow", flow, (flow,), parameters, hints=hints, matches=matches)

    async def match_in_thread(self, message: str) -> RouteMatch:
        """Route as `match` does, in a thread if the message may take long."""
        if self._matcher.is_quick(message):
            return self.match(message)
        return await to_thread.run_sync(self.match, message)

    def match_by_pattern(self, message: str) -> FlowConfig | None:
        """Return the flow that a message clearly asks for, or None."""
        return self.match(message).flow

    def parameters_of(self, flow: FlowConfig, matches: Sequence[TriggerMatch]) -> dict[str, JsonValue]:
        """Return the inputs that a flow's patterns have captured: certain matches first, then the longest.

        Values of a wrong type are left out, so that the run asks for them.
        """
        schemas = properties_of(flow.input_schema)
        found: dict[str, JsonValue] = {}
        for match in matches:
            if match.flow_id != flow.flow_id:
                continue
            for name, text in match.groups.items():
                if name not in schemas or name in found:
                    continue
                value = parse_typed(text, schemas[name])
                if value is not MISSING:
                    found[name] = value
        return found

    def inputs_of(
        self, flow: FlowConfig, message: str, matches: Sequence[TriggerMatch]
    ) -> dict[str, JsonValue]:
        """Return the same, with inputs from the rest of the message; see `extract_slots`."""
        found = self.parameters_of(flow, matches)
        named = properties_of(flow.input_schema)
        schemas = {name: schema for name, schema in named.items() if name not in found}
        return {**{each.name: each.value for each in extract_slots(message, schemas)}, **found}

    def build_flow_descriptions(self) -> str:
        """Return the description of the flows for a model; empty if there are none."""
        if not self._flows:
            return ""
        return "\n".join(["## Available Flows", "", *map(_describe, self._flows.values()), ""])


def _holds_all(first: TriggerMatch, rivals: Sequence[TriggerMatch]) -> bool:
    return all(
        match is first
        or (first.start <= match.start and match.end <= first.end and match.length < first.length)
        for match in rivals
    )


def _describe(flow: FlowConfig) -> str:
    name = "" if flow.title == flow.flow_id else f" ({_line(flow.title)})"
    lines = [f"- **{flow.flow_id}**{name}: {_line(flow.description) or '(no description)'}"]
    required = flow.input_schema.get("required")
    for key, schema in properties_of(flow.input_schema).items():
        facts = [_kind(schema)] + ["required"] * (isinstance(required, list) and key in required)
        about = schema.get("description")
        said = f": {_line(about)}" if isinstance(about, str) else ""
        lines.append(f"  - input `{_line(key)}` ({', '.join(facts)}){said}")
    if flow.hidden:
        lines.append("  - start it if the message calls for it, but never name or offer it otherwise")
    if flow.examples:
        lines.append(
            "  - examples: " + "; ".join(f'"{_line(each)}"' for each in flow.examples[:_MAX_EXAMPLES])
        )
    return "\n".join(lines)


def _kind(schema: Mapping[str, Any]) -> str:
    if choices := choices_of(schema):
        return _line(
            "one of "
            + ", ".join(f"{each.value} ({each.title})" if each.title else str(each.value) for each in choices)
        )
    kind = schema.get("type", "any")
    return _line(" or ".join(map(str, cast("list[object]", kind))) if isinstance(kind, list) else str(kind))


def _line(text: str) -> str:
    one = _CONTROL.sub(" ", text).strip()
    return one if len(one) <= _MAX_LENGTH else f"{one[:_MAX_LENGTH]}…"


def split_requests(message: str, router: FlowRouter, whole: RouteMatch) -> list[RoutingDecision]:
    """Split a message with several requests, in order; empty if there is only one.

    Each part must clearly ask for a flow by itself, and for another flow or other inputs than those before;
    and the whole message must match the first one too: what is revoked at the end is no request.
    """
    if len(message) > _MAX_READ_LENGTH or not whole.flows:
        return []
    places = [0, *(match.end() for match in _JOINTS.finditer(message)), len(message)]
    found: list[RoutingDecision] = []
    start = 0
    for end in places[1:]:
        part = message[start:end]
        match = router.match(part)
        if is_cancel(_JOINTS.sub("", part)):
            return []
        if match.flow is None and end != len(message):
            continue  # it belongs to the next part: "on Monday, please book …"
        if match.flow is None:
            if found:  # and so does the part after the last one
                found[-1] = replace(found[-1], text=f"{found[-1].text}{part}")
            break
        flow_id, given = match.flow.flow_id, match.parameters
        if not any(each.target == flow_id and _is_same(each.parameters, given) for each in found):
            found.append(RoutingDecision(action="flow", target=flow_id, parameters=given, text=part))
        start = end
    if not 1 < len(found) <= _MAX_REQUESTS:
        return []
    if not any(match.flow_id == found[0].target and match.certain for match in whole.matches):
        return []
    return [_with_all(each, router) for each in found]


def find_unread_request(message: str, router: FlowRouter, match: RouteMatch) -> str:
    """Return the further request in a message that no pattern matches; empty if there is none."""
    if match.flow is None or len(message) > _MAX_READ_LENGTH:
        return ""
    end = max(each.end for each in match.matches if each.flow_id == match.flow.flow_id)
    joint = _FURTHER.search(message, end)
    part = message[joint.end() :].strip() if joint else ""
    if not part or is_cancel(part) or is_request_or_refusal(part) or len(content_words(part)) < _FEW_WORDS:
        return ""
    found = extract_slots(part, properties_of(match.flow.input_schema))
    return "" if found or router.match(part).matches else part


def content_words(text: str) -> set[str]:
    """Return the words of a text without polite ones."""
    return {word for word in analyse(_POLITE.sub(" ", text)) if word.isascii() or len(word) > 1}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two requests for a flow are the same one: no input differs."""
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def _with_all(request: RoutingDecision, router: FlowRouter) -> RoutingDecision:
    """Add the inputs from the parts that belong to a request."""
    match = router.match(request.text)
    same = match.flow is not None and match.flow.flow_id == request.target
    return replace(request, parameters=match.parameters) if same else request


# Disambiguation

DECLINED = ""
"""The choice of a user who wants none of the options."""

_MAX_CHOICE_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Disambiguation:
    """A disambiguation question: candidate flows, the most likely first, with their inputs in the message."""

    message: str
    flows: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the session's state."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Disambiguation:
        """Restore it from `to_json`."""
        return cls(kept["message"], tuple(kept["flows"]), kept["parameters"], kept["reason"])

    def question(self, flows: Sequence[FlowConfig], phrases: Phrases, *, unwanted: bool = False) -> Pending:
        """Build the question.

        `unwanted`: the message negates the request.
        """
        names = _unique_names(flows)
        if len(flows) == 1:
            text = (phrases.unwanted if unwanted else phrases.whether).format(flow=names[0])
            choice: dict[str, Any] = {"type": "boolean", "title": text}
        else:
            lines = [f"{number}. {name}" for number, name in enumerate(names, 1)]
            text = "\n".join([phrases.which, *lines])
            choice = {"type": "string", "enum": names, "title": phrases.which}
        schema = {"type": "object", "properties": {"choice": choice}, "required": ["choice"]}
        return Pending(id=CHOICE, kind="question", reason=text, schema=schema)

    @staticmethod
    def message_of(content: Mapping[str, Any]) -> str:
        """Return the message for a filled-in form of this question."""
        choice = content.get("choice")
        return {True: "yes", False: "no"}[choice] if isinstance(choice, bool) else str(choice or "no")

    def resolve_choice(self, message: str, flows: Sequence[FlowConfig]) -> str | None:
        """Return the id of the chosen flow; `DECLINED`; or None if the message is no choice."""
        if is_cancel(message):
            return DECLINED
        said = yes_or_no(message)
        if said is False:
            return DECLINED
        if len(flows) == 1 and said:
            return flows[0].flow_id
        form = normalise(message).strip(" .。!！?？，,\"'“”「」")
        if not form or len(form) > _MAX_CHOICE_LENGTH:
            return None
        named = [flow.flow_id for flow in flows if form in {normalise(flow.title), normalise(flow.flow_id)}]
        is_unwanted = negates(message) or (is_question(message) and not is_proposal(message))
        named = named or ([] if is_unwanted else _flows_in(form, flows))
        if len(named) == 1:
            return named[0]
        number = number_in_list(form)
        place = len(flows) if number == -1 else number
        return flows[place - 1].flow_id if place is not None and 1 <= place <= len(flows) else None


def _flows_in(form: str, flows: Sequence[FlowConfig]) -> list[str]:
    held = [flow for flow in flows if normalise(flow.title) in form]
    return [
        flow.flow_id
        for flow in held
        if not any(flow is not other and normalise(flow.title) in normalise(other.title) for other in held)
    ]


def _unique_names(flows: Sequence[FlowConfig]) -> list[str]:
    """Return the titles of flows if they are unique, else the ids."""
    titles = [flow.title for flow in flows]
    return titles if len({*titles}) == len(titles) else [flow.flow_id for flow in flows]
