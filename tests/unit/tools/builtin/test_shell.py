"""Commands: what they may take, and that nothing of them is left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import ConfigError
from loom_core.plugins import create
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.shell import ShellCommand, shell_tool, terminal_text
from loom_core.tools.function_tool import tool_threads
from loom_core.tools.interface import CallContext, ToolOutput

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")


async def _run(folder: Path, command: str, **arguments: Any) -> ToolOutput:
    return await shell_tool(folder).call({"command": command, **arguments})


async def _until_gone(*files: Path) -> None:
    """Wait until the processes have ended that have written their ids into these files."""
    for file in files:
        process = int(file.read_text(encoding="utf-8"))
        with anyio.fail_after(30):
            while _runs(process):  # noqa: ASYNC110 - no one tells
                await anyio.sleep(0.01)


def _runs(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    if status.parent.parent.joinpath("self").exists():
        try:
            return status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def test_output_and_exit_code_are_told(tmp_path: Path) -> None:
    output = await _run(tmp_path, "echo 你好; echo wrong >&2; exit 3")

    assert output.text.startswith("你好\nwrong\n[exit code 3 after ")
    assert (output.is_error, output.metadata["exit_code"]) == (True, 3)
    assert not (await _run(tmp_path, "true")).is_error


async def test_each_call_has_to_be_approved(tmp_path: Path) -> None:
    made = create("tool", "shell", tmp_path)

    assert made.approval_reason == "It runs a command on this machine."
    assert made.needs_approval
    assert not made.annotations.repeatable
    assert made.needs_seconds > 600
    assert not made.is_concurrency_safe


async def test_a_command_works_in_its_folder_and_finds_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = FileRoot(tmp_path).folder
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.example:1")
    shell = shell_tool(tmp_path, environment={"STAGE": "测试"})

    output = await shell.call({"command": "pwd -P; env"})

    assert output.text.startswith(f"{anchor}\n")
    assert "hunter2" not in output.text
    assert "STAGE=测试" in output.text
    assert "GIT_TERMINAL_PROMPT=0" in output.text


async def test_nothing_can_be_asked_of_anyone(tmp_path: Path) -> None:
    output = await _run(tmp_path, "read answer; echo [$answer]; cat; tty")

    assert output.text.startswith("[]\nnot a tty\n[exit code 1")


@pytest.mark.hostile("patterns")
async def test_a_flood_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    shell = shell_tool(tmp_path, output_bytes=2000)

    output = await shell.call({"command": "echo first; yes | head -c 5000000; echo last; echo 港口"})

    assert output.text.startswith("first\ny\n")
    assert "bytes are left out here …]" in output.text
    assert "last\n港口\n[exit code 0" in output.text
    assert len(output.text) < 2300


@pytest.mark.slow
async def test_time_ends_a_command_and_all_that_it_has_started(tmp_path: Path) -> None:
    command = (
        "echo before; trap '' TERM; sleep 600 & echo $! > child; (sleep 600 & echo $! > grandchild);"
        " setsid sleep 600 & echo $! > escaped; sleep 600"
    )

    output = await _run(tmp_path, command, timeout=1.5)

    assert output.is_error
    assert output.text.startswith("before\n[ended after 1.5 seconds")
    names = ["child", "grandchild", *(["escaped"] if sys.platform == "linux" else [])]
    await _until_gone(*(tmp_path / name for name in names))


async def test_what_is_left_in_the_background_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    output = await _run(tmp_path, "sleep 600 & echo $! > child; echo done")

    assert output.text.startswith("done\n[exit code 0")
    await _until_gone(tmp_path / "child")


async def test_a_cancelled_call_ends_the_command_before_it_is_over(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            _run, tmp_path, "echo $$ > shell; sleep 60 & echo $! > child.new; mv child.new child; wait"
        )
        with anyio.fail_after(10):
            while not (tmp_path / "child").exists():  # noqa: ASYNC110 - no one tells
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    await _until_gone(tmp_path / "shell", tmp_path / "child")


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_runs_nothing(tmp_path: Path) -> None:
    threads = tool_threads()
    owners = [object() for _ in range(int(threads.total_tokens))]
    for owner in owners:
        threads.acquire_on_behalf_of_nowait(owner)

    with anyio.move_on_after(0.1):
        await _run(tmp_path, "touch done")
    for owner in owners:
        threads.release_on_behalf_of(owner)

    assert not (tmp_path / "done").exists()


def test_a_command_that_is_stopped_first_is_not_begun(tmp_path: Path) -> None:
    command = ShellCommand(
        ["/bin/sh", "-c", "touch done"], folder=tmp_path, environment={}, seconds=5, most_bytes=100
    )
    command.stop()

    assert command.run().ended == "stopped"
    assert command.done.is_set()
    assert not (tmp_path / "done").exists()


async def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    output = await _run(tmp_path, "exec >&- 2>&-; sleep 0.1; exit 4")
    assert output.metadata["exit_code"] == 4

    output = await _run(tmp_path, "exec >&- 2>&-; sleep 60", timeout=0.2)
    assert output.text.startswith("[ended after 0.2 seconds")


async def test_a_signal_is_told(tmp_path: Path) -> None:
    assert (await _run(tmp_path, "kill -9 $$")).text.startswith("[ended by signal 9")


async def test_the_caller_may_give_less_time_and_none_may_ask_for_more(tmp_path: Path) -> None:
    shell = shell_tool(tmp_path, most_seconds=5)

    output = await shell.call({"command": "sleep 60"}, context=CallContext(seconds=0.2))

    assert output.text.startswith("[ended after 0.2 seconds")
    assert (await shell.call({"command": "true", "timeout": 6})).is_error


async def test_a_command_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    output = await _run(tmp_path, "echo \0")
    assert "The command cannot be started" in output.text
    with pytest.raises(ConfigError):
        shell_tool(tmp_path / "none")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1b(B\x1b[m\x1b7ok", "ok"),
        ("10%\r50%\r100%\r\nnext\r\n", "100%\nnext\n"),
        ("港\x00口\x08\x7f", "港口"),
        ("\x9b31mred", "red"),
    ],
)
def test_what_is_for_terminals_only_is_left_out(written: str, read: str) -> None:
    assert terminal_text(written) == read


@pytest.mark.hostile("patterns")
def test_endless_beginnings_of_sequences_take_no_longer_than_their_size_allows() -> None:
    begun = time.thread_time()
    for unit in ("\x1b[", "\x1b]", "\x1b", "\r", "\x1b[1;"):
        terminal_text(unit * 100_000)
    assert time.thread_time() - begun < 3
