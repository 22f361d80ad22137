"""The context of the steps of a run: what expressions speak of; and what comes of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from loom_core.flow.executor.definition import REQUEST_STEP
from loom_core.flow.executor.state import Frame, StepStatus
from loom_core.flow.expressions import ExpressionValues, evaluate
from loom_core.flow.understanding.choices import with_titles

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import StepConfig
    from loom_core.flow.executor.activity import RunActivity
    from loom_core.flow.executor.dependencies import FlowDependencies
    from loom_core.flow.executor.messages import FlowMessages
    from loom_core.flow.executor.questions import FlowQuestions
    from loom_core.flow.executor.recorder import FlowRecorder

__all__ = ["RunScope", "StepOutcome", "StepResponse", "is_begun"]


@dataclass(frozen=True, slots=True)
class StepResponse:
    """What answered: an HTTP server; or a tool or a flow, whose answer is taken for a body.

    Attributes:
        status: HTTP status; 200 where there is none.
        headers: by name in lower case.
        body: JSON, or a text.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What came of doing a step once.

    Attributes:
        status: how it ended, as far as the step itself says; its criteria may find it a failure.
        response: what answered; None where nothing did.
        outputs: what it gives besides what its configuration names.
        problem: why it failed.
        said: what users are told of that; empty where it is not theirs to know.
        retry_after: seconds that a server asks to wait.
        maybe_done: whether it may have been done though it is no success, as it always may where that is
            unknown.
        final: whether it is not to be tried again, whatever the actions say.
    """

    status: StepStatus = "success"
    response: StepResponse | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""
    said: str = ""
    retry_after: float | None = None
    maybe_done: bool = False
    final: bool = False

    def unreadable(self, problem: str, *, said: str, risky: bool) -> StepOutcome:
        """The same, where what came of it cannot be read, though it may well have been done.

        Args:
            problem: why.
            said: what users are told.
            risky: whether it must not be done twice.
        """
        return replace(
            self,
            status="unknown" if risky else "failure",
            problem=problem,
            said=said,
            maybe_done=True,
            retry_after=None,
        )


class RunScope:
    """One run, as its steps see it.

    Args:
        parts: what drives it.
        record: of it.
        questions: ask people.
        idling: knows whether anything else goes on.
        wording: what is said to people.
    """

    def __init__(
        self,
        parts: FlowDependencies,
        record: FlowRecorder,
        *,
        questions: FlowQuestions,
        idling: RunActivity,
        wording: FlowMessages,
    ) -> None:
        self.parts = parts
        self.record = record
        self.questions = questions
        self.idling = idling
        self.wording = wording
        self._context = {**parts.file.context, **_context(record.run.request.metadata)}

    def values(
        self,
        frame: Frame,
        step_id: str = "",
        outputs: Mapping[str, Any] | None = None,
        *,
        response: StepResponse | None = None,
    ) -> ExpressionValues:
        """What expressions in a frame speak of.

        Args:
            frame: in it.
            step_id: a step whose outputs are not written down yet.
            outputs: these.
            response: what has answered it.
        """
        state = self.record.state
        more = {} if outputs is None else {step_id: outputs}
        return ExpressionValues(
            inputs=state.inputs(frame),
            steps={**state.results_for(frame), **more},
            response=response,
            context=self._context,
            message=state.message,
        )

    def values_for_text(self, frame: Frame, values: ExpressionValues | None = None) -> ExpressionValues:
        """What texts for people speak of: the same, with choices by their titles."""
        values = self.values(frame) if values is None else values
        flow = self.parts.file.find_flow(frame.flow_id)
        return replace(values, inputs=with_titles(flow.input_schema, values.inputs, self.wording.language))

    def enter(self, frame: Frame, step: StepConfig, what: str) -> None:
        """A step begins that does nothing by itself; one that has begun goes on after a crash."""
        if not is_begun(frame, step.step_id):
            self.record.record_step_start(frame, step.step_id, what)

    def outputs_of(self, frame: Frame, values: ExpressionValues) -> dict[str, Any]:
        """What the flow of a frame gives by name."""
        flow = self.parts.file.find_flow(frame.flow_id)
        if not flow.steps and (request := frame.steps.get(REQUEST_STEP)) is not None and not request.begun:
            return {name: request.outputs.get(name) for name in flow.outputs}
        return {name: evaluate(each, values) for name, each in flow.outputs.items()}

    def result_of(self, frame: Frame) -> tuple[Any, dict[str, Any]]:
        """What a flow gives at its end: its outputs if it names some, else the result of its last step."""
        outputs = self.outputs_of(frame, self.values(frame))
        if outputs:
            return outputs, outputs
        last = frame.last
        return None if last is None else last.outputs.get("result", last.outputs.get("answer")), {}

    def failure_status(self, frame: Frame) -> StepStatus:
        """How the step failed because of which a list of steps has."""
        step = frame.steps.get(frame.at)
        return "failure" if step is None or step.status == "success" else step.status

    def problem_of(self, frame: Frame) -> str:
        """Why a list of steps has failed."""
        step = frame.steps.get(frame.at)
        return "" if step is None else step.problem

    def message_of(self, frame: Frame) -> str:
        """What users are told of that."""
        step = frame.steps.get(frame.at)
        return (step.said if step is not None else "") or self.wording.broken


def is_begun(frame: Frame, step_id: str) -> bool:
    """Whether a step runs, or was running when the process died."""
    step = frame.steps.get(step_id)
    return step is not None and step.begun


def _context(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    context = metadata.get("context")
    return cast("Mapping[str, Any]", context) if isinstance(context, Mapping) else {}
