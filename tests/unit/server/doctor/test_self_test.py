"""The self-test finds what a host would stumble over, with servers that do it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from loom_core.server.cli.health import Finding, HealthSection
from loom_core.server.doctor.self_test import HostTimeouts, probe_server, self_test_section

pytestmark = pytest.mark.slow

_FAKE = [sys.executable, str(Path(__file__).with_name("fake_server.py"))]


async def tried(
    *options: str, timeouts: HostTimeouts | None = None, program: str = "loom-x"
) -> HealthSection:
    with anyio.fail_after(60):
        return await self_test_section([*_FAKE, *options], program=program, timeouts=timeouts)


async def found_in(*options: str, timeouts: HostTimeouts | None = None, program: str = "loom-x") -> Finding:
    [found] = (await tried(*options, timeouts=timeouts, program=program)).findings
    return found


async def test_a_server_that_behaves_is_fine_in_both_eras():
    section = await tried("tools=ask,tell")
    assert [found.severity for found in section.findings] == ["ok"]
    assert section.facts["handshake_era"].startswith("fake 1: 2 tools in ")
    assert section.facts["modern_era"].startswith("fake 1: 2 tools in ")
    assert "after its input" in section.facts["modern_era"]


async def test_all_pages_of_tools_are_read():
    section = await tried("pages", "tools=a,b,c")
    assert "3 tools" in section.facts["modern_era"]


async def test_a_line_on_standard_output_is_shown_with_its_first_bytes():
    found = await found_in("print")
    assert (found.code, found.severity) == ("stdout-polluted", "problem")
    assert "first 'Loading 模型 ...'." in found.message
    assert found.remedy


async def test_bytes_after_the_last_message_are_pollution_too():
    found = await found_in("binary")
    assert (found.code, "'\\x00\\xffbye'" in found.message) == ("stdout-polluted", True)


async def test_output_without_end_is_given_up_at_once():
    section = await tried("endless")
    assert [found.code for found in section.findings] == ["stdout-polluted", "does-not-serve"]
    assert "its output does not end" in section.findings[1].message


async def test_a_slow_start_is_a_warning_and_is_not_tried_again():
    section = await tried("sleep=0.4", timeouts=HostTimeouts(slow=0.2))
    [found] = section.findings
    assert (found.code, found.severity) == ("slow-start", "warning")
    assert "hosts give up after 30 s" in found.message
    assert "modern_era" not in section.facts


async def test_a_server_that_never_answers_is_too_slow_and_killed():
    found = await found_in("mute", "stays", timeouts=HostTimeouts(gives_up=1.0))
    assert (found.code, found.severity) == ("too-slow", "problem")
    assert "did not answer within 1 s" in found.message


async def test_a_server_that_ends_at_once_is_told_with_the_last_line_of_its_log():
    found = await found_in("crash")
    assert (found.code, found.severity) == ("does-not-serve", "problem")
    assert "(exit code 1)" in found.message
    assert "ImportError: 没有模块" in found.message


async def test_a_command_that_is_not_there_cannot_be_started():
    section = await self_test_section(["/nowhere/loom-x", "serve"], program="loom-x")
    [found] = section.findings
    assert found.message == "In the handshake era it cannot be started: No such file or directory."
    assert section.facts["command"] == "/nowhere/loom-x serve"


async def test_an_error_in_place_of_tools_is_told():
    found = await found_in("error")
    assert (found.code, "-32603" in found.message) == ("does-not-serve", True)


async def test_a_server_that_outlives_its_input_is_told_and_killed():
    found = await found_in("stays", timeouts=HostTimeouts(ends=0.2))
    assert (found.code, found.severity) == ("stays", "problem")


async def test_an_exit_code_at_the_end_is_a_warning():
    found = await found_in("code=3")
    assert (found.code, found.severity) == ("ends-badly", "warning")
    assert "exit code 3" in found.message


@pytest.mark.parametrize(
    ("tools", "code", "severity", "told"),
    [
        ("ask,tell,ask", "duplicate-tools", "problem", "the same name: ask"),
        ("kb.ask,tell", "tool-names", "problem", "kb.ask"),
        ("问", "tool-names", "problem", "问"),
        ("a" * 60, "long-tool-names", "warning", "6 characters too long"),
        ("", "no-tools", "problem", "no tools"),
    ],
)
async def test_names_of_tools_that_hosts_refuse_are_told(tools: str, code: str, severity: str, told: str):
    found = await found_in(f"tools={tools}")
    assert (found.code, found.severity) == (code, severity)
    assert told in found.message
    assert found.remedy


async def test_other_tools_in_the_other_era_are_told():
    found = await found_in("tools=ask", "modern=ask,tell")
    assert (found.code, found.severity) == ("eras-differ", "problem")


async def test_the_server_gets_what_hosts_hand_on_and_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_TEST_KEY", "geheim")
    inherited = await probe_server([*_FAKE, "env=LOOM_TEST_KEY"], era="modern", seconds=30)
    assert inherited.server == "fake 1"
    given = await probe_server(
        [*_FAKE, "env=LOOM_TEST_KEY"], era="modern", seconds=30, environment={"LOOM_TEST_KEY": "of the entry"}
    )
    assert given.server == "of the entry 1"
    home = await probe_server([*_FAKE, "env=HOME"], era="handshake", seconds=30)
    assert home.server == f"{os.environ['HOME']} 1"


_SAYS_WHO_IT_IS = """
import os, sys, time
from pathlib import Path
new = Path(sys.argv[1] + ".new")
new.write_text(str(os.getpid()), encoding="ascii")
new.rename(sys.argv[1])
time.sleep(600)
"""


async def test_a_self_test_that_is_given_up_leaves_no_process(tmp_path: Path):
    told = anyio.Path(tmp_path / "pid")
    command = [sys.executable, "-c", _SAYS_WHO_IT_IS, str(told)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: self_test_section(command, program="loom-x"))
        with anyio.fail_after(30):
            while not await told.exists():  # noqa: ASYNC110 - another process tells it
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(await told.read_text(encoding="ascii")), 0)
