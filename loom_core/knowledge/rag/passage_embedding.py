"""Embedding of passages: preemptible by new documents, and the change to another embedder."""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import EmbeddingError
from loom_core.knowledge.text.passage_text import embedding_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
    from loom_core.knowledge.retrieval.config import WaitSettings
    from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["ReembeddingStep", "embed_preemptibly"]

_log = logging.getLogger(__name__)
_BATCH = 16


class ReembeddingStep:
    """Re-embeds the passages for a change of embedder, a batch at a time. For the holder of the lock.

    Of several machines that share the store, each begins at another passage.

    Args:
        store: the store, which names the next embedder, and keeps its vectors.
        embedder: the current embedder.
        urgent: whether there is something more urgent to do.
        waits: intervals before a failed embedder is retried, and between checks for urgent work.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        embedder: CurrentEmbedder,
        *,
        urgent: Callable[[], bool],
        waits: WaitSettings,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._urgent = urgent
        self._waits = waits
        self._after = 0
        self._wanted = ""
        self._retry_at = -math.inf
        self.problem = ""
        """Why it has stopped for now, or empty."""

    async def step(self) -> bool:
        """Embed the next batch, or switch to the new embedder if all passages have its vectors.

        On a machine that does not lead, another one switches.

        Returns:
            Whether anything was done.
        """
        next_vectors = self._store.next_vectors
        wanted = await to_thread.run_sync(next_vectors.target_embedder)
        if wanted != self._wanted:
            self._wanted, self._retry_at, self.problem = wanted, -math.inf, ""
            self._after = 0 if self._store.is_led else await to_thread.run_sync(self._choose_place)
        if not wanted or anyio.current_time() < self._retry_at:
            return False
        todo = await to_thread.run_sync(self._todo)
        if not todo:
            if self._store.is_led:
                await to_thread.run_sync(self._switch, wanted)
            return self._store.is_led
        provider = await to_thread.run_sync(self._provider, wanted)
        try:
            vectors = await embed_preemptibly(
                provider, list(todo.values()), urgent=self._urgent, after=self._waits.batch
            )
        except EmbeddingError as error:
            self.problem = f"The change to {wanted} has stopped for now: {error}"
            _log.warning("%s", self.problem)
            self._retry_at = anyio.current_time() + self._waits.vectors
            return False
        if vectors is None:
            return True
        self.problem = ""
        await to_thread.run_sync(next_vectors.store, wanted, list(todo), vectors)
        return True

    def _choose_place(self) -> int:
        # Where no other machine is likely to be: what one has embedded, the others leave out.
        return random.randint(0, self._store.documents.last_chunk())

    def _provider(self, wanted: str) -> EmbeddingProvider:
        return self._embedder.get_or_create(wanted, self._store.next_vectors.config())

    def _todo(self) -> dict[bytes, str]:
        """Return the next texts to embed, by hash. Wraps around: a chunk may have changed meanwhile."""
        found = self._store.next_vectors.pending(_BATCH, after=self._after)
        if not found and self._after:
            found = self._store.next_vectors.pending(_BATCH)
        self._after = found[-1][0] if found else 0
        rows = self._store.documents.chunks([key for key, _ in found])
        return {
            hash_: embedding_text(rows[key].title, rows[key].heading_path, rows[key].text)
            for key, hash_ in found
            if key in rows
        }

    def _switch(self, wanted: str) -> None:
        if self._store.next_vectors.switch(wanted):
            before = self._embedder.id
            self._embedder.follow()
            _log.info("The vectors are made by %s now, no longer by %s.", wanted, before)


async def embed_preemptibly(
    provider: EmbeddingProvider,
    texts: Sequence[str],
    *,
    kind: EmbeddingKind = "passage",
    urgent: Callable[[], bool],
    after: float,
) -> NDArray[np.float32] | None:
    """Embed texts; return None if more urgent work arrives while that takes long.

    New documents are indexed by words and graph at once, even while a remote embedder is slow.

    Args:
        provider: makes the vectors.
        texts: the texts to embed.
        kind: see `EmbeddingKind`.
        urgent: whether there is something more urgent; called in a worker thread.
        after: seconds before the first check for urgent work, and between two checks.

    Raises:
        EmbeddingError: see `EmbeddingProvider.embed`.
    """
    vectors: NDArray[np.float32] | None = None
    failure: EmbeddingError | None = None

    async def look() -> None:
        while True:  # jobs of other processes come without a notification
            await anyio.sleep(after)
            if await to_thread.run_sync(urgent):
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        try:
            vectors = await provider.embed(texts, kind=kind)
        except EmbeddingError as error:  # caught here, so that the task group does not wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return vectors
