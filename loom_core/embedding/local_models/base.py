"""Base of local embedding models: lazy loading, worker threads, windows for long texts."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LocalEmbedder", "LocalModel", "pool_windows", "usable_threads"]

_MOST_THREADS = 8
"""More threads than this mostly wait for memory, and slow down the machine."""


class LocalModel(Protocol):
    """A loaded model. It is called from several threads at once."""

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        """Embed texts: shape (len(texts), dimension), as for `EmbeddingProvider.embed`."""
        ...


class LocalEmbedder(EmbeddingProvider):
    """An embedding model that runs in this process, in worker threads.

    Every event loop has `threads` slots for passages and as many for queries: however many passages are being
    embedded, a query starts at once. Cancelling `embed` returns at once; a running slice finishes in its
    thread and is discarded.
    """

    def __init__(
        self,
        name: str,
        *,
        dimension: int,
        load: Callable[[], LocalModel],
        threads: int | None = None,
        slice_size: int = 1,
        languages: frozenset[str] | None = None,
        cross_lingual: bool = True,
    ) -> None:
        """Set up the model; it is loaded later.

        Args:
            name: the `id`.
            dimension: length of every vector.
            load: loads the model; called in a worker thread at the first `embed`, and again only if it
                failed. Raises EmbeddingError.
            threads: number of texts embedded concurrently; by default `usable_threads()`.
            slice_size: number of texts per work item, by default one; more for models that take well under a
                millisecond for a text.
            languages: see `EmbeddingProvider.languages`.
            cross_lingual: see `EmbeddingProvider.cross_lingual`.

        Raises:
            ValueError: `threads` below 1.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._name = name
        self._dimension = dimension
        self._load = load
        self._threads = threads or usable_threads()
        self._slice_size = slice_size
        self._languages = languages
        self._cross_lingual = cross_lingual
        self._model: LocalModel | None = None
        self._loading = threading.Lock()
        self._places = {
            kind: RunVar[anyio.CapacityLimiter](f"{name} {kind}") for kind in ("passage", "query")
        }

    @property
    def id(self) -> str:
        """Name of the exact vector space."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._dimension

    @property
    def languages(self) -> frozenset[str] | None:
        """ISO 639-1 codes the model covers, or None for about every language."""
        return self._languages

    @property
    def cross_lingual(self) -> bool:
        """Whether texts of equal meaning in different languages are near each other."""
        return self._cross_lingual

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts, see `EmbeddingProvider.embed`."""
        model = self._model or await anyio.to_thread.run_sync(self._load_once)
        import numpy as np  # here, where loading has imported it in a worker thread

        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        size = self._slice_size
        slices = iter([slice(start, start + size) for start in range(0, len(texts), size)])
        places = self._limiter_for(kind)
        failures: list[EmbeddingError] = []

        async def work() -> None:
            for part in slices:
                try:
                    vectors[part] = await anyio.to_thread.run_sync(
                        model.encode, texts[part], kind, limiter=places, abandon_on_cancel=True
                    )
                except EmbeddingError as error:
                    failures.append(error)
                    workers.cancel_scope.cancel()

        async with anyio.create_task_group() as workers:
            for _ in range(min(self._threads, -(-len(texts) // size))):
                workers.start_soon(work)
        if failures:
            raise failures[0]
        return vectors

    def _load_once(self) -> LocalModel:
        with self._loading:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _limiter_for(self, kind: EmbeddingKind) -> anyio.CapacityLimiter:
        """Return the running event loop's limiter: loops cannot share one."""
        places = self._places[kind]
        try:
            return places.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(self._threads)
            places.set(limiter)
            return limiter


def usable_threads() -> int:
    """Return the number of processors that this process may use, at most 8."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _MOST_THREADS)


def pool_windows(
    pieces: Sequence[int], *, size: int, pool: Callable[[Sequence[int]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Return the unit vector of a text: the mean over its windows, weighted by their length.

    Args:
        pieces: ids of the text's tokens, without marks of beginning and end; may be empty.
        size: how many of them a window takes; windows do not overlap.
        pool: vector of one window, not normalised.
    """
    import numpy as np

    total = max(1, len(pieces[:size])) * pool(pieces[:size])
    for start in range(size, len(pieces), size):
        window = pieces[start : start + size]
        total += len(window) * pool(window)
    total /= np.linalg.norm(total)
    return total
