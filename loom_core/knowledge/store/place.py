"""Place of a knowledge base: its folder, and its store there or in a PostgreSQL database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from loom_core.errors import InvalidInputError
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS

__all__ = ["SCHEMA_PREFIX", "StorePlace", "is_name", "place_in", "place_of"]

SCHEMA_PREFIX = "kb_"
"""Beginning of the names of schemas of knowledge bases, after `loom_` or what the URL names."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PLAIN_SCHEMA = re.compile(r"[a-z0-9_]{1,40}")
_SLASH = re.compile(r"[/\\]")
_MAX_NAME = 64
_RECORD = "record.db"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Place of a knowledge base.

    Attributes:
        folder: of its indexes; and of its store, unless that is in a database.
        database: URL of the PostgreSQL database of the store; empty for a file.
        schema: end of the name of its schema there.
    """

    folder: Path
    database: str = ""
    schema: str = ""

    @property
    def file(self) -> Path:
        """The file of a store that is in no database."""
        return self.folder / _RECORD

    def __str__(self) -> str:
        if not self.database:
            return str(self.folder)
        prefix = parse_qs(urlsplit(self.database).query).get("schema", ["loom"])[-1]
        return f"{self.database} (schema {prefix}_{self.schema})"

    def to_json(self) -> dict[str, str]:
        """Return its attributes, for a child process."""
        return {"folder": str(self.folder), "database": self.database, "schema": self.schema}


def is_name(name: str) -> bool:
    """Whether a knowledge base can have a name, which is also in the descriptions of tools."""
    return (
        bool(name.strip())
        and len(name) <= _MAX_NAME
        and not _SLASH.search(name)
        and not CONTROL_CHARACTERS.search(name)
    )


def place_in(home: Path, name: str, *, database: str = "") -> StorePlace:
    """Return the place of a knowledge base in Loom's home, whether it exists or not.

    Args:
        home: Loom's home.
        name: its name.
        database: URL of a PostgreSQL database, which has its store; the home has a folder for each.

    Raises:
        InvalidInputError: no knowledge base can have this name.
    """
    _require_name(name)
    # Engines and file systems disagree about other characters in paths; the name itself is in the store.
    plain = name if _PLAIN.fullmatch(name) else f"kb-{_digest(name)}"
    if not database:
        return StorePlace(home / "kb" / plain)
    return place_of(home / "databases" / _folder_name(database) / plain, name, database=database)


def place_of(folder: Path, name: str, *, database: str = "") -> StorePlace:
    """Return the place of a knowledge base in a folder, with its store there or in a database.

    Raises:
        InvalidInputError: no knowledge base can have this name in a database.
    """
    if not database:
        return StorePlace(folder)
    _require_name(name)
    plain = name if _PLAIN_SCHEMA.fullmatch(name) else _digest(name)
    return StorePlace(folder, database, f"{SCHEMA_PREFIX}{plain}")


def _require_name(name: str) -> None:
    if not is_name(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a knowledge base.",
            advice=f"Use 1 to {_MAX_NAME} characters of any script, without slashes.",
        )


def _folder_name(database: str) -> str:
    """Return a name for the folder of a database, the same for all users and options."""
    parts = urlsplit(database)
    where = parts.netloc.rpartition("@")[2] + parts.path
    schema = parse_qs(parts.query).get("schema", [""])[-1]
    plain = re.sub(r"[^a-z0-9]+", "-", parts.path.lower()).strip("-")
    return f"{plain or 'database'}-{_digest(f'{where}?{schema}')}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]
