from __future__ import annotations

import os
import sys

import anyio
import pytest
from pydantic import SecretStr

from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.process import ChildLog, ChildProcess, program_of


def test_a_log_keeps_the_last_lines_only_and_cuts_long_ones():
    log = ChildLog("s")
    for number in range(1000):
        log.feed(f"line {number}\n".encode())
    assert (len(log.lines), log.lines[-1]) == (50, "line 999")
    assert log.tail() == "line 996 / line 997 / line 998 / line 999"
    for _ in range(100):
        log.feed(b"x" * 100_000)
    log.finish()
    assert log.lines[-1] == "x" * 400


def test_a_line_may_come_in_pieces_and_without_an_end():
    log = ChildLog("s")
    text = "数据库".encode()
    for byte in text:
        log.feed(bytes([byte]))
    log.finish()
    log.finish()
    assert list(log.lines) == ["数据库"]


@pytest.mark.hostile("MCP servers")
def test_a_log_shows_no_secret_no_control_character_and_no_empty_line():
    log = ChildLog("s", [SecretStr("sk-geheim")])
    log.feed(b"key=sk-geheim\r\n\n \x1b[31mred\xff\n")
    assert list(log.lines) == ["key=[secret]", "[31mred\ufffd"]


@pytest.mark.hostile("MCP servers")
def test_a_secret_is_hidden_before_a_line_is_cut_through_it():
    log = ChildLog("s", [SecretStr("sk-geheim-123456")])
    log.feed(b"x" * 395 + b"sk-geheim-123456\n")
    assert "sk-" not in log.lines[-1]


async def test_a_program_is_named_by_its_path_from_the_folder_that_it_is_started_in(tmp_path):
    program = tmp_path / "工具" / "run.sh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho here >&2\n")
    program.chmod(0o755)
    config = ServerConfig(name="s", transport="stdio", command="./run.sh", cwd=program.parent)
    assert program_of(config, path="") == str(program.parent / "run.sh")
    process = await ChildProcess.start(config, {"PATH": os.defpath})
    await process.read_log()
    assert process.log.tail() == "here"
    await process.stop()


@pytest.mark.slow
async def test_a_child_that_does_not_end_is_killed_though_nobody_waits_for_it():
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    config = ServerConfig(name="s", transport="stdio", command=sys.executable, args=("-c", stubborn))
    process = await ChildProcess.start(config, {"PATH": os.defpath})
    await process.output.receive()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await process.stop()
    with anyio.fail_after(10):
        assert await process.describe_exit() == "was ended by signal 9"
        await process.stop()
