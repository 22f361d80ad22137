"""`Chain`: sequential steps, each with the output of the previous one as its input."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from loom_core.agent.agent import Agent
from loom_core.agent.teams.composition import Composition, CompositionContext, Runnable, check_step
from loom_core.agent.teams.step import CompositionResult, StepResult
from loom_core.errors import ConfigError
from loom_core.tools.interface import Tool

__all__ = ["Chain"]


class Chain(Composition):
    """Chain of sequential steps.

        chain = Chain([search, writer, Chain([critic, writer])])
        print(await chain.run("What changed in the tax law?"))

    The first step gets the input of the chain, each other step the output of the previous one; the last
    output is the chain's. An agent gets its input as text (or JSON), and returns its final answer.

    Args:
        steps: agents, functions, compositions; or pairs of a name and one of these. A step without a name
            uses the name of its runnable.
        name: name of the chain if it is a step itself.

    Raises:
        ConfigError: there is no step, two have the same name, or one is not runnable.
    """

    def __init__(self, steps: Sequence[Runnable | tuple[str, Runnable]], *, name: str = "chain") -> None:
        super().__init__(name)
        if not steps or not isinstance(cast("object", steps), Sequence):
            raise ConfigError(
                "A chain needs at least one step.", advice="Give it a list of agents and functions."
            )
        given = [cast("str", each[0]) for each in steps if isinstance(each, tuple)]
        if twice := [name for name in given if given.count(name) > 1]:
            raise ConfigError(f"Two steps of the chain are named {twice[0]!r}.", advice="Rename one of them.")
        self._steps: dict[str, Runnable] = {}
        for each in steps:
            if isinstance(each, tuple):
                called, runnable = cast("tuple[str, Runnable]", each)
                self._steps[called] = runnable
            else:
                self._steps[_free_name(each, {*given, *self._steps})] = each
        for called, runnable in self._steps.items():
            check_step(called, runnable, of=f"the chain {name!r}")

    async def run_steps(self, stage: CompositionContext, given: object) -> CompositionResult:
        """See `Composition.run_steps`."""
        results: list[StepResult] = []
        for name, runnable in self._steps.items():
            results.append(await stage.run_step(name, runnable, given))
            given = results[-1].value
        return CompositionResult(given, tuple(results))


def _free_name(runnable: Runnable, taken: Collection[str]) -> str:
    """Return the name of a runnable, with a number if the name is taken."""
    own = _name_of(runnable)
    number, name = 1, own
    while name in taken:
        number += 1
        name = f"{own} {number}"
    return name


def _name_of(runnable: Runnable) -> str:
    if isinstance(runnable, Agent | Composition | Tool):
        return runnable.name
    name = getattr(runnable, "__name__", "step")
    return "step" if name == "<lambda>" else str(name)
