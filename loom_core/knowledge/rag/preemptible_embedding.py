"""Making vectors in a way that lets new documents pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider

__all__ = ["embed_making_way"]


async def embed_making_way(
    provider: EmbeddingProvider,
    texts: Sequence[str],
    *,
    kind: EmbeddingKind = "passage",
    urgent: Callable[[], bool],
    after: float,
) -> NDArray[np.float32] | None:
    """Vectors of texts; None if something more urgent came while they took long.

    Documents are to be found by words and graph as soon as they are added, whatever a server far away does.

    Args:
        provider: makes the vectors.
        texts: what of.
        kind: see `EmbeddingKind`.
        urgent: whether there is something more urgent; called in a worker thread.
        after: seconds that are always given, and between two looks.

    Raises:
        EmbeddingError: see `EmbeddingProvider.embed`.
    """
    vectors: NDArray[np.float32] | None = None
    failure: EmbeddingError | None = None

    async def look() -> None:
        while True:  # what other processes write down is seen by looking
            await anyio.sleep(after)
            if await to_thread.run_sync(urgent):
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        try:
            vectors = await provider.embed(texts, kind=kind)
        except EmbeddingError as error:  # here, where no task group wraps it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return vectors
