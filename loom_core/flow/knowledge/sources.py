"""Knowledge sources that a flow file names: an HTTP API, or any source of Loom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loom_core.errors import ConfigError, SourceError
from loom_core.flow.config.models import DocumentsSource, HttpSource, KnowledgeEndpointConfig
from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.http.response import status_text
from loom_core.flow.knowledge.executor import TENANCY, AnswerCache, KnowledgeExecutor, normalize_question
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.sources.remote.result_mapping import read_items
from loom_core.knowledge.text.analysis import content_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.knowledge.executor import FlowKnowledge, KnowledgeAnswer
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.tools.interface import JsonValue

__all__ = ["ApiKnowledge", "KnowledgeBaseExecutor", "ProviderKnowledge", "build_knowledge"]


_TENANCY_FILTERS = {
    "tenantId": "tenantId",
    "tenant_id": "tenantId",
    "chatbotId": "chatbotId",
    "chatbot_id": "chatbotId",
}
"""Filters by which sources isolate tenants, and the context variable of each."""

_START_SECONDS = 9.0
_MAX_LENGTH = 2000


@runtime_checkable
class _SupportsOpenBase(Protocol):
    """A source whose knowledge base is opened in this process."""

    @property
    def name(self) -> str: ...

    async def open_base(self) -> GraphRAGKnowledgeBase: ...


class ProviderKnowledge:
    """Knowledge from a `KnowledgeBaseProvider`.

    If it supports filters by tenant or chatbot, they are always set: a message without a tenant finds
    nothing, as it could otherwise find documents of other tenants.

    Args:
        provider: the provider.
        limit: maximum number of passages.
        version: version of its content; a new one invalidates cached answers. It must not block.
    """

    def __init__(
        self, provider: KnowledgeBaseProvider, *, limit: int = 5, version: Callable[[], str] = str
    ) -> None:
        self._provider = provider
        self._limit = limit
        self._version = version

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """Return source, version, question and tenant; see `FlowKnowledge.identity`."""
        who = [context.get(name) for name in dict.fromkeys(_TENANCY_FILTERS.values())]
        parts = [self._provider.name, self._version(), normalize_question(message), self._limit, who]
        return json.dumps(parts, ensure_ascii=False, default=str)

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """Query the provider; see `FlowKnowledge.find`.

        Raises:
            SourceError: it needs a tenant, and the message has none.
            LoomError: the query failed.
        """
        await self._provider.start(_START_SECONDS)
        filters = self._filters(context)  # some only know their filters now
        return await self._provider.query(message[:_MAX_LENGTH], self._limit, filters or None)

    async def warm_up(self) -> None:
        """Connect to the source, or open the knowledge base and load its embedding model.

        Raises:
            LoomError: it cannot be opened.
        """
        await self._provider.start(_START_SECONDS)
        if isinstance(self._provider, _SupportsOpenBase):
            await (await self._provider.open_base()).embed([self._provider.name], kind="query")

    def _filters(self, context: Mapping[str, JsonValue]) -> dict[str, Any]:
        supported = self._provider.supported_filters
        filters: dict[str, Any] = {}
        for name, variable in _TENANCY_FILTERS.items():
            if name not in supported:
                continue
            value = context.get(variable)
            if not isinstance(value, str | int) or value == "":
                raise SourceError(
                    f"{self._provider.name!r} isolates tenants, and the message has no {variable}.",
                    advice=f"Give {variable} in the `context` of the message or of the flow file.",
                )
            filters[name] = value
        return filters


_NAME = "knowledge"  # source of passages without an address
_REQUEST_SECONDS = 10.0  # of one request, whatever the callers' timeouts are
_MAX_MESSAGE_LENGTH = {"GET": 300, "POST": 2000}
"""Characters of a message that are sent: a Chinese one takes nine in an address, which may have 4,096."""


class ApiKnowledge:
    """Knowledge from a flow file's API: GET with query parameters, or POST with JSON."""

    def __init__(self, config: KnowledgeEndpointConfig, caller: EndpointCaller) -> None:
        self._config = config
        self._caller = caller
        self._endpoint = _endpoint(config)

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """Return the whole request and its tenant; see `FlowKnowledge.identity`."""
        request = self._caller.preview(self._endpoint, self._values(normalize_question(message), context))
        parts = [request.url, sorted(request.headers.items()), request.content.decode("utf-8", "replace")]
        who = [context.get(name) for name in TENANCY]
        text = json.dumps([parts, who], ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """Query the API; see `FlowKnowledge.find`.

        Raises:
            NetError: there is no response.
            SourceError: the response is an error, or has no readable passages.
        """
        answer = await self._caller.call(self._endpoint, self._values(message, context))
        if not answer.is_success:
            raise SourceError(
                f"{answer.url} answered with {status_text(answer.status)}.",
                advice="Check `retrieve_knowledge_url` of the flow file.",
            )
        if isinstance(answer.body, str):
            raise SourceError(
                f"{answer.url} answered without valid JSON.",
                advice="Check that `retrieve_knowledge_url` is the address of an API, not of a page.",
            )
        items = read_items(answer.body or [], self._config.mapping, source=_NAME)
        return items[: self._config.limit]

    def _values(self, message: str, context: Mapping[str, JsonValue]) -> ExpressionValues:
        asked = message if self._config.send == "question" else content_words(message)
        return ExpressionValues(message=asked[: _MAX_MESSAGE_LENGTH[self._config.method]], context=context)


def _endpoint(config: KnowledgeEndpointConfig) -> EndpointConfig:
    fields: dict[str, Any] = {}
    for path, value in (config.parameters or {}).items():
        _put(config, fields, path, value)
    _put(config, fields, config.query_field, "{$message}")
    if config.limit_field:
        _put(config, fields, config.limit_field, config.limit)
    is_get = config.method == "GET"
    return EndpointConfig(
        url=config.url,
        method=config.method,
        headers=config.headers,
        query=fields if is_get else {},
        body=None if is_get else fields,
        timeout_seconds=_REQUEST_SECONDS,
        idempotent=True,
        retries=1,
    )


def _put(config: KnowledgeEndpointConfig, fields: dict[str, Any], path: str, value: JsonValue) -> None:
    """Set a value at a path; in an address, a path is a plain name."""
    if config.method == "GET":
        fields[path] = value
    else:
        JsonPath.of(path).assign(fields, value)


_SECONDS = 5.0


class KnowledgeBaseExecutor:
    """Lookup of knowledge about a message in an HTTP API, before a model decides.

    Args:
        kb_url: the API: `retrieve_knowledge_url` of a flow file, or an address; None for no knowledge.
        caller: sender of requests.
        context: variables of the conversation (`tenantId`, `chatbotId`), which are sent along.
        seconds: timeout of an answer.
        cache_seconds: time to live of an answer in the cache.
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
        """Return the knowledge about a message; a failure is in the answer and never raised."""
        asking = KnowledgeExecutor(self._source, seconds=self._seconds, cache=self._cache)
        async with asking:
            with asking.pre_query(message, self._context) as found:
                return await found.answer()


def build_knowledge(file: FlowFile, caller: EndpointCaller) -> FlowKnowledge | None:
    """Build the knowledge source of a file; None if it names none.

    Raises:
        ConfigError: it names a source that only the program can open, such as a local knowledge base.
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
