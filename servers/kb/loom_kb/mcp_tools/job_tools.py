"""The tools that follow and cancel jobs, and waiting for a job."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
from anyio import to_thread
from pydantic import Field

from loom_core.errors import InvalidInputError
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.progress import progress
from loom_core.server.calls.tasks import become_task
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_kb.job_facts import job_info
from loom_kb.models import CancelResult, JobInfo, JobResult
from loom_kb.service import Service, position
from loom_kb.texts import job_text

if TYPE_CHECKING:
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store import Job

__all__ = ["WHOLE", "register_job_tools", "wait_for_job"]

WHOLE = math.inf
"""Seconds to wait for the end of a job, however long it takes."""

_JOB_WAIT = 45.0  # below the 50 s after which hosts give up
_ID = "Id that `add` returned"


def register_job_tools(server: LoomServer, service: Service) -> None:
    """Register `job`, which only reads, so that no host asks the user at each poll, and `job_cancel`."""

    @server.tool(
        title="Follow jobs",
        description=(
            "See how far adding documents is, which files failed and why, and how many were skipped; or wait "
            "for a job. Without an id it lists the newest jobs. Returns state, counts and problems. "
            'Example: {"id": "job-1a2b3c4d", "action": "wait"}'
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        task="optional",
    )
    async def job(
        ctx: ToolContext,
        id: Annotated[str | None, Field(description=f"{_ID}; left out, all jobs.")] = None,  # noqa: A002
        action: Annotated[
            Literal["status", "wait", "cancel"],
            Field(
                description="`wait` returns when the job is done, or after 45 s.",
                json_schema_extra={"enum": ["status", "wait"]},
            ),
        ] = "status",
        cursor: Annotated[
            str | None,
            Field(description="`next_cursor`: with an id for its further problems, else for older jobs."),
        ] = None,
    ) -> ToolReply[JobResult]:
        if action == "cancel":  # was an action of this tool
            raise InvalidInputError("`job` only looks.", advice="Call `job_cancel` with the id.")
        if not id:
            if action != "status":
                raise InvalidInputError(f"To {action}, give the job's id.")
            newest = await service.jobs(cursor=cursor)
            more = f'\n[older jobs: job(cursor="{newest.next_cursor}")]' if newest.next_cursor else ""
            return tool_result(job_text(newest.jobs) + more, newest)
        knowledge_base, _ = await service.job(id)
        seconds = 0.0
        if action == "wait":
            seconds = WHOLE if await become_task(ctx, f"waiting for {id}") else _JOB_WAIT
        info = await wait_for_job(knowledge_base, id, seconds, ctx, after=position(cursor))
        return tool_result(job_text([info], page=bool(cursor)), JobResult(jobs=[info]))

    @server.tool(
        title="Cancel a job",
        description=(
            "Cancel a job that `add` began. What it has added so far stays, the rest is skipped. Use it only "
            "when the user asks for it. Returns the job's state."
        ),
        read_only=False,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def job_cancel(
        id: Annotated[str, Field(description=f"{_ID}.", min_length=1, examples=["job-1a2b3c4d"])],  # noqa: A002
    ) -> ToolReply[CancelResult]:
        knowledge_base, _ = await service.job(id)
        await knowledge_base.cancel_job(id)
        info = await to_thread.run_sync(job_info, knowledge_base, knowledge_base.job(id))
        return tool_result(job_text([info]), CancelResult(id=id, state=info.state))


async def wait_for_job(
    knowledge_base: GraphRAGKnowledgeBase, job: str, seconds: float, ctx: ToolContext, *, after: int = 0
) -> JobInfo:
    """Wait until a job is over, reporting its progress to the client.

    Args:
        knowledge_base: where the job is.
        job: its id.
        seconds: to wait at most.
        ctx: the call.
        after: cursor of its problems, see `job_info`.
    """
    reporter = progress(ctx)

    async def report(state: Job) -> None:
        told = f"{state.processed} of {state.total} documents"
        if state.state == "listing":
            told = f"listing: {state.total:,} files so far"
        await reporter.report(state.processed, told)

    with anyio.move_on_after(seconds):
        await knowledge_base.wait_for_job(job, progress=report)
    state = await to_thread.run_sync(knowledge_base.job, job)
    return await to_thread.run_sync(partial(job_info, knowledge_base, state, after=after))
