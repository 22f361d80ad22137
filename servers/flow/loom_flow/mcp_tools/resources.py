"""MCP resources: the flows, a run, and its events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.server.protocol.resources import ResourceContent
from loom_core.server.runs.resources import register_run_resources
from loom_flow.texts import message_of, run_info

if TYPE_CHECKING:
    from loom_core.runs.run import Run
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.service import FlowService

__all__ = ["register_resources"]

_JSON = "application/json"


def register_resources(server: LoomServer, service: FlowService) -> None:
    """Register the resources, with completions of run ids."""

    @server.resource(
        "loom://flows",
        name="flows",
        title="Flows",
        description="The flows with their inputs, triggers and examples, skills, and runs that are not "
        "finished.",
        mime_type=_JSON,
    )
    async def flows() -> ResourceContent:
        return ResourceContent((await service.list_flows()).model_dump_json(indent=2), _JSON)

    async def described(run: Run) -> str:
        info = run_info(run, await service.steps(run.id), by_asking=False)
        return json.dumps(info.model_dump(mode="json"), ensure_ascii=False, indent=2)

    register_run_resources(
        server,
        service,
        describe=described,
        title=message_of,
        description="The state of a run: status, steps, output, and what it waits for.",
    )
