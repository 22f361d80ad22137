"""A run at the terminal: show its events, ask for approvals, pause it by Ctrl-C, until it is idle."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from loom_agent.texts import Wording, question_of, run_summary
from loom_core.errors import InvalidInputError
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.runs.commands import Abort, Pause
from loom_core.runs.run import Pending
from loom_core.server.cli.console import out, say
from loom_core.server.cli.terminal import ask_at_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_agent.service import AgentService
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run
    from loom_core.server.cli.terminal import Interrupts, Keyboard

__all__ = ["RunWatcher", "Terminal"]

_ARGUMENTS = 300
_RESULT = 200
_BY = "the user at the terminal"
_ENDED = frozenset({"agent_finish", "error", "aborted"})


class Terminal:
    """Shows the events of a run: the model's text on standard output, everything else on standard error.

    If standard output is not a terminal, only the final answer is written there.

    Args:
        quiet: show nothing but the answer.
        as_json: show nothing: the caller writes the answer.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self._quiet = quiet or as_json
        self._silent = as_json
        self._streams = sys.stdout.isatty() and not as_json
        self._open = False
        self._streamed = ""

    def show(self, event: StreamEvent) -> None:
        """Show an event, if it is of interest to a person."""
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
                    self._say(f"  → {call['tool']} {_format_arguments(call['arguments'], _ARGUMENTS)}")
            case "tool_retry":
                attempt = f"{payload['attempt']}/{payload['attempts']}"
                self._say(f"  ↻ {payload['tool']} {attempt} ({payload['wait']:.1f} s): {payload['problem']}")
            case "tool_result":
                mark = "✓" if payload["status"] == "success" else "✗"
                text = " ".join(str(payload["text"]).split())[:_RESULT]
                self._say(f"  {mark} {payload['tool']} ({payload['seconds']:.1f} s): {text}")
            case "knowledge" if payload["passages"]:
                self._say(f"  ▤ {', '.join(str(each['id']) for each in payload['passages'])}")
            case "compression_applied":
                self._say(f"  ⇊ {payload['before']} → {payload['after']} tokens")
            case "answer_reviewed":
                self._say(
                    f"  ⚑ answer {payload['action']} by {payload['hook']}: {payload['reason']}".rstrip(": ")
                )
            case "loop_detected":
                self._say(f"  ↺ {payload['tool']}: the same call {payload['times']} times")
            case _:
                pass

    def finish(self, run: Run) -> None:
        """Show the result of the run."""
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
            sys.stdout.write("".join(char if char == "\n" else escape_controls(char) for char in text))
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


def _format_arguments(value: Mapping[str, Any], most: int) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]} …"


class RunWatcher:
    """Watches a run for the person at the terminal.

    The run is idle when it has ended; when it is paused and no call is running; and, if there is no person to
    ask, when everything left waits for a decision.

    Args:
        service: the service with the run.
        terminal: shows the events.
        keyboard: input of the person.
        interrupts: Ctrl-C of the person.
    """

    def __init__(
        self, service: AgentService, terminal: Terminal, keyboard: Keyboard, interrupts: Interrupts
    ) -> None:
        self._service = service
        self._terminal = terminal
        self._keyboard = keyboard
        self._interrupts = interrupts
        self._calls: set[str] = set()
        self._waiting: dict[str, Pending] = {}
        self._asked: tuple[str, anyio.CancelScope] | None = None
        self._news = anyio.Event()
        self._paused = False
        self._given_up = False
        self.was_interrupted = False

    async def wait_until_idle(self, run: Run, *, after: int | None = None) -> Run:
        """Watch a run until it is idle; return it.

        Args:
            run: the run.
            after: seq of the last event that was shown; None to show only new events.
        """
        seen = run.last_seq if after is None else after
        for pending in run.pending:
            self._waiting[pending.id] = pending
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._handle_interrupts, run.id)
            if self._keyboard.is_interactive:
                tasks.start_soon(self._ask, run, tasks.cancel_scope)
            async with aclosing(self._service.journal().follow(run.id, after=seen)) as events:
                async for event in events:
                    self._terminal.show(event)
                    self._note(event)
                    if self._is_idle():
                        break
            tasks.cancel_scope.cancel()
        return await self._service.run(run.id)

    def _note(self, event: StreamEvent) -> None:
        payload = event.payload
        match event.type:
            case "tool_start":
                self._calls.add(payload["call_id"])
            case "tool_result":
                self._calls.discard(payload["call_id"])
            case "approval_required":
                pending = Pending(**payload["pending"])
                self._waiting[pending.id] = pending
                self._news.set()
            case "approval_decided":
                self._waiting.pop(payload["call_id"], None)
                if self._asked is not None and self._asked[0] == payload["call_id"]:
                    self._asked[1].cancel()
            case "paused":
                self._paused = True
            case "resumed":
                self._paused = False
            case _:
                pass

    def _is_idle(self) -> bool:
        # Calls whose tool asks a question, or whose child run asks for an approval: `CALL.NUMBER`.
        asking = {waiting.rpartition(".")[0] for waiting in self._waiting}
        if self._calls - asking:
            return False
        if self._given_up:
            return False
        return self._paused or (bool(self._waiting) and not self._keyboard.is_interactive)

    async def _ask(self, run: Run, everything: anyio.CancelScope) -> None:
        while True:
            while not self._waiting:
                self._news = anyio.Event()
                await self._news.wait()
            pending = next(iter(self._waiting.values()))
            self._keyboard.forget()
            decision = None
            with anyio.CancelScope() as scope:
                self._asked = (pending.id, scope)
                question = question_of(pending, Wording.for_goal(run.request.goal))
                decision = await ask_at_terminal(self._keyboard, question, pending, by=_BY)
            self._asked = None
            if scope.cancelled_caught:
                say("(It was decided elsewhere.)")
                continue
            if decision is None:  # the person is gone
                everything.cancel()
                return
            try:
                await self._service.decide(run, decision)
            except InvalidInputError as error:  # decided elsewhere meanwhile, too late, or invalid
                say(str(error))
                run = await self._service.run(run.id)
                if any(each.id == pending.id for each in run.pending):
                    continue
            self._waiting.pop(pending.id, None)

    async def _handle_interrupts(self, run_id: str) -> None:
        while True:
            await self._interrupts.next()
            await self._interrupt(run_id)

    async def _interrupt(self, run_id: str) -> None:
        first = not self.was_interrupted
        self.was_interrupted = True
        order = Pause(by=_BY) if first else Abort(reason="Interrupted at the terminal.", by=_BY)
        if first:
            say("\nPaused; running work finishes first. Ctrl-C again aborts.")
        self._given_up = not first  # it is not idle before it is aborted
        try:
            await self._service.send_commands(run_id, order)
        except InvalidInputError:  # it has just ended, or is paused already
            self._given_up = False
