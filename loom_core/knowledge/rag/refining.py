"""What is done to ranked passages before they are shown: by duplicates, a reranker, variety, sections."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import InvalidInputError, LoomError
from loom_core.knowledge.rag.selection import ParentDocument, diverse, with_parents, without_near_duplicates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import Reranker
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.config import RAGConfig
    from loom_core.knowledge.rag.options import SearchOptions
    from loom_core.knowledge.rag.vectors import Vectors
    from loom_core.knowledge.record import Record

__all__ = ["Refinement", "Refiner"]

_log = logging.getLogger(__name__)

_CANDIDATES = 20  # that are refined at the least; four for each passage that is wanted


@dataclass(frozen=True, slots=True)
class Refinement:
    """What is to be done to the passages of one answer.

    Attributes:
        drop_duplicates: whether near duplicates go.
        diversity: how much variety counts against relevance, 0 to 1.
        sections: whether passages are shown with the section around them.
        reranker: orders them anew, or None.
    """

    drop_duplicates: bool
    diversity: float
    sections: bool
    reranker: Reranker | None

    @classmethod
    def of(cls, options: SearchOptions | None, *, config: RAGConfig, reranker: Reranker | None) -> Refinement:
        """What a search asks for; where it says nothing, what its knowledge base is set to.

        Raises:
            InvalidInputError: reranking is asked for, and there is no reranker.
        """
        if options is None:
            return cls(
                drop_duplicates=config.near_duplicates == "drop",
                diversity=config.diversity,
                sections=config.expand_to == "section",
                reranker=reranker,
            )
        chosen = options.reranker or reranker
        if options.rerank and chosen is None:
            raise InvalidInputError(
                "There is no reranker.", advice="Give one with the question, or to the knowledge base."
            )
        return cls(
            drop_duplicates=(options.near_duplicates or config.near_duplicates) == "drop",
            diversity=config.diversity if options.diversity is None else options.diversity,
            sections=(options.expand_to or config.expand_to) == "section",
            reranker=None if options.rerank is False else chosen,
        )

    def candidates(self, limit: int) -> int:
        """How many passages are needed for the best of them to be as many as are wanted."""
        if self.drop_duplicates or self.diversity or self.sections or self.reranker is not None:
            return max(_CANDIDATES, 4 * limit)
        return limit


class Refiner:
    """Refines the passages of one knowledge base.

    Args:
        record: has the documents they are from.
        vectors: tell how alike two of them are.
        patience: seconds that a reranker may take.
    """

    def __init__(self, record: Record, vectors: Vectors, *, patience: float = 30.0) -> None:
        self._record = record
        self._vectors = vectors
        self._patience = patience

    async def refine(
        self, query: str, found: dict[int, KnowledgeItem], *, limit: int, wanted: Refinement
    ) -> tuple[list[KnowledgeItem], list[str]]:
        """The passages to be shown, and notes on what could not be done.

        With `diversity` the order is no longer that of relevance.

        Args:
            query: what was asked.
            found: passages by key, best first.
            limit: how many to show.
            wanted: what to do.
        """
        items, notes = list(found.values()), list[str]()
        keys = {item.id: key for key, item in found.items()}
        if wanted.drop_duplicates:
            items = await to_thread.run_sync(partial(without_near_duplicates, items, question=query))
        # What comes after may leave some out or put some together, and needs more than are shown.
        room = len(items) if wanted.diversity or wanted.sections else limit
        if wanted.reranker is not None:
            items, notes = await self._reranked(wanted.reranker, query, items, limit=room)
        if wanted.diversity:
            items = await to_thread.run_sync(partial(self._varied, items, keys, wanted.diversity))
        if wanted.sections:
            items = await to_thread.run_sync(partial(with_parents, items, self._parent, limit=limit))
        return items[:limit], notes

    def _varied(
        self, items: Sequence[KnowledgeItem], keys: dict[str, int], diversity: float
    ) -> list[KnowledgeItem]:
        vectors = self._vectors.current() if items else None
        if vectors is None:
            return list(items)
        return diverse(
            items,
            [item.relevance for item in items],
            vectors.vectors([keys[item.id] for item in items]),
            limit=len(items),
            trade_off=1 - diversity,
        )

    def _parent(self, document_id: str) -> ParentDocument | None:
        documents = self._record.documents
        with self._record.database.snapshot():
            document = documents.get(document_id)
            if document is None:
                return None
            return ParentDocument(text=documents.text(document.key), chunks=documents.chunks_of(document.key))

    async def _reranked(
        self, reranker: Reranker, query: str, items: Sequence[KnowledgeItem], *, limit: int
    ) -> tuple[list[KnowledgeItem], list[str]]:
        """The passages in the reranker's order, or in the one they had, with a note why."""
        try:
            with anyio.fail_after(self._patience):
                return await reranker.rerank(query, items, limit=limit), []
        except TimeoutError:
            reason = f"it took over {self._patience:g} s"
        except LoomError as error:
            reason = str(error)
        _log.warning("A reranker failed: %s", reason)
        return list(items[:limit]), [f"not reranked: {reason}"]
