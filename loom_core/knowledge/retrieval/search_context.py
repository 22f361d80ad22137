"""What searching a knowledge base works with: its store, its indexes, and the processes that keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes import WordIndex
    from loom_core.knowledge.indexes.vectors import Vectors
    from loom_core.knowledge.interface import Channel
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.answer import Searched
    from loom_core.knowledge.retrieval.config import SearchRequest
    from loom_core.knowledge.retrieval.question import QuestionReader
    from loom_core.knowledge.store import Record
    from loom_core.observability.metrics import LoomMetrics

__all__ = ["IndexWorker", "OwnerPeer", "SearchContext"]


class IndexWorker(Protocol):
    """The worker of a knowledge base, as far as questions depend on it."""

    problem: str
    """Why work or a part of it has stopped for now; or empty."""

    @property
    def runs(self) -> bool:
        """Whether this process works in the background."""
        ...

    @property
    def holds(self) -> bool:
        """Whether this process is the owner."""
        ...

    async def restore(self) -> bool:
        """Bring the lexical index and the vectors up to date; False where another process does it."""
        ...

    async def drain(self) -> None:
        """Work until nothing is left to do."""
        ...


class OwnerPeer(Protocol):
    """The process that works for the knowledge base, asked from another; None where it does not answer."""

    async def search(self, request: SearchRequest) -> Searched | None:
        """Answer a question by a strategy."""
        ...

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None,
        vector: NDArray[np.float32] | None,
    ) -> list[KnowledgeItem] | None:
        """Ask one channel."""
        ...


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What the searches of one knowledge base share.

    Attributes:
        store: what is searched.
        words: its lexical index.
        vectors: its vectors.
        reader: reads the questions.
        worker: rebuilds the indexes where they are missing.
        owner: the process that works for the knowledge base, where it is another; None in memory.
        metrics: where searches are counted and timed.
    """

    store: Record
    words: WordIndex
    vectors: Vectors
    reader: QuestionReader
    worker: IndexWorker
    owner: OwnerPeer | None
    metrics: LoomMetrics

    @property
    def peer(self) -> OwnerPeer | None:
        """The owner, where it is another process than this one."""
        return None if self.worker.holds else self.owner
