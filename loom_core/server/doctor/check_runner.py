"""Check runner: concurrent checks, each with a deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import anyio
from anyio import RunFinishedError, from_thread
from anyio.lowlevel import current_token

from loom_core.errors import LoomError, unwrap_group
from loom_core.server.cli.health import HealthReport, HealthSection, problem, problem_from_error

__all__ = ["Check", "blocking", "run_checks"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One check, with a deadline.

    Attributes:
        name: name of its section.
        look: runs the check; returns one section, several, or None.
        seconds: its timeout.
    """

    name: str
    look: Callable[[], Awaitable[HealthSection | Sequence[HealthSection] | None]]
    seconds: float = 10.0


async def run_checks(checks: Sequence[Check], *, program: str, version: str) -> HealthReport:
    """Run checks, and report on them in their order. It takes at most the longest deadline.

    A check that hangs or fails becomes a finding of its section.

    Args:
        checks: the checks.
        program: the examined command, such as `loom-kb`.
        version: its version.
    """
    found: list[Sequence[HealthSection]] = [()] * len(checks)

    async def look(place: int, check: Check) -> None:
        found[place] = await _run_check(check, program)

    async with anyio.create_task_group() as tasks:
        for place, check in enumerate(checks):
            tasks.start_soon(look, place, check)
    sections = [section for part in found for section in part]
    return HealthReport(program=program, version=version, sections=sections)


def blocking(look: Callable[[], _T]) -> Callable[[], Awaitable[_T]]:
    """Wrap a blocking function as an awaitable that can be abandoned.

    It runs in its own daemon thread: if it hangs, for example on a lost network drive, it blocks neither
    other checks nor the end of the process.
    """

    async def run() -> _T:
        done, token = anyio.Event(), current_token()
        results: list[_T] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                results.append(look())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                failures.append(error)
            with suppress(RunFinishedError):  # no caller waits any more
                from_thread.run_sync(done.set, token=token)

        threading.Thread(target=work, name="doctor", daemon=True).start()
        await done.wait()
        if failures:
            raise failures[0]
        return results[0]

    return run


async def _run_check(check: Check, program: str) -> Sequence[HealthSection]:
    again = f"Run `{program} doctor` again; report it as a bug if it stays so."
    finding = problem(
        "gives-no-answer",
        f"The check did not finish within {check.seconds:g} s.",
        "Look for a disk or a network drive that does not answer, or for a machine under heavy load.",
    )
    try:
        with anyio.move_on_after(check.seconds):
            section = await check.look()
            if section is None:
                return ()
            return (section,) if isinstance(section, HealthSection) else section
    except LoomError as error:
        finding = problem_from_error(error, "cannot-be-examined", remedy=again)
    except Exception as error:  # noqa: BLE001 - the outermost handler of a check: the others must be reported
        cause = unwrap_group(error)
        _log.debug("the check %r failed", check.name, exc_info=cause)
        reason = str(cause).partition("\n")[0]
        message = f"It cannot be examined: {type(cause).__name__}: {reason}"
        remedy = f"Install {program} again with all it requires." if isinstance(cause, ImportError) else again
        finding = problem("cannot-be-examined", message, remedy)
    return (HealthSection(name=check.name, findings=[finding]),)
