"""A knowledge base goes to PostgreSQL, where other machines and other servers find it, and back to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.commands import run_command
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

NOTES = "Jacquard built a loom in Lyon in 1804.\n\n青花瓷在景德镇烧成。"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


def _run(server: str, *arguments: str, home: Path, database: str = "", stdin: bytes = b"") -> Any:
    env = {"LOOM_DATABASE_SECRET": PASSWORD, "LOOM_DATABASE": database}
    line = [*arguments, "--home", str(home), "--json"]
    done = run_command(server, *line, env=env, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_knowledge_base_is_taken_along_and_found_by_other_machines(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url, one, other = postgres.url(), tmp_path / "one", tmp_path / "other"
    _run("loom_kb", "add", "-", "--kb", "笔记", "--embedder", "hashing", home=one, stdin=NOTES.encode())
    moved = _run("loom_kb", "move", "--kb", "笔记", "--to", url, home=one)
    assert moved["next"] == f"Start each server with LOOM_DATABASE={url} or --database {url}."
    assert _run("loom_kb", "list", home=other) == {"sources": [], "unusable": []}
    listed = _run("loom_kb", "list", home=other, database=url)
    assert [(each["name"], each["documents"]) for each in listed["sources"]] == [("笔记", 1)]
    found = _run("loom_kb", "query", "青花瓷在哪里烧成?", home=other, database=url)
    assert "景德镇" in found["passages"][0]["text"]
    checked = _run("loom_kb", "check", "--kb", "笔记", home=other, database=url)
    assert checked["sound"] is True
    asked = _run("loom_query", "query", "Who built a loom?", home=tmp_path / "third", database=url)
    assert "Jacquard" in json.dumps(asked)
    _run("loom_kb", "add", "-", "--kb", "笔记", home=other, database=url, stdin=b"Ada wrote a program.")
    _run("loom_kb", "move", "--kb", "笔记", "--to", "file", home=other, database=url)
    back = _run("loom_kb", "query", "Who wrote a program?", home=other)
    assert "Ada" in back["passages"][0]["text"]
