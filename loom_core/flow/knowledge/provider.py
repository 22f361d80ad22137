"""Knowledge from any source of Loom: a knowledge base, a remote API, an MCP server, a few texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loom_core.errors import SourceError
from loom_core.flow.knowledge.source import normal_question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.tools.interface import JsonValue

__all__ = ["ProviderKnowledge"]

_TENANCY_FILTERS = {
    "tenantId": "tenantId",
    "tenant_id": "tenantId",
    "chatbotId": "chatbotId",
    "chatbot_id": "chatbotId",
}
"""Filters by which sources tell tenants apart, and the context variable that each is given."""

_START_SECONDS = 9.0
_LONGEST = 2000


@runtime_checkable
class _Opens(Protocol):
    """A source whose knowledge base is opened in this process."""

    @property
    def name(self) -> str: ...

    async def opened(self) -> GraphRAGKnowledgeBase: ...


class ProviderKnowledge:
    """Asks a `KnowledgeBaseProvider`.

    If it can be filtered by tenant or chatbot, it is: a message that does not say whose it is finds nothing
    there, as it would else find what belongs to others.

    Args:
        provider: what is asked.
        limit: how many passages at the most.
        version: of what is in it; another one forgets answers that are kept. It must not wait.
    """

    def __init__(
        self, provider: KnowledgeBaseProvider, *, limit: int = 5, version: Callable[[], str] = str
    ) -> None:
        self._provider = provider
        self._limit = limit
        self._version = version

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """The source, its version, the question, and whose it is; see `FlowKnowledge.identity`."""
        who = [context.get(name) for name in dict.fromkeys(_TENANCY_FILTERS.values())]
        parts = [self._provider.name, self._version(), normal_question(message), self._limit, who]
        return json.dumps(parts, ensure_ascii=False, default=str)

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """See `FlowKnowledge.find`.

        Raises:
            SourceError: it belongs to tenants, and the message does not say which.
            LoomError: it cannot be asked.
        """
        await self._provider.start(_START_SECONDS)
        filters = self._filters(context)  # some know only now what they can be filtered by
        return await self._provider.query(message[:_LONGEST], self._limit, filters or None)

    async def warm_up(self) -> None:
        """Connect to the source, or open the knowledge base and load what embeds questions to it.

        Raises:
            LoomError: it cannot be asked.
        """
        await self._provider.start(_START_SECONDS)
        if isinstance(self._provider, _Opens):
            await (await self._provider.opened()).embed([self._provider.name], kind="query")

    def _filters(self, context: Mapping[str, JsonValue]) -> dict[str, Any]:
        supported = self._provider.supported_filters
        filters: dict[str, Any] = {}
        for name, variable in _TENANCY_FILTERS.items():
            if name not in supported:
                continue
            value = context.get(variable)
            if not isinstance(value, str | int) or value == "":
                raise SourceError(
                    f"{self._provider.name!r} keeps apart what belongs to whom, and the message has no "
                    f"{variable}.",
                    advice=f"Give {variable} in the `context` of the message or of the flow file.",
                )
            filters[name] = value
        return filters
