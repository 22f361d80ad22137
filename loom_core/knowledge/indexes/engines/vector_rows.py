"""Rows of vectors: validated, and kept with a key for each in memory or in files."""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE
from loom_core.knowledge.indexes.engines.vector_codes import VectorCodes, encode

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DEAD", "FileRows", "MemoryRows", "Rows", "VectorRows", "validate_batch", "validate_query"]

DEAD = 0
"""Key of a deleted row; no chunk has it."""

_FIRST_ROWS = 1024
_KEY_BYTES = 8
_NUMBER_BYTES = 4
_SCALES_BYTES = 8
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Rows(NamedTuple):
    """Rows as a reader sees them: `matrix[:used]`, with the keys in `keys[:used]` or `DEAD`.

    Rows are only added after `used`. In files, a key may become `DEAD` while a reader uses it, and `codes`
    has the rows once more, rounded to 8 bits a number.
    """

    matrix: NDArray[np.float32]
    keys: NDArray[np.int64]
    used: int
    codes: VectorCodes | None = None


def no_rows(dimension: int, *, room: int = 0) -> Rows:
    """Return empty rows with some capacity."""
    import numpy as np

    return Rows(np.zeros((room, dimension), dtype=np.float32), np.zeros(room, dtype=np.int64), 0)


class VectorRows(Protocol):
    """Rows with one writing thread and any number of readers, each with its own snapshot (`rows`)."""

    @property
    def rows(self) -> Rows:
        """The rows as they are now."""
        ...

    def append(self, keys: NDArray[np.int64], matrix: NDArray[np.float32]) -> None:
        """Add rows at the end."""
        ...

    def mark_dead(self, places: NDArray[np.int64]) -> None:
        """Mark rows as deleted."""
        ...

    def flush(self) -> None:
        """Make all changes durable."""
        ...

    def close(self) -> None:
        """Release resources. Readers keep their snapshots."""
        ...


class MemoryRows:
    """Rows in memory; compacted once most of them are dead.

    Args:
        dimension: length of a row.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._dead = 0
        self._rows = no_rows(dimension, room=_FIRST_ROWS)

    @property
    def rows(self) -> Rows:
        """The current rows; a snapshot never changes."""
        return self._rows

    def append(self, keys: NDArray[np.int64], matrix: NDArray[np.float32]) -> None:
        """Add rows at the end."""
        if self._rows.used + len(keys) > len(self._rows.keys):
            self._move_to(2 * (self._rows.used - self._dead + len(keys)))
        rows, end = self._rows, self._rows.used + len(keys)
        rows.matrix[rows.used : end] = matrix
        rows.keys[rows.used : end] = keys
        self._rows = rows._replace(used=end)

    def mark_dead(self, places: NDArray[np.int64]) -> None:
        """Mark rows as deleted."""
        keys = self._rows.keys.copy()  # readers keep the old one
        keys[places] = DEAD
        self._rows = self._rows._replace(keys=keys)
        self._dead += len(places)
        alive = self._rows.used - self._dead
        if self._rows.used > 2 * max(alive, _FIRST_ROWS):
            self._move_to(max(alive, _FIRST_ROWS))

    def flush(self) -> None:
        """Do nothing, as rows in memory are not durable."""

    def close(self) -> None:
        """Drop everything."""
        self._dead = 0
        self._rows = no_rows(self._dimension)

    def _move_to(self, capacity: int) -> None:
        """Copy the living rows into new arrays of this capacity."""
        import numpy as np

        old, new = self._rows, no_rows(self._dimension, room=capacity)
        alive = np.flatnonzero(old.keys[: old.used])
        new.matrix[: len(alive)] = old.matrix[alive]
        new.keys[: len(alive)] = old.keys[alive]
        self._rows, self._dead = new._replace(used=len(alive)), 0


class FileRows:
    """Rows in files of float32 numbers, of int64 keys and of codes, mapped into memory.

    All readers share the pages, and opening reads none. The matrix file grows in steps ahead of its rows (as
    a sparse file), so that readers seldom remap it. Rows and codes are written before their keys. The caller
    stores the number of valid rows, so rows after them, left by a crash, are overwritten. A key is deleted in
    place, visible to every reader at once. Numbers are in native byte order: the files stay on the machine.

    Args:
        stem: path of the files without the suffixes `.f32`, `.keys`, `.i8` and `.scales`.
        dimension: length of a row.
        used: number of valid rows.
        writable: whether this process adds and deletes rows; the files are created if absent.

    Raises:
        IndexDamagedError: a file is missing, or too short for its rows.
        StoreError: the disk is full.
    """

    def __init__(self, stem: Path, *, dimension: int, used: int, writable: bool) -> None:
        self._path = stem
        self._row_bytes = dimension * _NUMBER_BYTES
        self._dimension = dimension
        self._rows = no_rows(dimension)
        mode = "r+b" if writable else "rb"
        with self._translate_errors(), ExitStack() as opened:
            files: list[BinaryIO] = []
            for suffix in (".f32", ".keys", ".i8", ".scales"):
                path = stem.with_name(stem.name + suffix)
                if writable and not used:
                    path.write_bytes(b"")
                files.append(opened.enter_context(path.open(mode, buffering=0)))
            self._matrix_file, self._keys_file, self._numbers_file, self._scales_file = files
            self._open_files = opened.pop_all()
        try:
            self._rows = self._map_rows(used)
        except (IndexDamagedError, StoreError):
            self.close()
            raise

    @property
    def rows(self) -> Rows:
        """The rows as they are now."""
        return self._rows

    def append(self, keys: NDArray[np.int64], matrix: NDArray[np.float32]) -> None:
        """Add rows at the end.

        Raises:
            StoreError: the disk is full; nothing was added.
        """
        used = self._rows.used
        end = used + len(keys)
        with self._translate_errors():
            if end > self._capacity():
                self._matrix_file.truncate((end + max(_FIRST_ROWS, end // 4)) * self._row_bytes)
            self._write(self._matrix_file, used * self._row_bytes, matrix.tobytes())
            codes = encode(matrix)
            self._write(self._numbers_file, used * self._dimension, codes.numbers.tobytes())
            self._write(self._scales_file, used * _SCALES_BYTES, codes.scales.tobytes())
            self._write(self._keys_file, used * _KEY_BYTES, keys.tobytes())
        self._rows = self._map_rows(end)

    def mark_dead(self, places: NDArray[np.int64]) -> None:
        """Mark rows as deleted, visible to every reader at once."""
        nothing = DEAD.to_bytes(_KEY_BYTES, "little")
        with self._translate_errors():
            for place in places.tolist():
                self._write(self._keys_file, place * _KEY_BYTES, nothing)

    def extend(self, used: int) -> None:
        """Map rows that another process has added.

        Raises:
            IndexDamagedError: a file has become too short for its rows.
        """
        if used != self._rows.used:
            self._rows = self._map_rows(used)

    def check(self) -> None:
        """Raise if the files were truncated while in use: reading there would crash the process.

        Raises:
            IndexDamagedError: they were truncated.
        """
        with self._translate_errors():
            for file, size in self._sizes():
                if os.fstat(file.fileno()).st_size < self._rows.used * size:
                    raise IndexDamagedError(f"{file.name} is too short.", advice=REBUILD_ADVICE)

    def flush(self) -> None:
        """Make all changes durable."""
        with self._translate_errors():
            for file, _ in self._sizes():
                os.fsync(file.fileno())

    def close(self) -> None:
        """Release the files. Readers keep their maps."""
        self._open_files.close()

    def _sizes(self) -> list[tuple[BinaryIO, int]]:
        """Return the files with the bytes of a row in each."""
        return [
            (self._matrix_file, self._row_bytes),
            (self._keys_file, _KEY_BYTES),
            (self._numbers_file, self._dimension),
            (self._scales_file, _SCALES_BYTES),
        ]

    def _map_rows(self, used: int) -> Rows:
        """Map the files as far as needed; reuse existing maps."""
        import numpy as np

        with self._translate_errors():
            if any(os.fstat(file.fileno()).st_size < used * size for file, size in self._sizes()):
                raise IndexDamagedError(
                    f"{self._path} has fewer than its {used} rows.", advice=REBUILD_ADVICE
                )
            if not used:
                return no_rows(self._dimension)
            matrix = self._rows.matrix
            if used > len(matrix):
                capacity = self._capacity()
                pages = self._map(self._matrix_file, capacity * self._row_bytes)
                numbers = np.frombuffer(pages, dtype=np.float32, count=capacity * self._dimension)
                matrix = numbers.reshape(capacity, self._dimension)
            keys = np.frombuffer(self._map(self._keys_file, used * _KEY_BYTES), dtype=np.int64)
            codes = self._map(self._numbers_file, used * self._dimension)
            scales = self._map(self._scales_file, used * _SCALES_BYTES)
            return Rows(
                matrix,
                keys,
                used,
                VectorCodes(
                    np.frombuffer(codes, dtype=np.int8).reshape(used, self._dimension),
                    np.frombuffer(scales, dtype=np.float32).reshape(used, 2),
                ),
            )

    def _map(self, file: BinaryIO, size: int) -> mmap.mmap:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)

    def _capacity(self) -> int:
        return os.fstat(self._matrix_file.fileno()).st_size // self._row_bytes

    def _write(self, file: BinaryIO, offset: int, data: bytes) -> None:
        file.seek(offset)
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StoreError(
                    f"{self._path}: {error.strerror}.",
                    advice="The disk is full: free some space; everything acknowledged so far is safe.",
                ) from error
            raise IndexDamagedError(
                f"The vectors at {self._path} cannot be used: {error.strerror or error}.",
                advice=REBUILD_ADVICE,
            ) from error


def validate_batch(
    keys: Sequence[int], vectors: NDArray[np.float32], *, dimension: int
) -> tuple[list[int], NDArray[np.float32]]:
    """Validate keys and their vectors as float32 rows; for a repeated key the last row is kept.

    Raises:
        InvalidInputError: the shape is not (len(keys), dimension), a key is not positive, or a number
            is not finite.
    """
    import numpy as np

    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.shape != (len(keys), dimension):
        raise InvalidInputError(
            f"Vectors of shape {rows.shape} do not fit {len(keys)} keys of dimension {dimension}.",
            advice="Give one row for each key, made by the embedder this index was built for.",
        )
    if not np.isfinite(rows).all():
        raise InvalidInputError(
            "A vector holds NaN or infinity.",
            advice="Check the embedder that made it, then embed the text again.",
        )
    if any(key < 1 for key in keys):
        raise InvalidInputError("A key is not positive.", advice="Use the store's chunk keys.")
    last = {key: position for position, key in enumerate(keys)}
    if len(last) < len(keys):
        rows = rows[list(last.values())]
    return list(last), rows


def validate_query(vector: NDArray[np.float32], *, dimension: int) -> NDArray[np.float32]:
    """Validate a query vector as float32.

    Raises:
        InvalidInputError: its shape is not (dimension,), or a number is not finite.
    """
    import numpy as np

    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.shape != (dimension,):
        raise InvalidInputError(
            f"A query of shape {query.shape} does not fit an index of dimension {dimension}.",
            advice="Embed the question with the embedder this index was built for.",
        )
    if not np.isfinite(query).all():
        raise InvalidInputError(
            "The query vector holds NaN or infinity.", advice="Check the embedder that made it."
        )
    return query
