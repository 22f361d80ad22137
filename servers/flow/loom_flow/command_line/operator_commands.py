"""Commands of operators, and events for flows."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.server.cli.console import out, out_json
from loom_core.server.cli.named_values import parse_values
from loom_flow.command_line.attach import attach_to_run
from loom_flow.models import OperatorResult
from loom_flow.texts import handover_info, operator_text, spoken_info

if TYPE_CHECKING:
    import argparse

    from loom_flow.service import FlowService

__all__ = ["operate", "send_event"]


async def operate(service: FlowService, args: argparse.Namespace) -> int:
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
        return await attach_to_run(service, run, after=handover.run.last_seq, as_json=args.json)
    handover, messages = await service.handover(args.run_id)
    shown = [spoken_info(each) for each in messages]
    _print(
        OperatorResult(conversations=[handover_info(handover)], messages=shown, run=None), as_json=args.json
    )
    return 0


async def send_event(service: FlowService, args: argparse.Namespace) -> int:
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


_APPLIED_SECONDS = 10.0


def _print(result: OperatorResult, *, as_json: bool) -> None:
    out_json(result) if as_json else out(operator_text(result))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user of this number
        return "Operator"
