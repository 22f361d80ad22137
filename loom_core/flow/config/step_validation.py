"""Validation of steps and requests beyond their models: fields fit together, jumps and references resolve."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from pydantic import JsonValue

from loom_core.config_file import ConfigPath, ConfigProblem
from loom_core.errors import UnreadableTextError
from loom_core.flow.config.models_endpoint import check_headers, check_query, reference_in
from loom_core.flow.config.models_step import StepKind
from loom_core.flow.expressions.condition import Condition, check_criterion
from loom_core.flow.expressions.expression import Expression, output_expression
from loom_core.flow.expressions.template import check_url, expressions_in
from loom_core.llm.json_schema.values import readable_path

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig
    from loom_core.flow.config.models_step import Action, StepConfig, WaitConfig

__all__ = [
    "NAME_INPUT",
    "NO_SCHEMA",
    "PlacedStep",
    "TemplateText",
    "address_problems",
    "criteria_problems",
    "criteria_texts",
    "endpoint_problems",
    "endpoint_texts",
    "input_names",
    "reference_problems",
    "secret_problems",
    "step_problems",
    "step_texts",
    "texts_in",
    "unknown_name",
    "unreadable_problem",
    "walk_steps",
]

_TextKind: TypeAlias = Literal["template", "url", "expression", "output", "condition"]
"""The kind of a text: a template, an address template, an expression, an output expression (may end in `?`),
or a condition."""

NO_SCHEMA = "no schema defines the input"
NAME_INPUT = "Name it in the `properties` of `input_schema`."
"""Advice where no input has a name."""

_SHOWN = 80
_GRAMMAR = "“Expressions, templates, conditions” in docs/reference/flow-config.md describes the syntax."


@dataclass(frozen=True, slots=True)
class TemplateText:
    """A text with references."""

    path: ConfigPath
    text: str
    kind: _TextKind = "template"

    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions in the text.

        Raises:
            UnreadableTextError: it cannot be parsed.
        """
        if self.kind == "condition":
            return Condition.of(self.text).expressions
        if self.kind == "expression":
            return (Expression.of(self.text),)
        if self.kind == "output":
            return (output_expression(self.text),)
        if self.kind == "url":
            check_url(self.text)
        return tuple(expressions_in(self.text))


def texts_in(value: JsonValue | Mapping[str, JsonValue], path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the texts of a JSON value as templates; keys are not templates."""
    if isinstance(value, str):
        yield TemplateText(path, value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts_in(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from texts_in(each, (*path, index))


def reference_problems(
    texts: Iterable[TemplateText],
    inputs: Collection[str] | None,
    outputs: Mapping[str, Collection[str]],
    *,
    own: Collection[str] = (),
    before: Collection[str] | None = None,
    loops: Mapping[str, Sequence[str]] | None = None,
    inside: Sequence[str] = (),
) -> Iterator[ConfigProblem]:
    """Yield texts that cannot be parsed, and references to names that do not exist, or not yet.

    Args:
        texts: the texts with references.
        inputs: names of inputs; None if any name is allowed.
        outputs: names of outputs by the id of their step.
        own: names of outputs of the flow itself.
        before: ids of the steps that may have completed when the texts are filled; None for all.
        loops: ids of the `for_each` steps that each step is inside of, outermost first, by its id.
        inside: the same for the texts.
    """
    for text in texts:
        try:
            expressions = text.expressions()
        except UnreadableTextError as error:
            yield unreadable_problem(text.path, error)
            continue
        for each in expressions:
            if each.root == "inputs" and each.path:
                name = each.path[0]
                if inputs is not None and name not in inputs:
                    yield unknown_name(text.path, NO_SCHEMA, name, inputs, none=NAME_INPUT)
            elif each.root == "outputs" and each.path and each.path[0] not in own:
                none = "Name it in the `outputs` of the flow."
                yield unknown_name(text.path, "the flow has no output", each.path[0], own, none=none)
            elif each.root in {"item", "index"} and not inside:
                yield ConfigProblem(
                    text.path,
                    f"{each.source} exists only in the steps of `for_each`.",
                    "Name an input or an output of a step.",
                )
            elif each.root == "steps":
                yield from _output_problems(text.path, each, outputs, before)
                outer = tuple((loops or {}).get(each.path[0], ()))
                if outer != tuple(inside[: len(outer)]):
                    yield ConfigProblem(
                        text.path,
                        f"the step {each.path[0]!r} runs once for each item of {outer[-1]!r}.",
                        f"Its results are in $steps.{outer[-1]}.outputs.results.",
                    )


def _output_problems(
    path: ConfigPath,
    expression: Expression,
    outputs: Mapping[str, Collection[str]],
    before: Collection[str] | None,
) -> Iterator[ConfigProblem]:
    step, *rest = expression.path
    if step not in outputs:
        none = "Name one of the steps of this flow."
        yield unknown_name(path, "there is no step", step, outputs, none=none)
    elif before is not None and step not in before:
        yield ConfigProblem(
            path,
            f"the step {step!r} does not come before this one, so it has no outputs yet.",
            "Refer to a step before this one, or move it.",
        )
    elif rest and rest[0] not in outputs[step]:
        none = "Name it in the `outputs` of the step."
        yield unknown_name(path, f"the step {step!r} has no output", rest[0], outputs[step], none=none)


def unknown_name(
    path: ConfigPath, start: str, name: str, known: Collection[str], *, none: str, end: str = "."
) -> ConfigProblem:
    """Return the problem of an unknown name, whose message has the name between `start` and `end`.

    `none` is the advice if there are no names at all.
    """
    return ConfigProblem(path, f"{start} {name[:_SHOWN]!r}{end}", _missing_message(name, known, none=none))


def _missing_message(name: str, known: Collection[str], *, none: str) -> str:
    """Return advice for an unknown name.

    `none` is the advice if there are no names at all.
    """
    near = get_close_matches(name, known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are: {', '.join(sorted(known)[:20])}." if known else none


def unreadable_problem(
    path: ConfigPath, error: UnreadableTextError, *, advice: str = _GRAMMAR
) -> ConfigProblem:
    """Return the problem that a text cannot be parsed; by default, an expression or a template."""
    where = f"character {error.column}" if error.line == 1 else f"line {error.line}, character {error.column}"
    inside = path[2:] if len(path) > 2 and isinstance(path[1], int) else path  # of a flow, skill or tool
    key = readable_path(inside)
    return ConfigProblem(path, f"{key}: {error.reason} ({where} of it).", advice)


_PARTS = ("allOf", "anyOf", "oneOf")
_MAX_COUNT = 1000


def input_names(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the property names of a schema, its subschemas included; None if any name is allowed."""
    names = set[str]()
    waiting: list[object] = [schema]
    for _ in range(_MAX_COUNT):
        if not waiting:
            return frozenset(names)
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        keywords = cast("Mapping[str, Any]", part)
        if keywords.get("patternProperties") or keywords.get("additionalProperties", False) is not False:
            return None
        names |= set(_as_mapping(keywords.get("properties")))
        for keyword in _PARTS:
            each = keywords.get(keyword)
            waiting += cast("list[object]", each) if isinstance(each, list) else []
        waiting += [keywords.get(keyword) for keyword in ("if", "then", "else")]
        if "$ref" in keywords:
            waiting.append(_resolve_reference(schema, keywords["$ref"]))
    return None


def _resolve_reference(schema: Mapping[str, Any], reference: object) -> object:
    """Resolve a reference such as `#/$defs/…`."""
    value: object = schema
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return {"additionalProperties": True}  # nothing is known about it
    for step in reference[2:].split("/"):
        value = _as_mapping(value).get(step.replace("~1", "/").replace("~0", "~"))
    return value


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


_KINDS = ["workflowId" if kind == "workflow" else kind for kind in get_args(StepKind) if kind != "none"]


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step with its path, the ids of its list and the steps that it is inside of, outermost first."""

    path: ConfigPath
    step: StepConfig
    siblings: Collection[str]
    around: tuple[StepConfig, ...] = ()

    @property
    def is_concurrent(self) -> bool:
        """Whether other steps may run at the same time."""
        return any(outer.is_concurrent for outer in self.around)

    @property
    def loops(self) -> tuple[str, ...]:
        """Ids of the `for_each` steps that it is inside of, outermost first."""
        return tuple(outer.step_id for outer in self.around if outer.for_each is not None)


def walk_steps(
    steps: Sequence[StepConfig], path: ConfigPath, *, around: tuple[StepConfig, ...] = ()
) -> Iterator[PlacedStep]:
    """Yield steps, those inside of others included."""
    siblings = [step.step_id for step in steps]
    for index, step in enumerate(steps):
        at = (*path, index)
        yield PlacedStep(at, step, siblings, around)
        for place, inner in step.inner_lists():
            yield from walk_steps(inner, (*at, *place), around=(*around, step))


def step_problems(placed: PlacedStep, *, flow_url: str) -> Iterator[ConfigProblem]:
    """Return the problems of a step, by itself and among its siblings."""
    step, path = placed.step, placed.path
    said = ["workflowId" if kind == "workflow" else kind for kind in step.kinds]
    if step.confirm is False and step.kind != "tool":
        yield ConfigProblem((*path, "confirm"), "this has no effect here.", "Leave it out.")
    if len(said) > 1 and said != ["tool", "confirm"]:
        yield ConfigProblem(
            (*path, said[1]), f"a step is one thing, not {' and '.join(said)}.", "Make it several steps."
        )
    if step.kind == "none" and not (
        step.success_criteria or step.on_success or step.on_failure or step.outputs
    ):
        yield ConfigProblem(path, "the step does nothing.", f"Give it one of {', '.join(_KINDS)}.")
    yield from _question_problems(placed)
    if step.wait_for is not None:
        yield from _wait_problems(step.wait_for, (*path, "wait_for"))
    if any(not branch for branch in step.parallel) or len(step.parallel) == 1:
        yield ConfigProblem(
            (*path, "parallel"), "`parallel` needs two or more lists of steps.", "None of them is empty."
        )
    for number, case in enumerate(step.switch):
        at = (*path, "switch", number)
        yield from criteria_problems(case.when or (), (*at, "when"))
        if case.when is None and number + 1 < len(step.switch):
            yield ConfigProblem(
                at, "a case without `when` is the default, and must be the last one.", "Write `when`."
            )
    if step.operation is not None:
        yield from endpoint_problems(step.operation, (*path, "operation"), flow_url=flow_url)
    yield from criteria_problems(step.success_criteria, (*path, "successCriteria"))
    yield from _argument_problems(step, path)
    yield from _action_problems(step.on_success, (*path, "onSuccess"), placed, after_failure=False)
    yield from _action_problems(step.on_failure, (*path, "onFailure"), placed, after_failure=True)


def _question_problems(placed: PlacedStep) -> Iterator[ConfigProblem]:
    """Yield the problems of a step that asks the user, or gives the conversation to an operator."""
    step, path = placed.step, placed.path
    if step.ask is not None and step.ask.options is not None and step.ask.answer is not None:
        yield ConfigProblem(
            (*path, "ask", "schema"), "the choices are the schema of the answer.", "Leave `schema` out."
        )
    asks = "ask" if step.ask is not None else "confirm" if step.confirm else ""
    if placed.is_concurrent and asks:
        yield ConfigProblem(
            (*path, asks),
            "the user cannot be asked in parallel with other steps.",
            "Ask in a step before or after.",
        )
    if step.handover is not None and placed.is_concurrent:
        yield ConfigProblem(
            (*path, "handover"),
            "the conversation cannot go to an operator in parallel with other steps.",
            "Hand over in a step before or after.",
        )
    if placed.loops and step.ask is not None and step.ask.into:
        yield ConfigProblem(
            (*path, "ask", "into"),
            "the answer about an item cannot become an input of the flow.",
            "Leave it out: the answer is the output `answer`.",
        )


def _wait_problems(wait: WaitConfig, path: ConfigPath) -> Iterator[ConfigProblem]:
    given = [name for name in ("seconds", "until", "event") if getattr(wait, name)]
    if len(given) != 1:
        yield ConfigProblem(
            path,
            f"it waits for one thing, not for {' and '.join(given) or 'nothing'}.",
            "Give one of `seconds`, `until` and `event`.",
        )
    for name in ("key", "timeout_seconds"):
        if getattr(wait, name) and not wait.event:
            yield ConfigProblem((*path, name), "it belongs to an `event`.", "Leave it out.")


def _argument_problems(step: StepConfig, path: ConfigPath) -> Iterator[ConfigProblem]:
    request = step.operation
    if step.request_body is not None:
        if request is None:
            yield ConfigProblem((*path, "requestBody"), "only a request has a body.", "Use `parameters`.")
        elif request.body is not None:
            yield ConfigProblem((*path, "requestBody"), "the operation has a body already.", "Keep one.")
        yield from secret_problems(texts_in(step.request_body.payload, (*path, "requestBody", "payload")))
    if step.parameters and step.kind not in {"operation", "tool", "workflow"}:
        yield ConfigProblem((*path, "parameters"), "this step takes no parameters.")
    names = [(each.in_, each.name) for each in step.parameters]
    for index, each in enumerate(step.parameters):
        at = (*path, "parameters", index)
        if (each.in_, each.name) in names[:index]:
            yield ConfigProblem(at, f"the parameter {each.name[:80]!r} is defined twice.")
        if request is None:
            if each.in_:
                yield ConfigProblem((*at, "in"), "only parameters of a request have `in`.")
            yield from secret_problems(texts_in(each.value, (*at, "value")))
            continue
        try:
            if each.in_ == "header":
                check_headers({each.name: str(each.value)})
            else:
                check_query({each.name: each.value})
        except ValueError as error:
            yield ConfigProblem((*at, "value"), f"{error}.".replace("..", "."))


def _action_problems(
    actions: Sequence[Action], path: ConfigPath, placed: PlacedStep, *, after_failure: bool
) -> Iterator[ConfigProblem]:
    for index, action in enumerate(actions):
        at = (*path, index)
        yield from criteria_problems(action.criteria, (*at, "criteria"))
        if action.type == "retry" and not after_failure:
            yield ConfigProblem(
                (*at, "type"),
                "only a failed step is retried.",
                "To wait for something, let `successCriteria` say what, and retry in `onFailure`.",
            )
        if action.type == "end":
            if action.step_id:
                yield ConfigProblem((*at, "stepId"), "`end` leads to no step.", "Use `goto`.")
        elif action.step_id not in placed.siblings and (action.step_id or action.type == "goto"):
            yield ConfigProblem(
                (*at, "stepId"),
                f"there is no step {action.step_id[:80]!r} in this list."
                if action.step_id
                else "it needs a step.",
                _missing_message(action.step_id, placed.siblings, none="Name one."),
            )
        if action.response and (action.type != "end" or placed.around):
            yield ConfigProblem((*at, "response"), "the user reads a response at the end of the flow only.")


_TEMPLATES = {
    "ask": ("question",),
    "confirm": ("question",),
    "wait_for": ("until", "key", "text"),
    "handover": ("text", "about"),
    "llm": ("prompt",),
}


def step_texts(placed: PlacedStep) -> Iterator[TemplateText]:
    """Yield the templates of a step, without those of the steps inside it."""
    step, path = placed.step, placed.path
    if step.operation is not None:
        yield from endpoint_texts(step.operation, (*path, "operation"))
    for index, parameter in enumerate(step.parameters):
        yield from texts_in(parameter.value, (*path, "parameters", index, "value"))
    if step.request_body is not None:
        yield from texts_in(step.request_body.payload, (*path, "requestBody", "payload"))
    yield from _choosing_texts(step, path)
    yield TemplateText((*path, "say"), step.say)
    for section, names in _TEMPLATES.items():
        if written := getattr(step, section):
            yield from (TemplateText((*path, section, name), getattr(written, name)) for name in names)
    if step.ask is not None and (options := step.ask.options) is not None:
        yield TemplateText((*path, "ask", "options", "from"), options.from_, "expression")
        yield TemplateText((*path, "ask", "options", "none"), options.none)
    yield from criteria_texts(step.success_criteria, (*path, "successCriteria"))
    for key, actions in (("onSuccess", step.on_success), ("onFailure", step.on_failure)):
        for index, action in enumerate(actions):
            yield from criteria_texts(action.criteria, (*path, key, index, "criteria"))
            yield TemplateText((*path, key, index, "response"), action.response)
    for name, expression in step.outputs.items():
        yield TemplateText((*path, "outputs", name), expression, "output")


def _choosing_texts(step: StepConfig, path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the texts that decide which of the steps inside a step run, and for what."""
    for number, case in enumerate(step.switch):
        yield from criteria_texts(case.when or (), (*path, "switch", number, "when"))
    if step.for_each is not None:
        items, at = step.for_each.in_, (*path, "for_each", "in")
        yield from [TemplateText(at, items, "expression")] if isinstance(items, str) else texts_in(items, at)


_SECRETS = "Write secrets into `headers` or `query`, where they are hidden from logs and models."


def address_problems(url: str, path: ConfigPath, *, flow_url: str) -> Iterator[ConfigProblem]:
    """Yield the problem that a path has no `flow_url` to resolve against."""
    if not url.lower().startswith(("https://", "http://")) and not flow_url:
        what = f"the path {url[:80]!r} is relative to `flow_url`" if url else "the request goes to `flow_url`"
        yield ConfigProblem(
            path, f"{what}, which is not set.", 'Write "flow_url": "https://…", or an absolute address.'
        )


def endpoint_problems(
    endpoint: EndpointConfig, path: ConfigPath, *, flow_url: str
) -> Iterator[ConfigProblem]:
    """Return the problems of a request."""
    yield from address_problems(endpoint.url, (*path, "url"), flow_url=flow_url)
    yield from secret_problems(texts_in(endpoint.body, (*path, "body")))
    yield from criteria_problems(endpoint.success_criteria, (*path, "successCriteria"))


def secret_problems(texts: Iterator[TemplateText]) -> Iterator[ConfigProblem]:
    """Yield references to secrets where they are not resolved."""
    for text in texts:
        if reference_in(text.text):
            yield ConfigProblem(text.path, "a secret is not resolved here.", _SECRETS)


def endpoint_texts(endpoint: EndpointConfig, path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the templates of a request."""
    yield TemplateText((*path, "url"), endpoint.url, "url")
    yield from texts_in({**endpoint.headers}, (*path, "headers"))
    yield from texts_in(endpoint.query or {}, (*path, "query"))
    yield from texts_in(endpoint.body, (*path, "body"))
    yield TemplateText((*path, "result"), endpoint.result, "expression")
    yield TemplateText((*path, "failure"), endpoint.failure)
    yield from criteria_texts(endpoint.success_criteria, (*path, "successCriteria"))


def criteria_texts(criteria: Sequence[Criterion], path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the texts of criteria, as far as they can be parsed."""
    for index, criterion in enumerate(criteria):
        if criterion.type == "simple":
            yield TemplateText((*path, index, "condition"), criterion.condition, "condition")
        elif criterion.context:
            yield TemplateText((*path, index, "context"), criterion.context, "expression")


def criteria_problems(criteria: Sequence[Criterion], path: ConfigPath) -> Iterator[ConfigProblem]:
    """Yield criteria that are no valid conditions."""
    for index, criterion in enumerate(criteria):
        if criterion.type == "simple":
            if criterion.context:
                yield ConfigProblem(
                    (*path, index, "context"), "a condition has no separate context.", "Leave it out."
                )
            continue
        if not criterion.context:
            yield ConfigProblem(
                (*path, index),
                f"a criterion of the type {criterion.type} needs a context.",
                'Write "context": "$response.body".',
            )
        try:
            check_criterion(criterion.model_copy(update={"context": "$response.body"}))
        except UnreadableTextError as error:
            yield unreadable_problem((*path, index, "condition"), error)
