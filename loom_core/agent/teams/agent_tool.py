"""`AgentTool`: an agent as a tool of another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.agent.calling_run import SPENT
from loom_core.agent.teams.child_run import ChildRun
from loom_core.errors import ConfigError, LoomError
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.names import own_wire_name

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.agent.agent import Agent
    from loom_core.agent.result import RunResult
    from loom_core.runs.run import Budget

__all__ = ["AgentTool"]

_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {
            "type": "string",
            "minLength": 1,
            "description": "What is wanted, with all that has to be known for it: nothing of this "
            "conversation is seen there.",
        }
    },
    "required": ["goal"],
    "additionalProperties": False,
}


class AgentTool(Tool):
    """An agent as a tool: a call is a run of it, and what it answers is the result.

        researcher = Agent("deepseek", tools=[search], name="researcher")
        boss = Agent("deepseek", tools=[AgentTool(researcher, description="Finds facts, with sources.")])

    The run is in the journal of the run that calls, which names it (`metadata` has `parent_run` and
    `parent_call`), and belongs to the call: when the call is made again after a crash, the run that there is
    is gone on with. What it spends counts for the run that calls, and it may not take more of tokens, money,
    calls and time than that has left; calls that run side by side may each take what was left when they
    began. When the run that calls is aborted or fails, so is this one.

    What its agent's permissions allow needs no further word, so that the call as such need not be approved.
    What they want people asked about, the run that calls asks them about, under the name of the agent and the
    tool (`researcher/write_file`); unless the agent has somebody of its own to ask.

    Args:
        agent: the agent.
        name: what the tool is called, in any script; the agent's name if empty.
        description: when to call it, and what it gives; the agent's description if empty.
        output_schema: a Pydantic model, or a JSON Schema of objects, for its answers; None for text.
        budget: what one run may take at the most; None for the agent's own.

    Raises:
        ConfigError: there is no description, or what is given is no agent.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        name: str = "",
        description: str = "",
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if not hasattr(agent, "parts"):
            raise ConfigError(f"{agent!r} is no agent.", advice="Make an `Agent` of it.")
        self.agent = agent
        self._name = name or agent.name
        self._description = description or agent.description
        if not self._description:
            raise ConfigError(
                f"The agent {self._name!r} has no description, so no model knows when to call it.",
                advice="Give it one.",
            )
        self._output_schema = output_schema
        self._budget = budget or agent.budget

    def __repr__(self) -> str:
        return f"<AgentTool {self._name}>"

    @property
    def name(self) -> str:
        """What people call it."""
        return self._name

    @property
    def wire_name(self) -> str:
        """What models call it; see `names.own_wire_name`."""
        return own_wire_name(self._name)

    @property
    def description(self) -> str:
        """When to call it, and what it gives."""
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """A goal, in words."""
        return _ARGUMENTS

    @property
    def annotations(self) -> ToolAnnotations:
        """Harmless: to run the agent changes nothing, and what it calls is decided there."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether all that the agent may call is."""
        return all(tool.is_concurrency_safe for tool in self.agent.parts.toolbox.tools())

    @property
    def needs_seconds(self) -> float:
        """No limit but that of its budget."""
        return math.inf

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Run the agent to its end; a run of this call that there is already is gone on with."""
        child = ChildRun(self.agent, self._name, context or CallContext(), budget=self._budget)
        try:
            result = await child.result(str(arguments["goal"]), output_schema=self._output_schema)
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)
        return _output(result, self._name)

    async def abandoned(self, *, context: CallContext) -> None:
        """Abort the run of a call, if there is one that goes on; see `Tool.abandoned`."""
        await ChildRun(self.agent, self._name, context, budget=self._budget).abort()


def _output(result: RunResult[dict[str, Any]], name: str) -> ToolOutput:
    metadata = {SPENT: result.spent, "run_id": result.run_id}
    if result.status == "completed":
        return ToolOutput(result.output, result.structured, metadata=metadata)
    text = f"The agent `{name}` did not reach the goal: {result.problem}"
    if result.output:
        text += f"\nThis is as far as it came:\n{result.output}"
    return ToolOutput(text, is_error=True, metadata=metadata)
