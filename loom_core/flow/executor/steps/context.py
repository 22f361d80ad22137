"""Context of a run's steps: values for expressions, outcomes of steps, and which parts are active."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.errors import LoomError
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.definition import REQUEST_STEP
from loom_core.flow.executor.inputs import with_properties
from loom_core.flow.executor.state import Frame, StepStatus
from loom_core.flow.expressions import MISSING, ExpressionValues, evaluate, fill, text_of
from loom_core.flow.expressions.expression import look_up, parse_pointer
from loom_core.flow.http.response import EndpointResult
from loom_core.flow.understanding.choices import ValueChoice, choices_schema, with_titles
from loom_core.flow.understanding.formats import format_in_words
from loom_core.runs.stopwatch import Stopwatch

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.config.models_step import OptionsConfig, StepConfig
    from loom_core.flow.executor.dependencies import FlowDependencies
    from loom_core.flow.executor.messages import FlowMessages
    from loom_core.flow.executor.questions import FlowQuestions
    from loom_core.flow.executor.recorder import FlowRecorder

__all__ = ["OptionsError", "RunActivity", "RunScope", "StepOutcome", "is_begun"]

_MAX_CHOICES = 200  # that are offered
_ASKED = frozenset({"ask", "confirm"})


class OptionsError(LoomError):
    """The choices of a question are no list, or have no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Outcome of executing a step once.

    Attributes:
        status: its own status; its criteria may still fail it.
        response: the response; that of a tool or a flow has its result as body, and the status 200.
        outputs: outputs in addition to the configured ones.
        problem: why it failed.
        said: why it failed, for users; empty if they need not know.
        told: text of a `say` step that users read.
        retry_after: seconds that a server asks to wait.
        maybe_done: whether it may have been done although it has not succeeded; always so if its outcome is
            unknown.
        final: whether no action may retry it.
    """

    status: StepStatus = "success"
    response: EndpointResult | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""
    said: str = ""
    told: str = ""
    retry_after: float | None = None
    maybe_done: bool = False
    final: bool = False

    @classmethod
    def of(cls, body: Any, **outputs: Any) -> StepOutcome:  # noqa: ANN401 - JSON
        """Return a success with a result as its response."""
        return cls(response=EndpointResult(200, {}, body), outputs=outputs)

    def unreadable(self, problem: str, *, said: str, risky: bool) -> StepOutcome:
        """Return an outcome whose response cannot be read, although the step may have been done."""
        return replace(
            self,
            status="unknown" if risky else "failure",
            problem=problem,
            said=said,
            maybe_done=True,
            retry_after=None,
        )


_RESULTS = ("result", "results", "answer")
"""Outputs that are the result of a step."""


class RunScope:
    """Scope of one run for its steps: dependencies, recorder, and the values of expressions."""

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
        response: EndpointResult | None = None,
    ) -> ExpressionValues:
        """Return the values of expressions in a frame.

        The outputs of a step that are not recorded yet may be given.
        """
        state = self.record.state
        more = {} if outputs is None else {step_id: outputs}
        item, index = state.item_of(frame) or (MISSING, MISSING)
        return ExpressionValues(
            inputs=state.inputs(frame),
            steps={**state.results_for(frame), **more},
            response=response,
            context=self._context,
            message=state.message,
            item=item,
            index=index,
        )

    def flow_of(self, frame: Frame) -> FlowConfig:
        """Return the flow of a frame."""
        return self.parts.file.find_flow(frame.flow_id)

    def text(self, frame: Frame, template: str) -> str:
        """Return a text for people, with the titles of choices."""
        return text_of(fill(template, self.values_for_text(frame))) if template else ""

    def values_for_text(self, frame: Frame, values: ExpressionValues | None = None) -> ExpressionValues:
        """Return the same values for texts to people, with the titles of choices."""
        values = self.values(frame) if values is None else values
        flow = self.flow_of(frame)
        schema = with_properties(flow.input_schema, self.offered_inputs(frame))
        return replace(values, inputs=with_titles(schema, values.inputs, self.wording.language))

    def choices(self, frame: Frame, options: OptionsConfig) -> list[ValueChoice]:
        """Return the choices that a list offers, at most 200; items without a value are left out.

        Raises:
            OptionsError: it is no list, or no item has a value.
        """
        listed = evaluate(options.from_, self.values(frame))
        if listed is None:
            return []
        if not isinstance(listed, list):
            raise OptionsError(f"The choices are no list: {options.from_} is {str(listed)[:80]!r}.")
        value_path, label_path = parse_pointer(options.value), parse_pointer(options.label)
        found: list[ValueChoice] = []
        for item in listed:
            value = look_up(item, value_path)
            if value is MISSING or any(value == each.value for each in found):
                continue
            label = look_up(item, label_path) if label_path else MISSING
            title = self._label(value if label is MISSING or label is None else label)
            found.append(ValueChoice(value, "" if title == value else title))
        if listed and not found:
            raise OptionsError(f"No item of {options.from_} has the value {options.value}.")
        return found[:_MAX_CHOICES]

    def _label(self, label: Any) -> str:  # noqa: ANN401 - JSON
        """Return the text of a choice: dates in words, and one part of a bilingual text."""
        for form in ("date", "date-time"):
            label = format_in_words(label, {"format": form}, self.wording.language)
        return self.wording.part_of(text_of(label))

    def offered_inputs(self, frame: Frame) -> dict[str, dict[str, Any]]:
        """Return the schemas of inputs that were chosen from lists: the choices, by the input's name."""
        asks = {each.step_id: each.ask for each in iter_steps(self.flow_of(frame).steps)}
        visited = [
            (done.place, inner, done)
            for inner in self.record.state.frames.values()
            for done in inner.steps.values()
            if inner.scope == frame.scope
        ]
        found: dict[str, dict[str, Any]] = {}
        for _, inner, done in sorted(visited, key=lambda each: each[0]):
            ask = asks.get(done.step_id)
            if ask is None or ask.options is None or not ask.into:
                continue
            try:
                choices = self.choices(inner, ask.options)
            except OptionsError:  # an answer without this list has come since
                choices = []
            outputs = done.outputs
            if "answer" in outputs and all(each.value != outputs["answer"] for each in choices):
                choices.append(ValueChoice(outputs["answer"], outputs["label"]))
            found[ask.into] = choices_schema(choices, offered=len(choices))
        return found

    def reason_to_ask_again(self, frame: Frame, step: StepConfig) -> str:
        """Return why a later step has failed, so that a question is asked again; empty for another reason.

        It is for the first question after the failure.
        """
        if self.record.state.visited[frame.key + step.step_id] <= 1:
            return ""
        steps = {each.step_id: each for each in iter_steps(self.flow_of(frame).steps)}
        asked = frame.steps[step.step_id].place
        for done in sorted(frame.steps.values(), key=lambda each: -each.place):
            if done.place >= asked:
                continue
            if done.status in {"failure", "unknown"}:
                return done.said
            if done.step_id in steps and steps[done.step_id].kind in _ASKED:
                return ""
        return ""

    def enter(self, frame: Frame, step: StepConfig, what: str) -> None:
        """Record that a step without side effects starts; after a crash, a started one continues."""
        if not is_begun(frame, step.step_id):
            self.record.record_step_start(frame, step.step_id, what)

    def outputs_of(self, frame: Frame, values: ExpressionValues) -> dict[str, Any]:
        """Return the outputs of a frame's flow, by name."""
        flow = self.flow_of(frame)
        if not flow.steps and (request := frame.steps.get(REQUEST_STEP)) is not None and not request.begun:
            return {name: request.outputs.get(name) for name in flow.outputs}
        return {name: evaluate(each, values) for name, each in flow.outputs.items()}

    def result_of(self, frame: Frame) -> tuple[Any, dict[str, Any]]:
        """Return the result of a flow (its outputs, else the result of its last step), and its outputs."""
        outputs = self.outputs_of(frame, self.values(frame))
        if outputs:
            return outputs, outputs
        return self.last_result(frame), {}

    def last_result(self, frame: Frame) -> Any:  # noqa: ANN401 - JSON
        """Return the result of the last step of a list; a `say` step has none, so it does not count."""
        steps = iter_steps(self.flow_of(frame).steps)
        texts = {step.step_id for step in steps if step.say}
        done = [step for step in frame.steps.values() if step.step_id not in texts]
        last = max(done, key=lambda step: step.place, default=None)
        named = () if last is None else (last.outputs[name] for name in _RESULTS if name in last.outputs)
        return next(iter(named), None)

    def failure_status(self, frame: Frame) -> StepStatus:
        """Return the status of the step that made a list of steps fail."""
        step = frame.steps.get(frame.at)
        return "failure" if step is None or step.status == "success" else step.status

    def problem_of(self, frame: Frame) -> str:
        """Return why a list of steps has failed, for operators."""
        step = frame.steps.get(frame.at)
        return "" if step is None else step.problem

    def message_of(self, frame: Frame) -> str:
        """Return why a list of steps has failed, for users."""
        step = frame.steps.get(frame.at)
        return (step.said if step is not None else "") or self.wording.broken


def is_begun(frame: Frame, step_id: str) -> bool:
    """Return whether a step is running, or was running when the process crashed."""
    step = frame.steps.get(step_id)
    return step is not None and step.begun


def _context(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    context = metadata.get("context")
    return cast("Mapping[str, Any]", context) if isinstance(context, Mapping) else {}


class _StepTimeout:
    """Timeout of a step; it does not count the time spent waiting for people."""

    def __init__(self, seconds: float, work: anyio.CancelScope) -> None:
        self._watch = Stopwatch(0.0, until=seconds)
        self._waiting = 0
        self._watch.cancel_at_limit(work)
        self._watch.start()

    def change_waiting(self, change: int) -> None:
        self._waiting += change
        if self._waiting:
            self._watch.stop()
        else:
            self._watch.start()


_limits: ContextVar[tuple[_StepTimeout, ...]] = ContextVar("_limits", default=())


class RunActivity:
    """Counter of the concurrent parts of one run that are active.

    `park` is called when all parts wait.
    """

    def __init__(self, park: Callable[[], None]) -> None:
        self._park = park
        self._busy = 1

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Context of waiting for people; the wait can be cancelled and repeated later."""
        with self.stop_clocks():
            self.remove_task()
            try:
                yield
            finally:
                self._busy += 1

    @contextmanager
    def stop_clocks(self) -> Generator[None]:
        """Context of waiting for people in the middle of a step: its timeout is suspended."""
        for limit in _limits.get():
            limit.change_waiting(1)
        try:
            yield
        finally:
            for limit in _limits.get():
                limit.change_waiting(-1)

    def add_tasks(self, count: int) -> None:
        """Count additional concurrent parts; a negative count takes back parts that were cancelled."""
        self._busy += count

    def remove_task(self) -> None:
        """Count a part as ended or waiting."""
        self._busy -= 1
        if not self._busy:
            self._park()

    @contextmanager
    def limit_time(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Context with a timeout that does not count the time spent waiting for people."""
        with anyio.CancelScope() as scope:
            if seconds is None:
                yield scope
                return
            token = _limits.set((*_limits.get(), _StepTimeout(seconds, scope)))
            try:
                yield scope
            finally:
                _limits.reset(token)
