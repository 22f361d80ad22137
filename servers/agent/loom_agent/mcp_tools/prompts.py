"""MCP prompts: run an agent on a goal, and show the state of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_agent.models import RunsResult
from loom_agent.texts import run_info, run_line, run_text, runs_text
from loom_core.server.auth.caller import current_caller
from loom_core.server.protocol.completions import COMPLETION_LIMIT
from loom_core.server.protocol.prompts import PromptMessage

if TYPE_CHECKING:
    from loom_agent.service import AgentService
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["register_prompts"]

_RUN = (
    "Have the agent work on this goal: call `agent_run` with it{profile}, and follow `next` in each answer "
    "until the run has ended. Where it waits for a decision, show me what it wants to do and ask me. "
    "Then tell me what came of it.\n\nGoal: {goal}"
)
_SOME = 20


def register_prompts(server: LoomServer, service: AgentService) -> None:
    """Register the prompts, with the completions of their arguments.

    Args:
        server: the server.
        service: the service for runs.
    """

    @server.prompt(title="Have an agent work on something")
    async def run(
        goal: Annotated[str, Field(description="What you want.")],
        profile: Annotated[str, Field(description="Which kind of agent; the usual one if left out.")] = "",
    ) -> Sequence[PromptMessage]:
        """Has an agent work on a goal, and asks you where you have to decide."""
        named = f" and profile {profile!r}" if profile else ""
        return [PromptMessage(_RUN.format(goal=goal, profile=named))]

    @server.prompt(title="How runs stand")
    async def status(
        run_id: Annotated[str, Field(description="Which run; the latest ones if left out.")] = "",
    ) -> Sequence[PromptMessage]:
        """Shows how your runs stand, and what they wait for."""
        if run_id:
            found = await service.run(run_id)
            info = run_info(
                found,
                by_tool=service.approvers.can_decide_by_tool(found),
                by_asking=False,
                answered_by=await service.answered_by(found),
            )
            return [PromptMessage(f"Tell me how this run stands.\n\n{run_text(found, info)}")]
        runs = await service.runs(limit=_SOME)
        listed = runs_text(RunsResult(runs=[run_line(each) for each in runs]))
        return [PromptMessage(f"Tell me how these runs stand, and which of them need me.\n\n{listed}")]

    @server.completion("profile", prompt="run")
    async def profiles(typed: str, _others: Mapping[str, str]) -> list[str]:
        may_use = current_caller().may_use
        return [name for name in service.load().profiles if may_use(name) and name.startswith(typed)]

    @server.completion("run_id", prompt="status")
    async def ids(typed: str, _others: Mapping[str, str]) -> list[str]:
        return [each.id for each in await service.runs(limit=COMPLETION_LIMIT) if each.id.startswith(typed)]
