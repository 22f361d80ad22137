"""An agent that is killed again and again goes on, and does nothing twice without a person's word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from loom_core.runs.journal import Journal
from tests.fixtures.fork_server import starts_quickly

_CALLS = 18
_KILL_AT = (1, 2, 7, 14)  # effects
_SECONDS = 60

_AGENT = '''
import sys
from pathlib import Path

import anyio

from loom_core.agent.agent import Agent
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.run import RunRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools.function_tool import tool

journal, book, calls = Journal(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])

@tool(name="记账", open_world=False)
async def enter(number: int) -> str:
    """Enter a number into the book."""
    with book.open("a") as pages:
        pages.write(f"{number}\\n")
    await anyio.sleep(0.005)
    return f"entered {number}"

def script(request):
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if 2 * turn >= calls:
        return "done"
    pair = (ToolCallPart(f"c{n}", enter.wire_name, {"number": n}) for n in (2 * turn, 2 * turn + 1))
    return MockAnswer(f"turn {turn}", calls=tuple(pair))

async def look_into_the_book(pending):
    """Approve repeating an interrupted call only if the book does not hold its effect."""
    assert pending.kind == "unknown"
    return str(pending.arguments["number"]) not in book.read_text().split()

async def main():
    agent = Agent(
        MockProvider(script), tools=[enter], journal=journal, permissions="allow", approve=look_into_the_book
    )
    async with agent, RunHost(journal, {"default": agent}) as host:
        run = await host.start(RunRequest(goal="记账", idempotency_key="book"))
        while run.status != "completed":
            run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)

anyio.run(main)
'''


def _run(program: Path, path: Path, book: Path, *, kill_at: int | None = None) -> int:
    """Start the agent, and kill it as soon as there are so many effects; returns its exit code."""
    command = [sys.executable, starts_quickly(program), str(path), str(book), str(_CALLS)]
    with subprocess.Popen(command) as process:
        ends = time.monotonic() + _SECONDS
        while kill_at is not None and process.poll() is None:
            assert time.monotonic() < ends
            if len(book.read_text().split()) >= kill_at:
                os.kill(process.pid, signal.SIGKILL)
                break
        return process.wait(_SECONDS)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_an_agent_that_is_killed_again_and_again_does_everything_once(tmp_path: Path) -> None:
    program, path, book = tmp_path / "agent.py", tmp_path / "runs.db", tmp_path / "book"
    program.write_text(_AGENT, encoding="utf-8")
    book.touch()
    for kill_at in _KILL_AT:
        assert _run(program, path, book, kill_at=kill_at) == -signal.SIGKILL
    assert _run(program, path, book) == 0

    journal = Journal(path)
    (run,) = await journal.runs()
    events = await journal.events(run.id, limit=10_000)
    await journal.aclose()
    assert (run.status, run.output) == ("completed", "done")
    assert Counter(book.read_text().split()) == Counter(map(str, range(_CALLS)))
    ended = Counter(event.payload["call_id"] for event in events if event.type == "tool_result")
    assert ended == Counter(f"c{number}" for number in range(_CALLS))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    asked = [event for event in events if event.type == "approval_required"]
    assert 1 <= len(asked) <= len(_KILL_AT)
