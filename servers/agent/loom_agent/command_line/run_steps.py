"""Steps of a run at the terminal: show them with their numbers, and fork the run at one of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from loom_agent.texts import Wording, short_line
from loom_core.agent.steps import AgentStep, ForkOptions, StepCall, read_steps
from loom_core.errors import InvalidInputError
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.llm.messages import ToolCallPart
from loom_core.runs.run import FORK_OF, FORK_STEP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_agent.service import AgentService
    from loom_core.runs.run import Run

__all__ = ["fork_run", "fork_text", "run_steps", "steps_json", "steps_text"]

_SHOWN = 160  # characters of a step


class _GivenCall(BaseModel, extra="forbid"):
    tool: str
    arguments: dict[str, Any]


_GIVEN: TypeAdapter[_GivenCall | list[_GivenCall]] = TypeAdapter(_GivenCall | list[_GivenCall])


async def run_steps(service: AgentService, run: Run) -> list[AgentStep]:
    """Read the steps of a run."""
    return read_steps(await service.events(run.id, limit=run.last_seq))


def steps_text(run: Run, steps: Sequence[AgentStep]) -> str:
    """Format the steps of a run with their numbers; empty if there are none."""
    wording = Wording.for_goal(run.request.goal)
    width = len(str(len(steps)))
    lines: list[str] = []
    for step in steps:
        if lines and steps[step.number - 2].is_inherited and not step.is_inherited:
            lines.append(f"  {'─' * width}")
        given = wording.given if step.is_given else ""
        lines.append(f"  {step.number:>{width}}  {_step_line(step, wording)}{given}")
    return "\n".join([wording.steps, *lines]) if lines else ""


def fork_text(run: Run) -> str:
    """Return of which run a run is a fork, and from which step on; empty if it is none."""
    origin = run.request.metadata.get(FORK_OF)
    template = Wording.for_goal(run.request.goal).fork
    return template.format(run_id=origin, step=run.request.metadata.get(FORK_STEP)) if origin else ""


def steps_json(run: Run, steps: Sequence[AgentStep]) -> dict[str, object]:
    """Return the steps of a run, and the run that it is a fork of, as data."""
    origin = {name: run.request.metadata.get(name) for name in (FORK_OF, FORK_STEP)}
    return {**origin, "steps": [asdict(step) for step in steps]}


async def fork_run(service: AgentService, run: Run, args: argparse.Namespace) -> Run:
    """Start the fork that a command line asks for.

    Raises:
        InvalidInputError: the step is missing, or the run has none of this number.
    """
    steps = await run_steps(service, run)
    if args.at is None:
        raise InvalidInputError(
            "`fork` needs a step.", advice=f"Give its number by --at: `runs show {run.id}` lists the steps."
        )
    change = ForkOptions(message=args.message, same_session=args.same_session)
    if args.given is not None:
        is_answer = any(step.number == args.at and step.kind == "answer" for step in steps)
        change["outcome"] = (_calls(args.given) if is_answer else None) or args.given
    return await service.fork(run, at=args.at, profile=args.profile, change=change)


def _calls(given: str) -> list[ToolCallPart] | None:
    """Read `{"tool": …, "arguments": …}`, or a list of these; None for anything else, such as a text."""
    try:
        read = _GIVEN.validate_json(given)
    except ValidationError:
        return None
    calls = read if isinstance(read, list) else [read]
    return [ToolCallPart("", call.tool, call.arguments) for call in calls]


def _step_line(step: AgentStep, wording: Wording) -> str:
    text = short_line(step.text, _SHOWN)
    if step.kind == "call":
        mark = "✓" if step.status == "success" else f"✗ ({step.status})"
        return escape_controls(f"{step.calls[0].tool} {mark} {text}")
    calls = ", ".join(map(_call_text, step.calls))
    return escape_controls(" → ".join(filter(None, [f"{wording.answer} {text}".rstrip(), calls])))


def _call_text(call: StepCall) -> str:
    return f"{call.tool} {short_line(json.dumps(call.arguments, ensure_ascii=False), _SHOWN)}"
