"""Runner of single steps, of all kinds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NetError, StoreError
from loom_core.flow.executor.definition import compute_digests, flow_steps, step_title
from loom_core.flow.executor.failures import request_failure_message
from loom_core.flow.executor.inputs import names_input, validate_inputs, with_defaults, with_properties
from loom_core.flow.executor.questions import DeclinedError
from loom_core.flow.executor.state import Frame, StepStatus
from loom_core.flow.executor.steps.context import RunScope, StepOutcome, StepResponse, is_begun
from loom_core.flow.executor.steps.llm import ask_model
from loom_core.flow.executor.steps.outside import OutsideSteps
from loom_core.flow.executor.steps.tool import ToolStep, ToolStepContext
from loom_core.flow.expressions import ExpressionValues, all_hold, evaluate, fill, text_of
from loom_core.flow.http.request import is_lost
from loom_core.flow.http.response import interpret_response
from loom_core.flow.responses.phrases import Phrases, format_value
from loom_core.flow.understanding.choices import (
    OFFERED,
    SHOWN,
    choices_of,
    choices_schema,
    choices_text,
    find_choices,
)
from loom_core.net.retry import retry_after
from loom_core.observability.spans import FLOW_STEP
from loom_core.observability.tracing import record_failure, span
from loom_core.runs.run import RunUsage
from loom_core.tools.interface import CallContext

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.config.models_step import (
        AskConfig,
        ConfirmConfig,
        ForEachConfig,
        LLMConfig,
        OptionsConfig,
        StepConfig,
    )
    from loom_core.flow.understanding.choices import ValueChoice
    from loom_core.runs.human_broker import HumanBroker
    from loom_core.tools.permission.permissions import ToolIdentity

__all__ = ["NestedSteps", "StepRunner", "UserSteps"]

_log = logging.getLogger(__name__)

_ABANDON_SECONDS = 10.0
_HARMLESS = frozenset({"GET", "HEAD"})


class StepRunner:
    """Runner of the steps of one run.

    Args:
        scene: the run.
        people: human-in-the-loop broker for tools' questions.
        run_frame: executes a list of steps.
    """

    def __init__(
        self, scene: RunScope, people: HumanBroker, *, run_frame: Callable[[Frame], Awaitable[None]]
    ) -> None:
        self._scene = scene
        self._parts = scene.parts
        self._record = scene.record
        self._inner = NestedSteps(scene, run_frame)
        self._person = UserSteps(scene)
        self._outside = OutsideSteps(scene)
        pipeline = scene.parts.pipeline(scene.record.run)
        for tool in scene.record.state.approved:
            pipeline.remember(tool)
        self._tools = ToolStepContext(
            record=scene.record,
            people=people,
            questions=scene.questions,
            pipeline=pipeline,
            starting=self.record_start,
            standing=scene.idling.stop_clocks,
            wording=scene.wording,
        )
        self._under_way: dict[str, bool] = {}  # running steps with side effects; whether each is risky
        self._abandoned: set[str] = set()  # keys of calls whose tools know that no caller waits
        self._quiet = anyio.Event()
        self._leaving = False

    async def detach(self) -> None:
        """Start no more steps, and wait until none runs that must not be done twice."""
        self._leaving = True
        while any(self._under_way.values()):
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def stop(self) -> bool:
        """Start no more steps; return whether one with side effects is running."""
        self._leaving = True
        return bool(self._under_way)

    async def wait_until_settled(self) -> None:
        """Wait until no step with side effects is running."""
        while self._under_way:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def abandon(self) -> None:
        """Abandon running tool calls, because the run has ended."""
        state = self._record.state
        for frame in state.frames.values():
            for step in frame.steps.values():
                key = state.key_of(frame, step.step_id)
                if step.begun and step.tool and key not in self._abandoned:
                    self._abandoned.add(key)
                    context = CallContext(run_id=self._record.run.id, call_id=key)
                    try:
                        with anyio.move_on_after(_ABANDON_SECONDS):
                            await self._parts.toolbox.find(step.tool).abandon(context=context)
                    except LoomError as error:
                        _log.warning("work for the call %s may continue: %s", key, error)

    async def record_start(
        self,
        frame: Frame,
        step_id: str,
        what: str,
        *,
        changes: bool,
        risky: bool,
        approved: ToolIdentity | bool,
        tool: str = "",
    ) -> None:
        """Record that a step starts; if it is risky, the journal is on disk when this returns."""
        if self._leaving:
            await anyio.sleep_forever()
        self._record.record_step_start(
            frame, step_id, what, changes=changes, risky=risky, approved=approved, tool=tool
        )
        self._record.record_usage(RunUsage(tool_calls=1))
        if changes:
            self._under_way[frame.path + step_id] = risky
        await self._record.commit(durable=risky)

    def record_end(self, frame: Frame, step_id: str) -> None:
        """Note that the result of a step is recorded."""
        self._under_way.pop(frame.path + step_id, None)
        self._quiet.set()

    async def run(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Execute a step and return its outcome; anything already in the journal is not repeated.

        Raises:
            StoreError: the journal cannot be written.
        """
        attributes = {
            "loom.flow.step": frame.path + step.step_id,
            "loom.flow.step.kind": step.kind,
            "gen_ai.workflow.name": frame.flow_id,
            "loom.run.id": self._record.run.id,
        }
        with span(FLOW_STEP, attributes) as told:
            outcome = await self._run_limited(frame, step)
            told.set_attribute("loom.flow.step.status", outcome.status)
            if outcome.status in {"failure", "unknown"}:
                record_failure(told, f"step_{outcome.status}")
            return outcome

    async def _run_limited(self, frame: Frame, step: StepConfig) -> StepOutcome:
        timed = step.kind in {"tool", "workflow", "llm", *_CONTAINERS}
        with self._scene.idling.limit_time(step.timeout_seconds if timed else None) as scope:
            try:
                return await self._run_by_kind(frame, step)
            except DeclinedError as error:
                return StepOutcome(status="declined", problem=error.reason)
            except StoreError:
                raise
            except LoomError as error:
                return StepOutcome(status="failure", problem=str(error), said=self._scene.wording.broken)
        assert scope.cancelled_caught
        begun = frame.steps.get(step.step_id)
        sent = begun is not None and begun.begun and begun.changes
        unknown = sent and begun is not None and begun.risky
        problem = f"It exceeded its timeout of {step.timeout_seconds:g} s."
        return StepOutcome(
            status="unknown" if unknown else "failure",
            problem=problem,
            said=self._scene.wording.too_long,
            maybe_done=sent,
        )

    async def _run_by_kind(self, frame: Frame, step: StepConfig) -> StepOutcome:
        match step.kind:
            case "operation":
                return await self._run_operation(frame, step, step.request())
            case "tool":
                return await self._run_tool(frame, step)
            case "workflow":
                return await self._inner.run_workflow(frame, step)
            case "parallel" | "switch" | "for_each":
                return await self._inner.run_lists(frame, step)
            case "wait_for" | "handover":
                return await self._outside.run(frame, step)
            case _:
                if step.llm is not None:
                    return await self._run_llm(frame, step, step.llm)
                if step.say:
                    text = text_of(fill(step.say, self._scene.values_for_text(frame)))
                    self._scene.enter(frame, step, text)
                    return StepOutcome(told=text)
                if step.ask is not None:
                    return await self._person.ask(frame, step, step.ask)
                if step.confirm:
                    return await self._person.confirm(frame, step, step.confirm)
                self._scene.enter(frame, step, "")
                return StepOutcome()

    async def _run_operation(self, frame: Frame, step: StepConfig, endpoint: EndpointConfig) -> StepOutcome:
        values = self._scene.values(frame)
        what = f"{endpoint.method} {endpoint.url.partition('?')[0]}".strip()
        risky = not endpoint.repeatable
        again = await self._confirm_repeat(frame, step)
        if isinstance(again, StepOutcome):
            return again
        key = self._record.state.key_of(frame, step.step_id)
        changes = endpoint.method not in _HARMLESS
        if changes:
            arguments = _payload_for_user(endpoint, values)
            try:
                await self._parts.audit.record_request(
                    "start", self._record.run, what, key=key, arguments=arguments
                )
            except LoomError as error:
                self._scene.enter(frame, step, what)
                return StepOutcome(status="failure", problem=str(error), said=self._scene.wording.broken)
        await self.record_start(frame, step.step_id, what, changes=changes, risky=risky, approved=again)
        ended = partial(self._parts.audit.record_request, "end", self._record.run, what, key=key)
        began = perf_counter()
        try:
            outcome = await self._send(endpoint, values, key, seconds=step.timeout_seconds, risky=risky)
        except LoomError:  # the request could not be built, and nothing was sent
            if changes:
                await ended(outcome="failure", seconds=perf_counter() - began)
            raise
        if changes:
            await ended(outcome=outcome.status, seconds=perf_counter() - began)
        return outcome

    async def _send(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        key: str,
        *,
        seconds: float | None,
        risky: bool,
    ) -> StepOutcome:
        """Send a request, and interpret the response."""
        changes = endpoint.method not in _HARMLESS
        try:
            result = await self._parts.caller.call(
                endpoint, values, run_id=self._record.run.id, step_id=key, seconds=seconds
            )
        except NetError as error:
            lost = is_lost(error)
            return StepOutcome(
                status="unknown" if risky and lost else "failure",
                problem=str(error),
                said=request_failure_message(error.failure, self._scene.wording, unsure=changes and lost),
                maybe_done=lost,
            )
        response = StepResponse(result.status, result.headers, result.body)
        try:
            judgement = interpret_response(endpoint, result, values)
        except LoomError as error:
            said = self._scene.wording.unusable
            return StepOutcome(response=response).unreadable(str(error), said=said, risky=risky)
        if judgement.is_success:
            return StepOutcome(response=response, outputs={"result": judgement.result})
        return StepOutcome(
            status="unknown" if risky and is_lost(result.status) else "failure",
            response=response,
            problem=judgement.problem,
            said=self._scene.wording.part_of(judgement.told)
            or request_failure_message(
                result.status, self._scene.wording, unsure=changes and is_lost(result.status)
            ),
            retry_after=retry_after(result.headers),
            maybe_done=result.maybe_done,
        )

    async def _confirm_repeat(self, frame: Frame, step: StepConfig) -> StepOutcome | bool:
        """Ask the user whether to repeat a step that may have been done; return whether it is approved.

        The question has the step's title and the inputs, not values derived from them.
        """
        before = frame.steps.get(step.step_id)
        if before is None:
            return False
        if not before.risky or not (before.begun or before.status == "unknown"):
            return before.approved and (before.begun or before.due is not None)
        decision = await self._scene.questions.request_decision(
            self._record.state.key_of(frame, step.step_id),
            "unknown",
            self._scene.wording.unknown.format(
                step=step_title(self._parts.file, frame.flow_id, step.step_id)
            ),
            tool=frame.flow_id,
            arguments=self._record.state.inputs(frame),
        )
        if decision.action == "deny":
            why = "It is not known whether it was done, and it was not to be repeated."
            return StepOutcome(status="unknown", problem=why, said=self._scene.wording.not_again, final=True)
        return True

    async def _run_tool(self, frame: Frame, step: StepConfig) -> StepOutcome:
        values, state = self._scene.values(frame), self._record.state
        key = state.key_of(frame, step.step_id)
        arguments = cast("dict[str, Any]", fill(step.arguments, values))
        if not step.parameters:
            known = self._parts.toolbox.find(step.tool).args_schema.get("properties", {})
            arguments = {name: value for name, value in values.inputs.items() if name in known}
        again = await self._confirm_repeat(frame, step)
        if isinstance(again, StepOutcome):
            return again
        call = ToolStep(
            self._tools,
            frame,
            step.step_id,
            key=key,
            approved=again,
            question=self._question(frame, step, arguments),
            asks=bool(step.confirm),
        )
        planned = await call.plan(step.tool, arguments)
        outcome = await call.outcome(planned)
        if not is_begun(frame, step.step_id):  # the tool was not called, which is recorded all the same
            self._scene.enter(frame, step, step.tool)
        return outcome

    async def _run_llm(self, frame: Frame, step: StepConfig, asked: LLMConfig) -> StepOutcome:
        """Ask the model; the journaled result is not asked for again."""
        llm, record = self._parts.llm, self._record
        self._scene.enter(frame, step, "" if llm is None else f"{llm.name} {llm.model}".rstrip())
        if llm is None:
            raise ConfigError(
                "The step needs a language model, and none is configured.",
                advice="Name a `model` in the flow file, or start the server with --provider.",
            )
        await record.commit()
        result = await ask_model(
            llm,
            asked,
            self._scene.values(frame),
            on_response=lambda response: record.record_usage(RunUsage(usage=response.usage)),
        )
        return StepOutcome(response=StepResponse(body=result), outputs={"result": result})

    def _question(self, frame: Frame, step: StepConfig, arguments: Mapping[str, Any]) -> str:
        """Return the question before a tool call: as the file words it, else one with the arguments."""
        if step.confirm:
            return text_of(fill(step.confirm.question, self._scene.values(frame)))
        wording = self._scene.wording
        title = step.description or self._parts.file.find_flow(frame.flow_id).title
        schema = self._parts.toolbox.find(step.tool).args_schema
        text = wording.confirm.format(step=title)
        return Phrases.of(wording.language).with_values(text, arguments, schema)


def _payload_for_user(endpoint: EndpointConfig, values: ExpressionValues) -> dict[str, Any]:
    """Return the contents of a request for people; references to secrets remain references."""
    if endpoint.sends_inputs:
        return dict(values.inputs)
    told = {"query": fill(endpoint.query, values), "body": fill(endpoint.body, values)}
    return {name: value for name, value in told.items() if value is not None}


_CONTAINERS = frozenset({"parallel", "switch", "for_each"})
"""Kinds of steps that have lists of steps inside them."""

_SHOWN = 5  # reasons of failed lists of steps

_WORST: tuple[StepStatus, ...] = ("unknown", "failure", "declined", "running", "success")


class NestedSteps:
    """Runner of steps that contain other steps.

    Args:
        scene: the run.
        run_frame: executes a list of steps.
    """

    def __init__(self, scene: RunScope, run_frame: Callable[[Frame], Awaitable[None]]) -> None:
        self._scene = scene
        self._run_frame = run_frame

    async def run_workflow(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Run another flow as a part of this run."""
        state, file = self._scene.record.state, self._scene.parts.file
        flow = file.find_flow(step.workflow_id)
        path = f"{frame.path}{step.step_id}/"
        self._scene.enter(frame, step, flow.flow_id)
        inner = state.frames.get(path)
        if inner is None:
            if self._depth(frame) >= self._scene.parts.limits.depth:
                return StepOutcome(status="failure", problem="Flows are nested too deeply.")
            values = self._scene.values(frame)
            given = cast("dict[str, Any]", fill(step.arguments, values))
            if not step.parameters:
                known = cast("Mapping[str, Any]", flow.input_schema.get("properties", {}))
                given = {name: value for name, value in values.inputs.items() if name in known}
            given = validate_inputs(flow, with_defaults(flow.input_schema, given), whole=False)
            steps = flow_steps(file, flow)
            inner = Frame(
                path=path,
                parent=frame.path,
                step=step.step_id,
                key=f"{state.key_of(frame, step.step_id)}/",
                flow_id=flow.flow_id,
                scope=path,
                inputs=given,
                digests=compute_digests(steps),
                at=steps[0].step_id,
            )
            self._scene.record.record_flow_start(
                inner, name=flow.title, message=state.message, config=state.config
            )
        await self._scene.questions.request_inputs(inner, flow)
        if flow.confirm == "always":
            await self._scene.questions.confirm_begin(inner, flow, "")
        await self._run_frame(inner)
        result, outputs = self._scene.result_of(inner)
        if inner.ended == "failure":
            status = self._scene.failure_status(inner)
            return StepOutcome(
                status=status,
                problem=self._scene.problem_of(inner),
                said=self._scene.message_of(inner),
                final=status == "unknown",
            )
        return StepOutcome(response=StepResponse(body=result), outputs={**outputs, "result": result})

    async def run_lists(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Run the lists of steps inside a step; a failed one does not cancel the others."""
        self._scene.enter(frame, step, "")
        inside, each = self._frames(frame, step), step.for_each
        at_once = each.parallel if each is not None else len(inside)
        await self._run_concurrently([inner for inner in inside if not inner.ended], at_once)
        failed = [inner for inner in inside if inner.ended == "failure"]
        outputs = self._outputs(step, inside)
        if not failed:
            return StepOutcome(outputs=outputs)
        kinds: set[StepStatus] = {self._scene.failure_status(inner) for inner in failed}
        status: StepStatus = next(kind for kind in _WORST if kind in kinds)
        problems = [self._scene.problem_of(inner) for inner in failed]
        messages = [self._scene.message_of(inner) for inner in failed]
        if each is not None:
            count = {"failed": len(failed), "all": len(inside)}
            problems.insert(0, "{failed} of {all} items have failed.".format(**count))
            messages.insert(0, self._scene.wording.items_failed.format(**count))
        return StepOutcome(
            status=status,
            outputs=outputs,
            problem=" ".join(list(dict.fromkeys(problems))[:_SHOWN]),
            said=self._scene.wording.space.join(list(dict.fromkeys(messages))[:_SHOWN]),
            final=status == "unknown",
        )

    def _outputs(self, step: StepConfig, inside: Sequence[Frame]) -> dict[str, Any]:
        """Return the outputs of a step with lists of steps inside it."""
        results = [
            self._scene.last_result(inner) if inner.ended == "success" else None
            for inner in (inside if step.switch or step.for_each else ())
        ]
        if step.for_each is not None:
            return {"results": results}
        return {"result": results[0] if results else None} if step.switch else {}

    def _frames(self, frame: Frame, step: StepConfig) -> list[Frame]:
        """Return the frames of the lists to run inside a step.

        Raises:
            InvalidInputError: `for_each` has no list, or one with too many items.
        """
        if step.switch:
            return [self._frame(frame, step, number) for number in self._case(frame, step)]
        if step.for_each is not None:
            items = enumerate(self._items(frame, step.for_each))
            return [self._frame(frame, step, number, [item]) for number, item in items]
        return [self._frame(frame, step, number) for number in range(len(step.parallel))]

    def _items(self, frame: Frame, each: ForEachConfig) -> Sequence[Any]:
        """Return the items of `for_each`."""
        values = self._scene.values(frame)
        items = evaluate(each.in_, values) if isinstance(each.in_, str) else fill(each.in_, values)
        if not isinstance(items, list):
            raise InvalidInputError(f"{each.in_} is not a list, so it has no items.")
        if len(items) > each.limit:
            raise InvalidInputError(
                f"There are {len(items)} items, more than the limit of {each.limit}: nothing was done.",
                advice="Pass fewer items, or set a higher `limit`.",
            )
        return items

    def _case(self, frame: Frame, step: StepConfig) -> Sequence[int]:
        """Return the number of the case of `switch` to run, as one or none; a case that has started stays."""
        if inside := self._scene.record.state.frames_inside(frame.path, step.step_id):
            return [inner.number for inner in inside]
        values = self._scene.values(frame)
        for number, case in enumerate(step.switch):
            if all_hold(case.when or (), values):
                return [number]
        return []

    def _frame(self, frame: Frame, step: StepConfig, number: int, item: Sequence[Any] = ()) -> Frame:
        """Return the frame of a list of steps inside a step, and record its start if it has not started."""
        state, path = self._scene.record.state, f"{frame.path}{step.step_id}/{number}/"
        if path not in state.frames:
            steps = step.inner_steps(number)
            inner = Frame(
                path=path,
                parent=frame.path,
                step=step.step_id,
                key=f"{state.key_of(frame, step.step_id)}/{number}/",
                flow_id=frame.flow_id,
                scope=frame.scope,
                inputs={},
                digests=compute_digests(steps),
                at=steps[0].step_id,
                item=list(item),
            )
            self._scene.record.record_branch_start(inner)
        return state.frames[path]

    async def _run_concurrently(self, frames: Sequence[Frame], at_once: int) -> None:
        """Run lists of steps, so many of them at a time."""
        waiting, left = iter(frames), min(len(frames), at_once)

        async def work() -> None:
            nonlocal left
            for frame in waiting:
                await self._run_frame(frame)
                self._scene.record.record_branch_end(frame)
            left -= 1
            if left > 0:
                self._scene.idling.remove_task()

        if left <= 1:  # what it raises, such as that the flow was rewound, is in no group
            await work()
            return
        self._scene.idling.add_tasks(left)
        async with anyio.create_task_group() as group:
            for _ in range(left):
                group.start_soon(work)

    def _depth(self, frame: Frame) -> int:
        depth = 1
        while frame.parent is not None:
            outer = self._scene.record.state.frames[frame.parent]
            depth += frame.scope != outer.scope
            frame = outer
        return depth


def _is_input_given(name: str, inputs: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Return whether the user gave an input before a step asks for it; a default does not count."""
    schema = properties.get(name)
    default = cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None
    return bool(name) and name in inputs and inputs[name] != default


def _answer_schema(name: str, wanted: object, flow: FlowConfig) -> dict[str, Any]:
    """Return the schema of an answer of one value."""
    schema = {"type": "object", "properties": {name: wanted}, "required": [name]}
    return schema | {each: flow.input_schema[each] for each in ("$defs",) if each in flow.input_schema}


def _find_choice(value: object, choices: Sequence[ValueChoice]) -> list[ValueChoice]:
    """Return the choices that a value, or a text of the user, may mean."""
    found = [each for each in choices if each.value == value]
    return find_choices(value, choices) if isinstance(value, str) and not found else found


def _is_answer_kept(ask: AskConfig, step: StepConfig, frame: Frame) -> bool:
    """Return whether a correction of other inputs leaves an answer as it is.

    It does not if the user has given the answer to this question, and the question is another one now.
    """
    place = frame.rewound.get(step.step_id)
    if place is None or ask.options is not None:  # choices are offered again unless they have the answer
        return place is not None
    is_answered_here = frame.given.get(ask.into, -1) >= place and ask.into not in frame.corrected
    is_other = "$steps" in ask.question or any(names_input(ask.question, name) for name in frame.corrected)
    return not (is_answered_here and is_other)


class UserSteps:
    """Runner of steps that ask the user.

    Args:
        scene: the run.
    """

    def __init__(self, scene: RunScope) -> None:
        self._scene = scene

    async def ask(self, frame: Frame, step: StepConfig, ask: AskConfig) -> StepOutcome:
        """Ask until an answer is valid; it may correct inputs that no step has used yet."""
        state = self._scene.record.state
        scope = state.frames[frame.scope]
        flow = self._scene.parts.file.find_flow(frame.flow_id)
        name = ask.into or "answer"
        properties = cast("Mapping[str, Any]", flow.input_schema.get("properties", {}))
        is_first = not state.visited[frame.key + step.step_id] or _is_answer_kept(ask, step, frame)
        given = is_first and _is_input_given(ask.into, scope.inputs, properties)
        self._scene.enter(frame, step, "")
        if ask.options is not None:
            known = scope.inputs[ask.into] if given else None
            return await self._ask_choice(frame, step, ask, ask.options, known=known)
        if given:
            value = scope.inputs[ask.into]
            return StepOutcome(response=StepResponse(body=value), outputs={"answer": value})
        wanted = ask.answer if ask.answer is not None else properties.get(ask.into, {"type": "string"})
        schema = _answer_schema(name, wanted, flow)
        problem = ""
        while True:
            content, problem = await self._request(frame, step, ask, schema, problem=problem)
            if content is None:
                return StepOutcome(status="declined", problem=self._scene.wording.declined)
            if name in content and not problem:
                value = content[name]
                if ask.into:
                    self._scene.record.record_inputs(frame, {ask.into: value})
                return StepOutcome(response=StepResponse(body=value), outputs={"answer": value})
            key = state.key_of(frame, step.step_id)
            self._scene.record.record_inputs(frame, {}, answered=key)

    async def _ask_choice(
        self,
        frame: Frame,
        step: StepConfig,
        ask: AskConfig,
        options: OptionsConfig,
        *,
        known: Any,  # noqa: ANN401 - JSON
    ) -> StepOutcome:
        """Ask for one of the choices of a list; words that fit several of them narrow it down.

        Args:
            frame: the frame.
            step: the step.
            ask: its question.
            options: its choices.
            known: the value that the user gave before; None for none.
        """
        wording, state = self._scene.wording, self._scene.record.state
        flow, phrases = self._scene.parts.file.find_flow(frame.flow_id), Phrases.of(wording.language)
        choices = self._scene.choices(frame, options)
        if not choices:
            said = text_of(fill(options.none, self._scene.values_for_text(frame))) or wording.no_choices
            return StepOutcome(status="failure", problem="There is nothing to choose from.", said=said)
        name, key = ask.into or "answer", state.key_of(frame, step.step_id)
        title = with_properties(flow.input_schema, {name: {}})["properties"][name]
        found, before = _find_choice(known, choices), ""
        if known is not None and len(found) != 1:
            before = wording.several if found else phrases.unoffered.format(said=format_value(known))
        while len(found) != 1:
            asked = found or choices
            more = wording.more.format(count=len(asked) - SHOWN) if len(asked) > SHOWN else ""
            schema = _answer_schema(name, {**title, **choices_schema(asked, offered=len(choices))}, flow)
            content, problem = await self._request(
                frame,
                step,
                ask,
                schema,
                after="\n".join(filter(None, (choices_text(asked, wording.language), more))),
                before=before,
            )
            if content is None:
                return StepOutcome(status="declined", problem=wording.declined)
            before = problem
            if not problem and (answer := content.get(name)) is not None:
                asked = choices_of(state.asked[key].schema["properties"][name])  # maybe by another process
                found = _find_choice(answer, asked) or _find_choice(answer, choices)
                before = wording.several if found else phrases.unoffered.format(said=format_value(answer))
            self._scene.record.record_inputs(frame, {}, answered=key)
        chosen = found[0]
        if ask.into:
            self._scene.record.record_inputs(frame, {ask.into: chosen.value})
        label = chosen.label_in(wording.language)
        return StepOutcome(
            response=StepResponse(body=chosen.value), outputs={"answer": chosen.value, "label": label}
        )

    async def _request(
        self,
        frame: Frame,
        step: StepConfig,
        ask: AskConfig,
        schema: Mapping[str, Any],
        *,
        problem: str = "",
        before: str = "",
        after: str = "",
    ) -> tuple[dict[str, Any] | None, str]:
        """Ask once, and apply the corrections that come with the answer.

        Args:
            frame: the frame.
            step: the step.
            ask: its question.
            schema: schema of the answer.
            problem: why the last answer was rejected.
            before: what is said before the question in its place; by default why a later step has failed.
            after: the list of choices.

        Returns:
            The answer, None if the user declines; and why it is rejected.
        """
        scene, flow = self._scene, self._scene.parts.file.find_flow(frame.flow_id)
        (name,) = schema["required"]
        text = text_of(fill(ask.question, scene.values_for_text(frame)))
        offered = scene.offered_inputs(frame)
        answered = await scene.questions.request_answer(
            scene.record.state.key_of(frame, step.step_id),
            "\n".join(filter(None, (text, after))),
            tool=frame.flow_id,
            schema=schema,
            arguments=scene.record.state.inputs(frame),
            arguments_schema={"properties": offered} if offered else None,
            problem=problem,
            before=before or ("" if problem else scene.reason_to_ask_again(frame, step)),
        )
        if answered.action != "accept":
            return None, ""
        content = dict(answered.content)
        try:
            if (name in content or not content) and OFFERED not in schema["properties"][name]:
                content = validate_inputs(flow, content, schema=schema)
            corrected = {each: value for each, value in content.items() if each != name}
            return content, scene.questions.apply_corrections(frame, corrected, offered=offered)
        except InvalidInputError as error:
            return {}, error.message

    async def confirm(self, frame: Frame, step: StepConfig, confirm: ConfirmConfig) -> StepOutcome:
        """Ask a yes-or-no question; a yes may correct inputs that no step has used yet."""
        state = self._scene.record.state
        self._scene.enter(frame, step, "")
        key, problem = state.key_of(frame, step.step_id), ""
        while True:
            text = text_of(fill(confirm.question, self._scene.values_for_text(frame)))
            offered = self._scene.offered_inputs(frame)
            decision = await self._scene.questions.request_decision(
                key,
                "approval",
                text,
                tool=frame.flow_id,
                arguments=state.inputs(frame),
                arguments_schema={"properties": offered} if offered else None,
                problem=problem,
            )
            if decision.action == "deny":
                why = decision.reason or self._scene.wording.declined
                return StepOutcome(status="declined", problem=why, outputs={"answer": False})
            problem = self._scene.questions.apply_corrections(frame, decision.arguments, offered=offered)
            if not problem and not decision.ask_again:
                return StepOutcome(outputs={"answer": True})
            self._scene.record.record_inputs(frame, {}, decided=key)
