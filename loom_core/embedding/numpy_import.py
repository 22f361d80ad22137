"""Import of NumPy, completed before two threads need it."""

from __future__ import annotations

import threading

from anyio import to_thread

__all__ = ["import_numpy"]

_importing = threading.Lock()
_whole = False


async def import_numpy() -> None:
    """Import NumPy, unless that has been done; call this before work that may need it.

    Two threads that import NumPy and Chroma concurrently may see partially initialized modules (CPython
    3.11). A process without computations never calls this, and saves the time and the memory.
    """
    if not _whole:
        await to_thread.run_sync(_import)


def _import() -> None:
    global _whole
    with _importing:
        import numpy as np

        np.float32(0)
        _whole = True
