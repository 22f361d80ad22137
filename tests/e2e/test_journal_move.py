"""`move`: an agent's and a flow's journal goes to PostgreSQL, where runs go on, and back to a file."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_core.runs.journal import Journal
from loom_core.runs.run import RunRequest
from tests.fixtures.commands import run_command
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

NOTE = {
    "flow_id": "note",
    "trigger_patterns": ["记一下"],
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "steps": [{"stepId": "sure", "confirm": "Keep “{$inputs.text}”?"}],
    "response": "Kept: {$inputs.text}",
}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.url(f"?schema=t{secrets.token_hex(4)}")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs a command of a server; gives the exit code, standard output and standard error."""
    (tmp_path / "flow.json").write_text(json.dumps({"flows": [NOTE]}), encoding="utf-8")

    def call(server: str, *arguments: str) -> tuple[int, str, str]:
        model = ["--provider", "mock"] if server == "loom_agent" else []
        line = [*arguments, "--home", str(tmp_path), *model]
        done = run_command(server, *line, env={"LOOM_DATABASE_SECRET": PASSWORD})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return call


def _move(command: Command, server: str, *arguments: str) -> dict[str, Any]:
    code, out, err = command(server, "move", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_run_of_an_agent_that_waits_goes_on_in_postgresql_and_is_found_in_a_file_again(
    command: Command, url: str, tmp_path: Path
) -> None:
    code, out, _ = command("loom_agent", "run", "请记一条笔记：灯塔", "--json")
    assert code == 3
    waiting = json.loads(out)
    run_id, (pending,) = waiting["run_id"], waiting["pending"]
    moved = _move(command, "loom_agent", "--to", url)
    assert moved["next"] == f"Start each server with LOOM_DATABASE={url} or --database {url}."
    assert _move(command, "loom_agent", "--to", url) == moved, "once more does nothing"
    shared = ("--database", url)
    assert command("loom_agent", "runs", "decide", run_id, pending["id"], "approve", *shared)[0] == 0
    assert command("loom_agent", "runs", "resume", run_id, *shared)[0] == 0
    _, out, _ = command("loom_agent", "runs", "show", run_id, "--json")
    assert json.loads(out)["status"] == "input_required", "the file is as it was"
    code, _, err = command("loom_agent", "move", "--to", url)
    assert code == 1
    assert "is not the same in both databases" in err
    (tmp_path / "agent").rename(tmp_path / "before")
    code, out, err = command("loom_agent", "move", "--to", "file", *shared)
    assert code == 0, err
    assert (
        f"are in {tmp_path / 'agent' / 'runs.db'} now, too.\nStart each server without LOOM_DATABASE" in out
    )
    _, out, _ = command("loom_agent", "runs", "show", run_id, "--json")
    assert json.loads(out)["status"] == "completed"


def test_a_flow_that_asks_goes_on_in_postgresql(command: Command, url: str) -> None:
    code, out, err = command("loom_flow", "run", "note", "text=灯塔", "--json")
    assert code == 3, err
    run_id = json.loads(out)["run_id"]
    _move(command, "loom_flow", "--to", url)
    code, out, err = command("loom_flow", "resume", run_id, "--approve", "--database", url)
    assert code == 0, err
    assert "Kept: 灯塔" in out


async def test_a_journal_is_not_moved_while_a_process_executes_its_runs(
    command: Command, url: str, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "agent" / "runs.db")
    log = await journal.claim((await journal.create(RunRequest(goal="灯塔"))).id)
    assert log is not None
    async with log:
        code, _, err = command("loom_agent", "move", "--to", url)
    await journal.aclose()
    assert code == 1
    assert "Stop all servers that use it" in err


def test_what_cannot_be_a_target_is_refused_with_advice(command: Command, tmp_path: Path) -> None:
    gone = f"postgresql://loom@127.0.0.1:{free_port()}/postgres"
    for target, message in {
        gone: "There is no journal in",
        "file": "Name another target",
        str(tmp_path / "runs.db"): "Write it as postgresql://",
        "postgresql://loom:geheim@db/loom": "LOOM_DATABASE_SECRET",
    }.items():
        code, out, err = command("loom_flow", "move", "--to", target)
        assert (code, out) == (1, "")
        assert message in err
    assert command("loom_flow", "move")[0] == 2
    written = (tmp_path / "audit" / "audit.jsonl").read_text(encoding="utf-8")
    assert "geheim" not in written
    assert '"file"' in written
