"""MCP resources: runs, their events and blobs, and the tools of the agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom_agent.mcp_tools.tools import find_tools
from loom_agent.texts import run_info
from loom_core.errors import LoomError
from loom_core.server.auth.caller import current_caller
from loom_core.server.protocol.resources import ResourceContent
from loom_core.server.runs.resources import register_run_resources

if TYPE_CHECKING:
    from loom_agent.service import AgentService
    from loom_core.runs.run import Run
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["register_resources"]

_JSON = "application/json"


def register_resources(server: LoomServer, service: AgentService) -> None:
    """Register the resources, with the completions of run ids.

    Args:
        server: the server.
        service: the service for runs.
    """
    _register_tools(server, service)

    async def describe(run: Run) -> str:
        info = run_info(
            run,
            by_tool=service.approvers.can_decide_by_tool(run),
            by_asking=False,
            answered_by=await service.answered_by(run),
        )
        return _json(info.model_dump(mode="json"))

    register_run_resources(
        server,
        service,
        describe=describe,
        title=lambda run: run.request.goal,
        description="The state of a run: status, output, what it waits for and what it has taken.",
    )


def _register_tools(server: LoomServer, service: AgentService) -> None:
    @server.resource(
        "loom://tools",
        name="tools",
        title="Agents and their tools",
        description="The kinds of agents there are, what drives each, and what it can call.",
        mime_type=_JSON,
    )
    async def tools() -> ResourceContent:
        file = service.load()
        profiles = [name for name in file.profiles if current_caller().may_use(name)]
        told = {name: await _profile(service, name) for name in profiles}
        return ResourceContent(_json({"default": file.default, "profiles": told}), _JSON)


async def _profile(service: AgentService, name: str) -> dict[str, Any]:
    """Describe a profile; if it cannot work as configured, with its problem."""
    profile = service.load().profiles[name]
    try:
        found = await find_tools(service, "", profile=name)
        made = await service.agent(name)
    except LoomError as error:
        return {"description": profile.description, "problem": str(error)}
    return {
        "description": profile.description,
        "model": made.model,
        **({} if profile.context is None else {"context": profile.context.object_schema()}),
        "servers": list(made.servers),
        "tools": [tool.model_dump(mode="json") for tool in found.tools],
        "notes": found.notes,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
