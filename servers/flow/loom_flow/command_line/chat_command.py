"""The command `chat`: a conversation, line by line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from loom_core.server.cli.console import out, say
from loom_core.server.cli.terminal import Keyboard
from loom_flow import PROGRAM
from loom_flow.command_line.attach import run_code, stands
from loom_flow.command_line.named_values import named_values
from loom_flow.texts import chat_result

if TYPE_CHECKING:
    import argparse

    from loom_core.flow.config import FlowFile
    from loom_core.runs.run import RunStatus
    from loom_flow.models import ChatResult
    from loom_flow.service import Service

__all__ = ["chat"]

_SLICE_SECONDS = 30.0


async def chat(service: Service, args: argparse.Namespace) -> int:
    """Take lines until there is no more; gives the exit code that says how the last of it stands."""
    keyboard, session, context = Keyboard(), args.session, named_values(args.context)
    file = (await service.loaded()).file
    if keyboard.attended:
        say(_opening(file))
    code = 0
    while (line := await keyboard.line("> " if keyboard.attended else "")) is not None:
        if not line.strip():
            continue
        reply = await service.chat(line, session_id=session, context=context, seconds=_SLICE_SECONDS)
        session, context, args.run_id = reply.session_id, {}, reply.run_id
        run = await stands(service, reply.run_id) if reply.run_id else None
        result = chat_result(reply, run, file=service.current or file, by_asking=False)
        _say(result, as_json=args.json)
        await service.reached(session, run, reply.told)
        code = _chat_code(reply.status if run is None else run.status)
    return code


def _opening(file: FlowFile) -> str:
    settings = file.basic_settings
    return f"{settings.greeting or settings.name or PROGRAM}\n(Ctrl-D ends.)"


def _chat_code(status: RunStatus) -> int:
    """As of a run, but that a conversation in which the user has called something off has gone well."""
    return 0 if status == "aborted" else run_code(status)


def _say(result: ChatResult, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{json.dumps(result.model_dump(mode='json'), ensure_ascii=True)}\n")
        sys.stdout.flush()
        return
    out(result.text)
    for mark, title in _citations(result):
        say(f"  [{mark}] {title}")


def _citations(result: ChatResult) -> list[tuple[str, str]]:
    """What an answer rests on, marked as the text marks it: by id, or by number."""
    cited = [each for each in result.citations if f"[{each.id}]" in result.text]
    if cited:
        return [(each.id, each.title or each.source) for each in cited]
    return [(str(number), each.title or each.source) for number, each in enumerate(result.citations, 1)]
