"""`Workflow`: a directed acyclic graph (DAG) of named steps; independent steps run concurrently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias, cast, get_args

import anyio

from loom_core.agent.teams.composition import (
    Composition,
    CompositionContext,
    Runnable,
    check_predicate,
    check_step,
)
from loom_core.agent.teams.step import CompositionResult, StepError, StepResult
from loom_core.errors import ConfigError, LoomError, unwrap_group

__all__ = ["OnFailure", "Results", "Workflow", "WorkflowStep"]

OnFailure: TypeAlias = Literal["fail", "skip", "fallback"]
"""Action of a workflow if a step fails; see `WorkflowStep`."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results that a step may use.

    Attributes:
        given: the input of the workflow.
        values: outputs of the prerequisite steps, direct and indirect, by name; without skipped ones.
    """

    given: object
    values: Mapping[str, object]

    def __getitem__(self, name: str) -> object:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step of a workflow.

    Attributes:
        name: its name, in any script.
        run: an agent, a function or a composition.
        after: names of the steps that it waits for. It runs if at least one of them ran; if all were skipped,
            it is skipped.
        given: builds its input; not `async`. By default the output of the step that it waits for; for several
            steps, a mapping by name (JSON for an agent); for none, the input of the workflow.
        when: whether it runs; not `async`. If this returns false, the step is skipped.
        on_failure: `fail`: the workflow fails, and running steps are cancelled; `skip`: it counts as skipped;
            `fallback`: `fallback` runs instead, with the same input.
        fallback: see `on_failure`.
        seconds: timeout; None for its own limits.
    """

    name: str
    run: Runnable
    _: KW_ONLY
    after: Sequence[str] = ()
    given: Callable[[Results], object] | None = None
    when: Callable[[Results], bool] | None = None
    on_failure: OnFailure = "fail"
    fallback: Runnable | None = None
    seconds: float | None = None


class Workflow(Composition):
    """Workflow: steps that depend on each other.

        workflow = Workflow(
            [
                WorkflowStep("资料", researcher),
                WorkflowStep("numbers", fetch_numbers, on_failure="skip"),
                WorkflowStep("report", writer, after=["资料", "numbers"]),
            ]
        )
        result = await workflow.run("电动车市场")
        print(result.output, result.step("资料").value)

    Each step runs as soon as the steps that it waits for have ended. The output of the workflow is the value
    of the step that no other step waits for; if several of these ran, a mapping by name.

    Args:
        steps: the steps, in any order.
        max_concurrency: maximum number of concurrent steps.
        name: name of the workflow if it is a step itself.

    Raises:
        ConfigError: there is no step, two have the same name, one waits for an unknown step, there is a
            cycle, a fallback is missing or never used, or a step is not runnable.
    """

    def __init__(
        self, steps: Sequence[WorkflowStep], *, max_concurrency: int = 10, name: str = "workflow"
    ) -> None:
        super().__init__(name)
        for step in steps:
            if not isinstance(cast("object", step), WorkflowStep):
                raise ConfigError(
                    f"{step!r} is not a workflow step.", advice="Give `WorkflowStep(name, run, …)`."
                )
        self._steps = {step.name: step for step in steps}
        if not steps or len(self._steps) < len(steps):
            problem = "Two steps have the same name." if steps else "A workflow needs at least one step."
            raise ConfigError(problem, advice="Give it steps with unique names.")
        if max_concurrency < 1:
            raise ConfigError(f"`max_concurrency` is {max_concurrency}.", advice="Use 1 or more.")
        for step in steps:
            _check(step, self._steps)
        self._before = _prerequisites(self._steps)
        self._last = [name for name in self._steps if not any(name in each.after for each in steps)]
        self._max_concurrency = max_concurrency

    async def run_steps(self, stage: CompositionContext, given: object) -> CompositionResult:
        """See `Composition.run_steps`."""
        ended = {name: anyio.Event() for name in self._steps}
        room = anyio.Semaphore(self._max_concurrency)
        results: dict[str, StepResult] = {}

        async def work(step: WorkflowStep) -> None:
            for name in step.after:
                await ended[name].wait()
            ran = {name: results[name].value for name in results if results[name].status != "skipped"}
            values = {name: ran[name] for name in self._before[step.name] if name in ran}
            async with room:
                results[step.name] = await _outcome(stage, step, Results(given, values))
            ended[step.name].set()

        try:
            async with anyio.create_task_group() as group:
                for name in self._before:  # those that others wait for come first
                    group.start_soon(work, self._steps[name], name=f"step {name}")
        except ExceptionGroup as error:
            # If several failed at once, report the first one.
            first = unwrap_group(cast("Exception", error.exceptions[0]))
            raise first from first.__cause__
        ran = {name: results[name].value for name in self._last if results[name].status != "skipped"}
        value = next(iter(ran.values())) if len(self._last) == 1 and ran else ran or None
        return CompositionResult(value, tuple(results.values()))


async def _outcome(stage: CompositionContext, step: WorkflowStep, results: Results) -> StepResult:
    if step.after and not any(name in results for name in step.after):
        return await stage.skip_step(step.name, "Every step that it waits for was skipped.")
    try:
        if step.when is not None and not step.when(results):
            return await stage.skip_step(step.name, "Its condition does not hold.")
        given = _build_input(step, results)
    except Exception as error:
        told = str(error) if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
        path = stage.path_of(step.name)
        raise StepError(f"The condition or input of the step {path!r} failed: {told}", step=path) from error
    try:
        return await stage.run_step(step.name, step.run, given, seconds=step.seconds)
    except StepError as error:
        if step.on_failure == "skip":
            return await stage.skip_step(step.name, str(error))
        if step.on_failure == "fallback" and step.fallback is not None:
            # Another key: the run with the step's own key is the failed one.
            again = replace(stage, key=f"{stage.key}/fallback") if stage.key else stage
            result = await again.run_step(step.name, step.fallback, given, seconds=step.seconds)
            return replace(result, status="fallback", problem=str(error))
        raise


def _build_input(step: WorkflowStep, results: Results) -> object:
    if step.given is not None:
        return step.given(results)
    if not step.after:
        return results.given
    if len(step.after) == 1:
        return results[step.after[0]]
    return {name: results[name] for name in step.after if name in results}


def _check(step: WorkflowStep, steps: Mapping[str, WorkflowStep]) -> None:
    if isinstance(step.after, str):
        raise ConfigError(
            f"`after` of the step {step.name!r} is a string.", advice="Give a list of step names."
        )
    for name in step.after:
        if name not in steps:
            raise ConfigError(
                f"The step {step.name!r} waits for {name!r}, which does not exist.",
                advice=f"There are: {', '.join(steps)}.",
            )
    check_step(step.name, step.run, of="the workflow")
    if step.fallback is not None:
        check_step(step.name, step.fallback, of="the workflow")
    for name, decides in (("when", step.when), ("given", step.given)):
        if decides is not None:
            check_predicate(name, decides, step=f"the step {step.name!r}")
    if step.on_failure not in get_args(OnFailure):
        raise ConfigError(
            f"`on_failure` of the step {step.name!r} cannot be {step.on_failure!r}.",
            advice=f"Choose one of: {', '.join(get_args(OnFailure))}.",
        )
    if step.seconds is not None and step.seconds <= 0:
        raise ConfigError(
            f"`seconds` of the step {step.name!r} is {step.seconds:g}.", advice="Use a number above 0."
        )
    if (step.on_failure == "fallback") != (step.fallback is not None):
        raise ConfigError(
            f"The step {step.name!r} needs both `on_failure='fallback'` and a `fallback`, or neither.",
            advice="Add what is missing.",
        )


def _prerequisites(steps: Mapping[str, WorkflowStep]) -> dict[str, frozenset[str]]:
    """Return all prerequisites of each step, in topological order."""
    try:
        order = list(TopologicalSorter({name: step.after for name, step in steps.items()}).static_order())
    except CycleError as error:
        circle = " → ".join(reversed(cast("list[str]", error.args[1])))
        raise ConfigError(
            f"The steps form a cycle: {circle}.", advice="Remove one of these dependencies."
        ) from None
    before: dict[str, frozenset[str]] = {}
    for name in order:
        before[name] = frozenset(steps[name].after).union(*(before[each] for each in steps[name].after))
    return before
