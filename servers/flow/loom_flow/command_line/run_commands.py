"""Commands that need flows and runs; those that run a flow ask its questions at the terminal."""

from __future__ import annotations

import getpass
import json
import logging
import sys
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

import anyio
from anyio import to_thread

from loom_core.errors import InvalidInputError
from loom_core.flow.diagram.drawing import draw_run
from loom_core.runs.commands import Abort
from loom_core.runs.run import RunStatus
from loom_core.server.cli.console import out, out_json, say
from loom_core.server.cli.evaluation import JUnitCase, read_text, write_junit
from loom_core.server.cli.option_types import parse_values
from loom_core.server.cli.terminal import Interrupted, Interrupts, Keyboard, ask_at_terminal
from loom_flow import PROGRAM
from loom_flow.engine import model_from_settings
from loom_flow.models import OperatorResult, RunsResult
from loom_flow.service import FlowService
from loom_flow.settings import invocation
from loom_flow.texts import (
    chat_result,
    explain_text,
    go_on_line,
    handover_info,
    operator_text,
    progress_line,
    run_info,
    run_line,
    run_text,
    runs_text,
    spoken_info,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from loom_core.flow.config import FlowFile
    from loom_core.flow.regression import RegressionReport, Utterance
    from loom_core.runs.run import Run
    from loom_flow.models import ChatResult
    from loom_flow.settings import Settings

__all__ = ["chat", "run_with_service"]

_INTERRUPTED = 130
_APPLIED_SECONDS = 10.0


def run_with_service(args: argparse.Namespace, settings: Settings) -> int:
    """Run a parsed command, and return the exit code."""
    commands = {
        "explain": _explain,
        "run": _run,
        "chat": chat,
        "test": _test,
        "runs": _runs,
        "status": _status,
        "resume": _resume,
        "operator": _operate,
        "event": _send_event,
    }

    async def run() -> int:
        model_from_settings(settings)  # a named run may be retried with corrections
        service = FlowService(settings, adopts=False, sees_all=True)
        service.load()
        async with service, Interrupts.listen() as interrupts:
            try:
                return await interrupts.unless(lambda: commands[args.command](service, args))
            except Interrupted:
                if run_id := getattr(args, "run_id", "") if args.command != "status" else "":
                    say("\nInterrupted. Active runs are in the journal, and can be resumed.")
                    say(f"Go on with: {invocation(settings, 'resume', run_id)}")
                return _INTERRUPTED

    return anyio.run(run)


async def _explain(service: FlowService, args: argparse.Namespace) -> int:
    message, context = " ".join(args.message), parse_values(args.context)
    result = await service.explain(message, session_id=args.session, context=context)
    out_json(result) if args.json else out(explain_text(result))
    return 0


async def _run(service: FlowService, args: argparse.Namespace) -> int:
    file, context = (await service.read_flows()).file, parse_values(args.context)
    flow = file.flow(args.flow)
    inputs = parse_values(args.inputs, flow.input_schema if flow is not None else None)
    if args.dry_run:
        from loom_flow.command_line.dry_run import dry_run, dry_run_text

        result = await dry_run(file, args.flow, inputs, context=context, message=args.message)
        out_json(result) if args.json else out(dry_run_text(result))
        return 0 if not result.problems and not result.missing else 1
    run = await service.start(
        args.flow, inputs, message=args.message, session_id=args.session, context=context
    )
    args.run_id = run.id
    return await _attach_to_run(service, run, after=0, as_json=args.json)


async def _test(service: FlowService, args: argparse.Namespace) -> int:
    from loom_core.flow.regression import check_utterances, read_utterances

    text = await to_thread.run_sync(read_text, args.file)
    utterances = read_utterances(text, name=str(args.file))
    loaded = await service.read_flows()
    llm = None if not args.with_model else await service.model()
    mode = "rules" if args.rules else "scripted"
    with _quiet_flows():
        report = await check_utterances(loaded, utterances, mode=mode, llm=llm)
    if args.json:
        out_json({**asdict(report), "failed": report.failed})
    else:
        for each in report.differences:
            out(str(each))
        left = f", {len(report.left_out)} left out" if report.left_out else ""
        messages = "message" if report.checked == 1 else "messages"
        say(f"{report.checked} {messages}, {report.failed} not as expected{left}.")
    if args.junit:
        cases = [_junit_case(each, report) for each in utterances if each.line not in report.left_out]
        await to_thread.run_sync(write_junit, args.junit, f"{PROGRAM} test", cases)
    return 1 if report.differences else 0


def _junit_case(utterance: Utterance, report: RegressionReport) -> JUnitCase:
    found = (str(each) for each in report.differences if each.line == utterance.line)
    return JUnitCase(name=f"line {utterance.line}: {utterance.message}", failure="\n".join(found))


@contextmanager
def _quiet_flows() -> Generator[None]:
    """Log only errors of flows: a script that returns nothing is expected."""
    log = logging.getLogger("loom_core.flow")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


async def _runs(service: FlowService, args: argparse.Namespace) -> int:
    known = get_args(RunStatus)
    for status in args.status:
        if status not in known:
            raise InvalidInputError(
                f"There is no status {status!r}.", advice=f"There are: {', '.join(known)}."
            )
    status = cast("list[RunStatus]", args.status)
    query, limit = " ".join(args.query), args.limit
    if args.html:
        from loom_core.server.runs.html_option import write_run_page

        has_flows = service.current is not None
        draw = partial(draw_run, await service.read_flows()) if has_flows else None
        listed = await service.runs(status=status, query=query, limit=limit + 1)
        page = await write_run_page(
            service, args.html, listed=listed, limit=limit, program=PROGRAM, draw=draw
        )
        page.show(as_json=args.json)
        return 0
    found = await service.runs(status=status, query=query, limit=limit)
    result = RunsResult(runs=[run_line(run) for run in found])
    out_json(result) if args.json else out(runs_text(result))
    return 0


async def _status(service: FlowService, args: argparse.Namespace) -> int:
    from loom_core.server.runs.html_option import find_run

    run = await find_run(service, args.run_id)
    await _print_run(service, run, as_json=args.json)
    after = 0
    while args.events and (found := await service.events(run.id, after=after, limit=500)):
        after = found[-1].seq
        for event in found:
            told = asdict(event) if args.json else event.payload
            line = json.dumps(told, ensure_ascii=args.json, default=str)
            out(line if args.json else f"{event.seq} {event.type} {line}")
    return _exit_code(run.status)


async def _resume(service: FlowService, args: argparse.Namespace) -> int:
    run = await service.run(args.run_id)
    before = run.last_seq
    if args.approve or args.deny or args.answer is not None:
        # Not before: it imports the MCP SDK, half of the time of a command.
        from loom_flow.mcp_tools.tools import build_response, find_pending

        pending = find_pending(run, args.id, questions=args.answer is not None)
        answer = None if args.answer is None else _object(args.answer, "--answer")
        action = "answer" if answer is not None else "approve" if args.approve else "deny"
        order = build_response(pending, action, answer=answer, reason=args.reason, by=_BY)
        run = await service.decide(run, order)
    elif args.retry is not None:
        steps = [each for each in args.retry if "=" not in each]
        if len(steps) > 1:
            raise InvalidInputError(
                f"Retry from one step, not from {' and '.join(steps)}.", advice="Give the first."
            )
        flow = (await service.read_flows()).file.flow(run.request.profile)
        schema = None if flow is None else flow.input_schema
        inputs = parse_values([each for each in args.retry if "=" in each], schema)
        run = await service.retry(run.id, "".join(steps), inputs=inputs, by=_BY)
    elif args.abort:
        await service.send_commands(run.id, Abort(reason=args.reason, by=_BY))
        run = await service.wait_until_idle(run.id, after=before, seconds=_APPLIED_SECONDS)
        await _print_run(service, run, as_json=args.json)
        return 0 if run.status == "aborted" else 1
    else:
        await service.resume(run.id, by=_BY)
        before = 0 if run.status in {"working", "input_required"} else before
    return await _attach_to_run(service, run, after=before, as_json=args.json)


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{option} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"{option} needs an object.", advice="Write it as '{…}'.")
    return cast("dict[str, Any]", value)


_SLICE_SECONDS = 30.0


async def chat(service: FlowService, args: argparse.Namespace) -> int:
    """Chat with lines from stdin until its end; return the exit code for the last reply."""
    keyboard, session, context = Keyboard(), args.session, parse_values(args.context)
    file = (await service.read_flows()).file
    if keyboard.is_interactive:
        say(_opening(file))
    code, is_outside = 0, False  # whether an operator may have written since
    while (line := await keyboard.line("> " if keyboard.is_interactive else "")) is not None:
        if not line.strip() and not is_outside:
            continue
        reply = await service.chat(line, session_id=session, context=context, seconds=_SLICE_SECONDS)
        session, context, args.run_id = reply.session_id, {}, reply.run_id
        run = await _wait_until_idle(service, reply.run_id) if reply.run_id else None
        pending = reply.pending if run is None else run.pending
        is_outside = bool(pending) and not any(each.for_user for each in pending)
        result = chat_result(reply, run, file=service.current or file, by_asking=False)
        _say(result, as_json=args.json)
        await service.confirm_delivery(session, run, reply.told)
        code = _chat_code(reply.status if run is None else run.status)
    return code


def _opening(file: FlowFile) -> str:
    settings = file.basic_settings
    return f"{settings.greeting or settings.name or PROGRAM}\n(Ctrl-D ends.)"


def _chat_code(status: RunStatus) -> int:
    """Return the exit code for a status; a conversation in which the user aborted something succeeds."""
    return 0 if status == "aborted" else _exit_code(status)


def _say(result: ChatResult, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{json.dumps(result.model_dump(mode='json'), ensure_ascii=True)}\n")
        sys.stdout.flush()
        return
    out(result.text)
    for mark, title in _citations(result):
        say(f"  [{mark}] {title}")


def _citations(result: ChatResult) -> list[tuple[str, str]]:
    """Return the citations of an answer with the markers of its text: by id, or by number."""
    cited = [each for each in result.citations if f"[{each.id}]" in result.text]
    if cited:
        return [(each.id, each.title or each.source) for each in cited]
    return [(str(number), each.title or each.source) for number, each in enumerate(result.citations, 1)]


async def _operate(service: FlowService, args: argparse.Namespace) -> int:
    """Carry out `operator`; return the exit code."""
    if args.action == "list":
        found = [handover_info(each) for each in await service.operator_queue()]
        _print(OperatorResult(conversations=found, messages=[], run=None), as_json=args.json)
        return 0
    if not args.run_id:
        raise InvalidInputError("Which conversation is meant?", advice="Give its run, as in the list.")
    by, text = args.name or _user(), " ".join(args.words)
    if args.action in {"say", "take"}:
        await service.operate(args.run_id, args.action, by=by, text=text)
    elif args.action in {"return", "decline"}:
        handover, _ = await service.handover(args.run_id)
        agreed = parse_values(args.words, handover.pending.schema) if args.action == "return" else {}
        run = await service.operate(args.run_id, args.action, by=by, text=text, agreed=agreed)
        return await _attach_to_run(service, run, after=handover.run.last_seq, as_json=args.json)
    handover, messages = await service.handover(args.run_id)
    shown = [spoken_info(each) for each in messages]
    _print(
        OperatorResult(conversations=[handover_info(handover)], messages=shown, run=None), as_json=args.json
    )
    return 0


async def _send_event(service: FlowService, args: argparse.Namespace) -> int:
    """Carry out `event`; return the exit code."""
    try:
        payload: object = json.loads(args.payload)
    except ValueError as error:
        raise InvalidInputError(f"The data of the event is not JSON: {error}.") from None
    reached = await service.send_event(args.name, key=args.key, payload=payload)
    for run_id in reached:
        run = await service.wait_until_idle(run_id, seconds=_APPLIED_SECONDS)
        out_json({"run_id": run.id, "status": run.status}) if args.json else out(f"{run.id}: {run.status}")
    return 0


def _print(result: OperatorResult, *, as_json: bool) -> None:
    out_json(result) if as_json else out(operator_text(result))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user of this number
        return "Operator"


_BY = "the user at the terminal"
"""The decider's name in the journal."""

_WAITS = 3
_IDLE_STATUSES = frozenset({"completed", "failed", "aborted", "input_required", "paused"})
_ASKING_EVENT = "approval_required"


def _exit_code(status: RunStatus) -> int:
    """Return the exit code for a run's status."""
    if status == "completed":
        return 0
    return 1 if status in {"failed", "aborted"} else _WAITS


async def _attach_to_run(service: FlowService, run: Run, *, after: int, as_json: bool) -> int:
    """Wait for a run, and ask its questions if the terminal is interactive; return the exit code."""
    keyboard = Keyboard()
    async with anyio.create_task_group() as tasks:
        if not as_json:
            tasks.start_soon(_print_events, service, run, after, keyboard.is_interactive)
        run = await _wait_until_idle(service, run.id, after=after)
        while run.status == "input_required" and run.questions and keyboard.is_interactive:
            pending = run.questions[0]
            decision = await ask_at_terminal(keyboard, service.question(run, pending), pending, by=_BY)
            if decision is None:
                break
            try:
                told = await service.decide(run, decision)
            except InvalidInputError as error:  # another client has decided, or it was no valid response
                say(str(error))
                told = await service.run(run.id)
            run = await _wait_until_idle(service, run.id, after=told.last_seq)
        tasks.cancel_scope.cancel()
    await _print_run(service, run, as_json=as_json)
    return _exit_code(run.status)


async def _wait_until_idle(service: FlowService, run_id: str, *, after: int = 0) -> Run:
    """Return the run when it is idle."""
    while True:
        run = await service.wait_until_idle(run_id, after=after, seconds=_SLICE_SECONDS)
        if run.status in _IDLE_STATUSES:
            return run
        after = run.last_seq


async def _print_run(service: FlowService, run: Run, *, as_json: bool) -> None:
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
