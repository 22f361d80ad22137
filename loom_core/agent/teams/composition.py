"""Composition: the base of chains, routers, workflows and teams; it runs steps and streams their events."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
from anyio import to_thread

from loom_core.agent.agent import Agent
from loom_core.agent.result import RunResult
from loom_core.agent.teams.step import CompositionResult, StepError, StepEvent, StepResult
from loom_core.errors import ConfigError, InvalidInputError, LoomError, unwrap_group
from loom_core.tools.function_tool import output_of, tool_threads

if TYPE_CHECKING:
    from loom_core.agent.request import RunOptions

__all__ = ["Composition", "CompositionContext", "Runnable", "check_predicate", "check_step", "text_of"]

Runnable: TypeAlias = "Agent | Composition | Callable[[Any], object]"
"""A runnable for a step: an agent, which gets the input as its goal; another composition; or a function of
the input, `async` or not. A function that is not `async` runs in a thread."""

_BUFFERED = 256  # events of a stream that the consumer has not read yet


@dataclass(frozen=True, slots=True)
class CompositionContext:
    """Context of a running composition: runs its steps, and emits their events.

    Attributes:
        path: path of the composition in the outer compositions.
        key: idempotency key of the whole; see `Composition.run`.
        on_event: callback for step events; None for no events.
    """

    path: tuple[str, ...] = ()
    key: str = ""
    on_event: Callable[[StepEvent], Awaitable[None]] | None = None

    async def emit(self, event: StepEvent) -> None:
        """Emit an event."""
        if self.on_event is not None:
            await self.on_event(event)

    def path_of(self, name: str) -> str:
        """Return the path of a step."""
        return "/".join((*self.path, name))

    async def run_step(
        self,
        name: str,
        runnable: Runnable,
        given: object,
        *,
        seconds: float | None = None,
        session_id: str = "",
    ) -> StepResult:
        """Run a step.

        Args:
            name: name of the step.
            runnable: the runnable.
            given: its input.
            seconds: timeout; None for its own limits.
            session_id: session of an agent's run; empty for a new one.

        Raises:
            StepError: it failed, or timed out; for nested steps, the innermost one is named.
        """
        step, begun = self.path_of(name), monotonic()
        await self.emit(StepEvent(type="step_start", step=step, given=given))
        result = None
        try:
            with anyio.move_on_after(seconds):
                result = await self._outcome(name, runnable, given, session_id)
            if result is None:
                raise StepError(
                    f"The step {step!r} timed out after {seconds:g} s.",
                    step=step,
                    advice="Allow more time with `seconds`, or let it do less.",
                )
        except Exception as raised:  # noqa: BLE001 - every error is reported with the step's name
            error = _to_step_error(unwrap_group(raised), step)
            await self.emit(StepEvent(type="step_failed", step=step, problem=str(error)))
            raise error from error.__cause__
        await self.emit(StepEvent(type="step_end", step=step, value=result.value))
        return StepResult(
            step=step,
            value=result.value,
            seconds=monotonic() - begun,
            run=result.run,
            steps=result.steps,
        )

    async def skip_step(self, name: str, problem: str) -> StepResult:
        """Skip a step, and emit the reason."""
        step = self.path_of(name)
        await self.emit(StepEvent(type="step_skipped", step=step, problem=problem))
        return StepResult(step=step, status="skipped", problem=problem)

    async def _agent_run(
        self, name: str, agent: Agent, goal: str, session_id: str
    ) -> RunResult[dict[str, Any]]:
        """Run the agent of a step to its end; with a key, use or resume the existing run."""
        step, run_id = self.path_of(name), ""
        key = f"{self.key}/{step}" if self.key else ""
        found = await agent.journal.find_by_key(key) if key else None
        if found is not None and found.status in {"failed", "aborted"}:
            return await agent.resume(found.id)
        options: RunOptions = {
            "session_id": session_id,
            "idempotency_key": key,
            "metadata": {"step": step},
        }
        if found is not None:  # it keeps the budget that it started with
            options["budget"] = found.request.budget
        if self.on_event is None:
            return await agent.run(goal, **options)
        async with aclosing(agent.stream(goal, **options)) as events:
            async for event in events:
                run_id = event.run_id
                await self.emit(StepEvent(type="agent_event", step=step, event=event))
        return RunResult[dict[str, Any]].of(await agent.journal.get(run_id))

    async def _outcome(self, name: str, runnable: Runnable, given: object, session_id: str) -> StepResult:
        if isinstance(runnable, Agent):
            run = await self._agent_run(name, runnable, _goal(given), session_id)
            return StepResult(step=name, value=run.or_raise().output, run=run)
        if isinstance(runnable, Composition):
            result = await runnable.run_steps(
                CompositionContext((*self.path, name), self.key, self.on_event), given
            )
            return StepResult(step=name, value=result.value, steps=result.steps)
        return StepResult(step=name, value=await _call(runnable, given))


class Composition(ABC):
    """Composition of steps. It is stateless: any number of runs may be concurrent.

    Args:
        name: its name if it is a step itself.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, given: object, *, key: str = "") -> CompositionResult:
        """Run the composition to its end.

        Args:
            given: the input; a text for agents.
            key: idempotency key, the same for each attempt at the same work: completed agent runs of the key
                in their journals are reused, others are resumed. Functions are called again. Empty for a new
                run.

        Raises:
            StepError: a step failed.
        """
        return await self.run_steps(CompositionContext(key=key), given)

    async def stream(self, given: object, *, key: str = "") -> AsyncGenerator[StepEvent]:
        """Run the composition, and stream all events. The last event is `finished`.

        Close the iterator (`contextlib.aclosing`) to leave it early: running steps are cancelled.

        Args:
            given: as for `run`, like all others.
            key: see there.

        Raises:
            StepError: a step failed.
        """
        sending, receiving = anyio.create_memory_object_stream[StepEvent](_BUFFERED)

        async def work() -> None:
            with sending:
                result = await self.run_steps(CompositionContext(key=key, on_event=sending.send), given)
                await sending.send(StepEvent(type="finished", value=result.value, result=result))

        # A task, not a task group: a generator must not yield inside an open task group.
        working = asyncio.ensure_future(work())
        try:
            async for event in receiving:
                yield event
            await working
        finally:
            if not working.done():
                working.cancel()
                with anyio.CancelScope(shield=True):  # else the caller believes that the runs are free by now
                    await asyncio.wait({working})
            receiving.close()

    @abstractmethod
    async def run_steps(self, stage: CompositionContext, given: object) -> CompositionResult:
        """Run the steps in a context.

        Args:
            stage: the context, which runs them.
            given: the input.

        Raises:
            StepError: one failed.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def check_step(name: object, runnable: object, *, of: str) -> None:
    """Check the name and the runnable of a step.

    Args:
        name: name of the step.
        runnable: its runnable.
        of: the composition, for the error message.

    Raises:
        ConfigError: one is invalid.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"A step of {of} cannot be named {name!r}.", advice="Give it a string as name.")
    function = inspect.unwrap(runnable) if callable(runnable) else None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"The step {name!r} of {of} is a generator.", advice="Let the function return a list."
        )
    if not isinstance(runnable, Agent | Composition) and (
        function is None or (isinstance(runnable, type) and issubclass(runnable, Agent | Composition))
    ):
        raise ConfigError(
            f"The step {name!r} of {of} cannot be {runnable!r}.",
            advice="Give an agent, a composition, or a function of one argument.",
        )


def check_predicate(name: str, decides: object, *, step: str) -> None:
    """Check a predicate or another synchronous function of a step.

    Args:
        name: name of the argument, such as `when`.
        decides: the function.
        step: the step, for the error message.

    Raises:
        ConfigError: it is not a function, or it is `async`: a coroutine would count as true.
    """
    if not callable(decides) or inspect.iscoroutinefunction(decides):
        raise ConfigError(
            f"`{name}` of {step} cannot be {decides!r}.", advice="Give a function that is not `async`."
        )


def text_of(given: object) -> str:
    """Convert an input to text for an agent or a rule: JSON if it is not a string.

    Raises:
        InvalidInputError: it is neither a string nor JSON.
    """
    try:
        return output_of(given).text
    except TypeError as error:
        raise InvalidInputError(
            f"The input is neither text nor JSON: {given!r}.",
            advice="Give a string, or JSON values.",
        ) from error


def _goal(given: object) -> str:
    goal = text_of(given)
    if not goal.strip():
        raise InvalidInputError("The input of the agent is empty.", advice="Give it a text.")
    return goal


async def _call(function: Callable[[Any], object], given: object) -> object:
    if inspect.iscoroutinefunction(function):
        return await cast("Awaitable[object]", function(given))
    result = await to_thread.run_sync(
        partial(function, given), abandon_on_cancel=True, limiter=tool_threads()
    )
    return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


def _to_step_error(error: Exception, step: str) -> StepError:
    """Convert an exception to a `StepError` with the step's name; keep the error of a nested step."""
    if isinstance(error, StepError):
        return error
    if isinstance(error, LoomError):
        named = StepError(f"The step {step!r} failed: {error.message}", step=step, advice=error.advice)
    else:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        named = StepError(f"The step {step!r} failed: {told}", step=step)
    named.__cause__ = error
    return named
