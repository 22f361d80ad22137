"""Steps of a composition: their results, events and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import LoomError, NotFoundError
from loom_core.llm.interface import Usage
from loom_core.tools.function_tool import output_of

if TYPE_CHECKING:
    from loom_core.agent.result import RunResult
    from loom_core.runs.events import StreamEvent

__all__ = ["CompositionResult", "StepError", "StepEvent", "StepResult"]


class StepError(LoomError):
    """A step failed, and with it the composition. The cause is the exception of the step.

    Attributes:
        step: its path, such as `report/summary`.
    """

    def __init__(self, message: str, *, step: str, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of a step.

    Attributes:
        step: its path, such as `report/summary`.
        status: whether it ran; `fallback` if it failed and its fallback ran.
        value: its output: the text of an agent, the value of a composition or a function; None if it did not
            run.
        problem: why it failed or did not run; empty otherwise.
        seconds: its duration.
        run: the run of an agent.
        steps: results of the steps of a composition.
    """

    step: str
    status: Literal["done", "skipped", "fallback"] = "done"
    value: object = None
    problem: str = ""
    seconds: float = 0.0
    run: RunResult[Any] | None = None
    steps: tuple[StepResult, ...] = ()


@dataclass(frozen=True, slots=True)
class CompositionResult:
    """Result of a composition.

    Attributes:
        value: its output.
        steps: results of its steps, in the order of their start.
    """

    value: object
    steps: tuple[StepResult, ...]

    @property
    def output(self) -> str:
        """The value as text; as JSON if it is not a string."""
        return output_of(self.value).text

    @property
    def runs(self) -> tuple[RunResult[Any], ...]:
        """The runs of all agents, including those in nested compositions."""
        return tuple(_runs(self.steps))

    @property
    def session_id(self) -> str:
        """The session of the last agent run; empty if there was none."""
        runs = self.runs
        return runs[-1].session_id if runs else ""

    @property
    def usage(self) -> Usage:
        """The total usage of all agent runs."""
        return Usage.total(run.spent.usage for run in self.runs)

    def step(self, name: str) -> StepResult:
        """Return the result of a step, by its path or the end of it.

        Raises:
            NotFoundError: there was no such step.
        """
        found = [each for each in _flat(self.steps) if each.step == name or each.step.endswith(f"/{name}")]
        if not found:
            known = ", ".join(repr(each.step) for each in _flat(self.steps)) or "none"
            raise NotFoundError(f"There was no step {name!r}.", advice=f"There were: {known}.")
        return found[0]

    def __str__(self) -> str:
        return self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """Event of a composition.

    Attributes:
        type: `agent_event`: see `event`; the last event is `finished`, see `result`.
        step: path of the step; empty for the composition itself.
        given: input of a step.
        value: output of a step.
        problem: why it failed or was skipped.
        event: event of the agent's run.
        result: result of the composition.
    """

    type: Literal["step_start", "step_end", "step_skipped", "step_failed", "agent_event", "finished"]
    step: str = ""
    given: object = None
    value: object = None
    problem: str = ""
    event: StreamEvent | None = None
    result: CompositionResult | None = None


def _runs(steps: Sequence[StepResult]) -> Iterator[RunResult[Any]]:
    for step in _flat(steps):
        if step.run is not None:
            yield step.run


def _flat(steps: Sequence[StepResult]) -> Iterator[StepResult]:
    for step in steps:
        yield step
        yield from _flat(step.steps)
