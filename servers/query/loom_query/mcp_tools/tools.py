"""The four tools: descriptions for models, and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.server.calls.context import ToolContext, progress
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.search.citations import reading_text
from loom_core.server.search.search_tool import (
    AnswerLimit,
    Detail,
    Filters,
    PassageLimit,
    Question,
    TextLimit,
    TextStart,
    search_tool,
)
from loom_query.models import AskResult, FetchResult, Pattern, QueryResult, SourcesResult
from loom_query.texts import ask_text, query_text, sources_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.sources.federation.federation import SourceReport
    from loom_query.service import QueryService

__all__ = ["QUERY_HEAD", "register_tools"]

QUERY_HEAD = (
    "Search all of the user's knowledge sources at once (knowledge bases, remote services, other servers), "
    "in any language, for passages that answer a question. Use it before answering anything that these may "
    "know better than you: facts, names, procedures, decisions, code and numbers of the user's own world. "
    "Not for general knowledge or the web."
)
_QUERY_TAIL = (
    "Ask one whole question in the user's language. Returns numbered passages with title and address, best "
    "first: cite them as [1], [2]. A source that does not answer in time is named. Read more with fetch(id)."
)
_NONE_YET = "There is no source yet: the user makes one with loom-kb, or names some in query.json."
_ASK_HEAD = (
    "Have a language model answer a question from the user's knowledge sources, with citations. Use it when "
    "the user wants a finished answer rather than passages, or when many passages have to be read."
)
_ASK_TAIL = (
    "Returns the answer, which of its sentences no passage supports, and the passages that it cites as [1], "
    "[2]. Without a language model it returns the passages: then answer from them yourself."
)

_Source = Annotated[str | None, Field(description="One source; left out, all.")]


def register_tools(server: LoomServer, service: QueryService) -> None:
    """Register all tools of the full profile."""
    _register_query(server, service)
    _register_read_only(server, service)
    _register_ask(server, service)


def _progress_reporter(ctx: ToolContext, total: int) -> Callable[[SourceReport], Awaitable[None]]:
    """Return a callback that reports to the client how many sources have answered."""
    report = progress(ctx, total=total)
    through: set[str] = set()  # some patterns ask a source several times

    async def on_report(source: SourceReport) -> None:
        through.add(source.source)
        await report.report(len(through), f"{escape_controls(source.source)} {source.state}")

    return on_report


def _register_query(server: LoomServer, service: QueryService) -> None:
    @search_tool(
        server,
        title="Search all knowledge",
        head=QUERY_HEAD,
        tail=_QUERY_TAIL,
        sources=service.describe_sources,
        without_sources=_NONE_YET,
        open_world=True,
    )
    async def query(
        ctx: ToolContext,
        query: Question,
        source: _Source = None,
        filters: Filters = None,
        limit: PassageLimit = 5,
        response_format: Detail = "concise",
        max_tokens: AnswerLimit = 6000,
    ) -> ToolReply[QueryResult]:
        names = [source] if source else []
        told = _progress_reporter(ctx, len(service.select_sources(names)))
        result = await service.query(query, sources=names, filters=filters, limit=limit, told=told)
        detailed = response_format == "detailed"
        text, shown = query_text(result, detailed=detailed, max_tokens=max_tokens)
        result = result.model_copy(update={"passages": result.passages[:shown]})
        return tool_result(text, result if detailed else result.concise())


def _register_read_only(server: LoomServer, service: QueryService) -> None:
    @server.tool(
        title="Read on",
        description=(
            "Read more around a passage of `query` or `ask` that is cut short. Returns the text, and where "
            "to go on."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=True,
    )
    async def fetch(
        id: Annotated[  # noqa: A002
            str,
            Field(description="Id of a passage, whole: source:id.", min_length=1),
        ],
        start: TextStart = None,
        max_tokens: TextLimit = 4000,
    ) -> ToolReply[FetchResult]:
        result = await service.fetch(id, start=start, tokens=max_tokens)
        return tool_result(reading_text(result), result)

    @server.tool(
        title="List sources",
        description=(
            "List the knowledge sources. Use it to choose a `source`, or when one is missing from an answer. "
            "Returns what each holds, which filters it supports, whether it can be asked, and what to do if "
            "not."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def sources() -> ToolReply[SourcesResult]:
        result = await service.list_sources()
        return tool_result(sources_text(result, config=str(service.settings.config)), result)


def _register_ask(server: LoomServer, service: QueryService) -> None:
    @search_tool(
        server,
        title="Answer from knowledge",
        head=_ASK_HEAD,
        tail=_ASK_TAIL,
        sources=service.describe_sources,
        without_sources=_NONE_YET,
        open_world=True,
    )
    async def ask(
        ctx: ToolContext,
        query: Question,
        source: _Source = None,
        filters: Filters = None,
        pattern: Annotated[
            Pattern,
            Field(
                description="`rag`: from the best passages; `multi_query`: searches several wordings; "
                "`hierarchical`: chooses documents, then passages."
            ),
        ] = "rag",
        limit: Annotated[int, Field(description="How many passages to read.", ge=1, le=30)] = 10,
    ) -> ToolReply[AskResult]:
        names = [source] if source else []
        told = _progress_reporter(ctx, len(service.select_sources(names)))
        result = await service.ask(
            query, sources=names, filters=filters, pattern=pattern, limit=limit, told=told
        )
        text, shown = ask_text(result)
        result = result.model_copy(update={"passages": result.passages[:shown]})
        return tool_result(text, result.concise())
