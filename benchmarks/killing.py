"""Processes that are killed at random moments, and the journal that they share, looked at from outside."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from loom_core.runs.journal import PostgresPlace

__all__ = [
    "Actors",
    "CountedEffects",
    "JournalRows",
    "RunFindings",
    "crash_run",
    "journal_place",
    "kill_often",
    "said_file",
]

_LEASE_SECONDS = 3.0
_DATABASE = "LOOM_DATABASE"

_END_SECONDS = 300
_OPEN = "('working', 'input_required', 'paused')"


class Actors:
    """The processes, each of which is started again when it was killed.

    Args:
        program: what each is, called with its role, the journal and one argument more.
        path: the journal.
        drivers: how many processes drive runs (role `drive`); one more is the `person`.
        shared: the argument of those that drive; a person is given a number to begin its dice with.
        seed: of the dice.
    """

    def __init__(self, program: Path, path: Path, *, drivers: int, shared: str, seed: int) -> None:
        self._program = program
        self._path = path
        self._shared = shared
        self._dice = random.Random(seed)
        self._living: dict[str, subprocess.Popen[str]] = {}
        self._roles = {"person": "person"} | {f"driver {number}": "drive" for number in range(drivers)}
        self.killed = Counter[str]()

    def start_missing(self) -> None:
        """Start those that do not run, and wait until they have begun."""
        started: list[subprocess.Popen[str]] = []
        for name, role in self._roles.items():
            if name not in self._living:
                more = self._shared if role == "drive" else str(self._dice.randrange(10**9))
                command = [sys.executable, str(self._program), role, str(self._path), more]
                self._living[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                started.append(self._living[name])
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "began\n":
                sys.exit("a process ended before it had begun")

    def kill_one(self) -> None:
        """Kill one at a random moment; the person less often."""
        time.sleep(self._dice.expovariate(1.5))
        weights = [0.2 if name == "person" else 1.0 for name in self._living]
        self.kill(self._dice.choices(list(self._living), weights)[0])

    def kill(self, name: str) -> None:
        """Kill the `person` or a driver, such as `driver 0`."""
        self.killed[self._roles[name]] += 1
        self._kill(self._living.pop(name))

    @property
    def living(self) -> dict[str, int]:
        """The names of those that run, with their processes."""
        return {name: process.pid for name, process in list(self._living.items())}

    def end(self) -> None:
        """Kill all."""
        while self._living:
            self._kill(self._living.popitem()[1])

    def _kill(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is not None:
            sys.exit(f"a process ended by itself with {process.returncode}")
        process.send_signal(signal.SIGKILL)
        process.communicate()


def journal_place(path: Path) -> Path | PostgresPlace:
    """Return where the journal is: that file, or in LOOM_DATABASE a schema named as its folder."""
    if not os.environ.get(_DATABASE):
        return path
    from loom_core.runs.journal import PostgresPlace

    return PostgresPlace(
        os.environ[_DATABASE],
        name=re.sub(r"[^a-z0-9]", "_", path.parent.name.lower()),
        lease_seconds=_LEASE_SECONDS,
    )


def said_file(path: Path) -> Path:
    """Return the file with the operators' messages that a journal has acknowledged, a line each."""
    return path.with_name(f"{path.name}.said")


class JournalRows:
    """The journal as it is in the file, or in the database.

    Attributes:
        under_way: how many runs were, by their status, at all looks together.
        lost: what was there once and has gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[int, int] = {}
        self.under_way = Counter[str]()
        self.lost: list[str] = []

    def look(self) -> None:
        """See what is under way, and that nothing that was there before has gone."""
        place = journal_place(self._path)
        if not place.exists():
            return
        last = "SELECT MAX(key) FROM events WHERE key BETWEEN runs.key << 32 AND (runs.key + 1) << 32"
        for key, status, seen in self._read(f"SELECT key, status, ({last}) FROM runs"):
            if status in {"working", "input_required", "paused"}:
                self.under_way[status] += 1
            if (seen or 0) < self._seen.get(key, 0):
                self.lost.append(f"run {key} has fewer events than before")
            self._seen[key] = seen or 0

    def held_by(self, pid: int) -> set[int]:
        """Runs at work that a process has claimed: others see it until its lease is over."""
        held = f"SELECT id FROM drivers WHERE title LIKE 'pid {pid} on %'"
        return {
            key
            for (key,) in self._read(f"SELECT key FROM runs WHERE status = 'working' AND driver IN ({held})")
        }

    def open_runs(self, *, failed: bool = False) -> int:
        """How many runs are not at their end, or have an order to obey.

        Args:
            failed: whether those that have failed count, as someone will have them go on.
        """
        more = " OR status = 'failed'" if failed else ""
        open_ = f"status IN {_OPEN} OR key IN (SELECT run FROM orders){more}"
        return self._read(f"SELECT COUNT(*) FROM runs WHERE {open_}")[0][0]

    def _read(self, sql: str) -> list[Any]:
        place = journal_place(self._path)
        if isinstance(place, Path):
            with closing(sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, timeout=30)) as db:
                return db.execute(sql).fetchall()
        import psycopg

        password = os.environ.get("LOOM_DATABASE_SECRET")
        with psycopg.connect(place.url, password=password, autocommit=True) as connection:
            connection.execute(f'SET search_path = "loom_{place.name}"'.encode())
            return connection.execute(sql.encode()).fetchall()


def kill_often(
    actors: Actors,
    journal: JournalRows,
    path: Path,
    *,
    kills: int,
    effects: Callable[[], int],
    failed: bool = False,
) -> float:
    """Kill so often, then let all runs come to their end: `JOURNAL.stop` tells the person to.

    Args:
        actors: who is killed.
        journal: is looked at after each.
        path: the journal.
        kills: how often.
        effects: how many there have been, for who looks on.
        failed: as for `JournalRows.open_runs`.

    Returns:
        How many seconds it took.
    """
    began = time.monotonic()
    try:
        for kill in range(1, kills + 1):
            actors.start_missing()
            actors.kill_one()
            journal.look()
            if kill % 20 == 0:
                print(f"{kill} kills, {effects()} effects", file=sys.stderr)
        path.with_name(f"{path.name}.stop").touch()
        actors.start_missing()
        ends = time.monotonic() + _END_SECONDS
        while journal.open_runs(failed=failed) and time.monotonic() < ends:
            time.sleep(0.2)
        return time.monotonic() - began
    finally:
        actors.end()


class CountedEffects(Protocol):
    """Counter of effects outside of the processes that are killed."""

    @property
    def shared(self) -> str:
        """By which processes that drive runs find who counts."""
        ...

    def total(self) -> int:
        """How many effects there have been."""
        ...


class RunFindings(Protocol):
    """Findings of comparing runs with their effects.

    Attributes:
        wrong: what must not be.
        counts: what there was.
    """

    @property
    def wrong(self) -> list[str]: ...  # noqa: D102

    @property
    def counts(self) -> Counter[str]: ...  # noqa: D102

    async def compare(self, path: Path) -> None:
        """Look at all runs of the journal."""
        ...


EffectsT = TypeVar("EffectsT", bound=CountedEffects)


def crash_run(
    description: str,
    actor: Path,
    *,
    name: str,
    effects: Callable[[Path], EffectsT],
    findings: Callable[[EffectsT], RunFindings],
    failed: bool = False,
) -> None:
    """Do a whole crash run as the command line says, tell what came of it, and end the process.

    Args:
        description: what it is, for the help.
        actor: the program of the processes that are killed.
        name: of the folder.
        effects: counts what is done; is given the folder.
        findings: compares runs with that.
        failed: as for `JournalRows.open_runs`.
    """
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--processes", type=int, default=1, help="that drive runs")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder that is kept")
    arguments.add_argument("--database", metavar="URL", help="PostgreSQL for the journal, in place of a file")
    args = arguments.parse_args()
    if args.database:
        os.environ[_DATABASE] = args.database
    base: Path = args.keep or Path(tempfile.mkdtemp(prefix=f"{name}-"))
    base.mkdir(parents=True, exist_ok=True)
    path = base.resolve() / "runs.db"
    counted, journal = effects(base), JournalRows(path)
    actors = Actors(actor, path, drivers=args.processes, shared=counted.shared, seed=args.seed)
    took = kill_often(actors, journal, path, kills=args.kills, effects=counted.total, failed=failed)
    found = findings(counted)
    asyncio.run(found.compare(path))
    wrong = [*journal.lost, *found.wrong]
    under_way = ", ".join(f"{count} {what}" for what, count in journal.under_way.most_common())
    print(f"{args.kills} kills of {args.processes} + 1 processes in {took:.0f} s: {dict(actors.killed)}")
    print(f"at the kills: {under_way}\n{counted.total()} effects")
    print(dict(found.counts))
    print("\n".join(wrong) if wrong else "nothing done twice, nothing lost, every run at its end")
    if not args.keep and not wrong:
        shutil.rmtree(base)
    elif wrong:
        print(f"everything is in {base}")
    sys.exit(bool(wrong))
