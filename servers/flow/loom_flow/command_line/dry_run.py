"""Dry run of a flow: nothing is sent, and no secret is resolved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError, LoomError, NotFoundError
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.inputs import check_known, missing_inputs, validate_inputs, with_defaults
from loom_core.flow.expressions import ExpressionValues, text_of
from loom_core.flow.expressions.template import pieces_of
from loom_core.flow.http import EndpointCaller
from loom_core.flow.responses.phrases import language_of
from loom_core.flow.understanding.moments import situation_in
from loom_core.knowledge.text.control_characters import escape_controls

if TYPE_CHECKING:
    from loom_core.flow.config import EndpointConfig, FlowFile, StepConfig
    from loom_core.flow.config.models_step import Action, CaseConfig, WaitConfig

__all__ = ["DryRun", "DryStep", "dry_run", "dry_run_text"]


class DryStep(BaseModel):
    """A step in a dry run."""

    step_id: str
    kind: str = Field(description="`operation`, or another kind of step; `none` only decides.")
    what: str = Field(
        description=(
            "The request, the tool, the flow, the text, the task, the question, or what follows when; "
            "outputs of earlier steps stay placeholders."
        )
    )
    headers: dict[str, str] = Field(description="Of a request, with `[secret]` for secrets.")
    body: str = Field(description="Of a request.")
    depends: str = Field(
        description=(
            "Why it is shown unresolved: it needs the output of an earlier step, or cannot be resolved."
        )
    )


class DryRun(BaseModel):
    """Result of a dry run, if everything succeeds."""

    flow_id: str
    inputs: dict[str, Any] = Field(description="With defaults, and small mistakes repaired.")
    missing: list[str] = Field(description="What would be asked for first.")
    confirms: bool = Field(description="Whether it would be asked if it may begin.")
    steps: list[DryStep]
    problems: list[str] = Field(description="What would be refused.")


async def dry_run(
    file: FlowFile, flow_id: str, inputs: Mapping[str, Any], *, context: Mapping[str, Any], message: str
) -> DryRun:
    """Execute a dry run of a flow.

    Raises:
        NotFoundError: there is no such flow.
    """
    flow = file.flow(flow_id)
    if flow is None:
        known = ", ".join(each.flow_id for each in file.flows if each.enabled)
        raise NotFoundError(f"There is no flow {flow_id[:200]!r}.", advice=f"There are: {known or 'none'}.")
    problems: list[str] = []
    given, variables = with_defaults(flow.input_schema, inputs), {**file.context, **context}
    zones = variables.get("timezone"), file.basic_settings.timezone
    language = language_of(message or flow.title, setting=file.basic_settings.language)
    try:
        check_known(flow, list(inputs))
        with situation_in(zones, language):
            given = validate_inputs(flow, given, whole=False)
    except InvalidInputError as error:
        problems.append(str(error))
    values = ExpressionValues(inputs=given, context=variables, message=message)
    steps: list[DryStep] = []
    async with EndpointCaller(file) as caller:
        if not flow.steps:
            steps.append(_request("request", file.endpoint_of(flow), values, caller, problems))
        for step in iter_steps(flow.steps):
            if step.operation is not None:
                steps.append(_request(step.step_id, step.request(), values, caller, problems))
            else:
                steps.append(_other(step, values))
    return DryRun(
        flow_id=flow_id,
        inputs=given,
        missing=missing_inputs(flow.input_schema, given),
        confirms=flow.confirm == "always",
        steps=steps,
        problems=problems,
    )


def dry_run_text(result: DryRun) -> str:
    """Return the result as text for people."""
    lines = [f"{result.flow_id} {_json(result.inputs)}"]
    if result.missing:
        lines.append(f"It would ask for: {', '.join(result.missing)}")
    if result.confirms:
        lines.append("It would ask whether it may begin.")
    for step in result.steps:
        kind = "decides" if step.kind == "none" else step.kind
        lines.append(f"- {step.step_id} ({kind}): {escape_controls(step.what)}".rstrip(": "))
        lines += [f"    {name}: {escape_controls(value)}" for name, value in step.headers.items()]
        if step.body:
            lines.append(f"    {escape_controls(step.body)}")
        if step.depends:
            lines.append(f"    (unresolved: {escape_controls(step.depends)})")
    return "\n".join([*lines, *(f"Problem: {each}" for each in result.problems)])


def _request(
    step_id: str,
    endpoint: EndpointConfig,
    values: ExpressionValues,
    caller: EndpointCaller,
    problems: list[str],
) -> DryStep:
    try:
        caller.check(endpoint)
    except LoomError as error:
        problems.append(f"{step_id}: {error}")
    try:
        request = caller.preview(endpoint, values, step_id=step_id)
    except LoomError as error:
        body = "" if endpoint.body is None else _json(endpoint.body)
        what = f"{endpoint.method} {endpoint.url}"
        return DryStep(
            step_id=step_id, kind="operation", what=what, headers={}, body=body, depends=error.message
        )
    needs = any(each in endpoint.model_dump_json() for each in ("$steps", "$item", "$index"))
    depends = "it may need the output of an earlier step, or an item" if needs else ""
    return DryStep(
        step_id=step_id,
        kind="operation",
        what=f"{request.method} {request.url}",
        headers=dict(request.headers),
        body=request.content.decode("utf-8", "replace"),
        depends=depends,
    )


def _describe_wait(wait: WaitConfig, values: ExpressionValues) -> str:
    if wait.seconds is not None:
        return f"{wait.seconds:g} s"
    return " ".join(
        filter(None, (wait.event or _fill_known(wait.until, values), _fill_known(wait.key, values)))
    )


def _other(step: StepConfig, values: ExpressionValues) -> DryStep:
    what = {
        "tool": step.tool,
        "workflow": step.workflow_id,
        "switch": "; ".join(map(_describe_case, step.switch)),
        "for_each": f"{_json(step.for_each.in_)}: {step.for_each.steps[0].step_id}" if step.for_each else "",
        "llm": _fill_known(step.llm.prompt, values) if step.llm else "",
        "say": _fill_known(step.say, values),
        "ask": _fill_known(step.ask.question, values) if step.ask else "",
        "confirm": _fill_known(step.confirm.question, values) if step.confirm else "",
        "wait_for": _describe_wait(step.wait_for, values) if step.wait_for else "",
        "handover": _fill_known(step.handover.about, values) if step.handover else "",
        "none": "; ".join(map(_describe_action, step.on_success)),
        "parallel": ", ".join(branch[0].step_id for branch in step.parallel if branch),
    }
    return DryStep(
        step_id=step.step_id,
        kind=step.kind,
        what=what.get(step.kind, ""),
        headers={},
        body=_json(step.arguments) if step.arguments else "",
        depends="",
    )


def _fill_known(template: str, values: ExpressionValues) -> str:
    """Fill known values into a text; outputs of steps remain placeholders."""
    return "".join(
        each if isinstance(each, str) else text_of(each.value(values)) or f"{{{each.source}}}"
        for each in pieces_of(template)
    )


def _describe_action(action: Action) -> str:
    """Describe an action and its criteria in a line."""
    conditions = " and ".join(each.condition for each in action.criteria)
    return f"{action.type} {action.step_id}".rstrip() + (f" if {conditions}" if conditions else "")


def _describe_case(case: CaseConfig) -> str:
    """Describe a case and its criteria in a line."""
    conditions = " and ".join(each.condition for each in case.when or ())
    return f"{case.steps[0].step_id} {f'if {conditions}' if conditions else 'otherwise'}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
