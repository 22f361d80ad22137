"""A journal that several processes share, some of which are killed or stopped, and one whose disk is full."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.runs.commands import Reply
from loom_core.runs.events import FINAL_EVENTS
from loom_core.runs.journal import Journal
from loom_core.runs.run import RunRequest
from tests.fixtures.fork_server import starts_quickly
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

Start = Callable[..., subprocess.Popen[str]]

# Drives what no one else does: three steps each, with the tally of a step in a file of its own.
DRIVER = """
import sys
import anyio
from loom_core.runs.journal import Journal

async def drive(journal, run_id):
    log = await journal.claim(run_id)
    if log is None:
        return
    async with log:
        for number in range(len(log.steps), 3):
            log.add("tool_start", {"step": number}, state=number)
            await log.commit(durable=number == 1)
        log.add("agent_finish", {}, status="completed", output=sys.argv[2])

async def main():
    journal = Journal(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    while runs := await journal.find_unclaimed():
        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(drive, journal, run_id)
    await journal.aclose()

anyio.run(main)
"""

# Claims a run, says so, and writes events for ever.
HOLDER = """
import sys
import anyio
from loom_core.runs.journal import Journal, PostgresPlace

async def main():
    place = sys.argv[1]
    journal = Journal(PostgresPlace(place, lease_seconds=4) if "://" in place else place)
    async with await journal.claim(sys.argv[2]) as log:
        while True:
            seq = log.run.last_seq
            event = log.add("text_delta", {"text": "你好"}, state={"seq": seq}, output=str(seq))
            log.add("usage", {})
            await log.commit()
            print(event.seq + 1, flush=True)

anyio.run(main)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a journal is, for `Journal`."""
    if request.param == "file":
        return str(tmp_path / "runs.db")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return request.getfixturevalue("postgres").url(f"?schema=t{secrets.token_hex(4)}")


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as children:

        def start(code: str, *arguments: str) -> subprocess.Popen[str]:
            child = subprocess.Popen(
                [sys.executable, "-c", starts_quickly(code), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            children.enter_context(child)
            children.callback(child.kill)
            return child

        yield start


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


async def test_of_several_processes_each_run_is_driven_by_one(place: str, start: Start):
    journal = Journal(place)
    runs = [await journal.create(RunRequest(goal=f"任务 {number}")) for number in range(50)]
    children = [start(DRIVER, place, str(number)) for number in range(3)]
    assert [line(child) for child in children] == ["ready"] * 3
    for child in children:
        child.communicate("go\n", timeout=60)
        assert child.returncode == 0
    for run in runs:
        events = await journal.events(run.id)
        assert [event.payload.get("step") for event in events] == [0, 1, 2, None]
        assert (await journal.get(run.id)).status == "completed"
    assert Counter(run.status for run in await journal.runs(limit=100)) == {"completed": 50}
    await journal.aclose()


async def test_a_killed_driver_frees_its_run_at_once_with_all_that_was_committed(
    tmp_path: Path, start: Start
):
    path = tmp_path / "runs.db"
    journal = Journal(path)
    run = await journal.create(RunRequest(goal="g"))
    for _ in range(4):
        before = (await journal.get(run.id)).last_seq
        child = start(HOLDER, str(path), run.id)
        seen = [int(line(child)) for _ in range(5)]
        assert await journal.claim(run.id) is None
        assert (await journal.get(run.id)).driver.startswith(f"pid {child.pid} ")
        child.kill()
        child.wait(timeout=10)
        assert await journal.find_unclaimed() == [run.id]
        stands = await journal.get(run.id)
        assert stands.driver == ""
        assert stands.last_seq >= seen[-1] > before
        events = await journal.events(run.id, limit=100_000)
        assert [event.seq for event in events] == list(range(1, stands.last_seq + 1))
        # What an event changes in the run is there if the event is.
        last = max(event.seq for event in events if event.type == "text_delta")
        assert stands.output == str(last - 1)
    log = await journal.claim(run.id)
    assert log is not None
    async with log:
        assert [step.state["seq"] + 1 for step in log.steps] == [
            event.seq for event in events if event.type == "text_delta"
        ]
    await journal.aclose()
    again = Journal(path)
    assert await again.claim(run.id) is not None
    locks = list(path.with_name("runs.db.drivers").iterdir())
    assert len(locks) == 1, "what dead drivers leave is removed by the next one"
    await again.aclose()


async def test_a_driver_that_merely_hangs_keeps_its_run(tmp_path: Path, start: Start):
    path = tmp_path / "runs.db"
    journal = Journal(path)
    run = await journal.create(RunRequest(goal="g"))
    child = start(HOLDER, str(path), run.id)
    line(child)
    child.send_signal(signal.SIGSTOP)
    assert await journal.find_unclaimed() == []
    # It may have stopped in the middle of a transaction, so nothing is written here meanwhile.
    child.send_signal(signal.SIGCONT)
    assert await journal.claim(run.id) is None
    await journal.aclose()


async def test_a_run_of_another_process_is_followed_and_given_orders(place: str, start: Start):
    journal = Journal(place)
    run = await journal.create(RunRequest(goal="g"))
    child = start(HOLDER, place, run.id)
    seen, wanted = 0, 300 if "://" in place else 2000
    with anyio.fail_after(30):
        async for event in journal.follow(run.id):
            seen += 1
            assert event.seq == seen
            if seen == wanted:
                break
    await journal.send_commands(run.id, Reply(text="停"))
    child.kill()
    child.wait(timeout=10)
    with anyio.fail_after(60):
        while (log := await journal.claim(run.id)) is None:  # noqa: ASYNC110 - time frees it in PostgreSQL
            await anyio.sleep(0.1)
    async with log:
        assert log.take_commands() == [Reply(text="停")]
        log.add("agent_finish", {}, status="completed")
        await log.commit()
    assert (await journal.events(run.id, after=log.run.last_seq - 1))[0].type in FINAL_EVENTS
    await journal.aclose()


FULL = """
import json, sys
import anyio
from pathlib import Path
from loom_core.runs.journal import Journal
from loom_core.runs.run import RunRequest
from loom_core.errors import LoomError, StoreError

async def main(disk):
    journal = Journal(Path(disk) / "runs.db")
    runs = [await journal.create(RunRequest(goal=f"g{number}")) for number in range(4)]
    committed, refusals, again = {}, [], []

    async def drive(run):
        committed[run.id] = 0
        try:
            async with await journal.claim(run.id) as log:
                while True:
                    event = log.add("text_delta", {"text": "x" * 20_000})
                    await log.commit()
                    committed[run.id] = event.seq
        except StoreError as error:
            refusals.append(str(error))
            try:
                log.add("error", {}, status="failed")
            except StoreError as dead:
                again.append(str(dead))

    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(drive, run)
    (Path(disk) / "ballast").unlink()
    kept = {run.id: (await journal.get(run.id)).last_seq for run in runs}
    for run in runs:
        async with await journal.claim(run.id) as log:
            log.add("agent_finish", {}, status="completed")
    after = [(await journal.get(run.id)).status for run in runs]
    await journal.aclose()
    json.dump(dict(committed=committed, refusals=refusals, again=again, kept=kept, after=after), sys.stdout)

(Path(sys.argv[1]) / "ballast").write_bytes(bytes(4 << 20))
anyio.run(main, sys.argv[1])
"""
MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def test_a_full_disk_stops_those_who_wait_and_with_room_all_goes_on(tmp_path: Path):
    if shutil.which("unshare") is None or subprocess.run([*MOUNTS, "true"], check=False).returncode:
        pytest.skip("needs user and mount namespaces")
    shell = 'mount -t tmpfs -o size=12m none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [*MOUNTS, "sh", "-c", shell, "sh", str(tmp_path), sys.executable, FULL],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert not done.returncode, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    assert len(told["refusals"]) == len(told["again"]) == 4
    assert all("full" in text for text in told["refusals"] + told["again"])
    assert min(told["committed"].values()) > 0
    assert told["kept"] == told["committed"]
    assert told["after"] == ["completed"] * 4
