"""Processes that change one knowledge base are killed at random moments; nothing acknowledged may be lost.

    python benchmarks/crash.py [--kills 200] [--processes 1] [--seed 0] [--keep FOLDER] [--database URL]

Each process adds, changes and removes documents, keeps a folder of files in step, asks questions, has indexes
rebuilt and truncates the log. One of them gets SIGKILL at a random moment (with several processes every
other time the owner) and is started again. After every kill of a single process, and every tenth of several,
all are ended, a fresh process brings everything to an end, and it is compared: every acknowledged document is
there once in its last version, every removed one is gone, files and documents agree, and `check` finds
nothing, without any repair. With several processes it is measured how long it takes until another owns.

With a PostgreSQL database for the store, in a schema of its own, each process is a machine with a folder of
indexes; the owner is the one with the lease of the work, and in the end the indexes of each are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loom_core.knowledge.store.opening import open_store
from loom_core.knowledge.store.place import place_of
from loom_core.storage.ownership import holder_of

_ACTOR = Path(__file__).with_name("crash_actor.py")
_EACH = 1_000_000  # versions that one life of an actor may use up
_VERIFY_EVERY = {1: 1}  # by number of processes
_VERIFY_ELSE = 10
_START_SECONDS = 60
_OWNER_SECONDS = 30


@dataclass(slots=True)
class Ledger:
    """Expected state of an actor's documents: the version acknowledged last, or one tried after it."""

    acknowledged: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    perhaps: dict[str, set[int | None]] = field(default_factory=dict[str, "set[int | None]"])
    operations: int = 0

    def told(self, tried: dict[str, int | None]) -> None:
        """Note that the last attempt was acknowledged."""
        self.acknowledged |= tried
        self.operations += 1
        for uri in tried:
            self.perhaps.pop(uri, None)

    def unsure(self, tried: dict[str, int | None]) -> None:
        """Note that the last attempt may have been done or not."""
        for uri, version in tried.items():
            self.perhaps.setdefault(uri, set()).add(version)

    def living(self) -> dict[str, int]:
        """The documents that are surely there."""
        return {
            uri: version
            for uri, version in self.acknowledged.items()
            if version is not None and uri not in self.perhaps
        }

    def broken_by(self, documents: dict[str, int]) -> list[str]:
        """The URIs whose document is not what it may be."""
        uris = self.acknowledged.keys() | self.perhaps.keys()
        return [
            uri
            for uri in sorted(uris)
            if documents.get(uri) not in {self.acknowledged.get(uri), *self.perhaps.get(uri, set())}
        ]

    def settle(self, documents: dict[str, int]) -> None:
        """From here on what there is counts as acknowledged."""
        self.acknowledged |= {uri: documents.get(uri) for uri in self.perhaps}
        self.perhaps.clear()


class Life:
    """One actor process, and the thread that reads what it says."""

    def __init__(
        self,
        home: Path,
        files: Path,
        name: str,
        ledger: Ledger,
        *,
        seed: int,
        number: int,
        database: str,
        prefix: Sequence[str],
    ) -> None:
        self._ledger = ledger
        self.refusals: list[str] = []
        self.acknowledged_at = 0.0  # as `time.monotonic` counts
        self._tried: dict[str, int | None] | None = None
        self.began = threading.Event()
        arguments = ["--name", name, "--seed", str(seed), "--first-version", str(number * _EACH)]
        arguments += ["--database", database]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(_ACTOR), str(home), str(files), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(ledger.living()) + "\n")
        self.process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        if self._tried is not None:
            self._ledger.unsure(self._tried)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):  # cut off by the kill
                break
            said = json.loads(line)
            if "tried" in said:
                self._tried = said["tried"]
            elif "failed" in said:
                self.refusals.append(said["failed"])
                if self._tried is not None:
                    self._ledger.unsure(self._tried)
                    self._tried = None
            elif self._tried is not None:
                self.acknowledged_at = time.monotonic()
                self._ledger.told(self._tried)
                self._tried = None
                self.began.set()


class Run:
    """A knowledge base, its actors, and what was seen."""

    def __init__(
        self,
        base: Path,
        *,
        processes: int,
        seed: int,
        database: str,
        prefixes: Sequence[Sequence[str]] = (),
        may_refuse: bool = False,
    ) -> None:
        """Prepare a run.

        Args:
            base: an empty folder.
            processes: how many actors there are.
            seed: of the random choices.
            database: of the store; empty for a file.
            prefixes: commands that start the actors, instead of starting them here.
            may_refuse: whether an operation may fail that no kill has hit.
        """
        self._prefixes = prefixes or [()] * processes
        self._may_refuse = may_refuse
        self._home, self._files = base / "kb", base / "files"
        self._database = database
        self._store = open_store(place_of(base / "outside", "crash", database=database)) if database else None
        self._files.mkdir(parents=True, exist_ok=True)
        self._dice = random.Random(seed)
        self._ledgers = {f"actor{n}": Ledger() for n in range(processes)}
        self.lives: dict[str, Life] = {}
        self._started = 0
        self.takeovers: list[float] = []
        self.doing: Counter[str] = Counter()
        self.owners_killed = 0
        self.verified = 0
        self.failures: list[str] = []

    @property
    def operations(self) -> int:
        """How many operations were acknowledged."""
        return sum(ledger.operations for ledger in self._ledgers.values())

    @property
    def documents(self) -> int:
        """How many documents were acknowledged, removed ones included."""
        return sum(len(ledger.acknowledged) for ledger in self._ledgers.values())

    def start_missing(self) -> None:
        """Start the actors that do not run, and wait until each had something acknowledged."""
        self.spawn_missing()
        for life in self.lives.values():
            if not life.began.wait(_START_SECONDS):
                sys.exit(f"a process did nothing within {_START_SECONDS} s")

    def spawn_missing(self) -> None:
        """Start the actors that do not run."""
        for (name, ledger), prefix in zip(self._ledgers.items(), self._prefixes, strict=True):
            if name not in self.lives:
                self._started += 1
                self.lives[name] = Life(
                    self.folder(name),
                    self._files,
                    name,
                    ledger,
                    seed=self._dice.randrange(10**9),
                    number=self._started,
                    database=self._database,
                    prefix=prefix,
                )

    def kill_one(self) -> None:
        """Kill an actor at a random moment."""
        time.sleep(self._dice.expovariate(1.5))
        names = list(self.lives)
        owner = self.owner()
        owners = [n for n in names if self.lives[n].process.pid == owner]
        name = owners[0] if owners and self._dice.random() < 0.5 else self._dice.choice(names)
        self._note_state()
        self.lives.pop(name).kill()
        if name in owners:
            self.owners_killed += 1
            if self.lives:
                self._note_takeover()

    def verify(self) -> None:
        """End all actors and compare what there is with what was acknowledged, on every machine."""
        while self.lives:
            name, life = self.lives.popitem()
            life.kill()
            if life.refusals and not self._may_refuse:
                self.failures.append(f"{name} was refused: {life.refusals[0]}")
        for folder in dict.fromkeys(map(self.folder, self._ledgers)):
            self._verify(folder)

    def _verify(self, folder: Path) -> None:
        done = subprocess.run(
            [
                sys.executable,
                str(_ACTOR),
                str(folder),
                str(self._files),
                "--verify",
                "--database",
                self._database,
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.verified += 1
        if done.returncode:
            self.failures.append(f"verification {self.verified} failed: {done.stderr[-2000:]}")
            return
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        documents: dict[str, int] = found.pop("documents")
        mine: dict[str, dict[str, int]] = {name: {} for name in self._ledgers}
        for uri, version in documents.items():
            mine[uri.partition(":")[2].partition("/")[0]][uri] = version
        for name, ledger in self._ledgers.items():
            if broken := ledger.broken_by(mine[name]):
                self.failures.append(
                    f"verification {self.verified}: lost or not as acknowledged: {broken[:5]}"
                )
            if strange := mine[name].keys() - ledger.acknowledged.keys() - ledger.perhaps.keys():
                self.failures.append(f"verification {self.verified}: never added: {sorted(strange)[:5]}")
            ledger.settle(mine[name])
        told = {key: value for key, value in found.items() if value not in (0, [], True)}
        if told or not found["answered"]:
            self.failures.append(
                f"verification {self.verified}: {json.dumps(found, ensure_ascii=False)[:2000]}"
            )

    def end(self) -> None:
        """Kill what still runs."""
        while self.lives:
            self.lives.popitem()[1].kill()
        if self._store is not None:
            self._store.close()

    def folder(self, name: str) -> Path:
        """The folder of an actor: that of its machine, or the one that all have."""
        return self._home / name if self._database else self._home

    def owner(self) -> int:
        """The process that works for the knowledge base; 0 if there is none."""
        if self._store is None:
            holder = holder_of(self._home)
            return 0 if holder is None else holder.pid
        assert self._store.sharing is not None
        leader = self._store.sharing.lease.holder()
        return 0 if leader is None else int(leader.title.split()[1])

    def _note_state(self) -> None:
        """Note what was going on, so that it can be seen that every kind of work was hit."""
        if self._store is not None:
            self.doing.update(["jobs unfinished" if self._store.jobs.next() else "nothing"])
            return
        with closing(sqlite3.connect(f"{self._home.as_uri()}/record.db?mode=ro", uri=True, timeout=10)) as db:
            head = db.execute("SELECT COALESCE(MAX(seq), 0) FROM changes").fetchone()[0]
            behind = [
                f"{name} {'rebuilding' if mark < 0 else 'behind'}"
                for name, mark in db.execute("SELECT name, watermark FROM indexes")
                if mark < head
            ]
            jobs = db.execute("SELECT COUNT(*) FROM jobs WHERE state IN ('queued', 'running')").fetchone()[0]
        self.doing.update([*behind, *(["jobs unfinished"] if jobs else [])] or ["nothing"])

    def _note_takeover(self) -> None:
        killed = time.monotonic()
        while time.monotonic() - killed < _OWNER_SECONDS:
            owner = self.owner()
            if any(life.process.pid == owner for life in self.lives.values()):
                self.takeovers.append(time.monotonic() - killed)
                return
            time.sleep(0.005)
        self.failures.append(f"no process took over within {_OWNER_SECONDS} s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--processes", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder that is kept")
    arguments.add_argument(
        "--database", default="", metavar="URL", help="PostgreSQL, with ?schema= for this run"
    )
    args = arguments.parse_args()
    base = args.keep or Path(tempfile.mkdtemp(prefix="loom-crash-"))
    run = Run(base, processes=args.processes, seed=args.seed, database=args.database)
    every = _VERIFY_EVERY.get(args.processes, _VERIFY_ELSE)
    began = time.monotonic()
    try:
        for kill in range(1, args.kills + 1):
            run.start_missing()
            run.kill_one()
            if kill % every == 0 or kill == args.kills:
                run.verify()
                print(f"{kill} kills, {len(run.failures)} failures", file=sys.stderr)
            if run.failures:
                print(f"stopped after kill {kill}; everything is in {base}")
                break
    finally:
        run.end()
    print(f"{args.kills} kills of {args.processes} processes in {time.monotonic() - began:.0f} s, ", end="")
    print(f"{run.owners_killed} of them of the owner; verified {run.verified} times")
    print(f"{run.operations:,} operations acknowledged, on {run.documents:,} documents")
    print("at the kills: " + ", ".join(f"{what} {count}" for what, count in run.doing.most_common()))
    if run.takeovers:
        longest = sorted(run.takeovers)
        print(f"until another owned: median {longest[len(longest) // 2]:.2f} s, longest {longest[-1]:.2f} s")
    print("\n".join(run.failures) if run.failures else "nothing lost, nothing doubled, nothing to repair")
    if not args.keep and not run.failures:
        shutil.rmtree(base)
    sys.exit(bool(run.failures))


if __name__ == "__main__":
    main()
