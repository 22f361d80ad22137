"""Whether the derived indexes of a knowledge base open, found out without changing anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["damaged_indexes"]

_MOST_COPIED = 256 << 20  # bytes


def damaged_indexes(
    folder: Path, generations: Mapping[str, int], *, dimension: int, seconds: float
) -> Iterator[tuple[str, str]]:
    """The indexes that do not open, and why; engines are tried in child processes.

    Nobody may be working on them: hold `ProcessLock.looking` meanwhile.

    Args:
        folder: where they are.
        generations: the indexes by name, with the generation that counts.
        dimension: length of the vectors.
        seconds: each counts as hanging after so long.
    """
    from loom_core.knowledge.indexes.probe import probe_kuzu, probe_tantivy

    for name, generation in generations.items():
        path = folder / f"{name}-{generation}"
        match name:
            case "words":
                reason = probe_tantivy(path, timeout=seconds)
            case "graph":
                reason = probe_kuzu(path, timeout=seconds)
            case "chroma":
                reason = _wrong_chroma(path, dimension, seconds)
            case _:
                reason = _wrong_vectors(path, dimension)
        if reason is not None:
            yield name, reason


def _wrong_chroma(path: Path, dimension: int, seconds: float) -> str | None:
    """Why Chroma does not open a copy, as it writes whenever it opens; what is too large is left alone."""
    from loom_core.knowledge.indexes.probe import probe_chroma

    if sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) > _MOST_COPIED:
        return None
    with TemporaryDirectory(prefix="loom-doctor-") as folder:
        copy = Path(folder) / path.name
        shutil.copytree(path, copy)
        reason = probe_chroma(copy, dimension=dimension, timeout=seconds)
    return reason and reason.replace(str(copy), str(path))


def _wrong_vectors(path: Path, dimension: int) -> str | None:
    """Why files of our own do not open; they cannot hang."""
    from loom_core.knowledge.indexing.language_vectors import LanguageVectors

    try:
        LanguageVectors(dimension, path, writable=False).close()
    except IndexDamagedError as error:
        return error.message.rstrip(".")
    return None
