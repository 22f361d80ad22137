"""What chains, routers, workflows and teams have in common: steps, run, told about, and named in errors."""

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
from loom_core.errors import ConfigError, InvalidInputError, LoomError, unwrapped
from loom_core.tools.function_tool import output_of, tool_threads

if TYPE_CHECKING:
    from loom_core.agent.request import RunOptions

__all__ = ["Composition", "Runnable", "StepRunner", "check_predicate", "check_step", "text_of"]

Runnable: TypeAlias = "Agent | Composition | Callable[[Any], object]"
"""What can be a step: an agent, which is given text as its goal; another composition; or a function of what
is given, `async` or not. One that is not `async` runs in a thread."""

_BUFFERED = 256  # events of a stream that nobody has read yet


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Where the steps of a composition run.

    Attributes:
        path: of the composition, in those that it is a step of.
        key: the key of the whole; see `Composition.run`.
        teller: is told what happens; None where nobody wants to know.
    """

    path: tuple[str, ...] = ()
    key: str = ""
    on_event: Callable[[StepEvent], Awaitable[None]] | None = None

    async def emit(self, event: StepEvent) -> None:
        """Something has happened."""
        if self.on_event is not None:
            await self.on_event(event)

    def path_of(self, name: str) -> str:
        """The path of a step here."""
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
            name: what it is called here.
            runnable: what is to be run.
            given: what it is given.
            seconds: so long may it take; None for its own limits.
            session_id: of an agent's run; empty for a new one.

        Raises:
            StepError: it failed, or took too long; of a step of a step, that one is named.
        """
        step, begun = self.path_of(name), monotonic()
        await self.emit(StepEvent(type="step_start", step=step, given=given))
        result = None
        try:
            with anyio.move_on_after(seconds):
                result = await self._outcome(name, runnable, given, session_id)
            if result is None:
                raise StepError(
                    f"The step {step!r} has taken longer than {seconds:g} s.",
                    step=step,
                    advice="Allow more with `seconds`, or let it do less.",
                )
        except Exception as raised:  # noqa: BLE001 - whatever it raises is told with its name
            error = _to_step_error(unwrapped(raised), step)
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
        """Leave a step out, and say why."""
        step = self.path_of(name)
        await self.emit(StepEvent(type="step_skipped", step=step, problem=problem))
        return StepResult(step=step, status="skipped", problem=problem)

    async def _agent_run(
        self, name: str, agent: Agent, goal: str, session_id: str
    ) -> RunResult[dict[str, Any]]:
        """The run of an agent for a step, at its end: the one that there is already, where there is a key."""
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
        if found is not None:  # what it was begun with holds, whatever the agent has by now
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
            result = await runnable.run_steps(StepRunner((*self.path, name), self.key, self.on_event), given)
            return StepResult(step=name, value=result.value, steps=result.steps)
        return StepResult(step=name, value=await _call(runnable, given))


class Composition(ABC):
    """Steps that are run together. It keeps nothing between runs: any number may go on at the same time.

    Args:
        name: what it is called where it is a step itself.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, given: object, *, key: str = "") -> CompositionResult:
        """Run it to its end.

        Args:
            given: what it begins with; a text for agents.
            key: the same for each attempt to do the same: the runs of agents that there are for it in their
                journals are taken as they are where they are completed, and gone on with where they are not.
                Functions are called again. Empty for a run of its own.

        Raises:
            StepError: a step failed.
        """
        return await self.run_steps(StepRunner(key=key), given)

    async def stream(self, given: object, *, key: str = "") -> AsyncGenerator[StepEvent]:
        """Run it, and tell everything that happens. The last event is `finished`.

        Close the iterator (`contextlib.aclosing`) where it is left before its end: what runs is cancelled.

        Args:
            given: as for `run`, as all others.
            key: see there.

        Raises:
            StepError: a step failed.
        """
        sending, receiving = anyio.create_memory_object_stream[StepEvent](_BUFFERED)

        async def work() -> None:
            with sending:
                result = await self.run_steps(StepRunner(key=key, on_event=sending.send), given)
                await sending.send(StepEvent(type="finished", value=result.value, result=result))

        # A task and no task group: what a generator holds must not be open while it hands something on.
        working = asyncio.ensure_future(work())
        try:
            async for event in receiving:
                yield event
            await working
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            receiving.close()

    @abstractmethod
    async def run_steps(self, stage: StepRunner, given: object) -> CompositionResult:
        """Run the steps, in a place where they are told about.

        Args:
            stage: runs them.
            given: what it begins with.

        Raises:
            StepError: one failed.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def check_step(name: object, runnable: object, *, of: str) -> None:
    """Look whether something can be a step.

    Args:
        name: what it is to be called.
        runnable: what is to be run.
        of: what it is a step of, for people.

    Raises:
        ConfigError: it cannot.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"A step of {of} cannot be called {name!r}.", advice="Give it a name, as a text.")
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
    """Look whether something can decide about a step.

    Args:
        name: what it is called there, such as `when`.
        decides: the function.
        step: which step, for people.

    Raises:
        ConfigError: it is no function, or one that has to be waited for: what it returns would count as true.
    """
    if not callable(decides) or inspect.iscoroutinefunction(decides):
        raise ConfigError(
            f"`{name}` of {step} cannot be {decides!r}.", advice="Give a function that is not `async`."
        )


def text_of(given: object) -> str:
    """What an agent, or a rule, reads of what is given: JSON where it is no text.

    Raises:
        InvalidInputError: it is neither.
    """
    try:
        return output_of(given).text
    except TypeError as error:
        raise InvalidInputError(
            f"What is given is neither text nor JSON: {given!r}.",
            advice="Give a text, or what JSON can say.",
        ) from error


def _goal(given: object) -> str:
    goal = text_of(given)
    if not goal.strip():
        raise InvalidInputError("The agent was given nothing to work on.", advice="Give it a text.")
    return goal


async def _call(function: Callable[[Any], object], given: object) -> object:
    if inspect.iscoroutinefunction(function):
        return await cast("Awaitable[object]", function(given))
    result = await to_thread.run_sync(
        partial(function, given), abandon_on_cancel=True, limiter=tool_threads()
    )
    return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result


def _to_step_error(error: Exception, step: str) -> StepError:
    """The error of a step, with its name; the step of a step has named itself."""
    if isinstance(error, StepError):
        return error
    if isinstance(error, LoomError):
        named = StepError(f"The step {step!r} failed: {error.message}", step=step, advice=error.advice)
    else:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        named = StepError(f"The step {step!r} failed: {told}", step=step)
    named.__cause__ = error
    return named
