"""Checks run side by side, and none hides another."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from loom_core.errors import ConfigError
from loom_core.server.cli.health import HealthReport, HealthSection, fine
from loom_core.server.doctor.check_runner import Check, blocking, run_checks


def section(name: str) -> HealthSection:
    return HealthSection(name=name, findings=[fine(name, "Fine.")])


async def report_of(*checks: Check) -> HealthReport:
    return await run_checks(checks, program="loom-x", version="1")


async def test_sections_come_in_the_order_of_the_checks_whatever_ends_first():
    second_done = anyio.Event()

    async def first() -> HealthSection:
        await second_done.wait()
        return section("first")

    async def second() -> list[HealthSection]:
        second_done.set()
        return [section("second"), section("third")]

    async def nothing() -> None:
        return None

    with anyio.fail_after(10):
        report = await report_of(Check("a", first), Check("b", nothing), Check("c", second))
    assert [part.name for part in report.sections] == ["first", "second", "third"]
    assert report.healthy


async def test_a_check_that_hangs_is_given_up_and_told():
    never = threading.Event()
    report = await report_of(
        Check("disk", blocking(lambda: section(str(never.wait()))), seconds=0.05),
        Check("port", blocking(lambda: section("port"))),
    )
    disk, port = report.sections
    assert (disk.name, disk.findings[0].code) == ("disk", "gives-no-answer")
    assert "within 0.05 s" in disk.findings[0].message
    assert port == section("port")
    never.set()


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (ConfigError("The file is broken.", advice="Mend it."), "The file is broken.", "Mend it."),
        (ValueError("一\nsecond line"), "It cannot be examined: ValueError: 一", "`loom-x doctor` again"),
        (ImportError("No module named 'x'"), "No module named 'x'", "Install loom-x again"),
        (
            ExceptionGroup("in a task group", [OSError("no disk")]),
            "It cannot be examined: OSError: no disk",
            "`loom-x doctor` again",
        ),
    ],
)
async def test_a_check_that_fails_becomes_a_finding(error: Exception, message: str, remedy: str):
    def fail() -> Callable[[], HealthSection]:
        raise error

    report = await report_of(Check("home", blocking(fail)), Check("port", blocking(lambda: section("port"))))
    [found] = report.sections[0].findings
    assert (found.severity, found.code) == ("problem", "cannot-be-examined")
    assert message in found.message
    assert remedy in found.remedy
    assert report.sections[1] == section("port")


async def test_what_blocks_and_ends_after_it_was_given_up_disturbs_no_one():
    go_on, ended = threading.Event(), threading.Event()

    def look() -> None:
        go_on.wait()
        ended.set()

    await report_of(Check("disk", blocking(look), seconds=0.01))
    go_on.set()
    assert ended.wait(10)
