"""MCP prompts: chat with the assistant, and list unfinished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.server.protocol.completions import COMPLETION_LIMIT
from loom_core.server.protocol.prompts import PromptMessage
from loom_flow.texts import flows_text, run_info, run_text

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.service import FlowService

__all__ = ["register_prompts"]

_CHAT = (
    "Pass this on to the assistant by `flow_chat`, word for word, and tell me what it says. Pass on what I "
    "say next in the same way, with the session_id of its answer, until the business is done; answer no "
    "question in my place.\n\n{message}"
)


def register_prompts(server: LoomServer, service: FlowService) -> None:
    """Register the prompts, with completions of their arguments."""

    @server.prompt(title="Ask the assistant")
    async def chat(
        message: Annotated[str, Field(description="What you want, such as: I need three days off.")],
    ) -> Sequence[PromptMessage]:
        """Passes on what you say to the assistant, and what it asks back to you."""
        return [PromptMessage(_CHAT.format(message=message))]

    @server.prompt(title="What is not finished")
    async def unfinished(
        run_id: Annotated[str, Field(description="Which run; all that are open if left out.")] = "",
    ) -> Sequence[PromptMessage]:
        """Shows what you have begun and what it waits for."""
        if run_id:
            run = await service.run(run_id)
            info = run_info(run, await service.steps(run_id), by_asking=False)
            return [
                PromptMessage(f"Tell me how this stands, and what I have to do.\n\n{run_text(run, info)}")
            ]
        listed = flows_text(await service.list_flows())
        return [PromptMessage(f"Tell me what of this is not finished, and what I have to do.\n\n{listed}")]

    @server.completion("run_id", prompt="unfinished")
    async def ids(typed: str, _others: Mapping[str, str]) -> list[str]:
        return [each.id for each in await service.runs(limit=COMPLETION_LIMIT) if each.id.startswith(typed)]
