"""A store, in memory and in PostgreSQL, and documents ready to be written into it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from pydantic import SecretStr

from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore, PreparedDocument
from loom_core.knowledge.store.schema import POSTGRES_SCRIPTS, SCHEMA
from loom_core.storage.postgres import PostgresDatabase
from tests.fixtures.store_servers.postgres import PASSWORD, PostgresServer, run_postgres

Prepare = Callable[..., PreparedDocument]
Steps = Callable[[KnowledgeStore], AbstractContextManager[list[int]]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def postgres_database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    """The tables of a knowledge base."""
    secret = SecretStr(PASSWORD)
    database = PostgresDatabase(
        postgres.url(), name="kb", schema=SCHEMA, more=POSTGRES_SCRIPTS, secret=secret
    )
    yield database
    database.close()


def _empty(database: PostgresDatabase) -> None:
    """Delete all rows, without triggers: a tenth of the time of a new schema."""
    tables = database.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    with database.write() as db:
        db.execute("SET LOCAL session_replication_role = replica")
        for table in {name for (name,) in tables} - {"format", "sqlite_sequence"}:
            db.execute(f"DELETE FROM {table}")
        db.execute("INSERT INTO coverage VALUES (0, 0, 0)")
        db.execute("UPDATE sqlite_sequence SET seq = 0")


@pytest.fixture
def empty_postgres(postgres_database: PostgresDatabase) -> PostgresDatabase:
    _empty(postgres_database)
    return postgres_database


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[KnowledgeStore]:
    if request.param == "memory":
        store = KnowledgeStore(None)
        yield store
        store.close()
    else:
        yield KnowledgeStore(request.getfixturevalue("empty_postgres"))


@pytest.fixture
def steps() -> Steps:
    """Counts the steps of SQLite's machine, in tens: what a statement costs, whatever the clock says."""

    @contextmanager
    def counted(store: KnowledgeStore) -> Iterator[list[int]]:
        count = [0]

        def tick() -> int:
            count[0] += 1
            return 0

        with store.database.read() as db:
            assert isinstance(db, sqlite3.Connection)
            db.set_progress_handler(tick, 10)
            yield count
            db.set_progress_handler(None, 0)

    return counted


@pytest.fixture
def prepare() -> Prepare:
    pipeline = Pipeline(
        create_chunker("simple", chunk_size=64), chunker_id="simple", extractor=RuleExtractor()
    )

    def prepared(text: str, *, uri: str = "text:a", title: str = "", **metadata: object) -> PreparedDocument:
        draft = DocumentDraft(
            uri=uri,
            text=text,
            title=title,
            title_source="given" if title else "none",
            metadata=metadata,
        )
        (document,) = asyncio.run(pipeline.prepare([draft]))
        return document

    return prepared
