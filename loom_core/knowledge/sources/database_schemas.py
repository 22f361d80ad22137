"""Schemas of knowledge bases in a PostgreSQL database, read without opening any of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.errors import StoreError
from loom_core.knowledge.store.fields import FIELD_NAMES
from loom_core.knowledge.store.place import SCHEMA_PREFIX
from loom_core.knowledge.store.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_FIELDS", "DatabaseSchemas", "StoreFacts"]

MAX_FIELDS = 40
"""Maximum number of fields that the description of a knowledge base names."""

_SCHEMAS = """
SELECT nspname FROM pg_namespace
WHERE starts_with(nspname, ?) AND has_schema_privilege(oid, 'USAGE')
    AND to_regclass(quote_ident(nspname) || '.format') IS NOT NULL
    AND has_table_privilege(quote_ident(nspname) || '.format', 'SELECT')
ORDER BY nspname
"""
_FIELDS = FIELD_NAMES.replace("FROM fields", "FROM {0}.fields")
_FACTS = f"""
SELECT (SELECT json_object_agg(name, value)::text FROM {{0}}.meta),
    (SELECT json_agg(name)::text FROM ({_FIELDS} LIMIT {MAX_FIELDS}) AS f),
    (SELECT COUNT(*) FROM {{0}}.documents), (SELECT chunks FROM {{0}}.coverage),
    (SELECT seq FROM {{0}}.sqlite_sequence WHERE name = 'changes'), (SELECT MAX(finished_at) FROM {{0}}.jobs)
"""
_MARKS = """
SELECT (SELECT seq FROM {0}.sqlite_sequence WHERE name = 'changes'), (SELECT MAX(finished_at) FROM {0}.jobs),
    (SELECT sha256(convert_to(string_agg(name || value, ',' ORDER BY name), 'UTF8')) FROM {0}.meta)
"""
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Facts about a store, of which a catalogue entry is made.

    Attributes:
        meta: its metadata.
        fields: names of fields of its documents, at most `MAX_FIELDS`.
        documents: how many documents it holds.
        chunks: how many chunks it holds.
        revision: see `CatalogueEntry`.
        problem: see `CatalogueEntry`.
    """

    meta: dict[str, str]
    fields: Sequence[str]
    documents: int
    chunks: int
    revision: str
    problem: str = ""


class DatabaseSchemas:
    """The schemas of knowledge bases in a database that this role may read.

    Args:
        url: see `PostgresDatabase`.

    Raises:
        ConfigError: the URL is wrong, or psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        from loom_core.storage.postgres import PostgresDatabase

        self._database = PostgresDatabase(url, name=SCHEMA_PREFIX, schema=(), more={}, create=False)

    def read(self) -> dict[str, StoreFacts]:
        """Return the facts about each knowledge base, by the end of its schema's name.

        Raises:
            StoreError: the database cannot be asked.
        """
        versions = self._versions()
        newer = f"a newer Loom wrote it (this one knows format {len(SCHEMA)}): upgrade"
        found = {
            schema: StoreFacts({}, (), 0, 0, "", newer)
            for schema in versions
            if versions[schema] > len(SCHEMA)
        }
        known = [schema for schema in versions if schema not in found]
        for schema, (meta, fields, documents, chunks, change, finished) in self._ask(_FACTS, known).items():
            found[schema] = StoreFacts(
                meta=json.loads(meta or "{}"),
                fields=json.loads(fields or "[]"),
                documents=documents,
                chunks=chunks,
                revision=f"{documents}:{change}:{finished}",
            )
        start = len(self._database.schema) - len(SCHEMA_PREFIX)
        return {schema[start:]: facts for schema, facts in found.items()}

    def marks(self) -> object:
        """Return a value that differs from the last one if any knowledge base may have changed.

        Raises:
            StoreError: the database cannot be asked.
        """
        return self._ask(_MARKS, list(self._versions()))

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _versions(self) -> dict[str, int]:
        names = [name for (name,) in self._database.rows(_SCHEMAS, (self._database.schema,))]
        asked = self._ask("SELECT version FROM {0}.format", list(filter(_PLAIN.fullmatch, names)))
        return {schema: version for schema, (version,) in asked.items()}

    def _ask(self, sql: str, schemas: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        """Ask each schema the same; one that was deleted in between is left out."""
        if not schemas:
            return {}
        every = " UNION ALL ".join(
            f"SELECT '{schema}', f.* FROM ({sql.format(schema)}) AS f" for schema in schemas
        )
        try:
            return {schema: tuple(values) for schema, *values in self._database.rows(every)}
        except StoreError:
            if len(schemas) == 1:
                if self._database.row("SELECT to_regclass(?)", (f"{schemas[0]}.format",))[0] is not None:
                    raise
                return {}
        return {schema: values for one in schemas for schema, values in self._ask(sql, [one]).items()}
