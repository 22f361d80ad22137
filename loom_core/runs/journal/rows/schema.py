"""SQL schema of the run journal, and of the memory that may be in the same file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NOTIFY", "POSTGRES_SCRIPTS", "SCHEMA", "SEQ_BITS"]

SEQ_BITS = 32
"""An event's key is its run's key, shifted by this many bits, plus its seq: a run's events are adjacent."""

# Texts from outside (goals, answers, payloads) are inside JSON, which can hold lone surrogates; plain text
# columns cannot.
_VERSION_1 = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    caller TEXT NOT NULL,
    created REAL NOT NULL        -- seconds since 1970, as all times here
);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES sessions (key),
    caller TEXT NOT NULL,
    idempotency_key TEXT,        -- NULL for none
    created REAL NOT NULL,
    status TEXT NOT NULL,
    driver TEXT,                 -- the process that drives it; NULL for none, '' if it was interrupted
    standing TEXT NOT NULL,      -- JSON: what else changes in a run
    unread BOOLEAN NOT NULL DEFAULT TRUE,  -- its words have changed since they were written into `run_words`
    UNIQUE (caller, idempotency_key)
);
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_status ON runs (status);
CREATE INDEX runs_driver ON runs (driver) WHERE driver IS NOT NULL;
CREATE INDEX runs_unread ON runs (key) WHERE unread;

CREATE TABLE requests (          -- apart from `runs`, as it may be long and never changes
    run INTEGER PRIMARY KEY,
    body TEXT NOT NULL           -- JSON
);

CREATE TABLE events (
    key INTEGER PRIMARY KEY,     -- that of the run << 32 | seq
    at REAL NOT NULL,
    type TEXT NOT NULL,
    payload TEXT NOT NULL,       -- JSON
    state TEXT                   -- JSON; what the loop goes on from after a crash
);

CREATE TABLE orders (            -- those not obeyed yet
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    body TEXT NOT NULL           -- JSON
);
CREATE INDEX orders_run ON orders (run);

CREATE TABLE blobs (             -- what is too long for an event
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (run, number)
);

CREATE TABLE drivers (           -- processes; each holds the lock of its id as long as it lives
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE syncs (             -- changed where there is nothing else to be flushed with
    count INTEGER NOT NULL
);
INSERT INTO syncs VALUES (0);

CREATE TABLE run_words (         -- of goals and outputs, for those runs that are not `unread`
    word TEXT NOT NULL,
    item INTEGER NOT NULL,       -- key of the run
    times INTEGER NOT NULL,
    PRIMARY KEY (word, item)
) WITHOUT ROWID;
CREATE INDEX run_words_item ON run_words (item);

CREATE TABLE conversations (     -- of the memory, one for a session
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    updated REAL NOT NULL
);

CREATE TABLE messages (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (key),
    position INTEGER NOT NULL,   -- from 0
    body TEXT NOT NULL,          -- JSON
    unread BOOLEAN NOT NULL DEFAULT TRUE,
    UNIQUE (conversation, position)
);
CREATE INDEX messages_unread ON messages (key) WHERE unread;

CREATE TABLE message_words (
    word TEXT NOT NULL,
    item INTEGER NOT NULL,       -- key of the message
    times INTEGER NOT NULL,
    PRIMARY KEY (word, item)
) WITHOUT ROWID;
CREATE INDEX message_words_item ON message_words (item)
"""

# The state of a session across runs, as JSON, and its version.
_VERSION_2 = """
ALTER TABLE sessions ADD COLUMN state TEXT;
ALTER TABLE sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 0
"""

SCHEMA: tuple[str, ...] = (_VERSION_1, _VERSION_2)

# The operator -> of `json` reads one value as it is written; ->> would read all others, too, and refuse
# U+0000 and lone surrogates in them.
_JSON_EXTRACT = """
CREATE FUNCTION json_extract(body TEXT, path TEXT) RETURNS TEXT IMMUTABLE LANGUAGE sql
    AS $$ SELECT (body::json -> substr(path, 3)) #>> '{}' $$
"""
_LEASES = "ALTER TABLE drivers ADD COLUMN expires DOUBLE PRECISION NOT NULL DEFAULT 0"

NOTIFY = "pg_notify(current_schema(), '')"
"""Wakes those who wait on other nodes; returned by statements that change a run's state or its commands, in
PostgreSQL. Those that add events do not: commits that notify take turns in the whole database."""

POSTGRES_SCRIPTS: Mapping[int, Sequence[str]] = {0: (_JSON_EXTRACT,), 1: (_LEASES,)}
"""Scripts for PostgreSQL alone; see `PostgresDatabase`."""
