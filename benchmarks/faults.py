"""Faults of network, database, disk and clock while two machines change one knowledge base in PostgreSQL.

    python benchmarks/faults.py [FAULT ...] [--seed 0] [--seconds 8] [--faketime LIBRARY]

Each machine is a process with a folder of indexes, and for `cut` a network namespace. They do what those of
`crash.py` do. Measured is the time from the fault, or from its end, until the next job is done. In the end
all is compared as there: with what was acknowledged, and the indexes of each machine with the store.
Namespaces and disks need root, and the clocks libfaketime.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crash import Run
from loom_core.errors import StoreError
from loom_core.storage.postgres import PostgresDatabase
from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres, run_standby

_NETWORK = "10.98.7"
_WAIT = 120.0
_DURABLE = {"fsync": "on"}
_DISK = "160m"  # for the database: about twice what it has in the beginning
_HOME_DISK = "24m"


class Trial:
    """Two machines at work, and what was measured."""

    def __init__(self, run: Run, url: str, *, seconds: float) -> None:
        self.run = run
        self.seconds = seconds
        self.measured: list[tuple[str, float]] = []
        self.notes: list[str] = []
        self._database = PostgresDatabase(url, name="kb_crash", schema=(), more={}, create=False, seconds=5)

    def work(self) -> None:
        """Let the machines work for a while."""
        self.run.start_missing()
        time.sleep(self.seconds)

    @contextmanager
    def timing(self, what: str) -> Generator[None]:
        """Measure from the end of the block until one more job is done."""
        last = self._done()
        yield
        began = time.monotonic()
        with suppress(StoreError):  # what was done in the block does not count
            last = self._done()
        while time.monotonic() - began < _WAIT:
            with suppress(StoreError):
                if self._done() > last:
                    break
            time.sleep(0.02)
        else:
            self.run.failures.append(f"{what}: nothing was done within {_WAIT:g} s")
        self.measured.append((what, time.monotonic() - began))

    def wait_for(self, name: str, what: str) -> None:
        """Measure until something of a machine is acknowledged."""
        began = time.monotonic()
        life = self.run.lives[name]
        while life.acknowledged_at < began and time.monotonic() - began < _WAIT:
            time.sleep(0.02)
        self.measured.append((what, time.monotonic() - began))

    def owner(self) -> str:
        """The machine that works for the knowledge base."""
        while True:
            pid = self.run.owner()
            for name, life in self.run.lives.items():
                if pid in _family(life.process.pid):
                    return name
            time.sleep(0.05)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _done(self) -> int:
        return self._database.row("SELECT COALESCE(MAX(key), 0) FROM jobs WHERE state = 'done'")[0]


Fault = Callable[[argparse.Namespace, Path], Trial]


def _family(pid: int) -> set[int]:
    """A process and its children: a command before it may stay."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], check=False, capture_output=True, text=True
    )
    return {pid, *map(int, listed.stdout.split())}


@contextmanager
def trial(
    args: argparse.Namespace, base: Path, url: str, *, prefixes: Sequence[Sequence[str]] = ()
) -> Generator[Trial]:
    """Let two machines work, and compare in the end."""
    run = Run(base, processes=2, seed=args.seed, database=url, prefixes=prefixes, may_refuse=True)
    at_work = Trial(run, url, seconds=args.seconds)
    try:
        at_work.work()
        yield at_work
        at_work.work()
        ended = [name for name, life in run.lives.items() if life.process.poll() is not None]
        run.failures.extend(f"{name} ended by itself" for name in ended)
        at_work.notes.append(f"{sum(len(life.refusals) for life in run.lives.values())} refused")
        run.verify()
    finally:
        at_work.close()
        run.end()


def nothing(args: argparse.Namespace, base: Path) -> Trial:
    """No fault: how long it takes anyway, three times."""
    with run_postgres(**_DURABLE) as server, trial(args, base, server.url()) as at_work:
        for number in range(3):
            with at_work.timing(f"{number + 1}"):
                time.sleep(1)
    return at_work


def restart(args: argparse.Namespace, base: Path) -> Trial:
    """The database is killed, and started again after a while."""
    with (
        run_postgres(**_DURABLE) as server,
        trial(args, base, server.url()) as at_work,
        at_work.timing("after the restart"),
    ):
        server.kill()
        time.sleep(3)
        server.start()
    return at_work


def promote(args: argparse.Namespace, base: Path) -> Trial:
    """The primary is killed, and its synchronous standby is promoted."""
    with run_postgres(**_DURABLE) as primary, run_standby(primary) as standby:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://loom@{hosts}/postgres?target_session_attrs=read-write"
        with trial(args, base, url) as at_work, at_work.timing("after the kill"):
            primary.kill()
            standby.control("promote")
    return at_work


def cut(args: argparse.Namespace, base: Path) -> Trial:
    """The machine that works is cut off from the database, and later reaches it again."""
    with run_postgres(listen_addresses="*", **_DURABLE) as server, _hosts() as hosts:
        server.admit(f"host all all {_NETWORK}.0/24 scram-sha-256")
        url = server.url().replace("127.0.0.1", f"{_NETWORK}.1")
        with trial(args, base, url, prefixes=[["ip", "netns", "exec", host] for host in hosts]) as at_work:
            name = at_work.owner()
            link = f"{hosts[int(name[-1])]}o"
            with at_work.timing("until the other one works"):
                _ip("link", "set", link, "down")
            time.sleep(20)
            _ip("link", "set", link, "up")
            at_work.wait_for(name, "from the end of the cut until it is back")
    return at_work


def connections(args: argparse.Namespace, base: Path) -> Trial:
    """For a while, the server has no connections for the machines."""
    import psycopg

    with (
        run_postgres(**_DURABLE) as server,
        psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as administrator,
    ):
        administrator.execute(f"CREATE ROLE busy LOGIN PASSWORD '{PASSWORD}'".encode())
        administrator.execute("GRANT CREATE ON DATABASE postgres TO busy")
        with trial(args, base, server.url(user="busy")) as at_work, at_work.timing("after the end"):
            administrator.execute("ALTER ROLE busy CONNECTION LIMIT 0")
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'busy'"
            )
            time.sleep(12)
            administrator.execute("ALTER ROLE busy CONNECTION LIMIT -1")
    return at_work


def full_database(args: argparse.Namespace, base: Path) -> Trial:
    """The disk of the database is full for a while."""
    with (
        _disk(base / "disk", _DISK) as disk,
        _temporary(disk),
        run_postgres(**_DURABLE) as server,
        trial(args, base, server.url()) as at_work,
        at_work.timing("after there was room again"),
    ):
        filling = _fill(disk)
        time.sleep(15)
        filling.unlink()
        if not server.is_listening():  # it ends itself where it cannot write its log
            server.kill()
            server.start()
            at_work.notes.append("PostgreSQL had ended")
    return at_work


def full_home(args: argparse.Namespace, base: Path) -> Trial:
    """The disk of the machine that works is full for a while: its indexes cannot be written."""
    with run_postgres(**_DURABLE) as server, ExitStack() as stack:
        disks = [
            stack.enter_context(_disk(base / "kb" / f"actor{number}", _HOME_DISK)) for number in range(2)
        ]
        with trial(args, base, server.url()) as at_work:
            owner = at_work.owner()
            filling = _fill(disks[int(owner[-1])])
            began = time.monotonic()
            while at_work.owner() == owner and time.monotonic() - began < _WAIT:
                time.sleep(0.02)
            at_work.measured.append(("until the other one works", time.monotonic() - began))
            with at_work.timing("after there was room again"):
                filling.unlink()
    return at_work


def clock(args: argparse.Namespace, base: Path) -> Trial:
    """The clock of the machine that works jumps by an hour, ahead and back."""
    files = [base / f"clock{number}" for number in range(2)]
    for file in files:
        file.write_text("+0", encoding="utf-8")
    prefixes = [["env", *_faketime(args.faketime, file)] for file in files]
    with run_postgres(**_DURABLE) as server, trial(args, base, server.url(), prefixes=prefixes) as at_work:
        file = files[int(at_work.owner()[-1])]
        for text, what in (("+3600", "an hour ahead"), ("-3600", "two hours back"), ("+0", "right again")):
            with at_work.timing(what):
                file.write_text(text, encoding="utf-8")
            time.sleep(args.seconds)
    return at_work


def clock_of_database(args: argparse.Namespace, base: Path) -> Trial:
    """The clock of the database jumps by an hour, ahead and back, and the machine that works is killed."""
    file = base / "clock"
    file.write_text("+0", encoding="utf-8")
    base.chmod(0o755)
    environment = dict(each.split("=", 1) for each in _faketime(args.faketime, file))
    with (
        run_postgres(environment=environment, **_DURABLE) as server,
        trial(args, base, server.url()) as at_work,
    ):
        for text, what in (("+3600", "an hour ahead"), ("+0", "an hour back")):
            with at_work.timing(what):
                file.write_text(text, encoding="utf-8")
            time.sleep(args.seconds)
        with at_work.timing("an hour ahead, killed"):
            file.write_text("+3600", encoding="utf-8")
            at_work.run.lives.pop(at_work.owner()).kill()
        at_work.work()
        with at_work.timing("an hour back, killed"):
            owner = at_work.owner()
            file.write_text("+0", encoding="utf-8")
            at_work.run.lives.pop(owner).kill()
    return at_work


FAULTS: dict[str, Fault] = {
    each.__name__.replace("_", "-"): each
    for each in (
        nothing,
        restart,
        promote,
        cut,
        connections,
        full_database,
        full_home,
        clock,
        clock_of_database,
    )
}


@contextmanager
def _hosts() -> Generator[list[str]]:
    """Two network namespaces that reach this one, and from where no other is reached."""
    hosts = ["loomf0", "loomf1"]
    try:
        _ip("link", "add", "loomfb", "type", "bridge")
        _ip("addr", "add", f"{_NETWORK}.1/24", "dev", "loomfb")
        _ip("link", "set", "loomfb", "up")
        for number, host in enumerate(hosts):
            _ip("netns", "add", host)
            _ip("link", "add", f"{host}o", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("link", "set", f"{host}o", "master", "loomfb", "up")
            _ip("-n", host, "addr", "add", f"{_NETWORK}.{number + 11}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False)
        subprocess.run(["ip", "link", "del", "loomfb"], check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def _disk(folder: Path, size: str) -> Generator[Path]:
    """A small file system in memory."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Have temporary folders made in another one."""
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755 if parent != folder else 0o777)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _fill(disk: Path) -> Path:
    """Fill a disk, and return the file to delete."""
    path = disk / "filling"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    return path


def _faketime(library: str, file: Path) -> list[str]:
    if not library:
        sys.exit("Give --faketime, such as /usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1.")
    return [
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={file}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=8.0, help="of work before and after")
    arguments.add_argument("--faketime", default="", metavar="LIBRARY", help="of libfaketime")
    args = arguments.parse_args()
    os.environ["LOOM_DATABASE_SECRET"] = PASSWORD
    print("| fault | seconds until work went on | operations | lost, doubled or unequal |\n|---|---|---|---|")
    failed = False
    for name in args.faults or FAULTS:
        base = Path(tempfile.mkdtemp(prefix="loom-fault-"))
        at_work = FAULTS[name](args, base)
        times = ", ".join(f"{what} {seconds:.1f}" for what, seconds in at_work.measured)
        failures = "; ".join(at_work.run.failures)
        done = ", ".join([str(at_work.run.operations), *at_work.notes])
        print(f"| {name} | {times} | {done} | {failures or 'nothing'} |", flush=True)
        failed |= bool(failures)
        if not failures:
            shutil.rmtree(base)
    sys.exit(failed)


if __name__ == "__main__":
    main()
