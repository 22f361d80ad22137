"""Models of a flow's step, with the names of Arazzo 1.1 where it has a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from loom_core.config_file import ConfigPath
from loom_core.flow.config.models_endpoint import (
    BODYLESS,
    ConfigSection,
    ContentType,
    Criterion,
    EndpointConfig,
    Id,
    Schema,
    WrittenCriterion,
    WrittenEndpoint,
    text_as,
)
from loom_core.flow.expressions.expression import parse_pointer

__all__ = [
    "Action",
    "AskConfig",
    "CaseConfig",
    "ConfirmConfig",
    "ForEachConfig",
    "HandoverConfig",
    "LLMConfig",
    "OptionsConfig",
    "Parameter",
    "RequestBody",
    "StepConfig",
    "StepKind",
    "WaitConfig",
    "iter_steps",
]

StepKind: TypeAlias = Literal[
    "operation",
    "tool",
    "workflow",
    "parallel",
    "switch",
    "for_each",
    "llm",
    "say",
    "ask",
    "confirm",
    "wait_for",
    "handover",
    "none",
]
"""The kind of a step; a step of kind `none` only evaluates criteria, sets outputs, or jumps."""

_FIELDS: Mapping[StepKind, str] = {
    kind: "workflow_id" if kind == "workflow" else kind for kind in get_args(StepKind) if kind != "none"
}
_LONGEST_WAIT = 366 * 86_400.0


class Parameter(ConfigSection):
    """A parameter of a request, a tool or another flow."""

    name: str = Field(min_length=1, description="Its name.")
    value: JsonValue = Field(description="Any JSON with templates in it.")
    in_: Literal["query", "header", ""] = Field(
        default="",
        alias="in",
        description="For a request: where it is put; by default the body of a POST, "
        "PUT or PATCH that has none yet, else the query.",
    )


class RequestBody(ConfigSection):
    """Payload of a request."""

    content_type: ContentType = Field(
        default="application/json", alias="contentType", description="Content type of the payload."
    )
    payload: JsonValue = Field(default=None, description="Any JSON with templates in it.")


class Action(ConfigSection):
    """The next action after a step; the first one whose criteria hold applies."""

    name: str = Field(default="", description="Name in the journal.")
    type: Literal["end", "goto", "retry"] = Field(
        description=(
            "`end`: the flow, the branch, the case or the item ends successfully; `goto`: continue with "
            "another step; `retry`: repeat the step, after a failure only."
        )
    )
    step_id: str = Field(
        default="",
        alias="stepId",
        description="The target of `goto`, a step of the same list; with `retry`, a step that runs first.",
    )
    retry_after: float = Field(
        default=1.0, ge=0, le=3600, alias="retryAfter", description="Seconds before `retry`."
    )
    retry_limit: int = Field(
        default=1, ge=1, le=100, alias="retryLimit", description="Maximum number of retries."
    )
    criteria: list[WrittenCriterion] = Field(default=[], description="Criteria, all of which must hold.")
    response: str = Field(
        default="",
        description="With `end`: what the user reads; by default the flow's response.",
    )


def _check_pointer(written: str) -> str:
    try:
        parse_pointer(written)
    except ValueError as error:
        raise ValueError(f"{written[:80]!r} is not {error}") from None
    return written


_Pointer = Annotated[str, AfterValidator(_check_pointer)]


class OptionsConfig(ConfigSection):
    """Choices of a question from a list, such as an API's answer. Only one of them is an answer."""

    from_: str = Field(
        alias="from",
        min_length=1,
        description="An expression that gives the list, such as `$steps.slots.outputs.times`.",
    )
    value: _Pointer = Field(
        default="",
        description="JSON Pointer in an item to its value for the API, such as `/id`; by default the item.",
    )
    label: _Pointer = Field(
        default="",
        description="JSON Pointer in an item to the text that users read, such as `/text`; by default the "
        "value, dates in words.",
    )
    none: str = Field(
        default="",
        description="What the user reads if the list is empty, a template; the step has failed then.",
    )


class AskConfig(ConfigSection):
    """A question to the user that the run waits for; a text is the question."""

    question: str = Field(min_length=1, description="A template.")
    answer: Schema | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of the answer, which is one value; by default that of the input `into`, "
        "else a text.",
    )
    options: OptionsConfig | None = Field(
        default=None,
        description="Choices from a list, such as an API's answer; the output `label` is what the user read.",
    )
    into: str = Field(
        default="", description="The input that the answer becomes; it is the output `answer` in any case."
    )

    def is_answered_by(self, given: Collection[str]) -> bool:
        """Return whether the question is not asked if the user has given these inputs."""
        return self.into in given and self.options is None


class ConfirmConfig(ConfigSection):
    """A yes-or-no question to the user; a text is the question. A no fails the step."""

    question: str = Field(min_length=1, description="A template.")


class WaitConfig(ConfigSection):
    """A time or an event that a run waits for, in no process: one of `seconds`, `until` and `event`."""

    seconds: float | None = Field(default=None, gt=0, le=_LONGEST_WAIT, description="A time span.")
    until: str = Field(
        default="",
        description="A date or a time in ISO 8601, as a template; without an offset, in the time zone of the "
        "conversation. One that is past ends the wait at once.",
    )
    event: str = Field(
        default="", max_length=200, description="Name of an event that another system sends (a webhook)."
    )
    key: str = Field(
        default="", description="A template: only an event with this key is meant, such as an order's number."
    )
    timeout_seconds: float | None = Field(
        default=None, gt=0, le=_LONGEST_WAIT, description="Seconds without the event until the step fails."
    )
    text: str = Field(default="", description="A template: what the user reads while the run waits.")


class HandoverConfig(ConfigSection):
    """The conversation goes to a person of the business, and returns with what was agreed."""

    text: str = Field(default="", description="A template: what the user reads; a text is this.")
    about: str = Field(default="", description="A template: what operators read in their queue.")
    queue: str = Field(default="", max_length=200, description="Name of the queue, such as `billing`.")
    agreed: Schema | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of an object: what the operator returns; by default any values.",
    )
    timeout_seconds: float | None = Field(
        default=3600.0,
        gt=0,
        le=_LONGEST_WAIT,
        description="Seconds until the step fails, if no operator has taken the conversation.",
    )
    reply_seconds: float | None = Field(
        default=900.0,
        gt=0,
        le=_LONGEST_WAIT,
        description="Seconds that an operator who has the conversation has to answer the user; then it is in "
        "the queue again.",
    )


def _parse_criteria(written: object) -> object:
    return written if isinstance(written, list) else [written]  # pyright: ignore[reportUnknownVariableType]


class CaseConfig(ConfigSection):
    """A case of `switch`."""

    when: (
        Annotated[
            list[WrittenCriterion],
            Field(min_length=1),
            BeforeValidator(_parse_criteria, json_schema_input_type=list[Criterion | str] | Criterion | str),
        ]
        | None
    ) = Field(
        default=None,
        description="A criterion such as `$inputs.days > 3`, or several that must all hold. Without it, the "
        "case is the default, and the last one.",
    )
    steps: list[StepConfig] = Field(min_length=1, description="The steps of the case.")


class ForEachConfig(ConfigSection):
    """Steps for each item of a list. In them, `$item` is the item, and `$index` its number from 0."""

    in_: str | list[JsonValue] = Field(
        alias="in",
        description="The list: an expression such as `$steps.search.outputs.result#/items`, or a JSON list "
        "with templates in it.",
    )
    steps: list[StepConfig] = Field(min_length=1, description="The steps.")
    limit: int = Field(
        default=100, ge=1, le=1000, description="Maximum number of items; the step fails if there are more."
    )
    parallel: int = Field(default=1, ge=1, le=16, description="Number of items at a time.")


class LLMConfig(ConfigSection):
    """A task for the language model; by default it writes a text. The output `result` is its answer."""

    prompt: str = Field(
        min_length=1,
        description="The task: a template. Texts, lists and objects that are filled in are marked as data, "
        "in which the model follows no instruction.",
    )
    answer: Schema | None = Field(
        default=None, alias="schema", description="JSON Schema of an object that is the answer (extraction)."
    )
    choices: list[str] = Field(default=[], description="Texts, of which one is the answer (classification).")
    max_tokens: int = Field(default=1000, ge=1, le=100_000, description="Maximum length of the answer.")


def _parse_parameters(written: object) -> object:
    """Accept a list as in Arazzo, or an object of names and values."""
    if not isinstance(written, Mapping):
        return written
    named = cast("Mapping[str, object]", written)
    return [{"name": name, "value": value} for name, value in named.items()]


_Parameters = Annotated[
    list[Parameter],
    BeforeValidator(_parse_parameters, json_schema_input_type=list[Parameter] | dict[str, JsonValue]),
]
_Ask = Annotated[AskConfig, text_as("question", AskConfig)]
_Confirm = Annotated[ConfirmConfig, text_as("question", ConfirmConfig)]
_Handover = Annotated[HandoverConfig, text_as("text", HandoverConfig)]


class StepConfig(ConfigSection):
    """A step of one kind: `operation`, `tool`, `workflowId`, `parallel`, `ask`, `confirm`, and so on.

    It has at most one of `operation`, `tool`, `workflowId`, `parallel`, `switch`, `for_each`, `llm`, `say`,
    `ask` and `confirm`; only `tool` and `confirm` may be combined.
    """

    step_id: Id = Field(alias="stepId", description="Its id, unique in the flow.")
    description: str = Field(default="", description="Its purpose.")
    operation: WrittenEndpoint | None = Field(
        default=None, description='A request: an object, or a text such as `"POST /leave"`.'
    )
    tool: str = Field(default="", description="A tool to call: one of `system_tools`, or of the host.")
    workflow_id: str = Field(default="", alias="workflowId", description="A flow to run.")
    parallel: list[list[StepConfig]] = Field(
        default=[], description="Lists of steps that run in parallel; the step ends when all have ended."
    )
    switch: list[CaseConfig] = Field(
        default=[],
        description="Cases, of which the first whose criteria hold runs; if none does, the step has nothing "
        "to do and succeeds. Its output `result` is that of the last step of the case.",
    )
    for_each: ForEachConfig | None = Field(
        default=None,
        description="Steps for each item of a list. If some fail, the others run nevertheless, and then the "
        "step fails; a retry repeats the failed ones. Its output `results` has the result of the last step "
        "for each item, null for a failed one.",
    )
    llm: LLMConfig | None = Field(
        default=None,
        description="A task for the language model of the file. An invalid answer is repaired once, then the "
        "step fails.",
    )
    say: str = Field(
        default="",
        description="A template that the user reads word for word, before the next question or at the end of "
        "the run.",
    )
    ask: _Ask | None = Field(default=None, description="A question to the user that the run waits for.")
    confirm: _Confirm | Literal[False] | None = Field(
        default=None,
        description="A yes or no of the user; after a no the step has failed. With `tool`: what they are "
        "asked before it is called; by default Loom words it, where the tool may change something. `false`: "
        "they are not asked.",
    )
    wait_for: WaitConfig | None = Field(
        default=None, description="A time or an event that the run waits for; it survives restarts."
    )
    handover: _Handover | None = Field(
        default=None,
        description="The conversation goes to a person of the business; a text is what the user reads.",
    )
    parameters: _Parameters = Field(
        default=[],
        description=(
            "Input of a request, a tool or a flow: an object of names and values, or a list as in Arazzo. "
            "By default, a tool or a flow gets the inputs of the same names."
        ),
    )
    request_body: RequestBody | None = Field(
        default=None, alias="requestBody", description="Body of the request, as in Arazzo."
    )
    success_criteria: list[WrittenCriterion] = Field(
        default=[],
        alias="successCriteria",
        description="Criteria of success, in addition to those of its request.",
    )
    on_success: list[Action] = Field(
        default=[], alias="onSuccess", description="What follows a success; by default the next step."
    )
    on_failure: list[Action] = Field(
        default=[], alias="onFailure", description="What follows a failure; by default the run fails."
    )
    outputs: dict[str, str] = Field(
        default={},
        description=(
            "Names and expressions, such as `$response.body#/id`; later steps refer to them as "
            "`$steps.<stepId>.outputs.<name>`. A step whose response lacks one has failed; an optional one "
            "ends in `?` (`$response.body#/note?`) and is then null. By default, a request, a tool, a "
            "flow and a model have the output `result`, a question and a confirmation `answer`, an event "
            "`result`, and a handover the agreed values as `result` and the `operator`."
        ),
    )
    idempotent: bool | None = Field(
        default=None,
        description="Whether it is idempotent; by default as its request or tool.",
    )
    timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Timeout of the step, without the time spent waiting for the user.",
    )

    @property
    def kinds(self) -> list[StepKind]:
        """The kinds that are written; several are an error, but for `tool` and `confirm`."""
        return [kind for kind, field in _FIELDS.items() if getattr(self, field)]

    @property
    def kind(self) -> StepKind:
        """Kind of the step."""
        kinds = self.kinds
        return kinds[0] if kinds else "none"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments for a tool or another flow, by name."""
        return {each.name: each.value for each in self.parameters}

    @property
    def is_concurrent(self) -> bool:
        """Whether its lists of steps run at the same time."""
        return bool(self.parallel) or (self.for_each is not None and self.for_each.parallel > 1)

    def inner_lists(self) -> Iterator[tuple[ConfigPath, Sequence[StepConfig]]]:
        """Yield the lists of steps inside this one, such as its branches, each with its path from here."""
        for number, branch in enumerate(self.parallel):
            yield ("parallel", number), branch
        for number, case in enumerate(self.switch):
            yield ("switch", number, "steps"), case.steps
        if self.for_each is not None:
            yield ("for_each", "steps"), self.for_each.steps

    def inner_steps(self, number: int) -> Sequence[StepConfig]:
        """Return the list of steps of a branch, a case or an item; empty if it does not exist."""
        if self.for_each is not None:
            return self.for_each.steps
        return next((steps for at, (_, steps) in enumerate(self.inner_lists()) if at == number), ())

    def map_inner(self, change: Callable[[Sequence[StepConfig]], list[StepConfig]]) -> Self:
        """Return a copy of which each inner list of steps is replaced by its changed copy."""
        each = self.for_each
        update = {
            "parallel": [change(branch) for branch in self.parallel],
            "switch": [case.model_copy(update={"steps": change(case.steps)}) for case in self.switch],
            "for_each": each and each.model_copy(update={"steps": change(each.steps)}),
        }
        return self.model_copy(update=update)

    def request(self) -> EndpointConfig:
        """Return the request, merged with the step's `parameters`, `requestBody` and similar fields.

        Raises:
            ValueError: the step has no request.
        """
        if self.operation is None:
            raise ValueError(f"{self.step_id} makes no request")
        written: dict[str, Any] = {}
        query = {each.name: each.value for each in self.parameters if each.in_ == "query"}
        headers = {each.name: str(each.value) for each in self.parameters if each.in_ == "header"}
        others = {each.name: each.value for each in self.parameters if not each.in_}
        if self.request_body is not None:
            written |= {"body": self.request_body.payload, "content_type": self.request_body.content_type}
        elif others and self.operation.method not in BODYLESS and self.operation.body is None:
            written["body"], others = others, {}
        if query or others:
            written["query"] = {**(self.operation.query or {}), **query, **others}
        if headers:
            written["headers"] = {**self.operation.headers, **headers}
        if self.idempotent is not None:
            written["idempotent"] = self.idempotent
        if self.timeout_seconds is not None:
            written["timeout_seconds"] = self.timeout_seconds
        return self.operation.model_copy(update=written)


def iter_steps(steps: Sequence[StepConfig]) -> Iterator[StepConfig]:
    """Yield steps, those inside of others included."""
    for step in steps:
        yield step
        for _, inner in step.inner_lists():
            yield from iter_steps(inner)
