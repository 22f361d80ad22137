"""Steps that ask people something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.definition import find_flow
from loom_core.flow.executor.inputs import checked_inputs
from loom_core.flow.executor.outcome import Outcome, Response
from loom_core.flow.expressions import fill, text_of

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import AskConfig, ConfirmConfig, StepConfig
    from loom_core.flow.executor.frame import Frame
    from loom_core.flow.executor.scene import Scene

__all__ = ["PersonSteps"]


def _was_told(name: str, inputs: Mapping[str, Any], properties: Mapping[str, Any]) -> bool:
    """Whether the user has said an input before a step asks for it; a default is nothing that they said."""
    schema = properties.get(name)
    default = cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None
    return bool(name) and name in inputs and inputs[name] != default


class PersonSteps:
    """Does such steps of one run.

    Args:
        scene: the run.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def ask(self, frame: Frame, step: StepConfig, ask: AskConfig) -> Outcome:
        """Ask until there is an answer that fits; it may correct inputs that were not used yet."""
        state = self._scene.record.state
        scope = state.frames[frame.scope]
        flow = find_flow(self._scene.parts.file, frame.flow_id)
        name = ask.into or "answer"
        properties = cast("Mapping[str, Any]", flow.input_schema.get("properties", {}))
        is_first = not state.visited[frame.key + step.step_id]
        if is_first and _was_told(ask.into, scope.inputs, properties):
            self._scene.enter(frame, step, "")
            value = scope.inputs[ask.into]
            return Outcome(response=Response(body=value), outputs={"answer": value})
        self._scene.enter(frame, step, "")
        wanted = ask.answer if ask.answer is not None else properties.get(ask.into, {"type": "string"})
        schema = {"type": "object", "properties": {name: wanted}, "required": [name]}
        schema |= {each: flow.input_schema[each] for each in ("$defs",) if each in flow.input_schema}
        key = state.key_of(frame, step.step_id)
        problem = ""
        while True:
            text = text_of(fill(ask.question, self._scene.told(frame)))
            answered = await self._scene.questions.answer(
                key,
                text,
                tool=frame.flow_id,
                schema=schema,
                arguments=scope.inputs,
                problem=problem,
            )
            if answered.action != "accept":
                return Outcome(status="declined", problem=self._scene.wording.declined)
            if answered.content and name not in answered.content:  # a correction, and no answer yet
                problem = self._scene.questions.corrections(frame, answered.content)
                self._scene.record.given(frame, {}, answered=key)
                continue
            try:
                content = checked_inputs(flow, answered.content, schema=schema)
                value = content.pop(name)
                problem = self._scene.questions.corrections(frame, content)
            except InvalidInputError as error:
                problem = error.message
            else:
                if not problem:
                    if ask.into:
                        self._scene.record.given(frame, {ask.into: value})
                    return Outcome(response=Response(body=value), outputs={"answer": value})
            self._scene.record.given(frame, {}, answered=key)

    async def confirm(self, frame: Frame, step: StepConfig, confirm: ConfirmConfig) -> Outcome:
        """Ask for a yes or no; a yes may correct inputs that were not used yet."""
        state = self._scene.record.state
        self._scene.enter(frame, step, "")
        key, problem = state.key_of(frame, step.step_id), ""
        while True:
            text = text_of(fill(confirm.question, self._scene.told(frame)))
            decision = await self._scene.questions.decision(
                key,
                "approval",
                text,
                tool=frame.flow_id,
                arguments=state.inputs(frame),
                problem=problem,
            )
            if decision.action == "deny":
                why = decision.reason or self._scene.wording.declined
                return Outcome(status="declined", problem=why, outputs={"answer": False})
            problem = self._scene.questions.corrections(frame, decision.arguments)
            if not problem and not decision.ask_again:
                return Outcome(outputs={"answer": True})
            self._scene.record.given(frame, {}, decided=key)
