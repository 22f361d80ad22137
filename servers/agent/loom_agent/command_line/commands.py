"""The commands but those for serving: run, chat, eval, runs, memory, move, events, tools, graph, schema."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import anyio

from loom_agent import PROGRAM
from loom_agent.command_line.start import start_run
from loom_agent.command_line.terminal import Terminal
from loom_agent.models import RunsResult
from loom_agent.service import AgentService
from loom_agent.texts import run_info, run_line, run_text, runs_text, search_text
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Pause, Reply
from loom_core.runs.run import PARENT_RUN, RunStatus
from loom_core.server.cli.console import out, out_json, say
from loom_core.server.cli.database_option import move_journal, move_target
from loom_core.server.cli.terminal import Interrupted, Interrupts
from loom_core.server.runs.models import event_info

if TYPE_CHECKING:
    import argparse

    from loom_agent.models import RunInfo
    from loom_agent.settings import Settings
    from loom_core.runs.commands import Command
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.server.cli.terminal import Keyboard

__all__ = ["run_code", "run_command"]

_BY = "the user at the terminal"
_APPLIED_SECONDS = 10.0
_MOST_ASKING = 100  # runs that are searched for the one that asks
_WAITS = 3
_INTERRUPTED = 130


def run_command(args: argparse.Namespace, settings: Settings) -> int:
    """Run a parsed command; return the exit code.

    Args:
        args: the command and its options.
        settings: settings of the process.
    """
    if args.command == "schema":
        from loom_agent.profiles.agent_file import json_schema

        out_json(json_schema())
        return 0
    if args.command == "memory":
        from loom_agent.command_line.memory import run_memory_command

        return run_memory_command(args, settings)
    if args.command == "graph":
        from loom_agent.profiles.diagram import render_mermaid

        service = AgentService(settings, adopts=False, sees_all=True)
        diagram = render_mermaid(service.load(), args.profile)
        out_json({"mermaid": diagram}) if args.json else out(diagram)
        return 0
    if args.command == "move":
        target = replace(settings, database=move_target(args.to)).journal
        return move_journal(settings.journal, target, as_json=args.json)
    if args.command == "eval":
        from loom_agent.command_line.evaluation import run_evaluation

        return run_evaluation(args, settings)
    commands = {"run": _run, "chat": _chat, "runs": _runs, "events": _events, "tools": _tools}

    async def run() -> int:
        service = AgentService(settings, adopts=False, sees_all=True)
        service.load()
        async with service, Interrupts.listen() as interrupts:
            try:
                return await commands[args.command](service, args, interrupts)
            except Interrupted:
                return _INTERRUPTED

    return anyio.run(run)


def run_code(run: Run) -> int:
    """Return the exit code for the status of a run."""
    if run.status == "completed":
        return 0
    return 1 if run.status in {"failed", "aborted"} else _WAITS


async def _run(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    goal = " ".join(args.goal)
    if goal == "-":
        goal = await interrupts.unless(_read_stdin)
    start = partial(start_run, service, args, goal, session=args.session, attachments=args.attach)
    run = await interrupts.unless(start)
    return await _watch_and_report(service, run, args, interrupts, after=0)


async def _read_stdin() -> str:
    return await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


async def _chat(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    from loom_core.server.cli.terminal import Keyboard

    keyboard = Keyboard()
    last: Run | None = None
    session = args.session
    if keyboard.is_interactive:
        agent = await interrupts.unless(partial(service.agent, args.profile))
        say(f"{agent.agent.name} ({agent.model}). Ctrl-C pauses, twice aborts; Ctrl-D ends.")
    while True:
        try:
            line = await interrupts.unless(partial(keyboard.line, "> " if keyboard.is_interactive else ""))
        except Interrupted:
            if last is None or last.status != "paused":
                raise
            last = await _abort_here(service, await service.send_commands(last.id, Abort(by=_BY)))
            say(f"\n{last.problem}")
            continue
        if line is None:
            return 0 if last is None else run_code(last)
        if last is not None and last.status == "paused":
            if line.strip():
                await service.reply(session, Reply(text=line, by=_BY))
            run = await service.resume(last.id, by=_BY)
            after = None
        elif line.strip():
            run = await interrupts.unless(partial(start_run, service, args, line, session=session))
            after = 0
        else:
            continue
        session = run.request.session_id
        last, _ = await _watch(service, run, args, interrupts, after=after, keyboard=keyboard)
        await _report(service, last, args)
        if last.status == "input_required":
            return _WAITS


async def _runs(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    if args.html:
        return await _page(service, args)
    if args.action == "list":
        return await _list(service, args)
    if not args.run_id:
        raise _no_run(args.action)
    if args.action in {"resume", "fork"}:
        return await _go_on(service, args, interrupts)
    if args.action == "forget":
        await service.journal().purge(args.run_id)
        out_json({"forgotten": args.run_id}) if args.json else out(f"{args.run_id} was purged.")
        return 0
    from loom_core.server.runs.html_option import find_run

    run = await find_run(service, args.run_id)
    if args.action == "decide":
        run = await service.decide(run, _decision(run, args))
    elif args.action in {"pause", "abort"}:
        order: Command = Pause(by=_BY) if args.action == "pause" else Abort(reason=args.reason, by=_BY)
        told, run = run, await service.send_commands(run.id, order)
        if args.action == "abort" and not told.driver:
            run = await _abort_here(service, run)
    if args.action == "show":
        await _show(service, run, as_json=args.json)
    elif args.json:
        out_json(await _run_info(service, run))
    else:
        done = f": {args.action}d." if args.action == "decide" else f" will {args.action}."
        out(f"{run.id}{' is aborted.' if run.status == 'aborted' else done}")
        if not run.driver and run.status != "aborted":
            say(
                "No process executes it now. A running server of this home resumes it by itself, or: "
                f"loom-agent-server runs resume {run.id}"
            )
    return 0


async def _go_on(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    """Resume or fork a run, and watch it; return the exit code."""
    from loom_agent.command_line.run_steps import fork_run, fork_text
    from loom_core.server.runs.html_option import find_run

    if args.action == "resume":
        run = await service.resume(args.run_id, by=_BY)
    else:
        run = await fork_run(service, await find_run(service, args.run_id), args)
        if not args.quiet and not args.json:
            say(f"{run.id}: {fork_text(run)}")
    return await _watch_and_report(service, run, args, interrupts, after=None)


async def _show(service: AgentService, run: Run, *, as_json: bool) -> None:
    """Show a run with its steps."""
    from loom_agent.command_line.run_steps import fork_text, run_steps, steps_json, steps_text

    steps, info = await run_steps(service, run), await _run_info(service, run)
    if as_json:
        out_json({**info.model_dump(mode="json"), **steps_json(run, steps)})
        return
    details = "\n\n".join(filter(None, [fork_text(run), steps_text(run, steps)]))
    out(run_text(run, info.model_copy(update={"next": _next(run)}), details=details))


def _no_run(action: str) -> InvalidInputError:
    return InvalidInputError(f"`{action}` needs a run.", advice="Give its id.")


async def _abort_here(service: AgentService, run: Run) -> Run:
    """Apply the abort of a run that no process executes, by executing it here for a moment."""
    try:
        await service.adopt(run.id)
    except (ConfigError, NotFoundError):  # left to a process whose configuration has the profile
        return run
    return await service.wait_until_idle(run.id, after=run.last_seq, seconds=_APPLIED_SECONDS)


async def _page(service: AgentService, args: argparse.Namespace) -> int:
    from loom_core.server.runs.html_option import write_run_page

    if args.action not in {"list", "show"}:
        raise InvalidInputError(
            f"--html cannot be used with `{args.action}`.", advice="Use it with list or show."
        )
    shows = args.action == "show"
    if shows and not args.run_id:
        raise _no_run(args.action)
    given: list[str] = [*args.html, args.run_id] if shows else args.html
    listed = [] if shows else await _find_runs(service, args, limit=args.limit + 1)
    page = await write_run_page(service, given, listed=listed, limit=args.limit, program=PROGRAM)
    page.show(as_json=args.json)
    return 0


async def _list(service: AgentService, args: argparse.Namespace) -> int:
    from loom_agent.command_line.run_steps import fork_text

    runs = await _find_runs(service, args, limit=args.limit)
    result = RunsResult(runs=[run_line(run) for run in runs])
    if args.json:
        out_json(result)
    else:
        remarks = {run.id: fork_text(run) for run in runs}
        out(runs_text(result, remarks=remarks) if runs else "There is no such run.")
    return 0


async def _find_runs(service: AgentService, args: argparse.Namespace, *, limit: int) -> list[Run]:
    """Find the runs that a command lists.

    Raises:
        InvalidInputError: there is no such status.
    """
    known = get_args(RunStatus)
    for status in args.status:
        if status not in known:
            raise InvalidInputError(
                f"There is no status {status!r}.", advice=f"There are: {', '.join(known)}."
            )
    status = cast("list[RunStatus]", args.status)
    return await service.runs(status=status, query=args.run_id, limit=limit)


async def _events(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    run = await service.run(args.run_id)
    if args.follow:
        if run.status not in {"completed", "failed", "aborted"} and not (run.driver and not run.pending):
            say(f"The run does not continue by itself: it is {run.status}. Continue with: {_next(run)}")
        await interrupts.unless(partial(_follow, service, run, args))
        return run_code(await service.run(run.id))
    after = args.after
    while found := await service.events(run.id, after=after, limit=500):
        after = found[-1].seq
        for event in found:
            _show_event(event, as_json=args.json)
    return 0


async def _follow(service: AgentService, run: Run, args: argparse.Namespace) -> None:
    async with aclosing(service.journal().follow(run.id, after=args.after)) as events:
        async for event in events:
            _show_event(event, as_json=args.json)


async def _tools(service: AgentService, args: argparse.Namespace, interrupts: Interrupts) -> int:
    from loom_agent.mcp_tools.tools import find_tools  # imports the MCP SDK, half of the time of a command

    found = partial(find_tools, service, " ".join(args.query), profile=args.profile)
    result = await interrupts.unless(found)
    if args.json:
        out_json(result)
    else:
        out(search_text(result))
    return 0


async def _watch_and_report(
    service: AgentService, run: Run, args: argparse.Namespace, interrupts: Interrupts, *, after: int | None
) -> int:
    """Watch a run until it is idle, and report it; return the exit code."""
    run, interrupted = await _watch(service, run, args, interrupts, after=after)
    if run.status == "paused":
        say(f"It is paused. Go on with: {_next(run)}")
    return _INTERRUPTED if interrupted else await _report(service, run, args)


async def _watch(
    service: AgentService,
    run: Run,
    args: argparse.Namespace,
    interrupts: Interrupts,
    *,
    after: int | None,
    keyboard: Keyboard | None = None,
) -> tuple[Run, bool]:
    """Watch a run until it is idle; return it, and whether it was interrupted."""
    from loom_agent.command_line.terminal import RunWatcher
    from loom_core.server.cli.terminal import Keyboard

    terminal = Terminal(quiet=args.quiet, as_json=args.json)
    watched = RunWatcher(service, terminal, keyboard or Keyboard(), interrupts)
    run = await watched.wait_until_idle(run, after=after)
    terminal.finish(run)
    return run, watched.was_interrupted


async def _report(service: AgentService, run: Run, args: argparse.Namespace) -> int:
    """Report the status of a run; return the exit code."""
    if args.json:
        out_json(await _run_info(service, run))
    elif run.status == "input_required":
        waiting = ", ".join(f"{pending.id} ({pending.tool})" for pending in run.pending)
        say(f"It waits for {waiting}: {_next(run, await _find_asking(service, run))}")
    return run_code(run)


async def _run_info(service: AgentService, run: Run) -> RunInfo:
    by_tool, answered_by = service.approvers.can_decide_by_tool(run), await service.answered_by(run)
    return run_info(run, by_tool=by_tool, by_asking=False, answered_by=answered_by)


async def _find_asking(service: AgentService, run: Run) -> Run:
    """Return the child run that asks through a run, at any depth; the run itself if it asks on its own.

    Only the child run keeps its request when no process executes them.
    """
    asking = run
    for child in reversed(await service.runs(status=["input_required"], limit=_MOST_ASKING)):
        if child.request.metadata.get(PARENT_RUN) == asking.id:
            asking = child
    return asking


def _next(run: Run, asking: Run | None = None) -> str:
    """Return the next command for the person at the terminal; see `_find_asking`."""
    asking = asking or run
    match run.status:
        case "completed":
            return f'{PROGRAM} run --session {run.request.session_id} "…"'
        case "working" if run.driver:
            return f"{PROGRAM} events {run.id} --follow"
        case "input_required":
            decided = " ".join(
                f"{PROGRAM} runs decide {asking.id} {each.id} approve;" for each in asking.pending[:1]
            )
            return f"{decided} then {PROGRAM} runs resume {run.id}"
        case _:
            return f"{PROGRAM} runs resume {run.id}"


def _decision(run: Run, args: argparse.Namespace) -> ApprovalDecision | InputResponse:
    waiting = ", ".join(each.id for each in run.pending) or "nothing"
    if not args.decided or not args.decision:
        raise InvalidInputError(
            "The decision is incomplete.",
            advice=f"Write: runs decide {run.id} ID approve. It waits for: {waiting}.",
        )
    given: object = None
    if args.given is not None:
        try:
            given = json.loads(args.given)
        except ValueError as error:
            raise InvalidInputError(f"--with is not JSON: {error}.") from None
    if args.decision in {"edit", "answer"} and not isinstance(given, dict):
        raise InvalidInputError(f"{args.decision} needs a JSON object.", advice="Give it by --with '{…}'.")
    content = cast("dict[str, Any]", given or {})
    if run.status == "working" and not run.driver:
        raise InvalidInputError(
            f"Run {run.id} waits for nothing now: no process executes it.",
            advice=f"It asks its questions when it is resumed: runs resume {run.id}",
        )
    questions = {each.id for each in run.pending if each.kind == "question"}
    if args.decided in questions and args.decision == "deny":
        return InputResponse(id=args.decided, action="decline", by=_BY)
    if args.decision == "answer":
        return InputResponse(id=args.decided, action="accept", content=content, by=_BY)
    return ApprovalDecision(
        id=args.decided, action=args.decision, arguments=content, reason=args.reason, by=_BY
    )


def _show_event(event: StreamEvent, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{json.dumps(asdict(event), ensure_ascii=True, default=str)}\n")
    else:
        info = event_info(event)
        out(f"{info.seq} {info.type} {json.dumps(info.payload, ensure_ascii=False, default=str)}")
    sys.stdout.flush()
