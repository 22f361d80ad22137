"""A run at a terminal: what it writes and does as it goes, and what it asks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from loom_agent.texts import run_summary
from loom_core.knowledge.text.control_characters import visible
from loom_core.server.cli.console import out, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["Terminal"]

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


def _shown(value: Mapping[str, Any], most: int) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]} …"
