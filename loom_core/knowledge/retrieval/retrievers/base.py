"""Common part of all retrievers: validate the question, choose the sources, query them, merge the results."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NotFoundError
from loom_core.knowledge.retrieval.retrievers.passages import sort_by_score, to_passage
from loom_core.knowledge.validation import check_limit, question_text
from loom_core.llm.default import default_provider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from loom_core.knowledge.interface import Channel, PassageSource
    from loom_core.knowledge.model import KnowledgeItem, RetrievedPassage
    from loom_core.llm.interface import LLMProvider

__all__ = ["BaseRetriever", "RetrievalRequest", "SourceRetriever", "find_language_model", "gather"]

_log = logging.getLogger(__name__)

_MAX_TOP_K = 1000
_MIN_CANDIDATES = 50
_CANDIDATES_PER_HIT = 4

_K = TypeVar("_K", bound=str)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """A validated request to a retriever.

    Attributes:
        text: the question, without white space around it.
        top_k: maximum number of passages.
        filters: field to allowed value; includes the tenant.
    """

    text: str
    top_k: int
    filters: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(
        cls, query: str, *, top_k: int, filters: Mapping[str, Any] | None = None, tenant_id: str | None = None
    ) -> RetrievalRequest:
        """Check the arguments of `Retriever.retrieve`.

        Raises:
            InvalidInputError: the question is empty, `top_k` is out of range, or `filters` wants another
                tenant than `tenant_id`.
        """
        text = question_text(query)
        chosen = dict(filters or {})
        if tenant_id is not None and chosen.setdefault("tenant_id", tenant_id) != tenant_id:
            raise InvalidInputError(
                "`filters` and `tenant_id` name different tenants.",
                advice="Leave the tenant out of `filters`.",
            )
        return cls(text=text, top_k=_validate_top_k(top_k), filters=chosen)

    @property
    def candidates(self) -> int:
        """How many passages to request from a channel whose ranking is not final."""
        return max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * self.top_k)


class BaseRetriever(ABC):
    """A `Retriever` over some sources; subclasses implement `_retrieve`.

    Args:
        sources: the sources to search; their names must differ.
        top_k: how many passages are returned where `retrieve` does not say.

    Attributes:
        name: the name it is registered under; every passage carries it as `source`.
        needs: the channel that a source must have to be asked at all.
        by_channel: whether sources are asked by channel: they have to be `PassageSource`s then.

    Raises:
        ConfigError: there are no sources, two of the same name, or one that lacks the channel.
        InvalidInputError: `top_k` is not from 1 to 1000.
    """

    name: ClassVar[str]
    needs: ClassVar[Channel | None] = None
    by_channel: ClassVar[bool] = False

    def __init__(self, sources: Sequence[PassageSource], *, top_k: int = 5) -> None:
        self._sources = {source.name: source for source in sources}
        self._top_k = _validate_top_k(top_k)
        if not self._sources:
            raise ConfigError(
                f"The retriever {self.name!r} has nothing to search.",
                advice="Give it one knowledge base or more.",
            )
        if len(self._sources) < len(sources):
            raise ConfigError(
                f"Two sources of the retriever {self.name!r} have the same name.",
                advice="Give every knowledge base a unique name.",
            )
        for source in sources:
            if self.by_channel and not hasattr(source, "channels"):
                raise ConfigError(
                    f"The retriever {self.name!r} cannot search {source.name!r}, which has no channels.",
                    advice='Use `create("retriever", "knowledge_base", …)`, which asks it as a whole.',
                )

    async def retrieve(
        self,
        query: str,
        *,
        top_k: int | None = None,
        kb_ids: Sequence[str] | None = None,
        tenant_id: str | None = None,
        filters: dict[str, Any] | None = None,
    ) -> list[RetrievedPassage]:
        """See `Retriever.retrieve`; `top_k` is at most 1000."""
        request = RetrievalRequest.of(
            query,
            top_k=self._top_k if top_k is None else top_k,
            filters=filters,
            tenant_id=tenant_id,
        )
        passages = await self._retrieve(request, self._select_sources(kb_ids))
        return passages[: request.top_k]

    @abstractmethod
    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        """Find passages in some of the sources, best first; what is beyond `top_k` is cut off."""

    def _select_sources(self, kb_ids: Sequence[str] | None) -> list[PassageSource]:
        """Return the sources with these names that have the channel this retriever needs."""
        names = list(self._sources) if kb_ids is None else list(dict.fromkeys(kb_ids))
        if not names:
            raise InvalidInputError(
                "`kb_ids` is empty.", advice="Name a knowledge base, or pass None for all."
            )
        unknown = [name for name in names if name not in self._sources]
        if unknown:
            raise NotFoundError(
                f"There is no knowledge base {unknown[0]!r}.",
                advice=f"Choose from: {', '.join(sorted(self._sources))}.",
            )
        chosen = [self._sources[name] for name in names]
        able = [source for source in chosen if self.needs is None or self.needs in source.channels]
        if not able:
            raise InvalidInputError(
                f"{', '.join(names)} cannot be searched by the channel {self.needs!r}.",
                advice="Use another retriever, such as bm25, which can search every knowledge base.",
            )
        return able


class SourceRetriever(BaseRetriever):
    """A retriever that searches each source separately; subclasses implement `_search`.

    All sources are searched at once. One that fails is left out, unless all fail.
    """

    by_channel = True

    async def _retrieve(
        self, request: RetrievalRequest, sources: Sequence[PassageSource]
    ) -> list[RetrievedPassage]:
        found = await gather(
            {source.name: partial(self._search, source, request) for source in sources},
            of=f"Retriever {self.name!r}",
        )
        return self._merge(
            [
                [to_passage(item, knowledge_base=name, retriever=self.name) for item in items]
                for name, items in found.items()
            ]
        )

    @abstractmethod
    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        """Return the hits of one source, in any order; `relevance` is the score."""

    def _merge(self, found: Sequence[Sequence[RetrievedPassage]]) -> list[RetrievedPassage]:
        """Merge the sources' hits into one ranking by score."""
        return sort_by_score(passage for passages in found for passage in passages)


@runtime_checkable
class _WithLanguageModel(Protocol):
    """A source that has a language model, as knowledge bases that were opened with one do."""

    @property
    def language_model(self) -> LLMProvider | None: ...


def find_language_model(sources: Sequence[PassageSource], *, needed_by: str) -> LLMProvider:
    """Return the language model of the first source that has one, or else the default of the process.

    Args:
        sources: the sources to search.
        needed_by: what needs the model, for the message.

    Raises:
        ConfigError: there is none, or the default cannot be made.
    """
    models = (source.language_model for source in sources if isinstance(source, _WithLanguageModel))
    model = next((model for model in models if model is not None), None) or default_provider()
    if model is None:
        raise ConfigError(
            f"{needed_by} needs a language model, and there is none.",
            advice="Give it `llm_provider=…`, open the knowledge base with `llm_provider=…`, or set one for "
            'all: `loom_core.config.set_default_llm("deepseek")`.',
        )
    return model


async def gather(parts: Mapping[_K, Callable[[], Awaitable[_T]]], *, of: str) -> dict[_K, _T]:
    """Run several searches concurrently.

    One that raises a `LoomError` is left out, and a warning is logged.

    Args:
        parts: the searches by name, in the order of the results.
        of: the retriever or source that they belong to, for the log.

    Raises:
        LoomError: all of them failed; the first one's error.
    """
    results: dict[_K, _T] = {}
    errors: dict[_K, LoomError] = {}

    async def run(name: _K, search: Callable[[], Awaitable[_T]]) -> None:
        try:
            results[name] = await search()
        except LoomError as error:
            errors[name] = error

    if len(parts) == 1:  # without a task group, other errors are not wrapped in an ExceptionGroup
        await run(*next(iter(parts.items())))
    else:
        async with anyio.create_task_group() as group:
            for name, search in parts.items():
                group.start_soon(run, name, search)
    if errors and not results:
        raise next(errors[name] for name in parts)
    for name, error in errors.items():
        _log.warning("%s: %r was left out, because it failed: %s", of, name, error)
    return {name: results[name] for name in parts if name in results}


def _validate_top_k(top_k: int) -> int:
    check_limit(top_k, most=_MAX_TOP_K, name="top_k")
    return top_k
