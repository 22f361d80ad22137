"""The tools that only look: at runs, at what happened in one, at what agents can call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_agent.mcp_tools.arguments import LAST_SEQ, RunId
from loom_agent.models import EventsResult, FoundTool, RunsResult, SearchResult
from loom_agent.texts import events_text, run_line, runs_text, search_text
from loom_core.runs.run import RunStatus
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.runs.models import event_info

if TYPE_CHECKING:
    from loom_agent.service import Service
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["found_tools", "register_looking_tools"]


def register_looking_tools(server: LoomServer, service: Service) -> None:
    """Register them.

    Args:
        server: what offers them.
        service: has what they look at.
    """
    _register_runs(server, service)
    _register_events(server, service)
    _register_search(server, service)


def _register_runs(server: LoomServer, service: Service) -> None:
    @server.tool(
        title="List runs",
        description=(
            "List the runs of agents, the latest first; or find past ones by words of their goal and answer. "
            "Use it to come back to work whose run_id is not known any more. Returns ids, goals and statuses."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def agent_runs(
        status: Annotated[
            list[RunStatus] | None, Field(description="Only with one of these; left out, all.")
        ] = None,
        query: Annotated[str, Field(description="Words, in English or Chinese.")] = "",
        session_id: Annotated[str, Field(description="Only of this session.")] = "",
        limit: Annotated[int, Field(description="How many at the most.", ge=1, le=100)] = 20,
    ) -> ToolReply[RunsResult]:
        runs = await service.runs(status=status or (), query=query, session_id=session_id, limit=limit)
        result = RunsResult(runs=[run_line(run) for run in runs])
        return tool_result(runs_text(result), result)


def _register_events(server: LoomServer, service: Service) -> None:
    @server.tool(
        title="Read what happened in a run",
        description=(
            "Read the events of a run, oldest first: what the model wrote, which tools were called with what "
            "result, who approved what. Returns them with their numbers; nothing is left out, ask on with "
            "after_seq."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def agent_events(
        run_id: RunId,
        after_seq: Annotated[int, Field(description="Only events after this one.", ge=0, le=LAST_SEQ)] = 0,
        limit: Annotated[int, Field(description="How many at the most.", ge=1, le=500)] = 100,
    ) -> ToolReply[EventsResult]:
        run = await service.run(run_id)
        found = await service.events(run_id, after=after_seq, limit=limit)
        events = [event_info(event) for event in found]
        last = events[-1].seq if events else max(after_seq, 0)
        result = EventsResult(
            run_id=run_id, status=run.status, events=events, last_seq=last, more=last < run.last_seq
        )
        text, shown = events_text(result)
        if shown == len(events):
            return tool_result(text, result)
        last = events[shown - 1].seq
        cut = result.model_copy(update={"events": events[:shown], "last_seq": last, "more": True})
        return tool_result(events_text(cut)[0], cut)


def _register_search(server: LoomServer, service: Service) -> None:
    @server.tool(
        title="Find tools of the agent",
        description=(
            "Find out what an agent can do: its tools by what they do, in English or Chinese, and whether "
            "calls of them have to be approved. Use it before agent_run where you are not sure. Returns "
            "names, descriptions and arguments."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def tool_search(
        query: Annotated[str, Field(description="Words; left out, all tools.")] = "",
        profile: Annotated[str, Field(description="Of which kind of agent; left out, the usual one.")] = "",
        limit: Annotated[int, Field(description="How many at the most.", ge=1, le=100)] = 10,
    ) -> ToolReply[SearchResult]:
        result = await found_tools(service, query, profile=profile, limit=limit)
        return tool_result(search_text(result), result)


async def found_tools(service: Service, query: str, *, profile: str = "", limit: int = 100) -> SearchResult:
    """The tools of a profile that fit a query.

    Args:
        service: has the agents.
        query: words; empty for all tools.
        profile: which; empty for the default one.
        limit: how many at the most.

    Raises:
        LoomError: as for `Service.agent`.
    """
    from loom_core.tools.tool_search import ToolSearch

    made = await service.agent(profile)
    there = made.toolbox.tools()
    found = list(there[:limit])
    if query.strip():
        found, _ = ToolSearch(made.toolbox.tools).search(query, limit=limit)
    agents = service.agents()
    return SearchResult(
        tools=[
            FoundTool(
                name=tool.name,
                description=tool.description,
                arguments=dict(tool.args_schema),
                permission=made.permissions.decide(tool, {}).action,
            )
            for tool in found
        ],
        total=len(there),
        notes=[*agents.mcp.problems(), *agents.knowledge.notes],
    )
