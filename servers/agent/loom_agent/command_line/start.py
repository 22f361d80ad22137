"""Start of a run as the options of a command say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_agent.models import BudgetInput
from loom_core.errors import InvalidInputError
from loom_core.server.cli.option_types import parse_values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from loom_agent.service import AgentService
    from loom_core.runs.run import Run

__all__ = ["start_run"]

_SERVER_SECONDS = 15.0  # timeout for MCP servers to start before the first turn


async def start_run(
    service: AgentService,
    args: argparse.Namespace,
    goal: str,
    *,
    session: str = "",
    profile: str = "",
    output_schema: Mapping[str, Any] | None = None,
    attachments: Sequence[str] = (),
) -> Run:
    """Start a run.

    Args:
        service: the runs.
        args: arguments of the command, with the data, the limits and the profile.
        goal: the goal.
        session: the conversation to continue; empty for a new one.
        profile: another profile than that of the command; empty for that.
        output_schema: JSON Schema of the final answer; None for a text.
        attachments: paths and URLs of files.

    Raises:
        InvalidInputError: a limit is invalid.
        LoomError: see `AgentService.start`, and `load_attachments`.
    """
    from loom_core.agent.attachments import load_attachments

    asked: dict[str, Any] = {
        "iterations": args.iterations,
        "tokens": args.tokens,
        "cost": args.cost,
        "tool_calls": args.calls,
        "seconds": args.seconds,
    }
    profile = profile or args.profile
    if not profile and (latest := await service.latest_in(session)) is not None:
        profile = latest.request.profile
    config = (await to_thread.run_sync(service.load)).profile(profile).context
    schema = None if config is None else config.object_schema()
    return await service.start(
        goal,
        session_id=session,
        profile=profile,
        allowed_tools=args.allow,
        budget=_budget(asked),
        output_schema=output_schema,
        context=parse_values(args.context, schema) if args.context else None,
        client="command line",
        attachments=await load_attachments(attachments),
        server_seconds=_SERVER_SECONDS,
    )


def _budget(asked: dict[str, Any]) -> BudgetInput:
    from pydantic import ValidationError

    try:
        return BudgetInput.model_validate(asked)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)[0]
        option = str(found["loc"][0]).replace("tool_calls", "calls")
        raise InvalidInputError(
            f"--{option}: {found['msg'].removeprefix('Input ')}.", advice="Give another number."
        ) from None
