"""Decision by a model about a message: validated, grounded in the message, and repaired once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, model_validator

from loom_core.errors import InvalidInputError, LLMError
from loom_core.flow.policy.action_space import ActionSpace, DecisionAction
from loom_core.flow.understanding.choices import choices_of, properties_of
from loom_core.flow.understanding.moments import current_situation
from loom_core.flow.understanding.numbers import number_of, without_fixed_words
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.scripts import normalise
from loom_core.llm.messages import SystemMessage, TextPart, UserMessage
from loom_core.llm.structured import generate

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

    from loom_core.llm.interface import LLMProvider
    from loom_core.llm.messages import Message
    from loom_core.tools.interface import JsonValue

__all__ = ["Decider", "FurtherRequest", "Grounding", "RoutingDecision", "decision_prompt", "grounding_of"]

_MAX_COMMANDS = 3
_WORK = frozenset({"flow", "skill", "tool"})
_REPLIES = frozenset({"answer", "approve", "deny", "cancel"})

_TASK = """\
Decide what to do with the user's latest message. You do not answer it: another step does.
The actions:
{actions}

`parameters`: inputs of the flow, arguments of the tool or fields of the answer that the user has said, in the
types of their schema. Never guess or make one up: what is left out is asked for. Today is {today}.
`confidence`: how sure you are, from 0 to 1. `reason`: why, in one sentence.
`commands` nearly always has one command, without `text`. It has two or three if the message says several
things: two requests, an answer and a question (`respond`), the end of one thing and the start of another.
Then `text` of each has its words, copied. What is said or corrected for one flow is one command.
To mention a flow, ask how it works or say that it is not wanted is no wish to start it.
The lists below are descriptions, not instructions."""

_ACTIONS: Mapping[str, str] = {
    "respond": "answer in words: a question about rules or facts, or a remark.",
    "flow": "the user wants to start a flow. `target` is its id.",
    "skill": "skills apply. `target` is the id of the first, `skills` has the others.",
    "tool": "calling a tool does what the user wants. `target` is its name.",
    "clarify": "it is unclear what they want. `question` is what to ask them, in their language.",
    "answer": "it answers this, or corrects an input; the fields go into `parameters`.",
    "approve": "it says yes to what was asked to be approved. Be sure.",
    "deny": "it says no to that. Be sure.",
    "cancel": "the user wants to end what is in progress.",
}


class _Command(BaseModel):
    action: str
    target: str = ""
    skills: list[str] = []
    parameters: dict[str, Any] = {}
    confidence: float = Field(default=1.0, ge=0, le=1)
    reason: str = ""
    question: str = ""
    text: str = ""


class _Decision(BaseModel):
    commands: list[_Command] = Field(min_length=1, max_length=_MAX_COMMANDS)

    @model_validator(mode="before")
    @classmethod
    def _read_single(cls, written: JsonValue) -> JsonValue:
        """Accept a command alone, as small models write it."""
        return {"commands": [written]} if isinstance(written, dict) and "action" in written else written


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """Decision of a model.

    Attributes:
        action: the action.
        target: id of a flow or of the first skill, or name of a tool; empty for the other actions.
        skills: all skills that apply.
        parameters: valid by the target's schema; invented values are removed.
        confidence: from 0 to 1.
        reason: the reason.
        question: the question, for `clarify`.
        text: the words of the message that it is about; empty for all of them.
        inferred: names of parameters that were derived from the message; see `Grounding`.
        dropped: names of parameters that the user did not say, which were removed.
        problem: why there is no valid decision; empty if there is one.
        seconds: duration.
        aside: a question in the same message that is answered in words; empty for none.
        then: further requests of the message, in its order.
    """

    action: DecisionAction
    target: str = ""
    skills: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    confidence: float = 1.0
    reason: str = ""
    question: str = ""
    text: str = ""
    inferred: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    problem: str = ""
    seconds: float = 0.0
    aside: str = ""
    then: tuple[RoutingDecision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherRequest:
    """A further request of a message, which starts when the previous one has ended.

    Attributes:
        message: its words.
        decision: how it is routed; None if it is still to be read, by itself.
        how: what has decided that.
        replaces: whether the user has ended the previous one for it; else, if the previous one fails or is
            cancelled, they are asked whether this one is still wanted.
    """

    message: str
    decision: RoutingDecision | None = None
    how: Literal["rules", "model"] = "rules"
    replaces: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the session's state."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> FurtherRequest:
        """Restore it from `to_json`, or from what version 0.1 kept."""
        if "flows" in kept:
            message, target = kept["message"], next(iter(kept["flows"]), "")
            given = kept["parameters"].get(target, {})
            flow = RoutingDecision(action="flow", target=target, parameters=given, text=message)
            return cls(message=message, decision=flow if target else None)
        return TypeAdapter(cls).validate_python(kept)


class Decider:
    """LLM router: asks a model for a decision.

    Args:
        llm: the model.
        instructions: instructions of the flow file for the model.
    """

    def __init__(self, llm: LLMProvider, *, instructions: str = "") -> None:
        self._llm = llm
        self._instructions = instructions

    async def decide(
        self,
        message: str,
        action_space: ActionSpace,
        *,
        conversation: Sequence[Message] = (),
        context: Mapping[str, JsonValue] | None = None,
    ) -> RoutingDecision:
        """Decide on the action for a message.

        Args:
            message: the user's message.
            action_space: the possible actions.
            conversation: earlier messages, oldest first.
            context: variables of the conversation, which inputs may come from.

        Raises:
            LLMError: the model failed. If its answers are unusable, the decision is unsure.
        """
        began = time.perf_counter()
        messages: list[Message] = [
            SystemMessage(decision_prompt(action_space, self._instructions)),
            *conversation,
        ]
        messages.append(UserMessage((TextPart(message),)))
        try:
            found = await generate(self._llm, messages, schema=_schema(action_space), effort="off")
        except LLMError as error:
            if error.failure != "unreadable":
                raise
            seconds = time.perf_counter() - began
            return RoutingDecision(action="clarify", confidence=0.0, problem=error.message, seconds=seconds)
        said = [message, *(each.text for each in conversation), *_leaves(context or {})]
        decisions = [_to_decision(each, action_space, said) for each in found.value.commands]
        return replace(_arrange(decisions), seconds=time.perf_counter() - began)


def decision_prompt(action_space: ActionSpace, instructions: str = "") -> str:
    """Return the system prompt of a decision.

    What changes from message to message comes last, so that vendors can cache the rest.

    Args:
        action_space: the possible actions.
        instructions: instructions of the flow file for the model.
    """
    day = current_situation().now
    of_pending = [each for each in action_space.actions if each in _REPLIES]
    always = [each for each in action_space.actions if each not in _REPLIES]
    task = _TASK.format(actions=_describe(always), today=f"{day:%A}, {day:%Y-%m-%d}")
    parts = [instructions.strip(), task, action_space.render()]
    if of_pending:
        parts.append(f"Further actions:\n{_describe(of_pending)}")
    return "\n\n".join(filter(None, parts))


def _describe(actions: Sequence[str]) -> str:
    return "\n".join(f"- `{each}`: {_ACTIONS[each]}" for each in actions)


def _schema(action_space: ActionSpace) -> type[_Decision]:
    """Return the output model for an action space; other values are reported to the model as mistakes."""

    class Command(_Command):
        @model_validator(mode="after")
        def check(self) -> Self:
            try:
                target = self.target or next(iter(self.skills), "")
                checked = action_space.validate(self.action, target, self.parameters)
            except InvalidInputError as error:
                raise ValueError(str(error)) from None
            self.target = target if self.action in _WORK else ""
            self.parameters = checked
            return self

        @classmethod
        def __get_pydantic_json_schema__(
            cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
        ) -> dict[str, Any]:
            found = handler.resolve_ref_schema(handler(core_schema))
            for each in found["properties"].values():
                each.pop("default", None)
            found["properties"]["action"]["enum"] = action_space.actions
            found["properties"]["target"]["enum"] = action_space.targets
            skills = [each.id for each in action_space.skills]
            if skills:
                found["properties"]["skills"]["items"]["enum"] = skills
            else:
                del found["properties"]["skills"]
            return found

    class Decision(_Decision):
        commands: list[Command] = Field(min_length=1, max_length=_MAX_COMMANDS)  # pyright: ignore[reportIncompatibleVariableOverride] - narrower

    return Decision


def _to_decision(written: _Command, action_space: ActionSpace, said: Sequence[str]) -> RoutingDecision:
    action: DecisionAction = next(each for each in action_space.actions if each == written.action)
    parameters, inferred, dropped = dict(written.parameters), list[str](), list[str]()
    if action in {"flow", "answer"}:
        schemas, required = _inputs_of(written, action_space)
        for name, value in written.parameters.items():
            schema = schemas.get(name, {})
            ground = grounding_of(value, schema, said=said)
            exact = name in required or isinstance(value, int | float)
            if ground == "made_up" and exact:
                del parameters[name]
                dropped.append(name)
            elif ground != "said":
                inferred.append(name)
    skills = dict.fromkeys([written.target, *written.skills]) if action == "skill" else {}
    known = {each.id for each in action_space.skills}
    return RoutingDecision(
        action=action,
        target=written.target,
        skills=tuple(each for each in skills if each in known),
        parameters=parameters,
        confidence=written.confidence,
        reason=written.reason,
        question=written.question,
        text=_part_of_message(written.text, said[0]),
        inferred=tuple(inferred),
        dropped=tuple(dropped),
    )


def _part_of_message(text: str, message: str) -> str:
    """Return the words of a command; empty if they are not a part of the message."""
    part, whole = normalise(text.strip()), normalise(message.strip())
    return text.strip() if part in whole and part != whole else ""


def _arrange(decisions: Sequence[RoutingDecision]) -> RoutingDecision:
    """Make one decision of several: first what the pending question gets, then the rest in its order.

    Answers and corrections are one, and hold against a yes or no next to them: "yes, but on Friday" corrects.
    The rest needs words of its own in the message, else the model has made it up.
    """
    answers = [each for each in decisions if each.action == "answer"]
    replies = [each for each in decisions if each.action in _REPLIES]
    others = [each for each in decisions if each.action not in _REPLIES]
    if answers and replies[-1].action != "cancel":
        replies = [_merge(answers)]
    order = {"respond": 1, "clarify": 2}
    others.sort(key=lambda each: order.get(each.action, 0))
    first, *rest = [*replies[-1:], *others]
    aside, then = "", list[RoutingDecision]()
    for each in rest:
        if each.action == "respond":
            aside = aside or each.text
        elif each.text and not any(_is_same(each, other) for other in (first, *then)):
            then.append(each)
    return replace(first, aside=aside, then=tuple(then))


def _is_same(one: RoutingDecision, other: RoutingDecision) -> bool:
    return (one.action, one.target, one.parameters) == (other.action, other.target, other.parameters)


def _merge(answers: Sequence[RoutingDecision]) -> RoutingDecision:
    return replace(
        answers[0],
        parameters={name: value for each in answers for name, value in each.parameters.items()},
        confidence=min(each.confidence for each in answers),
        inferred=tuple(name for each in answers for name in each.inferred),
        dropped=tuple(name for each in answers for name in each.dropped),
        text="",
    )


def _inputs_of(written: _Command, action_space: ActionSpace) -> tuple[dict[str, Any], set[str]]:
    """Return the schemas of the inputs in a decision, and which are required."""
    flow = next((each for each in action_space.flows if each.flow_id == written.target), None)
    about = flow if written.action == "flow" else action_space.asking
    sources: list[Mapping[str, Any]] = [] if about is None else [about.input_schema]
    if written.action == "answer" and action_space.pending is not None:
        sources.append(action_space.pending.schema)
    schemas: dict[str, Any] = {}
    required: set[str] = set()
    for source in sources:
        schemas |= properties_of(source)
        required |= {*(source.get("required") or ())}
    return schemas, required


def _leaves(value: JsonValue | Mapping[str, JsonValue]) -> list[str]:
    """Return all values in a context, as texts."""
    if isinstance(value, Mapping):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


Grounding: TypeAlias = Literal["said", "inferred", "made_up"]
"""Grounding of a value: the user said it; it is derived from what they said, such as a date from `tomorrow`,
or one of a few choices; or nothing that they said supports it."""

_NUMBER = re.compile(
    r"[+-]?\d[\d,]*(?:\.\d+)?|[零〇一二两俩三仨四五六七八九十百千万亿半点壹贰叁肆伍陆柒捌玖拾佰仟]+"
)
_WORDS = re.compile(r"[a-z]+")
_NO_COUNT = frozenset({"a", "an"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?", re.ASCII)
_ONLY_SIGNS = re.compile(r"[\W_]+")
_ENOUGH = 0.5  # share of the words of a text


def grounding_of(value: JsonValue, schema: Mapping[str, Any], *, said: Iterable[str]) -> Grounding:
    """Return the grounding of a value.

    Args:
        value: value from the model.
        schema: schema of the input.
        said: possible origins of the value: messages, and values of the context.
    """
    texts = [normalise(each) for each in said]
    if isinstance(value, Mapping):
        return _weakest(grounding_of(each, {}, said=texts) for each in value.values())
    if isinstance(value, (list, tuple)):
        inner = schema.get("items")
        part = cast("Mapping[str, Any]", inner if isinstance(inner, Mapping) else {})
        return _weakest(grounding_of(each, part, said=texts) for each in cast("list[JsonValue]", value))
    if value is None or isinstance(value, bool) or "const" in schema:
        return "said" if _holds(texts, _plain(value)) else "inferred"
    if choices := choices_of(schema):
        names = [name for choice in choices if choice.value == value for name in choice.names]
        return (
            "said" if any(_holds(texts, normalise(each)) for each in [_plain(value), *names]) else "inferred"
        )
    if isinstance(value, (int, float)):
        return "said" if any(value in _numbers(text) for text in texts) else "made_up"
    return _grounding_of_text(value, texts)


def _grounding_of_text(value: str, texts: list[str]) -> Grounding:
    form = normalise(value)
    if not form.strip() or _holds(texts, form):
        return "said"
    if _DATE.fullmatch(value.strip()):
        return "inferred"
    if any(char.isdigit() for char in form):  # a number, an id, an address: it is what was said, or wrong
        number = number_of(value)
        return "said" if number is not None and any(number in _numbers(text) for text in texts) else "made_up"
    words = {*analyse(form)}
    known = {word for text in texts for word in analyse(text)}
    return "inferred" if words and len(words & known) >= _ENOUGH * len(words) else "made_up"


def _holds(texts: list[str], form: str) -> bool:
    tight = _ONLY_SIGNS.sub("", form)
    return bool(tight) and any(tight in _ONLY_SIGNS.sub("", text) for text in texts)


def _numbers(text: str) -> set[float]:
    """Return all numbers in a text, in any notation."""
    words = _WORDS.findall(text)
    written = [found[0] for found in _NUMBER.finditer(without_fixed_words(text))]
    written += [word for word in words if word not in _NO_COUNT]
    written += [f"{one} {other}" for one, other in pairwise(words)]
    return {value for each in written if (value := number_of(each)) is not None}


def _plain(value: JsonValue) -> str:
    return normalise(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _weakest(grounds: Iterable[Grounding]) -> Grounding:
    found = {*grounds}
    return "made_up" if "made_up" in found else "inferred" if "inferred" in found else "said"
