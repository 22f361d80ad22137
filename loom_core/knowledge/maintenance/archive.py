"""The archive of a knowledge base: one file that any Loom of this format or a later one can read.

It is a zip of these members:

- `manifest.json`: see `Manifest`;
- `documents.jsonl`: a document a line, as `packed_draft` gives it, oldest first;
- `vectors.bin`: 16 bytes of hash and the vector in float16, little endian, for every embedded text;
- a `.jsonl` for each table of what people have decided, a row a line.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

__all__ = ["DECISIONS", "DOCUMENTS", "FORMAT", "VECTORS", "ArchiveReader", "Manifest", "Part", "PartWriter"]

FORMAT = 1
DOCUMENTS = "documents.jsonl"
VECTORS = "vectors.bin"
DECISIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alias_decisions.jsonl": ("alias_decisions", ("id", "other", "same", "decided_at")),
}
"""What people have decided: member, table and columns. None of them refers to a key."""

_MANIFEST = "manifest.json"
_MOST_MANIFEST = 1 << 20
_BLOCK = 1 << 20
_RATIO = 1100  # deflate cannot pack tighter


class Part(BaseModel):
    """A member of the archive: its size, its digest and how many rows it has."""

    model_config = ConfigDict(frozen=True)

    bytes: int = Field(ge=0)
    sha256: str
    rows: int = Field(ge=0)


class Manifest(BaseModel):
    """What an archive holds.

    Attributes:
        format: number of the format.
        loom: version of the Loom that wrote it.
        name: of the knowledge base.
        description: of the knowledge base.
        search_hints: of the knowledge base.
        embedder: id of the model that made the vectors, or empty.
        dimension: length of the vectors.
        embedding_config: what makes that model again.
        parts: the members.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    loom: str = ""
    name: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=10_000)
    search_hints: str = Field(default="", max_length=10_000)
    embedder: str = ""
    dimension: int = Field(default=0, ge=0, le=100_000)
    embedding_config: dict[str, str] = {}
    parts: dict[str, Part] = {}


class PartWriter:
    """Writes one member, counting and digesting as it goes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._rows = 0

    def row(self, data: bytes) -> None:
        """Write a row."""
        self._stream.write(data)
        self._digest.update(data)
        self._bytes += len(data)
        self._rows += 1

    def part(self) -> Part:
        """What was written."""
        return Part(bytes=self._bytes, sha256=self._digest.hexdigest(), rows=self._rows)


class ArchiveReader:
    """An archive opened for reading. Nothing of it is trusted: names, sizes and digests are checked.

    Args:
        path: the archive.

    Raises:
        InvalidInputError: it is not an archive of Loom's, of a newer format, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._refused(f"cannot be read ({error})") from error
        try:
            self.manifest = self._read_manifest()
            self._check_members()
        except InvalidInputError:
            self._zip.close()
            raise

    def verify(self) -> None:
        """Compare every member with its digest. Blocks; reads all of it.

        Raises:
            InvalidInputError: one of them is damaged.
        """
        for name, part in self.manifest.parts.items():
            digest = hashlib.sha256()
            with self._member(name) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            if digest.hexdigest() != part.sha256:
                raise self._refused(f"is damaged: {name} is not what was written")

    def lines(self, name: str, *, most: int) -> Iterator[bytes]:
        """The lines of a member; none if it is not there.

        Args:
            name: the member.
            most: bytes of the longest line that is taken.

        Raises:
            InvalidInputError: a line is longer, or the member cannot be read.
        """
        if name not in self.manifest.parts:
            return
        with self._member(name) as stream:
            while line := stream.readline(most + 1):
                if len(line) > most:
                    raise self._refused(f"holds a line of more than {most:,} bytes in {name}")
                yield line

    def records(self, name: str, *, size: int) -> Iterator[bytes]:
        """The rows of a member of which each has the same size; none if it is not there.

        Raises:
            InvalidInputError: the member ends within a row, or cannot be read.
        """
        if name not in self.manifest.parts:
            return
        with self._member(name) as stream:
            while row := stream.read(size):
                if len(row) != size:
                    raise self._refused(f"is damaged: {name} ends within a row")
                yield row

    def close(self) -> None:
        """Release the file."""
        self._zip.close()

    def _read_manifest(self) -> Manifest:
        try:
            info = self._zip.getinfo(_MANIFEST)
            if info.file_size > _MOST_MANIFEST:
                raise self._refused("has a manifest that is too large")
            found = json.loads(self._zip.read(info))
            if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:  # pyright: ignore[reportUnknownMemberType]
                raise InvalidInputError(
                    f"{self._path} was written by a newer Loom (format {found['format']}, "
                    f"this one knows {FORMAT}).",
                    advice="Upgrade this installation; nothing was imported.",
                )
            return Manifest.model_validate(found)
        except (KeyError, ValueError, OSError, zipfile.BadZipFile, RuntimeError) as error:
            if isinstance(error, ValidationError | KeyError):
                raise self._refused("is not an archive of a Loom knowledge base") from error
            raise self._refused(f"cannot be read ({error})") from error

    def _check_members(self) -> None:
        known = {DOCUMENTS, VECTORS, *DECISIONS}
        if unknown := sorted(self.manifest.parts.keys() - known):
            raise self._refused(f"holds a part that this Loom does not know: {unknown[0]!r}")
        infos = self._zip.infolist()
        names = [info.filename for info in infos]
        if sorted(names) != sorted([_MANIFEST, *self.manifest.parts]):
            raise self._refused("holds other files than its manifest says")
        for info in infos:
            if info.filename == _MANIFEST:
                continue
            if info.file_size != self.manifest.parts[info.filename].bytes:
                raise self._refused(f"is damaged: {info.filename} has another size than its manifest says")
            if info.file_size > _RATIO * max(info.compress_size, 1):
                raise self._refused(f"is no honest archive: {info.filename} cannot be packed so tightly")

    @contextmanager
    def _member(self, name: str) -> Generator[BinaryIO]:
        try:
            with self._zip.open(name) as stream:
                yield stream  # pyright: ignore[reportReturnType]
        except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._refused(f"is damaged: {name} cannot be read ({error})") from error

    def _refused(self, reason: str) -> InvalidInputError:
        return InvalidInputError(f"{self._path} {reason}.", advice="Export it again, or get a whole copy.")
