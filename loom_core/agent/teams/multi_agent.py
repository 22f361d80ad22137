"""`MultiAgentSystem`: agents with handoffs, or a supervisor that calls the others as tools."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.agent.teams.composition import Composition, CompositionContext, text_of
from loom_core.agent.teams.handoff import Handoff, handoff_targets, with_handoffs
from loom_core.agent.teams.step import CompositionResult, StepResult
from loom_core.errors import ConfigError
from loom_core.runs.memory import InMemoryMemory

if TYPE_CHECKING:
    from loom_core.runs.journal import Journal
    from loom_core.runs.memory import Memory

__all__ = ["MultiAgentSystem"]


class MultiAgentSystem(Composition):
    """Multi-agent system, with a supervisor or with handoffs.

    With a `supervisor`, this agent works on the goal, and calls the others as tools (see `AgentTool`):

        team = MultiAgentSystem([researcher, writer], supervisor=editor)

    Without one, the first agent starts, and each may hand the conversation over to another by a tool
    (`handoff_to_billing`), which ends its own run; the other agent sees the conversation, and continues. The
    agent that makes no handoff answers the user:

        desk = MultiAgentSystem([reception, billing, support])
        answer = await desk.run("我要退款")
        answer = await desk.in_session(answer.session_id).run("多久能到账？")

    A later message of the same session goes to the agent that answered the previous one.

    All runs are in one journal. With a key (see `Composition.run`), interrupted work is resumed; after the
    process has ended, this also needs a memory in a file.

    Args:
        agents: the agents, each with a unique name and a description.
        supervisor: see above.
        handoffs: the agents that each agent may hand over to, by name; a missing agent may hand over to none.
            None allows all. Ignored with a supervisor.
        max_handoffs: maximum number of handoffs for one message; the last agent has to answer.
        journal: stores all runs; by default the journal of the supervisor, or of the first agent.
        memory: stores the conversations that are handed over; by default as long as the process.
        name: name of the system if it is a step itself.

    Attributes:
        journal: see above.

    Raises:
        ConfigError: there is no agent, an item is not an agent, two have the same name, one has no
            description, `handoffs` names an unknown agent, or `max_handoffs` is below 0.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        supervisor: Agent | None = None,
        handoffs: Mapping[str, Sequence[str]] | None = None,
        max_handoffs: int = 8,
        journal: Journal | None = None,
        memory: Memory | None = None,
        name: str = "team",
    ) -> None:
        super().__init__(name)
        _check(agents, supervisor, handoffs)
        if max_handoffs < 0:
            raise ConfigError(f"`max_handoffs` is {max_handoffs}.", advice="Use 0 or more.")
        self.journal = journal or (supervisor or agents[0]).journal
        self._max_handoffs = max_handoffs
        self._session_id = ""
        self._supervisor: Agent | None = None
        if supervisor is not None:
            helpers = [AgentTool(agent) for agent in agents]
            self._supervisor = supervisor.extend(tools=helpers, journal=self.journal, memory=memory)
        memory = memory or InMemoryMemory()
        # The last agent of a conversation has no handoff tools.
        self._last = {agent.name: agent.extend(journal=self.journal, memory=memory) for agent in agents}
        self._agents = with_handoffs(self._last, handoff_targets([*self._last], handoffs))

    def in_session(self, session_id: str) -> MultiAgentSystem:
        """Return a copy of the system for the next message of a session (`CompositionResult.session_id`)."""
        other = copy.copy(self)
        other._session_id = session_id
        return other

    async def run_steps(self, stage: CompositionContext, given: object) -> CompositionResult:
        """See `Composition.run_steps`; the steps are the runs of the agents that had the conversation."""
        if self._supervisor is not None:
            step = await stage.run_step(
                self._supervisor.name, self._supervisor, given, session_id=self._session_id
            )
            return CompositionResult(step.value, (step,))
        goal = said = text_of(given)
        name, session_id = await self._first(stage), self._session_id
        steps: list[StepResult] = []
        for number in range(self._max_handoffs + 1):
            agent = (self._agents if number < self._max_handoffs else self._last)[name]
            step = await stage.run_step(f"{number + 1} {name}", agent, goal, session_id=session_id)
            steps.append(step)
            handoff = None if step.run is None else Handoff.of(step.run.structured)
            if step.run is None or handoff is None or handoff.to not in self._agents:
                break
            goal = handoff.message(name, goal=said)
            name, session_id = handoff.to, step.run.session_id
        return CompositionResult(steps[-1].value, tuple(steps))

    async def _first(self, stage: CompositionContext) -> str:
        """Return the first agent for a message: the agent that answered the previous one."""
        if self._session_id:
            for run in await self.journal.runs(session_id=self._session_id):
                mine = stage.key and run.request.idempotency_key.startswith(f"{stage.key}/")
                if not mine and run.request.profile in self._agents:
                    return run.request.profile
        return next(iter(self._agents))


def _check(
    agents: Sequence[Agent], supervisor: Agent | None, handoffs: Mapping[str, Sequence[str]] | None
) -> None:
    if not agents:
        raise ConfigError("A system needs at least one agent.", advice="Give it several.")
    everyone = [*agents, *([supervisor] if supervisor else [])]
    for agent in everyone:
        if not isinstance(cast("object", agent), Agent):
            raise ConfigError(f"{agent!r} is not an agent.", advice="Give an `Agent`.")
    names = [agent.name for agent in everyone]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Two agents are named {twice[0]!r}.", advice="Give each a unique name.")
    for agent in agents:
        if not agent.description:
            raise ConfigError(
                f"The agent {agent.name!r} has no description, so other agents do not know its purpose.",
                advice="Give it a description.",
            )
    named = {*(handoffs or {}), *(name for others in (handoffs or {}).values() for name in others)}
    if unknown := sorted(named - set(names)):
        raise ConfigError(
            f"`handoffs` names the agent {unknown[0]!r}, which does not exist.",
            advice=f"There are: {', '.join(names)}.",
        )
