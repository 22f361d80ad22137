"""The source of knowledge that a flow file names, and looking something up in an API of the house."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.flow.config.models_knowledge import DocumentsSource, HttpSource, KnowledgeEndpointConfig
from loom_core.flow.knowledge.api import ApiKnowledge
from loom_core.flow.knowledge.cache import AnswerCache
from loom_core.flow.knowledge.executor import KnowledgeExecutor
from loom_core.flow.knowledge.provider import ProviderKnowledge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.knowledge.executor import KnowledgeAnswer
    from loom_core.flow.knowledge.source import FlowKnowledge
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.tools.interface import JsonValue

__all__ = ["KnowledgeBaseExecutor", "named_knowledge"]

_NAME = "knowledge"
_SECONDS = 5.0


class KnowledgeBaseExecutor:
    """Looks up what an API of the house knows about a message, before a model decides anything.

    Args:
        kb_url: the API: `retrieve_knowledge_url` of a flow file, or an address; None for no knowledge.
        caller: sends the requests.
        context: variables of the conversation (`tenantId`, `chatbotId`), which are sent along.
        seconds: how long an answer is waited for.
        cache_seconds: how long an answer is kept.
    """

    def __init__(
        self,
        kb_url: KnowledgeEndpointConfig | str | None,
        caller: EndpointCaller,
        context: Mapping[str, JsonValue] | None = None,
        *,
        seconds: float = _SECONDS,
        cache_seconds: float = 300.0,
    ) -> None:
        endpoint = KnowledgeEndpointConfig(url=kb_url) if isinstance(kb_url, str) and kb_url else kb_url
        self._source = (
            ApiKnowledge(endpoint, caller) if isinstance(endpoint, KnowledgeEndpointConfig) else None
        )
        self._context = context or {}
        self._seconds = seconds
        self._cache = AnswerCache(seconds=cache_seconds)

    async def pre_query(self, message: str) -> KnowledgeAnswer:
        """What is known about a message; a failure is in the answer, and is never raised."""
        asking = KnowledgeExecutor(self._source, seconds=self._seconds, cache=self._cache)
        async with asking:
            with asking.pre_query(message, self._context) as found:
                return await found.answer()


def named_knowledge(file: FlowFile, caller: EndpointCaller) -> FlowKnowledge | None:
    """What a file says is to be asked; None where it names nothing.

    Args:
        file: what it says.
        caller: sends the requests to an API of the house.

    Raises:
        ConfigError: it names what only the program can open, such as a knowledge base of this machine.
    """
    if file.retrieve_knowledge_url is not None:
        return ApiKnowledge(file.retrieve_knowledge_url, caller)
    provider: KnowledgeBaseProvider
    match file.knowledge:
        case None:
            return None
        case HttpSource():
            from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase

            provider = HTTPKnowledgeBase(file.knowledge, name=_NAME)
        case DocumentsSource():
            from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase

            provider = DocumentsKnowledgeBase(file.knowledge.documents, name=_NAME)
        case _:
            raise ConfigError(
                f"The knowledge of the flow file is of kind `{file.knowledge.kind}`, and was not opened.",
                advice="Give it as `knowledge`, such as `ProviderKnowledge(…)`; loom-flow-server does so.",
            )
    return ProviderKnowledge(provider)
