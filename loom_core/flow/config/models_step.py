"""Models of a flow's step, with the names of Arazzo 1.1 where it has a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Field, JsonValue

from loom_core.flow.config.models_endpoint import (
    BODYLESS,
    ConfigSection,
    ContentType,
    EndpointConfig,
    Id,
    Schema,
    WrittenCriterion,
    WrittenEndpoint,
)

__all__ = [
    "Action",
    "AskConfig",
    "ConfirmConfig",
    "HandoverConfig",
    "Parameter",
    "RequestBody",
    "StepConfig",
    "StepKind",
    "WaitConfig",
]

StepKind: TypeAlias = Literal[
    "operation", "tool", "workflow", "parallel", "ask", "confirm", "wait_for", "handover", "none"
]
"""The kind of a step; a step of kind `none` only evaluates criteria, sets outputs, or jumps."""

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
            "`end`: the flow or the branch ends successfully; `goto`: continue with another step; `retry`: "
            "repeat the step, after a failure only."
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


class AskConfig(ConfigSection):
    """A question to the user that the run waits for; a text is the question."""

    question: str = Field(min_length=1, description="A template.")
    answer: Schema | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of the answer, which is one value; by default that of the input `into`, "
        "else a text.",
    )
    into: str = Field(
        default="", description="The input that the answer becomes; it is the output `answer` in any case."
    )


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


def _parse_handover(written: object) -> object:
    return {"text": written} if isinstance(written, str) else written


def _parse_question(written: object) -> object:
    return {"question": written} if isinstance(written, str) else written


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
_Ask = Annotated[AskConfig, BeforeValidator(_parse_question, json_schema_input_type=AskConfig | str)]
_Confirm = Annotated[
    ConfirmConfig, BeforeValidator(_parse_question, json_schema_input_type=ConfirmConfig | str)
]
_Handover = Annotated[
    HandoverConfig, BeforeValidator(_parse_handover, json_schema_input_type=HandoverConfig | str)
]


class StepConfig(ConfigSection):
    """A step of one kind: `operation`, `tool`, `workflowId`, `parallel`, `ask`, `confirm`, and so on.

    Only `tool` and `confirm` may be combined.
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
            "ends in `?` (`$response.body#/note?`) and is then null. By default, a request, a tool and a "
            "flow have the output `result`, a question and a confirmation `answer`, an event `result`, and a "
            "handover the agreed values as `result` and the `operator`."
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
    def kind(self) -> StepKind:
        """Kind of the step."""
        if self.operation is not None:
            return "operation"
        if self.tool:
            return "tool"
        if self.workflow_id:
            return "workflow"
        if self.parallel:
            return "parallel"
        if self.ask is not None:
            return "ask"
        if self.wait_for is not None:
            return "wait_for"
        if self.handover is not None:
            return "handover"
        return "confirm" if self.confirm else "none"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments for a tool or another flow, by name."""
        return {each.name: each.value for each in self.parameters}

    def request(self) -> EndpointConfig:
        """Return the request, merged with the step's `parameters`, `requestBody` and similar fields.

        Raises:
            ValueError: the step has no request.
        """
        if self.operation is None:
            raise ValueError(f"{self.step_id} makes no request")
        written: dict[str, Any] = {}
        placed = {each.name: each.value for each in self.parameters if each.in_ != "header"}
        headers = {each.name: str(each.value) for each in self.parameters if each.in_ == "header"}
        unplaced = all(not each.in_ for each in self.parameters)
        if self.request_body is not None:
            written |= {"body": self.request_body.payload, "content_type": self.request_body.content_type}
        elif placed and unplaced and self.operation.method not in BODYLESS and self.operation.body is None:
            written["body"], placed = placed, {}
        if placed:
            written["query"] = {**(self.operation.query or {}), **placed}
        if headers:
            written["headers"] = {**self.operation.headers, **headers}
        if self.idempotent is not None:
            written["idempotent"] = self.idempotent
        if self.timeout_seconds is not None:
            written["timeout_seconds"] = self.timeout_seconds
        return self.operation.model_copy(update=written)
