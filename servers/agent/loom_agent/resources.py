"""What hosts can attach: a run, its events, what was too large for an event; and which tools there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loom_agent.looking_tools import found_tools
from loom_agent.texts import run_info
from loom_core.errors import InvalidInputError, LoomError, NotFoundError
from loom_core.server.caller import current_caller
from loom_core.server.completions import COMPLETION_LIMIT
from loom_core.server.resource import ResourceContent, ResourceEntry, ResourcePage

if TYPE_CHECKING:
    from loom_agent.service import Service
    from loom_core.server.factory import LoomServer

__all__ = ["register_resources"]

_RUN = "loom://runs/{id}"
_EVENTS = "loom://runs/{id}/events"
_BLOB = "loom://runs/{id}/blobs/{n}"
_JSON, _LINES = "application/json", "application/x-ndjson"
_LISTED = 100
_PAGE = 500


def register_resources(server: LoomServer, service: Service) -> None:
    """Register them, with the completions of runs' ids.

    Args:
        server: what offers them.
        service: has the runs.
    """
    _register_tools(server, service)
    _register_runs(server, service)
    _register_lists(server, service)


def _register_tools(server: LoomServer, service: Service) -> None:
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


def _register_runs(server: LoomServer, service: Service) -> None:
    @server.resource(
        _EVENTS,
        name="events",
        title="Events of a run",
        description="All that happened in a run, a JSON object a line, oldest first.",
        mime_type=_LINES,
    )
    async def events(id: str) -> ResourceContent:  # noqa: A002
        lines: list[str] = []
        after = 0
        while found := await service.events(id, after=after, limit=_PAGE):
            after = found[-1].seq
            lines += [json.dumps(asdict(event), ensure_ascii=False, default=str) for event in found]
        return ResourceContent("".join(f"{line}\n" for line in lines), _LINES)

    @server.resource(
        _BLOB,
        name="blob",
        title="Large output of a tool",
        description="What a tool said in a run where it was too long to show.",
    )
    async def blob(id: str, n: str) -> ResourceContent:  # noqa: A002
        if not (n.isascii() and n.isdigit() and len(n) < 10):
            raise NotFoundError(f"Run {id[:100]} has no blob {n[:100]!r}.")
        content, media_type = await service.blob(id, int(n))
        if not media_type.startswith("text/"):
            return ResourceContent(content, media_type)
        return ResourceContent(content.decode("utf-8", "replace"), media_type)

    @server.resource(
        _RUN,
        name="run",
        title="Run",
        description="A run as it stands: status, output, what it waits for and what it has taken.",
        mime_type=_JSON,
    )
    async def run(id: str) -> ResourceContent:  # noqa: A002
        found = await service.run(id)
        info = run_info(found, by_tool=service.approvers.decides_by_tool(found), by_asking=False)
        return ResourceContent(_json(info.model_dump(mode="json")), _JSON)


def _register_lists(server: LoomServer, service: Service) -> None:
    @server.resource_list
    async def listed(cursor: str | None) -> ResourcePage:
        if cursor:
            raise InvalidInputError("There is no such page.", advice="Ask for the list without a cursor.")
        if not service.settings.journal.exists():
            return ResourcePage([])
        runs = await service.runs(limit=_LISTED)
        entries = [
            ResourceEntry(
                _RUN.format(id=run.id),
                run.id,
                " ".join(run.request.goal.split())[:80],
                f"{run.status}, {run.request.profile}",
                _JSON,
            )
            for run in runs
        ]
        return ResourcePage(entries)

    @server.completion("id", resource=_RUN)
    @server.completion("id", resource=_EVENTS)
    @server.completion("id", resource=_BLOB)
    async def ids(typed: str, _others: Mapping[str, str]) -> list[str]:
        if not service.settings.journal.exists():
            return []
        return [run.id for run in await service.runs(limit=COMPLETION_LIMIT) if run.id.startswith(typed)]


async def _profile(service: Service, name: str) -> dict[str, Any]:
    """What is told of a profile; also of one that cannot work as it is configured."""
    profile = service.load().profiles[name]
    try:
        found = await found_tools(service, "", profile=name)
        made = await service.agent(name)
    except LoomError as error:
        return {"description": profile.description, "problem": str(error)}
    return {
        "description": profile.description,
        "model": made.model,
        "servers": list(made.servers),
        "tools": [tool.model_dump(mode="json") for tool in found.tools],
        "notes": found.notes,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
