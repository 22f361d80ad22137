"""Places where journals are: each of these tests runs with a file and with PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_place(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A schema of its own in PostgreSQL, which libpq knows the password of."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return postgres.url(f"?schema=t{secrets.token_hex(4)}")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a journal is, for `Journal`."""
    if request.param == "file":
        return str(tmp_path / "runs.db")
    return request.getfixturevalue("postgres_place")
