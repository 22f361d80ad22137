"""Commits of a run journal: in a file, and in PostgreSQL.

    python benchmarks/journal.py [PLACE …]

A PLACE is a file or a URL of PostgreSQL, by default a temporary file. Prints commits a second of one run and
of twenty side by side, flushed to the disk after each event and not, and milliseconds to read a run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import anyio

from loom_core.runs.journal import Journal
from loom_core.runs.run import RunRequest

_SECONDS = 3.0
_READS = 200


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("places", nargs="*", metavar="PLACE")
    places: list[str] = arguments.parse_args().places
    print("| journal | 1 run | 1 run, flushed | 20 runs | 20 runs, flushed | read p50, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for place in places or [str(Path(temporary) / "runs.db")]:
            anyio.run(_measure, place)


async def _measure(place: str) -> None:
    journal = Journal(place)
    cells = [place.partition("://")[0] if "://" in place else "file"]
    for runs, durable in ((1, False), (1, True), (20, False), (20, True)):
        commits = await _commits(journal, runs, durable=durable)
        cells.append(f"{commits:,.0f}")
    run = await journal.create(RunRequest(goal="g"))
    times: list[float] = []
    for _ in range(_READS):
        began = time.perf_counter()
        await journal.get(run.id)
        times.append(1000 * (time.perf_counter() - began))
    cells.append(f"{statistics.median(times):.2f}")
    print(f"| {' | '.join(cells)} |", flush=True)
    await journal.aclose()


async def _commits(journal: Journal, runs: int, *, durable: bool) -> float:
    """Return the commits a second of so many runs together."""
    made = [await journal.create(RunRequest(goal="g")) for _ in range(runs)]
    count = 0
    began = time.perf_counter()

    async def write(run_id: str) -> None:
        nonlocal count
        log = await journal.claim(run_id)
        assert log is not None
        async with log:
            while time.perf_counter() - began < _SECONDS:
                log.add("text_delta", {"text": "织机"}, state={"n": count})
                await log.commit(durable=durable)
                count += 1
            log.add("agent_finish", {}, status="completed")

    async with anyio.create_task_group() as group:
        for run in made:
            group.start_soon(write, run.id)
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
