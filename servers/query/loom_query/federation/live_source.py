"""Live sources: the open sources of one run of the program, with their state and last problem."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread

from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.server.search.excerpts import Excerpt, excerpt_bounds, forms_of, read
from loom_query.federation.passages import address_of
from loom_query.models import SourceDetails

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.sources.federation.federation import SourceReport
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.mcp_client.connections.lifecycle import ServerFacts
    from loom_query.configuration.source_config import Kind
    from loom_query.models import SourceInfoState

__all__ = ["LiveSource", "McpLiveSource", "OwnLiveSource", "details_of"]

_CLOSE_SECONDS = 10.0


class LiveSource:
    """A source that can be asked.

    Attributes:
        provider: provider that is asked.
        kind: kind of the source.
        deadline: seconds it has for an answer.
    """

    def __init__(
        self,
        provider: KnowledgeBaseProvider,
        *,
        kind: Kind,
        deadline: float,
        close: Callable[[], None] | None = None,
    ) -> None:
        """Keep the provider.

        Args:
            provider: provider that is asked.
            kind: kind of the source.
            deadline: seconds it has for an answer.
            close: releases what belongs to this source alone; may block.
        """
        self.provider = provider
        self._close = close
        self.kind: Kind = kind
        self.deadline = deadline
        self._failure = ""
        self._uses = 0
        self._retired = False

    @property
    def name(self) -> str:
        """Name of the source."""
        return self.provider.name

    @property
    def info(self) -> SourceInfo:
        """Description of the source."""
        return SourceInfo.of(self.provider)

    @property
    def state(self) -> SourceInfoState:
        """Whether it can be asked, as far as is known."""
        return "failed" if self._failure else "ready"

    @property
    def problem(self) -> str:
        """The known problem and what to do; empty if there is none."""
        return self._failure

    def note(self, report: SourceReport) -> None:
        """Record the outcome of the last question, for `sources`."""
        if not report.is_refusal and report.state != "starting":
            self._failure = f"Asked last: {report.problem}" if report.problem else ""

    async def read(self, id_: str, *, start: int | None, tokens: int) -> Excerpt | None:
        """Read an excerpt of the text with an id; None if the source has none.

        Args:
            id_: the id that the source itself gave.
            start: offset to read from; None for the beginning.
            tokens: limit of the text.

        Raises:
            LoomError: the source cannot be asked.
        """
        item = await self.provider.get_by_id(id_)
        return None if item is None else _stretch_of(item.of_source(self.name), start or 0, tokens)

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """Keep the source open in the block, even if it is retired."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            await self._close_if_retired()

    async def retire(self) -> None:
        """Close the source as soon as it is not in use: now, or after its last use."""
        self._retired = True
        await self._close_if_retired()

    async def close(self) -> None:
        """Release the resources of this source."""
        if self._close is not None:
            await to_thread.run_sync(self._close)

    async def _close_if_retired(self) -> None:
        if self._retired and not self._uses:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self.close()


class _Openable(Protocol):
    async def open_base(self, id_or_uri: str = "") -> GraphRAGKnowledgeBase: ...


class OwnLiveSource(LiveSource):
    """A knowledge base of Loom in this process: `read` returns any excerpt of its documents.

    Args:
        provider: provider that is asked.
        base: opens the knowledge base.
        kind: kind of the source.
        deadline: seconds it has for an answer.
        close: releases the knowledge base, if this source owns it; may block.
    """

    def __init__(
        self,
        provider: KnowledgeBaseProvider,
        *,
        base: _Openable,
        kind: Kind,
        deadline: float,
        close: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(provider, kind=kind, deadline=deadline, close=close)
        self._base = base

    async def read(self, id_: str, *, start: int | None, tokens: int) -> Excerpt | None:
        """See `LiveSource.read`; without a start, the excerpt surrounds the passage."""
        for form in forms_of(id_):
            knowledge_base = await self._base.open_base(form)
            found = await to_thread.run_sync(partial(read, knowledge_base, form, start=start, tokens=tokens))
            if found is not None:
                return found
        return None


class McpLiveSource(LiveSource):
    """A search tool of an MCP server; the server is started or connected to on first use.

    Args:
        provider: provider that asks the server.
        connection: connection to the server.
        begin: starts the supervisor task of the connection, once, in a task group that outlives the source.
        deadline: seconds it has for an answer.
        patient: whether a question waits until the server has started or has failed to start.

    Attributes:
        begin: see above; returns at once.
    """

    def __init__(
        self,
        provider: KnowledgeBaseProvider,
        *,
        connection: ServerConnection,
        begin: Callable[[], None],
        deadline: float,
        patient: bool = False,
    ) -> None:
        started_first = _LazySource(provider, begin, patient=patient)
        super().__init__(started_first, kind="mcp", deadline=deadline)
        self._connection = connection
        self.begin = begin

    @property
    def state(self) -> SourceInfoState:
        """Whether it can be asked."""
        states: dict[str, SourceInfoState] = {
            "configured": "idle",
            "connecting": "connecting",
            "degraded": "connecting",
            "ready": "ready",
        }
        state = states.get(self._connection.state, "failed")
        return super().state if state == "ready" else state

    @property
    def problem(self) -> str:
        """Reason why the server is not connected or gave no answer."""
        return self._connection.failure or super().problem

    async def connect(self) -> ServerFacts | None:
        """Connect now, as a first question would, and return the facts of the server.

        Raises:
            ServerError: it cannot be connected to.
        """
        self.begin()
        await self._connection.ready()
        return self._connection.facts

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


class _LazySource(KnowledgeBaseProvider):
    """Knowledge base provider that starts its server on first use."""

    def __init__(self, provider: KnowledgeBaseProvider, begin: Callable[[], None], *, patient: bool) -> None:
        self._provider = provider
        self._begin = begin
        self._patient = patient

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def description(self) -> str:
        return self._provider.description

    @property
    def search_hints(self) -> Sequence[str]:
        return self._provider.search_hints

    @property
    def supported_filters(self) -> Sequence[str]:
        return self._provider.supported_filters

    async def start(self, seconds: float) -> None:
        self._begin()
        await self._provider.start(math.inf if self._patient else seconds)

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        self._begin()
        return await self._provider.query(query, limit, filters)

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        self._begin()
        return await self._provider.get_by_id(knowledge_id)


def _stretch_of(item: KnowledgeItem, start: int, tokens: int) -> Excerpt:
    """Return an excerpt of an item."""
    metadata = item.metadata
    text = item.content
    begin, end = excerpt_bounds(text, start=start, tokens=tokens)
    return Excerpt(
        document_id=str(metadata.get("document_id") or item.id),
        title=str(metadata.get("title") or ""),
        uri=address_of(item),
        text=text[begin:end],
        start=begin,
        end=end,
        length=len(text),
        metadata={
            name: str(value) for name, value in metadata.items() if isinstance(value, str | int | float)
        },
    )


def details_of(source: LiveSource) -> SourceDetails:
    """Describe a source as `sources` lists it."""
    info = source.info
    return SourceDetails(
        name=info.name,
        kind=source.kind,
        state=source.state,
        description=info.description,
        hints=list(info.search_hints),
        filters=list(info.supported_filters),
        deadline=source.deadline,
        problem=source.problem,
    )
