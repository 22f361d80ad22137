"""Check of a server's runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import LoomError
from loom_core.server.cli.health import HealthSection, problem_from_error, warning

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace
    from loom_core.server.cli.health import Finding

__all__ = ["runs_section"]

_MOST_RUNS = 1000


async def runs_section(place: Path | PostgresPlace, *, see: str, drive: str) -> HealthSection | None:
    """Check a journal for runs that wait for input or were abandoned; None if there is no journal.

    Args:
        place: where the journal is.
        see: the command that shows the pending input of a run, without the id.
        drive: the command that resumes a run, without the id.
    """
    if not await to_thread.run_sync(place.exists):
        return None
    from loom_core.runs.journal import Journal

    journal = Journal(place)
    facts: dict[str, object] = {"place": str(place)}
    try:
        runs = await journal.runs(limit=_MOST_RUNS)
    except LoomError as error:
        return HealthSection(
            name="runs", facts=facts, findings=[problem_from_error(error, "journal-unreadable", remedy="")]
        )
    finally:
        await journal.aclose()
    counts = Counter(run.status for run in runs)
    facts |= {"latest runs": dict(counts)}
    findings: list[Finding] = []
    if waiting := [run.id for run in runs if run.status == "input_required"]:
        remedy = f"See what they wait for: {see} {waiting[0]}"
        findings.append(warning("runs-wait", f"Runs that wait for a decision: {len(waiting)}.", remedy))
    if left := [run.id for run in runs if run.status == "working" and not run.driver]:
        remedy = f"A server of this home goes on with them, or: {drive} {left[0]}"
        findings.append(warning("runs-left", f"Runs that no process drives: {len(left)}.", remedy))
    return HealthSection(name="runs", facts=facts, findings=findings)
