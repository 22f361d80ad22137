"""Channel search: one channel of a knowledge base at a time, with the channel's own scores."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.errors import IndexDamagedError, InvalidInputError, LLMError, StoreUnavailableError
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion
from loom_core.knowledge.retrieval.graph_expansion import graph_channel
from loom_core.knowledge.retrieval.searcher import channel_items
from loom_core.knowledge.text.analysis import analyse, is_stop_word, words
from loom_core.knowledge.text.keywords import extract_chunk_keywords
from loom_core.knowledge.text.scripts import normalise
from loom_core.knowledge.validation import check_limit
from loom_core.observability.families import CHANNEL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import Channel, LexicalSearch
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.searcher import SearchContext
    from loom_core.knowledge.store.chunk_keys import ChunkKeys

__all__ = ["ChannelSearch", "question_keywords"]

_MAX_LIMIT = 10_000  # retrievers request several times as many passages as they return
_KEYWORD_POOL = 400  # best passages by BM25 whose keywords are compared
_CALLED: dict[Channel, str] = {"dense": "vector", "bm25": "lexical"}  # names in the metrics


class ChannelSearch:
    """Searches single channels of one knowledge base.

    Args:
        channels: the channels that the knowledge base has.
        context: the store and its indexes.
    """

    def __init__(self, channels: Sequence[Channel], context: SearchContext) -> None:
        self.channels = channels
        self._context = context

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        """See `PassageSource.ask`."""
        peer = self._context.peer
        if peer is not None:
            found = await peer.ask(channel, query, limit=limit, filters=filters, vector=vector)
            if found is not None:
                return found
        return await self.find(channel, query, limit=limit, filters=filters, vector=vector)

    async def find(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None,
        vector: NDArray[np.float32] | None,
    ) -> list[KnowledgeItem]:
        """Ask one channel in this process."""
        await self._context.reader.prepare()
        if channel not in self.channels:
            raise InvalidInputError(
                f"This knowledge base has no channel {channel!r}.",
                advice=f"Use one of: {', '.join(self.channels)}.",
            )
        text = self._context.reader.text(query, limit=limit, most=_MAX_LIMIT)
        among = await self._context.reader.filter_chunks(filters)
        space = self._context.reader.space
        if channel == "dense":
            given = vector is not None
            vector = self._normalise_vector(vector) if given else await self._context.reader.embed(text)
        question = PreparedQuestion.of(text, vector=vector, among=among, space=space)
        search = partial(self._scores, channel, question, limit)
        began = time.perf_counter()
        scores = await to_thread.run_sync(search)
        if scores is None and not self._context.worker.is_running:  # the lexical index has to be built first
            with suppress(LLMError):  # jobs wait for a language model, but the index is built
                await self._context.worker.drain()
            scores = await to_thread.run_sync(search)
        self._context.metrics.observe(
            CHANNEL_SECONDS, time.perf_counter() - began, _CALLED.get(channel, channel)
        )
        return await to_thread.run_sync(channel_items, self._context.store, scores or [], channel)

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """See `PassageSource.passages`."""
        check_limit(limit, most=_MAX_LIMIT)
        among = await self._context.reader.filter_chunks(filters)
        return await to_thread.run_sync(self._first, limit, among)

    def _first(self, limit: int, among: ChunkKeys | None) -> list[KnowledgeItem]:
        keys = self._context.store.documents.chunk_keys(limit=limit) if among is None else among.first(limit)
        return channel_items(self._context.store, [(key, 0.0) for key in keys], None)

    def _scores(
        self, channel: Channel, question: PreparedQuestion, limit: int
    ) -> list[tuple[int, float]] | None:
        """Return keys with their scores, best first; None if there is no index to ask."""
        if channel == "dense":
            return self._by_vectors(question, limit)
        if channel == "graph":
            links = self._context.links.current(self._context.store.changes.head())
            near = graph_channel(question, links or self._context.store.graph)
            return sorted(near.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
        index = self._context.words.searcher()
        try:
            if index is None:
                if reason := self._context.words.explain_absence():
                    raise StoreUnavailableError(reason, advice="Ask again in a moment.")
                return None
            if channel == "keyword":
                return self._by_keywords(index, question, limit)
            [hits] = index.search([LexicalQuery(question.tokens, limit, among=question.among)])
            return hits
        except IndexDamagedError as error:
            self._context.words.report_damage(error)
            return None

    def _by_vectors(self, question: PreparedQuestion, limit: int) -> list[tuple[int, float]] | None:
        """Rank passages by cosine, without those whose vectors are not comparable; None as `_scores`."""
        dense = self._context.vectors.current()
        if dense is None and self._context.vectors.coverage()[0]:
            return None
        if not self._context.reader.is_in_space(question):  # after `current`, so that it is of this space
            return []
        covered = self._context.reader.comparable_groups(question.language)
        near = Channels(None, dense, covered=covered).semantic(question, limit=limit)
        hits = [hit for group in near for hit in group.hits]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]

    def _by_keywords(
        self, index: LexicalSearch, question: PreparedQuestion, limit: int
    ) -> list[tuple[int, float]]:
        """Rank passages by their share of the question's keywords; BM25 decides ties.

        A keyword that is among the passage's own keywords counts in full, one that is only in its text, half.
        """
        wanted = question_keywords(question.text)
        tokens = analyse(" ".join(wanted))
        if not tokens:
            return []
        [hits] = index.search([LexicalQuery(tokens, max(_KEYWORD_POOL, limit), among=question.among)])
        pool = [key for key, _ in hits]
        held: dict[int, set[str]] = {key: set() for key in pool}
        # The first token of a keyword is the whole word, and parts of it follow.
        queries = [LexicalQuery(analyse(keyword)[:1], len(pool), among=pool) for keyword in wanted]
        for keyword, hits in zip(wanted, index.search(queries), strict=True):
            for key, _ in hits:
                held[key].add(keyword)
        rows = self._context.store.documents.chunks(pool)
        shares: dict[int, float] = {}
        for key in pool:
            if key in rows:
                own = wanted & {_comparable(keyword) for keyword in rows[key].keywords}
                shares[key] = (len(own) + len(held[key] - own) / 2) / len(wanted)
        found = [(key, share) for key, share in shares.items() if share > 0]
        return sorted(found, key=lambda pair: -pair[1])[:limit]

    def _normalise_vector(self, vector: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Normalise a query vector to length 1; None for a zero vector, which is near to nothing."""
        import numpy as np

        dimension = int(self._context.store.get("dimension") or 0)
        given = np.asarray(vector, dtype=np.float32)
        if given.shape != (dimension,) or not np.isfinite(given).all():
            raise InvalidInputError(
                f"The vector is not an array of {dimension} finite numbers.",
                advice="Make it with `embed` of the same knowledge base.",
            )
        length = float(np.linalg.norm(given))
        return given / length if length else None


def question_keywords(question: str) -> set[str]:
    """Return the identifiers and significant words of a question, to compare with a passage's keywords.

    Plain words count as well as identifiers, since people write `httpclient` for `HTTPClient`; a single
    character is no word.
    """
    plain = (normalise(word) for word in words(question))
    significant = {word for word in plain if len(word) > 1 and not is_stop_word(word)}
    return significant | {_comparable(keyword) for keyword in extract_chunk_keywords(question)}


def _comparable(keyword: str) -> str:
    return normalise(keyword).lstrip("-")
