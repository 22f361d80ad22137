"""Catalogue of knowledge bases, read without opening any of them."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from loom_core.errors import StoreError
from loom_core.knowledge.filters import filter_names
from loom_core.knowledge.sources.database_schemas import MAX_FIELDS, DatabaseSchemas, StoreFacts
from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.knowledge.store.fields import FIELD_NAMES
from loom_core.knowledge.store.opening import describe_problem
from loom_core.knowledge.store.place import SCHEMA_PREFIX, StorePlace, is_name, place_in
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.knowledge.store.shard import shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from loom_core.knowledge.store.shard import Shard

__all__ = ["Catalogue", "CatalogueEntry"]

_log = logging.getLogger(__name__)
_RECORDS = ("*/record.db", "*/record.db-wal")
_REVISION = """
    SELECT (SELECT COUNT(*) FROM documents),
           (SELECT seq FROM sqlite_sequence WHERE name = 'changes'),  -- chunks that came or went
           (SELECT MAX(finished_at) FROM jobs)                        -- documents that moved
"""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A knowledge base that exists.

    Attributes:
        place: where it is.
        source: its self-description.
        documents: how many documents it holds.
        chunks: how many chunks it holds.
        embedder: id of the model that makes its vectors, or empty.
        embedding_config: configuration that recreates that model, or empty.
        llm: the language model that extracted from it last, or empty.
        revision: a text that changes whenever documents are added, removed, moved or changed.
        problem: why it cannot be used (written by a newer Loom, damaged), or empty.
        shards: metadata `shards`, see `shards_of`; empty if it is not split.
        is_shard: whether it is a shard of another one.
    """

    place: StorePlace
    source: SourceInfo
    documents: int
    chunks: int
    embedder: str
    embedding_config: dict[str, str] = field(default_factory=dict[str, str])
    llm: str = ""
    revision: str = ""
    problem: str = ""
    shards: str = ""
    is_shard: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.source.name

    @property
    def folder(self) -> Path:
        """The folder of its indexes, which has its store, too, unless that is in a database."""
        return self.place.folder


class Catalogue:
    """The knowledge bases of a home: in its folders, or in a PostgreSQL database.

    Reading it takes a few milliseconds and opens none of them.

    Args:
        home: Loom's home; knowledge bases are in its folder `kb`.
        database: URL of a database that has them instead, see `PostgresDatabase`.
    """

    def __init__(self, home: Path, *, database: str = "") -> None:
        self._home = home
        self._folder = home / "kb"
        self._database = database
        self._schemas: DatabaseSchemas | None = None
        self._others: dict[str, Catalogue] = {}  # of databases that have shards

    def place(self, name: str) -> StorePlace:
        """Return the place of a knowledge base, whether it exists or not.

        Raises:
            InvalidInputError: no knowledge base can have this name.
        """
        return place_in(self._home, name, database=self._database)

    def marks(self) -> object:
        """Return a value that differs from the last one if any knowledge base may have changed.

        Of files it is their modification times and sizes: a database does not notify of another process's
        writes, and this is cheap enough to poll. A PostgreSQL database takes one or two questions.

        Raises:
            StoreError: the database cannot be asked.
        """
        own = self._open_schemas().marks() if self._database else self._file_marks()
        return (own, *[_try_marks(other) for other in self._others.values()])

    def _file_marks(self) -> object:
        files: dict[Path, tuple[int, int]] = {}
        for pattern in _RECORDS:
            for path in self._folder.glob(pattern):
                try:
                    status = path.stat()
                except OSError:  # it was just deleted
                    continue
                files[path] = (status.st_mtime_ns, status.st_size)
        return files

    def list(self) -> list[CatalogueEntry]:
        """Return all knowledge bases, by name; an unusable one has a `problem`.

        Shards are not among them, but count for the whole: as far as their databases can be asked.

        Raises:
            StoreError: the database cannot be asked.
        """
        found = self._read_all()
        places = {each.place: each for each in found}
        for url in sorted({place.database for each in found for _, place in self.shards_of(each)}):
            if url != self._database:
                places |= self._try_places(url)
        whole = [self._add_shards(each, places) for each in found if not each.is_shard]
        return sorted(whole, key=lambda entry: entry.name)

    def find(self, place: StorePlace) -> CatalogueEntry | None:
        """Return the knowledge base at a place, also a shard; None if there is none.

        Raises:
            StoreError: the database cannot be asked.
        """
        there = self._of_database(place.database)._read_all()
        return next((entry for entry in there if entry.place == place), None)

    def shards(self, name: str) -> Sequence[tuple[Shard, StorePlace]]:
        """Return the shards of a knowledge base, each with its place; none if it is not split.

        Raises:
            StoreError: the database cannot be asked.
        """
        entry = self.find(self.place(name))
        return self.shards_of(entry) if entry is not None else []

    def shard_place(self, shard: Shard, database: str) -> StorePlace:
        """Return the place of a shard in a database; without its URL, where the whole is."""
        return place_in(self._home, shard.name, database=database or self._database)

    def shards_of(self, entry: CatalogueEntry) -> Sequence[tuple[Shard, StorePlace]]:
        """Return the shards of a knowledge base of this catalogue, each with its place."""
        return [(shard, self.shard_place(shard, url)) for shard, url in shards_of(entry.name, entry.shards)]

    def _try_places(self, url: str) -> Mapping[StorePlace, CatalogueEntry]:
        try:
            return {entry.place: entry for entry in self._of_database(url)._read_all()}
        except StoreError as error:
            _log.info("shards in %s cannot be asked: %s", url, error)
            return {}

    def _add_shards(
        self, whole: CatalogueEntry, places: Mapping[StorePlace, CatalogueEntry]
    ) -> CatalogueEntry:
        """Return the entry of a knowledge base with the counts of its shards, if it is split."""
        if not whole.shards:
            return whole
        shards = [places[place] for _, place in self.shards_of(whole) if place in places]
        filters = {name: None for each in (whole, *shards) for name in each.source.supported_filters}
        return replace(
            whole,
            source=replace(whole.source, supported_filters=tuple(filters)),
            documents=sum(each.documents for each in shards),
            chunks=sum(each.chunks for each in shards),
            revision=";".join(each.revision for each in shards),
        )

    def _of_database(self, url: str) -> Catalogue:
        if url == self._database:
            return self
        if url not in self._others:
            self._others[url] = Catalogue(self._home, database=url)
        return self._others[url]

    def _read_all(self) -> Sequence[CatalogueEntry]:
        if self._database:
            read = self._open_schemas().read()
            return [self._entry_of_schema(schema, facts) for schema, facts in read.items()]
        paths = sorted(self._folder.glob("*/record.db")) if self._folder.is_dir() else []
        return [entry for path in paths if (entry := _read(path)) is not None]

    def close(self) -> None:
        """Close the connections to the database; the next use opens them again."""
        schemas, self._schemas = self._schemas, None
        if schemas is not None:
            schemas.close()
        while self._others:
            self._others.popitem()[1].close()

    def _open_schemas(self) -> DatabaseSchemas:
        if self._schemas is None:
            self._schemas = DatabaseSchemas(self._database)
        return self._schemas

    def _entry_of_schema(self, schema: str, facts: StoreFacts) -> CatalogueEntry:
        name = facts.meta.get("name", "")
        name = name if is_name(name) else schema.removeprefix(SCHEMA_PREFIX)
        return _entry_of(place_in(self._home, name, database=self._database), facts, name=name)


def _try_marks(catalogue: Catalogue) -> object:
    try:
        return catalogue.marks()
    except StoreError:
        return None


def _read(path: Path) -> CatalogueEntry | None:
    """Read the catalogue entry of a store of any format; None if it is only being created."""
    place = StorePlace(path.parent)
    if reason := describe_problem(path):
        return _unusable(place, reason)
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return None
            facts = _read_facts(db, version)
    except sqlite3.Error as error:
        return _unusable(place, f"its store cannot be read ({error})")
    name = facts.meta.get("name", "")
    return _entry_of(place, facts, name=name if is_name(name) else path.parent.name)


def _read_facts(db: sqlite3.Connection, version: int) -> StoreFacts:
    newer = f"a newer Loom wrote it (format {version}; this one knows {len(SCHEMA)}): upgrade"
    return StoreFacts(
        meta=dict(db.execute("SELECT name, value FROM meta")),
        fields=[row[0] for row in db.execute(f"{FIELD_NAMES} LIMIT {MAX_FIELDS}")],
        documents=db.execute("SELECT COUNT(*) FROM documents").fetchone()[0],
        chunks=db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0],
        revision=":".join(map(str, db.execute(_REVISION).fetchone())),
        problem=newer if version > len(SCHEMA) else "",
    )


def _unusable(place: StorePlace, problem: str) -> CatalogueEntry:
    return _entry_of(place, StoreFacts({}, (), 0, 0, "", problem), name=place.folder.name)


def _entry_of(place: StorePlace, facts: StoreFacts, *, name: str) -> CatalogueEntry:
    meta = facts.meta
    return CatalogueEntry(
        place=place,
        source=SourceInfo(
            name=name,
            description=meta.get("description", ""),
            search_hints=tuple(hint for hint in meta.get("search_hints", "").split("\n") if hint),
            supported_filters=() if facts.problem and not meta else tuple(filter_names(facts.fields)),
        ),
        documents=facts.documents,
        chunks=facts.chunks,
        embedder=meta.get("embedder", ""),
        embedding_config=_config_of(meta.get("embedding_config", "")),
        llm=meta.get("llm", ""),
        revision=facts.revision,
        problem=facts.problem,
        shards=meta.get("shards", ""),
        is_shard="shard" in meta,
    )


def _config_of(text: str) -> dict[str, str]:
    """Return a stored configuration; a damaged one counts as none."""
    try:
        config: object = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, str]", config) if isinstance(config, dict) else {}
