"""Tables of a knowledge base: the versions of its schema, and what only PostgreSQL needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["POSTGRES_SCRIPTS", "SCHEMA"]

# Keys are AUTOINCREMENT where an index elsewhere refers to them: a key is never reused, so that an index
# that lags behind cannot confuse a new row with an old one.
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
    "end" INTEGER NOT NULL,
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
    "end" INTEGER NOT NULL,
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
    "end" INTEGER NOT NULL,
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

_VERSION_2 = """
-- Structure of the text, see `encode_blocks`; NULL where it was not kept.
ALTER TABLE documents ADD COLUMN blocks BLOB;

CREATE TABLE next_vectors (      -- of the embedder that is to take over, until there are all of them
    hash BLOB PRIMARY KEY,
    vector BLOB NOT NULL
);

CREATE TABLE offered_vectors (   -- came with an archive; taken when their chunks are there
    hash BLOB PRIMARY KEY,
    vector BLOB NOT NULL
);

CREATE TABLE files (             -- what a file was like when its document was read from it
    document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE,
    hash BLOB NOT NULL,          -- of the document then; if it has another by now, this says nothing
    settings BLOB NOT NULL,      -- digest of all else that the document was made by
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,   -- -1 where it may have changed since without a trace here
    ctime_ns INTEGER NOT NULL,
    content BLOB NOT NULL        -- SHA-256 of its bytes
);
CREATE INDEX files_content ON files (content);

CREATE TABLE texts (             -- the different texts that documents have
    key INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE    -- of the normalised text
);
CREATE TABLE copies (            -- which text each document has
    document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE,
    text INTEGER NOT NULL REFERENCES texts (key) ON DELETE CASCADE
);
CREATE INDEX copies_text ON copies (text, document);
CREATE TABLE bands (             -- by what texts that are nearly the same find each other
    band INTEGER NOT NULL,
    text INTEGER NOT NULL REFERENCES texts (key) ON DELETE CASCADE,
    PRIMARY KEY (band, text)
) WITHOUT ROWID;
CREATE INDEX bands_text ON bands (text);
CREATE TABLE likenesses (        -- texts that are nearly the same; `text` is the smaller key
    text INTEGER NOT NULL REFERENCES texts (key) ON DELETE CASCADE,
    other INTEGER NOT NULL REFERENCES texts (key) ON DELETE CASCADE,
    likeness REAL NOT NULL,      -- Jaccard index of their shingles
    PRIMARY KEY (text, other)
) WITHOUT ROWID;
CREATE INDEX likenesses_other ON likenesses (other);
CREATE TABLE uncompared (        -- documents whose text has yet to be compared with the others
    document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE
);
INSERT INTO uncompared SELECT key FROM documents;
CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    INSERT INTO uncompared VALUES (NEW.key); END;
CREATE TRIGGER documents_changed AFTER UPDATE OF hash ON documents WHEN OLD.hash != NEW.hash BEGIN
    INSERT OR IGNORE INTO uncompared VALUES (NEW.key); END;
CREATE TRIGGER copies_gone AFTER DELETE ON copies BEGIN
    DELETE FROM texts WHERE key = OLD.text AND NOT EXISTS (SELECT 1 FROM copies WHERE text = OLD.text); END;
CREATE TRIGGER copies_changed AFTER UPDATE OF text ON copies WHEN OLD.text != NEW.text BEGIN
    DELETE FROM texts WHERE key = OLD.text AND NOT EXISTS (SELECT 1 FROM copies WHERE text = OLD.text); END;

ALTER TABLE jobs ADD COLUMN started_at REAL;
-- Chunks after the first up to the last were written while the job ran.
ALTER TABLE jobs ADD COLUMN first_chunk INTEGER;
ALTER TABLE jobs ADD COLUMN last_chunk INTEGER;
CREATE INDEX items_leaving ON items (job, uri) WHERE state = 'leaving';
CREATE TABLE job_counts (        -- documents of a job by state, as counting them takes long
    job INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
    state TEXT NOT NULL,
    documents INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    PRIMARY KEY (job, state)
) WITHOUT ROWID;
INSERT INTO job_counts SELECT job, state, COUNT(*), SUM(chunks) FROM items GROUP BY job, state;
CREATE TABLE job_paces (         -- how long the last pieces of a job's work took
    key INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
    seconds REAL NOT NULL,
    documents INTEGER NOT NULL,
    chunks INTEGER NOT NULL
);
CREATE INDEX job_paces_job ON job_paces (job, key);
CREATE TABLE job_notes (         -- what is worth knowing of documents that are in
    key INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
    note TEXT NOT NULL
);
CREATE INDEX job_notes_job ON job_notes (job, key);

-- The name without spaces and plural, see `name_form`; empty where it is not known.
ALTER TABLE entities ADD COLUMN form TEXT NOT NULL DEFAULT '';
CREATE INDEX entities_form ON entities (form) WHERE form != '';
CREATE TABLE alias_statements (  -- passages that say that two entities are one
    chunk INTEGER NOT NULL REFERENCES chunks (key),
    entity INTEGER NOT NULL REFERENCES entities (key), -- of an acronym, what it stands for
    other INTEGER NOT NULL REFERENCES entities (key),
    kind TEXT NOT NULL,          -- acronym, also_called, translation
    start INTEGER NOT NULL,      -- in the chunk
    "end" INTEGER NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, entity, other)
) WITHOUT ROWID;
CREATE INDEX alias_statements_entity ON alias_statements (entity, other);
CREATE INDEX alias_statements_other ON alias_statements (other, entity);
CREATE TABLE name_likenesses (   -- entities with the same form; `entity` is the smaller key
    entity INTEGER NOT NULL REFERENCES entities (key) ON DELETE CASCADE,
    other INTEGER NOT NULL REFERENCES entities (key) ON DELETE CASCADE,
    cosine REAL,                 -- of their names; NULL until they are compared
    PRIMARY KEY (entity, other)
) WITHOUT ROWID;
CREATE INDEX name_likenesses_other ON name_likenesses (other);
CREATE INDEX name_likenesses_new ON name_likenesses (entity) WHERE cosine IS NULL;
CREATE TABLE alias_decisions (   -- what people decided; by ids, so that it outlives the entities
    id TEXT NOT NULL,            -- of the two the smaller
    other TEXT NOT NULL,
    same BOOLEAN NOT NULL,
    decided_at REAL NOT NULL,
    PRIMARY KEY (id, other)
) WITHOUT ROWID;
CREATE INDEX alias_decisions_other ON alias_decisions (other);
CREATE TABLE aliases (           -- entities that are one with others: a function of the tables above
    entity INTEGER PRIMARY KEY REFERENCES entities (key) ON DELETE CASCADE,
    canonical INTEGER NOT NULL   -- the one that stands for them
);
CREATE INDEX aliases_canonical ON aliases (canonical, entity);

-- In chunks after this one the name is looked for anyway, see `linked` of `coverage`.
ALTER TABLE new_names ADD COLUMN newest INTEGER NOT NULL DEFAULT 4611686018427387904;

-- References are looked up with every row that is written, and nothing could break them: chunks and
-- entities go by the same hands as these rows. Relations are found through mentions and abouts.
CREATE TABLE free_mentions (
    chunk INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    start INTEGER NOT NULL,      -- in the chunk
    "end" INTEGER NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    method TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, entity, start)
) WITHOUT ROWID;
INSERT INTO free_mentions SELECT * FROM mentions ORDER BY chunk, entity, start;
DROP TABLE mentions;
ALTER TABLE free_mentions RENAME TO mentions;
CREATE INDEX mentions_entity ON mentions (entity, chunk, start, confidence);
CREATE TABLE free_abouts (
    chunk INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, entity, source)
) WITHOUT ROWID;
INSERT INTO free_abouts SELECT * FROM abouts ORDER BY chunk, entity, source;
DROP TABLE abouts;
ALTER TABLE free_abouts RENAME TO abouts;
CREATE INDEX abouts_entity ON abouts (entity, confidence DESC, chunk);
CREATE TABLE free_relations (
    chunk INTEGER NOT NULL,
    subject INTEGER NOT NULL,
    predicate TEXT NOT NULL,
    object INTEGER NOT NULL,
    start INTEGER NOT NULL,      -- in the chunk
    "end" INTEGER NOT NULL,
    method TEXT NOT NULL,
    confidence REAL NOT NULL,
    PRIMARY KEY (chunk, subject, predicate, object)
) WITHOUT ROWID;
INSERT INTO free_relations SELECT * FROM relations ORDER BY chunk, subject, predicate, object;
DROP TABLE relations;
ALTER TABLE free_relations RENAME TO relations;

-- A row stands for so many changes: their keys and numbers follow each other, and the row has the last ones.
ALTER TABLE changes ADD COLUMN count INTEGER NOT NULL DEFAULT 1;

-- Its directories held another index of vectors.
DELETE FROM indexes WHERE name = 'vectors';
CREATE TABLE unembedded (        -- chunks without a vector; maintained by the triggers below
    chunk INTEGER PRIMARY KEY
);
CREATE TABLE coverage (          -- its only row
    chunks INTEGER NOT NULL,     -- how many there are
    unembedded INTEGER NOT NULL, -- how many of these are `unembedded`
    linked INTEGER NOT NULL      -- the last one that was searched for names: all known ones but `new_names`
);
INSERT INTO unembedded SELECT key FROM chunks AS c
    WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash) ORDER BY key;
INSERT INTO coverage SELECT (SELECT COUNT(*) FROM chunks), (SELECT COUNT(*) FROM unembedded),
    (SELECT COALESCE(MAX(key), 0) FROM chunks);
CREATE TRIGGER unembedded_more AFTER INSERT ON unembedded BEGIN
    UPDATE coverage SET unembedded = unembedded + 1; END;
CREATE TRIGGER unembedded_less AFTER DELETE ON unembedded BEGIN
    UPDATE coverage SET unembedded = unembedded - 1; END;
CREATE TRIGGER chunks_came AFTER INSERT ON chunks BEGIN
    UPDATE coverage SET chunks = chunks + 1; INSERT INTO unembedded SELECT NEW.key
    WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE hash = NEW.vector_hash); END;
CREATE TRIGGER chunks_went AFTER DELETE ON chunks BEGIN
    UPDATE coverage SET chunks = chunks - 1; DELETE FROM unembedded WHERE chunk = OLD.key; END;
CREATE TRIGGER chunks_say_else AFTER UPDATE OF vector_hash ON chunks BEGIN
    DELETE FROM unembedded WHERE chunk = OLD.key; INSERT INTO unembedded SELECT NEW.key
    WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE hash = NEW.vector_hash); END;
CREATE TRIGGER vectors_came AFTER INSERT ON vectors BEGIN
    DELETE FROM unembedded WHERE chunk IN (SELECT key FROM chunks WHERE vector_hash = NEW.hash); END;
CREATE TRIGGER vectors_went AFTER DELETE ON vectors BEGIN
    INSERT OR IGNORE INTO unembedded SELECT key FROM chunks WHERE vector_hash = OLD.hash; END
"""

_VERSION_3 = """
CREATE TABLE job_spendings (     -- what a language model has taken for a job so far
    job INTEGER PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost REAL                    -- US dollars; NULL where a price is not known
)
"""

_VERSION_4 = """
-- Names next to each other in a sentence are no relation: what is together beyond chance is computed.
DELETE FROM relations WHERE predicate = 'related to' AND method = 'between';
-- A name that was looked up, or that a passage is about, was not recognised there: it has no type.
UPDATE mentions SET type = 'name' WHERE method = 'title';
DELETE FROM names;
INSERT INTO names SELECT entity, name, type, COUNT(*) FROM (
    SELECT entity, name, type FROM mentions UNION ALL SELECT entity, name, '' FROM abouts
) AS named GROUP BY entity, name, type;
-- Whether its names are common words: a function of `names`, see `COMMON` in graph.py.
ALTER TABLE entities ADD COLUMN common BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE entities SET common = TRUE WHERE key IN (
    SELECT entity FROM names WHERE type != '' GROUP BY entity
    HAVING SUM(uses) >= 10 AND 5 * SUM(CASE type WHEN 'name' THEN 0 ELSE uses END) < SUM(uses)
);
UPDATE mentions SET confidence = 0 WHERE type = 'name'
    AND EXISTS (SELECT 1 FROM entities WHERE key = entity AND common);
DELETE FROM indexes WHERE name = 'graph'
"""

_VERSION_5 = """
CREATE TABLE edge_lines (        -- lines at the beginning and end of documents, and some between them
    line INTEGER NOT NULL,       -- hash
    document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
    length INTEGER NOT NULL,     -- characters
    edge BOOLEAN NOT NULL,       -- whether it is at the beginning or end
    PRIMARY KEY (line, document)
) WITHOUT ROWID;
CREATE INDEX edge_lines_document ON edge_lines (document);
CREATE TABLE boilerplate (       -- passages that consist of lines that ten documents have or more
    chunk INTEGER PRIMARY KEY
);
CREATE TABLE unjudged (          -- documents whose passages have yet to be judged
    document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE
);
CREATE TRIGGER edge_lines_came AFTER INSERT ON edge_lines BEGIN
    INSERT OR IGNORE INTO unjudged SELECT document FROM edge_lines WHERE line = NEW.line
    AND 10 = (SELECT COUNT(*) FROM (SELECT 1 FROM edge_lines WHERE line = NEW.line LIMIT 11)); END;
CREATE TRIGGER edge_lines_went AFTER DELETE ON edge_lines BEGIN
    INSERT OR IGNORE INTO unjudged SELECT document FROM edge_lines WHERE line = OLD.line
    AND 9 = (SELECT COUNT(*) FROM (SELECT 1 FROM edge_lines WHERE line = OLD.line LIMIT 10)); END;
CREATE TRIGGER boilerplate_went AFTER DELETE ON chunks BEGIN
    DELETE FROM boilerplate WHERE chunk = OLD.key; END;
INSERT INTO uncompared SELECT key FROM documents WHERE TRUE ON CONFLICT DO NOTHING
"""

SCHEMA: tuple[str, ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)

# Functions of SQLite that statements use. json_each has the keys, the numbers and the texts of a list.
_FUNCTIONS = """
CREATE FUNCTION json_each(list TEXT, OUT key BIGINT, OUT value BIGINT, OUT atom TEXT) RETURNS SETOF RECORD
    STABLE LANGUAGE sql AS $$
    SELECT place - 1, CASE json_typeof(item) WHEN 'number' THEN (item #>> '{}')::bigint END, item #>> '{}'
    FROM json_array_elements(list::json) WITH ORDINALITY AS items (item, place)
    $$;
CREATE FUNCTION instr(text TEXT, part TEXT) RETURNS INTEGER IMMUTABLE LANGUAGE sql
    AS $$ SELECT strpos(text, part) $$;
CREATE FUNCTION json_array_of(items ANYCOMPATIBLEARRAY) RETURNS TEXT IMMUTABLE LANGUAGE sql
    AS $$ SELECT array_to_json(items)::text $$;
CREATE AGGREGATE json_group_array(ANYCOMPATIBLE)
    (SFUNC = array_append, STYPE = ANYCOMPATIBLEARRAY, INITCOND = '{}', FINALFUNC = json_array_of);
CREATE FUNCTION list_of(items TEXT[]) RETURNS TEXT IMMUTABLE LANGUAGE sql
    AS $$ SELECT array_to_string(items, ',') $$;
CREATE AGGREGATE group_concat(TEXT)
    (SFUNC = array_append, STYPE = TEXT[], INITCOND = '{}', FINALFUNC = list_of)
"""
# The highest keys ever, which SQLite keeps in a table of this name.
_KEYS = """
CREATE TABLE sqlite_sequence (name TEXT PRIMARY KEY, seq BIGINT NOT NULL);
INSERT INTO sqlite_sequence VALUES ('documents', 0), ('chunks', 0), ('entities', 0), ('changes', 0);
ALTER TABLE texts ALTER COLUMN key ADD GENERATED BY DEFAULT AS IDENTITY;
ALTER TABLE job_paces ALTER COLUMN key ADD GENERATED BY DEFAULT AS IDENTITY;
ALTER TABLE job_notes ALTER COLUMN key ADD GENERATED BY DEFAULT AS IDENTITY
"""


def _trigger(name: str, event: str, body: str, *, rows: str = "") -> str:
    """Return a script for a trigger: once for a statement, whose rows are `rows`, or else once for a row."""
    each = f"REFERENCING {rows} FOR EACH STATEMENT" if rows else "FOR EACH ROW"
    event, when, condition = event.partition(" WHEN ")
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN {body}; RETURN NULL; END $$;\n"
        f"CREATE TRIGGER {name} AFTER {event} {each} {when}{condition} EXECUTE FUNCTION {name}()"
    )


_CAME, _WENT = "NEW TABLE AS came", "OLD TABLE AS went"
_HIGHEST = (
    "UPDATE sqlite_sequence SET seq = GREATEST(seq, (SELECT MAX({}) FROM came)) WHERE name = TG_TABLE_NAME"
)
_MISSING = "NOT EXISTS (SELECT 1 FROM vectors WHERE hash = {}.vector_hash)"
_UNUSED = "DELETE FROM texts WHERE key = OLD.text AND NOT EXISTS (SELECT 1 FROM copies WHERE text = OLD.text)"
# Documents with lines that more than nine have by now, and not before; or no longer, but before. Without the
# order of an index, PostgreSQL reads all lines, as it expects to find some soon.
_REPEATED = """
INSERT INTO unjudged SELECT e.document
FROM (SELECT line, COUNT(*) AS n FROM {rows} GROUP BY line) AS f
CROSS JOIN LATERAL (SELECT document FROM edge_lines WHERE line = f.line ORDER BY document) AS e
WHERE (
    SELECT COUNT(*)
    FROM (SELECT 1 FROM edge_lines WHERE line = f.line ORDER BY document LIMIT 10 + f.n) AS first
) BETWEEN {least} AND {most} ON CONFLICT DO NOTHING
"""
_TRIGGERS = (
    _trigger("documents_keyed", "INSERT ON documents", _HIGHEST.format("key"), rows=_CAME),
    _trigger("chunks_keyed", "INSERT ON chunks", _HIGHEST.format("key"), rows=_CAME),
    _trigger("entities_keyed", "INSERT ON entities", _HIGHEST.format("key"), rows=_CAME),
    _trigger("changes_keyed", "INSERT ON changes", _HIGHEST.format("came.seq"), rows=_CAME),
    _trigger(
        "documents_added", "INSERT ON documents", "INSERT INTO uncompared SELECT key FROM came", rows=_CAME
    ),
    _trigger(
        "documents_changed",
        "UPDATE OF hash ON documents WHEN (OLD.hash != NEW.hash)",
        "INSERT INTO uncompared VALUES (NEW.key) ON CONFLICT DO NOTHING",
    ),
    _trigger("copies_gone", "DELETE ON copies", _UNUSED),
    _trigger("copies_changed", "UPDATE OF text ON copies WHEN (OLD.text != NEW.text)", _UNUSED),
    _trigger(
        "unembedded_more",
        "INSERT ON unembedded",
        "UPDATE coverage SET unembedded = unembedded + (SELECT COUNT(*) FROM came)",
        rows=_CAME,
    ),
    _trigger(
        "unembedded_less",
        "DELETE ON unembedded",
        "UPDATE coverage SET unembedded = unembedded - (SELECT COUNT(*) FROM went)",
        rows=_WENT,
    ),
    _trigger(
        "chunks_came",
        "INSERT ON chunks",
        "UPDATE coverage SET chunks = chunks + (SELECT COUNT(*) FROM came); "
        f"INSERT INTO unembedded SELECT key FROM came WHERE {_MISSING.format('came')}",
        rows=_CAME,
    ),
    _trigger(
        "chunks_went",
        "DELETE ON chunks",
        "UPDATE coverage SET chunks = chunks - (SELECT COUNT(*) FROM went); "
        "DELETE FROM unembedded WHERE chunk IN (SELECT key FROM went); "
        "DELETE FROM boilerplate WHERE chunk IN (SELECT key FROM went)",
        rows=_WENT,
    ),
    _trigger(
        "chunks_say_else",
        "UPDATE OF vector_hash ON chunks",
        "DELETE FROM unembedded WHERE chunk = OLD.key; "
        f"INSERT INTO unembedded SELECT NEW.key WHERE {_MISSING.format('NEW')}",
    ),
    _trigger(
        "vectors_came",
        "INSERT ON vectors",
        "DELETE FROM unembedded WHERE chunk IN (SELECT key FROM chunks JOIN came ON vector_hash = came.hash)",
        rows=_CAME,
    ),
    _trigger(
        "vectors_went",
        "DELETE ON vectors",
        "INSERT INTO unembedded SELECT key FROM chunks JOIN went ON vector_hash = went.hash "
        "ON CONFLICT DO NOTHING",
        rows=_WENT,
    ),
    _trigger(
        "edge_lines_came",
        "INSERT ON edge_lines",
        _REPEATED.format(rows="came", least="10", most="9 + f.n"),
        rows=_CAME,
    ),
    _trigger(
        "edge_lines_went",
        "DELETE ON edge_lines",
        _REPEATED.format(rows="went", least="10 - f.n", most="9"),
        rows=_WENT,
    ),
)

_NODES = """
CREATE TABLE identity (          -- by which a node sees that its indexes were made from this store
    id TEXT NOT NULL
);
INSERT INTO identity VALUES (gen_random_uuid()::text);
CREATE TABLE nodes (             -- how far each node has followed the changes: see `ChangeLog.report`
    id TEXT PRIMARY KEY,
    watermark BIGINT NOT NULL,
    seen DOUBLE PRECISION NOT NULL
);
CREATE TABLE worker (            -- the process that works for the knowledge base: see `WorkLease`
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    holder TEXT NOT NULL,
    title TEXT NOT NULL,
    status TEXT NOT NULL,
    expires DOUBLE PRECISION NOT NULL
);
-- Until when a process embeds the chunk, by the server's clock: see `VectorTable.claim`.
ALTER TABLE unembedded ADD COLUMN claimed DOUBLE PRECISION NOT NULL DEFAULT 0
"""

POSTGRES_SCRIPTS: Mapping[int, Sequence[str]] = {0: (_FUNCTIONS,), 5: (_KEYS, *_TRIGGERS, _NODES)}
"""Scripts for PostgreSQL alone; see `PostgresDatabase`. The triggers do what those of `SCHEMA` do."""
