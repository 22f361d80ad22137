"""The knowledge store: the tables of one knowledge base, in one database."""

from __future__ import annotations

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
    from loom_core.knowledge.store.node import Sharing
    from loom_core.storage.sql import SQLDatabase

__all__ = ["KnowledgeStore", "MetaName"]

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
]
"""Metadata of the knowledge base in the store.

`llm` is the language model that extracted last, if any; `vectors` the setting of where vectors are searched,
`collection` the name of the collection in a vector database and the folder that it belongs to, and
`vector_languages` the language groups in it; `lexical` and `words_collection` are the same for words,
`graph` and `graph_collection` for the graph. `graph_version` is the generation and the version of what was
last written into a graph database.
"""


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
        self.changes = ChangeLog(self.database, None if sharing is None else sharing.node)
        self.graph = GraphTable(self.database)
        self.aliases = self.graph.aliases
        self.documents = DocumentTable(self.database, self.graph, self.changes)
        self.next_vectors = EmbedderMigration(self.database, self.changes)
        self.imported_vectors = ImportedVectors(self.database)
        self.vectors = VectorTable(self.database, self.changes)
        self.jobs = JobTable(self.database)
        self.progress = JobProgress(self.database)
        self.files = FileTable(self.database, self.changes)
        self.duplicates = DuplicateTable(self.database)
        self.boilerplate = BoilerplateTable(self.database, self.changes)

    def get(self, name: MetaName) -> str:
        """Return a metadata value, or an empty string."""
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

    def close(self) -> None:
        """Close the database."""
        if self.sharing is not None:
            self.sharing.lease.release()
            self.sharing.node.database.close()
        self.database.close()
