"""`loom-agent-server run` and `chat` at a terminal: what is asked inline, and what Ctrl-C does."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.commands import run_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork_server.py gives terminals on Linux")

_SECONDS = 60.0
_CTRL_C, _CTRL_D = "\x03", "\x04"


class Typist:
    """A person at a terminal, who waits for what they see before they type."""

    def __init__(self, command: list[str], home: Path) -> None:
        self._terminal, line = os.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=line,
            stdout=line,
            stderr=line,
            env={**os.environ, "LOOM_HOME": str(home)},
            start_new_session=True,
        )
        os.close(line)
        self._seen = 0
        self._ended = False
        self.shown = ""

    def sees(self, text: str) -> None:
        """Wait until a text is shown, behind what was seen before."""
        deadline = time.monotonic() + _SECONDS
        while (place := self.shown.find(text, self._seen)) < 0:
            assert not self._ended, f"it ended without {text!r}:\n{self.shown}"
            assert time.monotonic() < deadline, f"no {text!r} in time:\n{self.shown}"
            self._read()
        self._seen = place + len(text)

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ends(self) -> int:
        """The exit code."""
        deadline = time.monotonic() + _SECONDS
        while not self._ended:
            assert time.monotonic() < deadline, f"it does not end:\n{self.shown}"
            self._read()
        return self._process.wait()

    def close(self) -> None:
        if not self._ended:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def _read(self) -> None:
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return
        try:
            piece = os.read(self._terminal, 65_536)
        except OSError:  # Linux says so that the other end has gone
            piece = b""
        self._ended = not piece
        self.shown += piece.decode("utf-8", "replace")


@pytest.fixture
def at_terminal(home: Path) -> Iterator[Callable[..., Typist]]:
    """Starts a command with the demonstration at a terminal; it ends with the test."""
    typists: list[Typist] = []

    def start(command: str, *arguments: str) -> Typist:
        line = [sys.executable, "-m", "loom_agent", command, "--provider", "mock", *arguments]
        typists.append(Typist(line, home))
        return typists[-1]

    yield start
    for typist in typists:
        typist.close()


def test_a_call_is_approved_inline(at_terminal: Callable[..., Typist]) -> None:
    person = at_terminal("run", "请记一条笔记：灯塔")
    person.sees("→ keep_note")
    person.sees("[y]es, [a]ll of this tool, [n]o, [e]dit: ")
    person.types("y\n")
    person.sees("✓ keep_note")
    person.sees("工具的结果")
    assert person.ends() == 0


def test_a_call_is_refused_with_a_reason_or_made_with_other_arguments(
    at_terminal: Callable[..., Typist],
) -> None:
    person = at_terminal("run", "note that")
    person.sees("[e]dit: ")
    person.types("n\n")
    person.sees("Why?")
    person.types("不需要\n")
    person.sees("They say: 不需要")
    assert person.ends() == 0
    person = at_terminal("run", "note that")
    person.sees("[e]dit: ")
    person.types("e\n")
    person.sees("Arguments as JSON: ")
    person.types("{no JSON\n")
    person.sees("This is not valid JSON")
    person.types("e\n")
    person.sees("Arguments as JSON: ")
    person.types('{"text": "海"}\n')
    person.sees('"kept":"海"')
    assert person.ends() == 0


def test_a_tool_is_approved_for_the_rest_of_a_run(at_terminal: Callable[..., Typist]) -> None:
    person = at_terminal("run", 'use keep_note {"text": "甲"} and use keep_note {"text": "乙"}')
    person.sees("[e]dit: ")
    person.types("a\n")
    person.sees('"kept":"甲"')
    person.sees('"kept":"乙"')
    assert person.ends() == 0


def test_ctrl_c_pauses_and_a_second_one_aborts(at_terminal: Callable[..., Typist], home: Path) -> None:
    person = at_terminal("run", "wait 60")
    person.sees("→ wait_for")
    person.types(_CTRL_C)
    person.sees("Paused; running work finishes first.")
    person.types(_CTRL_C)
    person.sees("The run was aborted")
    assert person.ends() == 130
    person = at_terminal("run", "note that")
    person.sees("[e]dit: ")
    person.types(_CTRL_C)
    person.sees("Go on with: loom-agent-server runs resume run_")
    assert person.ends() == 130
    listed = run_command("loom_agent", "runs", "--home", home, "--status", "paused", check=True)
    run_id = listed.stdout.decode().split()[1]
    person = at_terminal("runs", "resume", run_id)
    person.sees("[e]dit: ")
    person.types("y\n")
    person.sees("The tools say")
    assert person.ends() == 0


def test_a_conversation_asks_goes_on_and_ends(at_terminal: Callable[..., Typist]) -> None:
    person = at_terminal("chat")
    person.sees("> ")
    person.types("问我的名字\n")
    person.sees("answer: ")
    person.types("李明\n")
    person.sees("工具的结果：李明")
    person.sees("> ")
    person.types("wait 60\n")
    person.sees("→ wait_for")
    person.types(_CTRL_C)
    person.sees("Paused")
    person.types(_CTRL_C)
    person.sees("aborted")
    person.sees("> ")
    person.types("wait 60\n")
    person.sees("First I use")
    person.types(_CTRL_C)
    person.sees("> ")
    person.types(_CTRL_C)
    person.sees("aborted")
    person.sees("> ")
    person.types("What time is it?\n")
    person.sees("The tools say: 20")
    person.sees("> ")
    person.types(_CTRL_D)
    assert person.ends() == 0
    person = at_terminal("chat")
    person.sees("> ")
    person.types(_CTRL_C)  # at once: the prompt is there, so Ctrl-C has to be heard
    assert person.ends() == 130
    assert "Traceback" not in person.shown
