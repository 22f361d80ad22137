"""A knowledge base that is split into shards, as one: asked at the same time, merged by a federation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import SourceStartingError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.retrieval.searcher import SearchAnswer
from loom_core.knowledge.sources.federation.federation import Federation, PartialItems
from loom_core.knowledge.sources.named_source import NamedSource
from loom_core.knowledge.store.jobs import new_job_id
from loom_core.knowledge.store.shard import shard_number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.requests import AddRequest
    from loom_core.knowledge.retrieval.confidence import Match
    from loom_core.knowledge.retrieval.config import SearchOptions, Strategy
    from loom_core.knowledge.retrieval.strategies import ScoreScale
    from loom_core.knowledge.sources.federation.federation import FederatedAnswer
    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.knowledge.store import DocumentRow

__all__ = ["ShardedKnowledgeBase", "submit_to_parts"]

_SECONDS = 8.0  # of a shard's answer: less than a federation gives a source


class ShardedKnowledgeBase(NamedSource):
    """A split knowledge base, from `Library.open`: what works across its shards.

    A shard that fails or is late is missing from an answer, which says so in its notes.

    Args:
        info: its self-description.
        shards: opens each shard, by its name, in order.
    """

    def __init__(
        self, info: SourceInfo, shards: Mapping[str, Callable[[], Awaitable[GraphRAGKnowledgeBase]]]
    ) -> None:
        super().__init__(info.name, description=info.description, search_hints=info.search_hints)
        self._filters = info.supported_filters
        self._shards = dict(shards)
        self._embedder = ""

    @property
    def supported_filters(self) -> Sequence[str]:
        """Fields of every document, and those that some had when it was opened."""
        return self._filters

    @property
    def relevance_is_absolute(self) -> bool:
        """True, see `GraphRAGKnowledgeBase`."""
        return True

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages; empty before the first query."""
        return self._embedder

    async def parts(self) -> list[GraphRAGKnowledgeBase]:
        """Return its shards, in order.

        Raises:
            LoomError: one cannot be opened.
        """
        return [await opened() for opened in self._shards.values()]

    async def part(self, id_or_uri: str) -> GraphRAGKnowledgeBase:
        """Return the shard that has a document or passage, if there is one, by its id or address.

        Raises:
            LoomError: it cannot be opened.
        """
        number = shard_number(id_or_uri, len(self._shards))
        return await list(self._shards.values())[number - 1]()

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`."""
        answer, missing = await self._search(query, limit, filters, None, None)
        return PartialItems(answer.items, " ".join(missing)) if missing else answer.items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """Return the passage with an id, or None."""
        return await (await self.part(knowledge_id)).get_by_id(knowledge_id)

    async def search(
        self,
        query: str,
        *,
        limit: int = 5,
        filters: dict[str, Any] | None = None,
        strategy: Strategy | None = None,
        options: SearchOptions | None = None,
    ) -> SearchAnswer:
        """Find passages in all shards; see `GraphRAGKnowledgeBase.search`.

        Raises:
            InvalidInputError: as there.
            SourceError: no shard gave an answer.
        """
        answer, missing = await self._search(query, limit, filters, strategy, options)
        return replace(answer, notes=(*answer.notes, *missing))

    async def submit(self, request: AddRequest) -> str:
        """Submit a job to every shard, which takes its part of the documents; all have the same id.

        Raises:
            InvalidInputError: the request is impossible, see its class.
            LoomError: a shard cannot be opened: nothing is added; or it fails after that.
        """
        return await submit_to_parts(await self.parts(), request)

    async def remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Remove documents by id or URI; see `GraphRAGKnowledgeBase.remove`.

        Raises:
            LoomError: a shard that may have one of them cannot be opened.
        """
        removed: list[DocumentRow] = []
        for number, opened in enumerate(self._shards.values(), 1):
            if mine := [id_ for id_ in ids if shard_number(id_, len(self._shards)) == number]:
                removed += await (await opened()).remove(mine)
        return removed

    async def _search(
        self,
        query: str,
        limit: int,
        filters: dict[str, Any] | None,
        strategy: Strategy | None,
        options: SearchOptions | None,
    ) -> tuple[SearchAnswer, list[str]]:
        """Return the answer of all shards that answered, and which others are missing, in sentences."""

        async def ask(shard: GraphRAGKnowledgeBase, question: str, most: int) -> SearchAnswer:
            # A follow-up query is made of names and words: so each shard is asked for these alone.
            by = strategy if question == query else "bm25"
            return await shard.search(question, limit=most, filters=filters, strategy=by, options=options)

        asked = [_ShardSource(name, opened, ask) for name, opened in self._shards.items()]
        found = await Federation(asked, deadline=_SECONDS, shards=True).query(query, limit=limit)
        answers = [each.answer for each in asked if each.answer is not None]
        self._embedder = next((each.embedder_id for each in asked if each.embedder_id), "")
        answer = SearchAnswer(
            items=[self._as_own(item) for item in found.items],
            match=found.match,
            strategy=answers[0].strategy,
            embedded=sum(answer.embedded for answer in answers),
            chunks=sum(answer.chunks for answer in answers),
            notes=tuple(dict.fromkeys(note for each in answers for note in each.notes)),
            embed_ms=max(answer.embed_ms for answer in answers),
            retrieve_ms=max(answer.retrieve_ms for answer in answers),
        )
        return answer, self._missing(found)

    def _as_own(self, item: KnowledgeItem) -> KnowledgeItem:
        """Return a passage without its shard: ids are unique among all of them."""
        metadata = {k: v for k, v in item.metadata.items() if k not in {"knowledge_base", "also_in"}}
        shard = item.metadata["knowledge_base"]
        copies = [citation.rpartition(":")[2] for citation in item.metadata.get("also_in", ())]
        if copies:
            metadata["why"] = [*metadata.get("why", ()), f"the same is in {', '.join(copies)}"]
        return replace(item, id=item.id.removeprefix(f"{shard}:"), metadata=metadata)

    def _missing(self, answer: FederatedAnswer) -> list[str]:
        """Say which shards are missing, except those that only lack a field of a filter."""
        missing = [each for each in answer.reports if each.state != "answered" and not each.is_refusal]
        if not missing:
            return []
        there = len(self._shards) - len(missing)
        return [
            f"{there} of {len(self._shards)} shards of {self.name} answered.",
            *(f"{each.source}: {each.problem}" for each in missing),
        ]


async def submit_to_parts(parts: Sequence[GraphRAGKnowledgeBase], request: AddRequest) -> str:
    """Submit a job to a knowledge base, or to each shard of one, and wake their workers.

    Returns:
        Id of the job, the same in all.

    Raises:
        InvalidInputError: the request is impossible, see its class.
        StoreError: one of them cannot be written; the others before it have the job.
    """
    id_ = new_job_id()
    for part in parts:
        await to_thread.run_sync(partial(part.submit, request, id_=id_))
        part.worker.wake()
    return id_


class _ShardSource(KnowledgeBaseProvider):
    """A shard as a source for one question.

    Attributes:
        answer: the answer to the question, without those to follow-up queries; None without one.
        embedder_id: the vector space of its passages; empty before it is opened.
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[], Awaitable[GraphRAGKnowledgeBase]],
        ask: Callable[[GraphRAGKnowledgeBase, str, int], Awaitable[SearchAnswer]],
    ) -> None:
        self._name = name
        self._open = opened
        self._ask = ask
        self.answer: SearchAnswer | None = None
        self.embedder_id = ""

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return ""  # only the merging sees it

    @property
    def match(self) -> Match | None:
        return None if self.answer is None else self.answer.match

    @property
    def scale(self) -> ScoreScale | None:
        answer = self.answer
        if answer is None or answer.scale is None or not answer.match.confidence:
            return None
        return replace(answer.scale, top=answer.scale.top / answer.match.confidence)

    async def start(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._open()
            return
        raise SourceStartingError(f"It could not be opened within {seconds:g} s.")

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        shard = await self._open()
        self.embedder_id = shard.embedder_id
        answer = await self._ask(shard, query, limit)
        self.answer = self.answer or answer  # a follow-up query has another match
        return answer.items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return await (await self._open()).get_by_id(knowledge_id)
