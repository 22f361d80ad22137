"""Attach to a run at the terminal: print its progress, and ask its questions, until it ends or waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.errors import InvalidInputError
from loom_core.server.cli.console import out, out_json, say
from loom_core.server.cli.terminal import Keyboard, ask_at_terminal
from loom_flow.invocation import invocation
from loom_flow.texts import go_on_line, progress_line, run_info, run_text

if TYPE_CHECKING:
    from loom_core.runs.run import Run, RunStatus
    from loom_flow.service import FlowService

__all__ = ["BY", "attach_to_run", "exit_code", "print_run", "wait_until_idle"]

BY = "the user at the terminal"
"""The decider's name in the journal."""

_WAITS = 3
_SLICE_SECONDS = 30.0
_IDLE_STATUSES = frozenset({"completed", "failed", "aborted", "input_required", "paused"})
_ASKING_EVENT = "approval_required"


def exit_code(status: RunStatus) -> int:
    """Return the exit code for a run's status."""
    if status == "completed":
        return 0
    return 1 if status in {"failed", "aborted"} else _WAITS


async def attach_to_run(service: FlowService, run: Run, *, after: int, as_json: bool) -> int:
    """Wait for a run, and ask its questions if the terminal is interactive; return the exit code.

    Args:
        service: the service of the run.
        run: the run.
        after: sequence number of the last known event.
        as_json: whether to print only data.
    """
    keyboard = Keyboard()
    async with anyio.create_task_group() as tasks:
        if not as_json:
            tasks.start_soon(_print_events, service, run, after, keyboard.is_interactive)
        run = await wait_until_idle(service, run.id, after=after)
        while run.status == "input_required" and run.questions and keyboard.is_interactive:
            pending = run.questions[0]
            decision = await ask_at_terminal(keyboard, service.question(run, pending), pending, by=BY)
            if decision is None:
                break
            try:
                told = await service.decide(run, decision)
            except InvalidInputError as error:  # another client has decided, or it was no valid response
                say(str(error))
                told = await service.run(run.id)
            run = await wait_until_idle(service, run.id, after=told.last_seq)
        tasks.cancel_scope.cancel()
    await print_run(service, run, as_json=as_json)
    return exit_code(run.status)


async def wait_until_idle(service: FlowService, run_id: str, *, after: int = 0) -> Run:
    """Return the run when it is idle."""
    while True:
        run = await service.wait_until_idle(run_id, after=after, seconds=_SLICE_SECONDS)
        if run.status in _IDLE_STATUSES:
            return run
        after = run.last_seq


async def print_run(service: FlowService, run: Run, *, as_json: bool) -> None:
    """Print the state of a run, and the command that continues it on stderr."""
    info = run_info(run, await service.steps(run.id), by_asking=False)
    if as_json:
        out_json(info)
        return
    out(run_text(run, info.model_copy(update={"next": ""})))
    if words := _resume_words(run):
        say(go_on_line(run, invocation(service.settings, *words)))


def _resume_words(run: Run) -> list[str]:
    """Return the command that continues a run, with its arguments; empty for a run that has ended."""
    match run.status:
        case "completed":
            return []
        case "working":
            return ["status", run.id]
        case "failed":
            return ["resume", run.id, "--retry"]
        case "input_required" if run.questions:
            return ["resume", run.id, "--answer '{…}'" if run.questions[0].takes_answer else "--approve"]
        case "input_required":
            return ["status", run.id]
        case _:
            return ["resume", run.id]


async def _print_events(service: FlowService, run: Run, after: int, attended: bool) -> None:
    """Print a run's progress on stderr, without the questions that the user is asked anyway."""
    line = progress_line(run)
    async for event in service.journal().follow(run.id, after=after):
        if attended and event.type == _ASKING_EVENT:
            continue
        if said := line(event):
            say(f"  {said}")
