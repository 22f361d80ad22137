"""Translation of an engine's errors into `IndexDamagedError`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreError, first_line

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["REBUILD_ADVICE", "damage_boundary", "is_disk_full"]

REBUILD_ADVICE = "It is derived from the store: rebuild it into a new directory."


@contextmanager
def damage_boundary(index: str, path: Path, *, errors: tuple[type[Exception], ...]) -> Generator[None]:
    """Report an engine's failure inside the block as damage of the index.

    A panic in a Rust engine arrives as `pyo3_runtime.PanicException`, which derives from `BaseException`
    and cannot be imported; it is recognized by its module.

    Args:
        index: name of the index in the message, such as `vector index`.
        path: its path.
        errors: exception types that the engine raises for its own failures.

    Raises:
        IndexDamagedError: in place of any of `errors`, and of a panic.
        StoreError: the disk is full, which is not damage: a rebuild would need even more room.
    """
    try:
        yield
    except errors as error:
        if is_disk_full(str(error)):
            raise StoreError(
                f"The {index} at {path} cannot be written: the disk is full.",
                advice="Free some space; everything acknowledged so far is safe.",
            ) from error
        raise IndexDamagedError(
            f"The {index} at {path} failed: {first_line(error)}.", advice=REBUILD_ADVICE
        ) from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise IndexDamagedError(
            f"The {index} at {path} crashed inside its engine: {first_line(error)}.", advice=REBUILD_ADVICE
        ) from error


def is_disk_full(message: str) -> bool:
    """Whether an engine's message reports a full disk; none has a separate error class for it."""
    text = message.casefold()
    return any(sign in text for sign in ("no space left", "storagefull", "disk is full", "not enough space"))
