"""Tables of `record.db`, the system of record of one knowledge base."""

from __future__ import annotations

__all__ = ["SCHEMA"]

# Keys are AUTOINCREMENT where an index elsewhere refers to them: a key is never used twice, so that
# an index that lags behind can not take a new row for an old one.
_VERSION_1 = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE documents (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uri TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    title_source TEXT NOT NULL,
    mime TEXT NOT NULL,
    language TEXT NOT NULL,
    text BLOB NOT NULL,          -- zlib, UTF-8
    length INTEGER NOT NULL,     -- code points
    hash BLOB NOT NULL,          -- of all that the pipeline reads from the document
    metadata TEXT NOT NULL,      -- JSON
    added_at REAL NOT NULL,      -- seconds since 1970
    updated_at REAL NOT NULL
);

CREATE TABLE fields (            -- what filters look at
    document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,         -- what is compared as text
    number REAL,                 -- the same as a number, where it is one
    local REAL,                  -- as a date, in seconds since 1970 by the clock of its writer
    instant REAL,                -- as a date, in seconds since 1970
    PRIMARY KEY (name, value, document)
) WITHOUT ROWID;
CREATE INDEX fields_document ON fields (document);

CREATE TABLE chunks (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents (key),
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL,
    end INTEGER NOT NULL,
    page INTEGER,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    heading_path TEXT NOT NULL,  -- JSON list
    language TEXT NOT NULL,
    keywords TEXT NOT NULL,      -- JSON list
    hash BLOB NOT NULL,          -- of all that is indexed of the chunk: same hash, nothing to do
    vector_hash BLOB NOT NULL,   -- of the text that is embedded
    text TEXT NOT NULL
);
CREATE INDEX chunks_document ON chunks (document, ordinal);
CREATE INDEX chunks_vector ON chunks (vector_hash);

CREATE TABLE vectors (           -- by content: a chunk that moves or comes back is not embedded again
    hash BLOB PRIMARY KEY,
    vector BLOB NOT NULL         -- float16, unit length
);

CREATE TABLE entities (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE      -- name_key of every name of the entity
);

CREATE TABLE names (             -- how often each spelling and type is used
    entity INTEGER NOT NULL REFERENCES entities (key),
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    uses INTEGER NOT NULL,
    PRIMARY KEY (entity, name, type)
) WITHOUT ROWID;

CREATE TABLE mentions (
    chunk INTEGER NOT NULL REFERENCES chunks (key),
    entity INTEGER NOT NULL REFERENCES entities (key),
    start INTEGER NOT NULL,      -- in the chunk
    end INTEGER NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    method TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, entity, start)
) WITHOUT ROWID;
CREATE INDEX mentions_entity ON mentions (entity, chunk, start, confidence);

CREATE TABLE abouts (
    chunk INTEGER NOT NULL REFERENCES chunks (key),
    entity INTEGER NOT NULL REFERENCES entities (key),
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, entity, source)
) WITHOUT ROWID;
CREATE INDEX abouts_entity ON abouts (entity, confidence DESC, chunk);

CREATE TABLE new_names (         -- subjects whose names have yet to be looked for in earlier chunks
    entity INTEGER PRIMARY KEY REFERENCES entities (key) ON DELETE CASCADE
);

CREATE TABLE relations (
    chunk INTEGER NOT NULL REFERENCES chunks (key),
    subject INTEGER NOT NULL REFERENCES entities (key),
    predicate TEXT NOT NULL,
    object INTEGER NOT NULL REFERENCES entities (key),
    start INTEGER NOT NULL,      -- in the chunk
    end INTEGER NOT NULL,
    method TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, subject, predicate, object)
) WITHOUT ROWID;
CREATE INDEX relations_subject ON relations (subject, object);
CREATE INDEX relations_object ON relations (object, subject);

CREATE TABLE changes (           -- what the derived indexes have to catch up with, in order
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,          -- chunk+, chunk-, vector+, entity, document
    key INTEGER NOT NULL
);

CREATE TABLE indexes (
    name TEXT PRIMARY KEY,       -- words, vectors, graph
    generation INTEGER NOT NULL, -- names the directory; a rebuild makes a new one
    watermark INTEGER NOT NULL   -- changes up to this one are in the index; -1: to be built
) WITHOUT ROWID;

CREATE TABLE jobs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,          -- add
    state TEXT NOT NULL,         -- queued, running, done, failed, cancelled
    request TEXT NOT NULL,       -- JSON
    error TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    finished_at REAL
);

CREATE TABLE items (             -- the documents of a job
    job INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    uri TEXT NOT NULL,
    size INTEGER NOT NULL,
    state TEXT NOT NULL,         -- pending, added, updated, unchanged, skipped, failed
    reason TEXT NOT NULL DEFAULT '',
    chunks INTEGER NOT NULL DEFAULT 0,
    payload BLOB,                -- the text itself where it was given, until it is in the record
    PRIMARY KEY (job, ordinal)
) WITHOUT ROWID;
CREATE INDEX items_state ON items (job, state, ordinal, chunks)
"""

SCHEMA: tuple[str, ...] = (_VERSION_1,)
