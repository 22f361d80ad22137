"""A journal in PostgreSQL that several processes share, some of which are killed, stopped or cut off."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import psycopg
import pytest

from loom_core.errors import StoreError
from loom_core.runs.journal import Journal, PostgresPlace, RunLog
from loom_core.runs.run import RunRequest
from tests.fixtures.fork_server import starts_quickly
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

Start = Callable[..., subprocess.Popen[str]]

_LEASE_SECONDS = 4.0

# Claims a run, and adds an event whenever it reads a line; says the seq, or what was wrong.
HOLDER = """
import sys
import anyio
from loom_core.errors import StoreError
from loom_core.runs.journal import Journal, PostgresPlace

async def main(url, run_id, seconds):
    journal = Journal(PostgresPlace(url, lease_seconds=float(seconds)))
    try:
        async with await journal.claim(run_id) as log:
            print("claimed", flush=True)
            while await anyio.to_thread.run_sync(sys.stdin.readline):
                event = log.add("text_delta", {"text": "你好"}, state={}, output=str(log.run.last_seq + 1))
                await log.commit(durable=True)
                print(event.seq, flush=True)
    except StoreError as error:
        print(error, flush=True)
    await journal.aclose()

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with run_postgres() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOOM_DATABASE_SECRET", PASSWORD)
    return server.url(f"?schema=t{secrets.token_hex(4)}")


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    with ExitStack() as children:

        def start(run_id: str) -> subprocess.Popen[str]:
            child = subprocess.Popen(
                [sys.executable, "-c", starts_quickly(HOLDER), url, run_id, str(_LEASE_SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            children.enter_context(child)
            children.callback(child.kill)
            assert _line(child) == "claimed"
            return child

        yield start


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _ask(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None
    child.stdin.write("go\n")
    return _line(child)


async def _claim_when_free(journal: Journal, run_id: str) -> RunLog:
    with anyio.fail_after(60):
        while await journal.find_unclaimed() != [run_id]:  # noqa: ASYNC110 - time frees it
            await anyio.sleep(0.1)
    log = await journal.claim(run_id)
    assert log is not None
    return log


def _opened(url: str) -> Journal:
    return Journal(PostgresPlace(url, lease_seconds=_LEASE_SECONDS))


async def test_the_run_of_a_killed_process_is_free_when_its_lease_is_over(url: str, start: Start) -> None:
    journal = _opened(url)
    run = await journal.create(RunRequest(goal="g"))
    child = start(run.id)
    said = [_ask(child) for _ in range(3)]
    assert said == ["1", "2", "3"]
    child.kill()
    child.wait(timeout=10)
    assert await journal.claim(run.id) is None, "others cannot know it yet"
    assert (await journal.get(run.id)).driver.startswith(f"pid {child.pid} ")
    async with await _claim_when_free(journal, run.id) as log:
        assert [step.event.seq for step in log.steps] == [1, 2, 3]
        assert log.run.output == "3"
        log.add("agent_finish", {}, status="completed")
    assert (await journal.get(run.id)).status == "completed"
    await journal.aclose()


async def test_a_lease_from_before_the_clock_was_put_back_is_over(
    url: str, start: Start, server: PostgresServer
) -> None:
    journal = _opened(url)
    run = await journal.create(RunRequest(goal="g"))
    child = start(run.id)
    child.kill()
    child.wait(timeout=10)
    with psycopg.connect(server.url(), password=PASSWORD) as connection:
        schema = url.rpartition("=")[2]
        connection.execute(f"UPDATE {schema}_runs.drivers SET expires = expires + 3600".encode())
    async with await _claim_when_free(journal, run.id) as log:
        log.add("agent_finish", {}, status="completed")
    await journal.aclose()


async def test_a_process_that_hung_for_longer_than_its_lease_writes_no_more(url: str, start: Start) -> None:
    journal = _opened(url)
    run = await journal.create(RunRequest(goal="g"))
    child = start(run.id)
    assert _ask(child) == "1"
    child.send_signal(signal.SIGSTOP)
    async with await _claim_when_free(journal, run.id) as log:
        log.add("text_delta", {"text": "here"})
        await log.commit()
        child.send_signal(signal.SIGCONT)
        assert "taken over this run" in _ask(child)
        log.add("agent_finish", {}, status="completed", output="here")
    child.wait(timeout=30)
    texts = [event.payload.get("text") for event in await journal.events(run.id)]
    assert texts == ["你好", "here", None]
    assert (await journal.get(run.id)).output == "here"
    await journal.aclose()


async def test_a_database_that_restarts_loses_nothing_and_the_run_goes_on(
    url: str, start: Start, server: PostgresServer
) -> None:
    journal = _opened(url)
    run = await journal.create(RunRequest(goal="g"))
    child = start(run.id)
    assert [_ask(child), _ask(child)] == ["1", "2"]
    server.kill()
    assert "cannot be asked" in _ask(child), "the process is told at its next commit"
    with pytest.raises(StoreError, match="acknowledged so far is safe"):
        await journal.get(run.id)
    server.start()
    child.wait(timeout=60)
    async with await _claim_when_free(journal, run.id) as log:
        assert [step.event.seq for step in log.steps] == [1, 2]
        log.add("text_delta", {"text": "on"})
        await log.commit(durable=True)
    assert (await journal.get(run.id)).last_seq == 3
    await journal.aclose()


async def test_a_lease_is_renewed_as_long_as_the_process_lives(url: str, start: Start) -> None:
    journal = _opened(url)
    run = await journal.create(RunRequest(goal="g"))
    child = start(run.id)
    await anyio.sleep(1.5 * _LEASE_SECONDS)
    assert await journal.claim(run.id) is None
    assert _ask(child) == "1"
    assert child.stdin is not None
    child.stdin.close()
    child.wait(timeout=30)
    assert await journal.find_unclaimed() == [run.id], "one that ends releases its runs at once"
    await journal.aclose()


def _run_agent(url: str, home: Path, *arguments: str) -> tuple[int, str]:
    """Run a command of loom-agent-server; returns its exit code and its output."""
    line = [sys.executable, "-m", "loom_agent", *arguments, "--home", str(home), "--provider", "mock"]
    done = subprocess.run(
        [*line, "--database", url], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout


def test_a_run_that_waits_is_decided_and_resumed_on_another_machine(url: str, tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "one", tmp_path / "two"
    code, out = _run_agent(url, here, "run", "请记一条笔记：灯塔", "--json")
    assert code == 3, "it waits for a person"
    waiting = json.loads(out)
    (pending,) = waiting["pending"]
    changed = ["edit", "--with", '{"text": "海"}']
    assert _run_agent(url, elsewhere, "runs", "decide", waiting["run_id"], pending["id"], *changed)[0] == 0
    code, out = _run_agent(url, elsewhere, "runs", "resume", waiting["run_id"])
    assert code == 0
    assert "海" in out
    assert not (here / "agent" / "runs.db").exists()
    code, out = _run_agent(url, here, "runs", "list", "灯塔")
    assert f"{waiting['run_id']} (completed" in out
