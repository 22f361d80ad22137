"""The knowledge store: the tables of one knowledge base, in one database."""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loom_core.knowledge.store.boilerplate import BoilerplateTable
from loom_core.knowledge.store.changes import ChangeLog
from loom_core.knowledge.store.documents import DocumentTable
from loom_core.knowledge.store.duplicates import DuplicateTable
from loom_core.knowledge.store.files import FileTable
from loom_core.knowledge.store.graph import GraphTable
from loom_core.knowledge.store.jobs import JobProgress, JobTable
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.knowledge.store.vectors import EmbedderMigration, ImportedVectors, VectorTable
from loom_core.storage import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from loom_core.knowledge.store.node import Sharing
    from loom_core.storage.commit_listener import CommitListener
    from loom_core.storage.sql import SQLDatabase

__all__ = ["KnowledgeStore", "MetaName", "StoreGlance"]

MetaName = Literal[
    "name",
    "description",
    "search_hints",
    "embedder",
    "embedding_config",
    "dimension",
    "centroids",
    "llm",
    "vectors",
    "collection",
    "vector_languages",
    "graph",
    "graph_collection",
    "graph_version",
    "lexical",
    "words_collection",
    "shards",
    "shard",
    "erasing",
]
"""Metadata of the knowledge base in the store.

`llm` is the language model that extracted last, if any; `vectors` the setting of where vectors are searched,
`collection` the name of the collection in a vector database and the folder that it belongs to, and
`vector_languages` the language groups in it; `lexical` and `words_collection` are the same for words,
`graph` and `graph_collection` for the graph. `graph_version` is the generation and the version of what was
last written into a graph database. `shards` and `shard` are described in `shard.py`.
"""


_GLANCE = """
SELECT (SELECT json_group_array(name) FROM (SELECT name FROM meta ORDER BY name) AS m),
    (SELECT json_group_array(value) FROM (SELECT value FROM meta ORDER BY name) AS m),
    COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0),
    COALESCE((SELECT chunks FROM coverage), 0), COALESCE((SELECT unembedded FROM coverage), 0)
"""


@dataclass(frozen=True, slots=True)
class StoreGlance:
    """Metadata and counts that a question reads of the store before all else.

    Attributes:
        meta: all metadata.
        head: number of the last change.
        embedded: how many chunks have a vector, of `chunks`.
        chunks: how many chunks there are.
    """

    meta: Mapping[str, str]
    head: int
    embedded: int
    chunks: int


class KnowledgeStore:
    """System of record of a knowledge base: everything is written here first.

    Every method of its tables is one transaction, or part of the `database.write()` around it.

    Args:
        place: `record.db`, made if absent; None keeps the store in memory; or an open database with the
            tables of `SCHEMA`, which `close` closes.
        read_only: whether changes to a file are refused.
        sharing: the part of this process in a database that several machines share.

    Raises:
        StoreError: see `Database`.
    """

    def __init__(
        self,
        place: Path | SQLDatabase | None,
        *,
        read_only: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        self.database: SQLDatabase = (
            Database(place, schema=SCHEMA, read_only=read_only)
            if place is None or isinstance(place, Path)
            else place
        )
        self.sharing = sharing
        node = None if sharing is None else sharing.node
        self.changes = ChangeLog(self.database, node)
        self.graph = GraphTable(self.database)
        self.aliases = self.graph.aliases
        self.documents = DocumentTable(self.database, self.graph, self.changes)
        self.next_vectors = EmbedderMigration(self.database, self.changes)
        self.imported_vectors = ImportedVectors(self.database)
        self.vectors = VectorTable(self.database, self.changes, None if node is None else node.shared)
        self.jobs = JobTable(self.database)
        self.progress = JobProgress(self.database)
        self.files = FileTable(self.database, self.changes)
        self.duplicates = DuplicateTable(self.database)
        self.boilerplate = BoilerplateTable(self.database, self.changes)

    def glance(self) -> StoreGlance:
        """Return metadata, the end of the change log and counts; in one query."""
        names, values, head, chunks, unembedded = self.database.row(_GLANCE)
        meta = dict(zip(json.loads(names), json.loads(values), strict=True))
        return StoreGlance(meta, head, chunks - unembedded, chunks)

    @contextmanager
    def remember(self, meta: Mapping[str, str] | None) -> Generator[None]:
        """Return a context in which `get` takes metadata from here, and does not ask the database.

        Args:
            meta: the metadata; None for a part of such a context that asks the database again.
        """
        token = _remembered.set(None if meta is None else (self, meta))
        try:
            yield
        finally:
            _remembered.reset(token)

    def get(self, name: MetaName, *, remembered: bool = True) -> str:
        """Return a metadata value, or an empty string.

        Args:
            name: its name.
            remembered: whether it may be from the beginning of a context, see `remember`.
        """
        known = _remembered.get() if remembered else None
        if known is not None and known[0] is self:
            return known[1].get(name, "")
        row = self.database.row("SELECT value FROM meta WHERE name = ?", (name,))
        return "" if row is None else row["value"]

    def set(self, name: MetaName, value: str) -> None:
        """Set a metadata value."""
        with self.database.write() as db:
            db.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )

    @property
    def host(self) -> str:
        """Name of this machine in a store that several share; else empty."""
        return "" if self.sharing is None else self.sharing.node.host

    @property
    def is_led(self) -> bool:
        """Whether what all nodes share, such as collections in servers, may be written by this process."""
        return self.sharing is None or self.sharing.lease.held

    def listen(self, heard: Callable[[], None]) -> CommitListener | None:
        """Listen for changes by processes on any machine; None where the store is in a file.

        Args:
            heard: called after changes, in another thread.
        """
        return None if self.sharing is None else self.sharing.node.shared.listen(heard)

    def close(self) -> None:
        """Close the database."""
        if self.sharing is not None:
            self.sharing.lease.release()
            self.sharing.node.database.close()
        self.database.close()


_remembered: ContextVar[tuple[KnowledgeStore, Mapping[str, str]] | None] = ContextVar(
    "remembered", default=None
)
