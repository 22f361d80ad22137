"""A run at a terminal: what it writes and does as it goes, and what it asks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, cast

from loom_agent.texts import question_of, run_summary
from loom_agent.wording import Wording
from loom_core.agent.orders import Answered, Decided
from loom_core.knowledge.visible import visible
from loom_core.server.console import out, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_agent.keyboard import Keyboard
    from loom_core.agent.events import StreamEvent
    from loom_core.agent.run import Pending, Run

__all__ = ["Terminal", "asked_at_terminal"]

_ARGUMENTS = 300
_RESULT = 200
_BY = "the user at the terminal"


class Terminal:
    """Shows the events of a run: what the model writes on standard output, all else on standard error.

    Where the answer is not read by a person but goes on into a pipe, only the final one is written there.

    Args:
        quiet: show nothing but the answer.
        as_json: show nothing: somebody else writes the answer.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self._quiet = quiet or as_json
        self._silent = as_json
        self._streams = sys.stdout.isatty() and not as_json
        self._open = False
        self._streamed = ""

    def show(self, event: StreamEvent) -> None:
        """Show an event, if it tells a person something."""
        payload = event.payload
        match event.type:
            case "text_delta":
                self._write(str(payload["text"]))
            case "model_start" | "model_retry":
                self._end_line()
                self._streamed = ""
                if event.type == "model_retry":
                    self._say(f"  ↻ {payload['problem']}")
            case "tool_calls_start":
                self._end_line()
                for call in payload["calls"]:
                    self._say(f"  → {call['tool']} {_shown(call['arguments'], _ARGUMENTS)}")
            case "tool_result":
                mark = "✓" if payload["status"] == "success" else "✗"
                text = " ".join(str(payload["text"]).split())[:_RESULT]
                self._say(f"  {mark} {payload['tool']} ({payload['seconds']:.1f} s): {text}")
            case "knowledge" if payload["passages"]:
                self._say(f"  ▤ {', '.join(str(each['id']) for each in payload['passages'])}")
            case "compression_applied":
                self._say(f"  ⇊ {payload['before']} → {payload['after']} tokens")
            case "loop_detected":
                self._say(f"  ↺ {payload['tool']}: the same call {payload['times']} times")
            case _:
                pass

    def finish(self, run: Run) -> None:
        """Show what came of the run."""
        self._end_line()
        if self._silent:
            return
        if run.output and run.output.strip() != self._streamed.strip():
            out(run.output)
        if run.problem:
            say(run.problem)
        self._say(f"[{run.id}, session {run.request.session_id}] {run_summary(run)}")

    def _write(self, text: str) -> None:
        self._streamed += text
        if self._streams:
            sys.stdout.write("".join(char if char == "\n" else visible(char) for char in text))
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open:
            out()
            self._open = False
        if not self._streams:
            self._streamed = ""

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._end_line()
            say(text)


async def asked_at_terminal(keyboard: Keyboard, run: Run, pending: Pending) -> Decided | Answered | None:
    """Ask the person about something that a run waits for; None if they make no choice."""
    say(question_of(pending, Wording.for_goal(run.request.goal)))
    if pending.kind == "question":
        return await _answered(keyboard, pending)
    every = "[a]ll of this tool, " if pending.for_run else ""
    choices = f"[y]es, {every}[n]o, [e]dit" if pending.kind == "approval" else "[y]es, [n]o"
    while True:
        said = await keyboard.line(f"{choices}: ")
        if said is None:
            return None
        match said.strip().lower():
            case "y" | "yes" | "是":
                return Decided(id=pending.id, action="approve", by=_BY)
            case "a" | "all" | "全部" if pending.for_run:
                return Decided(id=pending.id, action="approve", scope="run", by=_BY)
            case "n" | "no" | "否":
                reason = await keyboard.line("Why? (for the agent; may be empty) ") or ""
                return Decided(id=pending.id, action="deny", reason=reason.strip(), by=_BY)
            case "e" | "edit" if pending.kind == "approval":
                if (arguments := await _edited(keyboard, pending.arguments)) is not None:
                    return Decided(id=pending.id, action="edit", arguments=arguments, by=_BY)
            case _:
                pass


async def _edited(keyboard: Keyboard, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    say(json.dumps(dict(arguments), ensure_ascii=False))
    line = await keyboard.line("Arguments as JSON: ")
    return _object(line or "")


async def _answered(keyboard: Keyboard, pending: Pending) -> Answered | None:
    properties = cast("Mapping[str, Mapping[str, Any]]", pending.schema.get("properties", {}))
    content: dict[str, Any] = {}
    if not properties:
        said = await keyboard.line("[y]es, [n]o: ")
        if said is None:
            return None
        agreed = said.strip().lower() in {"y", "yes", "是"}
        return Answered(id=pending.id, action="accept" if agreed else "decline", by=_BY)
    for name, part in properties.items():
        label = part.get("title") or part.get("description") or name
        choices = f" ({', '.join(map(str, part['enum']))})" if "enum" in part else ""
        said = await keyboard.line(f"{visible(str(label))}{visible(choices)}: ")
        if said is None:
            return None
        if said or name in pending.schema.get("required", ()):
            content[name] = _value(said, str(part.get("type", "string")))
    return Answered(id=pending.id, action="accept", content=content, by=_BY)


def _value(said: str, kind: str) -> object:
    """What was typed as the type that is wanted, where it can be."""
    if kind == "boolean":
        return said.strip().lower() in {"y", "yes", "true", "1", "是"}
    if kind in {"integer", "number"}:
        try:
            return int(said) if kind == "integer" else float(said)
        except ValueError:
            return said
    return said


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        say(f"This is no JSON: {error}")
        return None
    if not isinstance(value, dict):
        say("Write an object in braces.")
        return None
    return cast("dict[str, Any]", value)


def _shown(value: Mapping[str, Any], most: int) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]} …"
