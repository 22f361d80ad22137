"""MCP server as a source, by its search tool."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import LoomError, SourceError, SourceStartingError
from loom_core.json_repair import replace_lone_surrogates
from loom_core.knowledge.ingest.chunking.boundaries import find_split
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.named_source import NamedSource
from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig, fetch_call, search_call
from loom_core.knowledge.sources.remote.recent_items import RecentItems
from loom_core.knowledge.sources.remote.result_mapping import read_item, read_items
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.knowledge.validation import check_limit, check_question

if TYPE_CHECKING:
    from collections.abc import Iterator

    import mcp_types

    from loom_core.knowledge.sources.remote.mcp_search import FetchCall, SearchCall
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.tools.interface import JsonValue

__all__ = ["MCPKnowledgeBase", "best_stretch"]

_MAX_LIMIT = 100
_LISTED_SECONDS = 60.0  # after which the server's tools are listed again
_MAX_READ = 10  # maximum documents to fetch if a search returns only titles
_MAX_TEXT = 400_000  # characters of one document
_MAX_TOLD = 500  # characters of a server's error message


@dataclass(frozen=True, slots=True)
class _ToolCalls:
    """The server's search and fetch calls, and until when they are valid."""

    search: SearchCall
    fetch: FetchCall | None
    until: float


class MCPKnowledgeBase(NamedSource):
    """An MCP server as a source: another knowledge base of Loom, or any server with a tool that searches.

    The tool is detected or configured, see `MCPKnowledgeConfig`; the server's tool filter applies here,
    too. Its result is read from structured content, from JSON in text, or from plain text, where each
    block is a passage. If a server returns only titles (ChatGPT's contract), the documents are fetched, and
    the best window of each is the passage.

    Args:
        connection: the server; its creator runs and closes it.
        config: the tools and arguments to use; by default detected.
        name: its name among other sources; by default that of the server.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
    """

    def __init__(
        self,
        connection: ServerConnection,
        config: MCPKnowledgeConfig | None = None,
        *,
        name: str = "",
        description: str = "",
        search_hints: Sequence[str] = (),
    ) -> None:
        super().__init__(name or connection.name, description=description, search_hints=search_hints)
        self._connection = connection
        self._config = config or MCPKnowledgeConfig()
        self._calls: _ToolCalls | None = None
        self._recent = RecentItems()

    @property
    def supported_filters(self) -> Sequence[str]:
        """The filters that are configured; a tool with an argument `filters` may know others."""
        return tuple(self._config.filters)

    async def start(self, seconds: float) -> None:
        """Wait until the server is connected; its start has a separate deadline, `start_seconds`.

        Raises:
            SourceStartingError: it is not connected in time.
            ServerError: the connection failed.
        """
        with anyio.move_on_after(seconds) as waiting:
            await self._connection.ready()
        if waiting.cancelled_caught:
            doing = "being connected again" if self._connection.state == "degraded" else "still starting"
            raise SourceStartingError(
                f"Server {self._connection.name!r} is {doing} "
                f"({self._connection.state_seconds:.0f} s so far).",
                advice="Ask again in a moment.",
            )

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`.

        Raises:
            InvalidInputError: as there.
            ServerError: the server is not connected, or does not answer.
            SourceError: it has no search tool, refuses, or its answer cannot be read.
        """
        check_question(query)
        check_limit(limit, most=_MAX_LIMIT)
        calls = await self._find_calls()
        arguments = calls.search.arguments(query, limit=limit, filters=filters or {})
        items = self._items(await self._call_tool(calls.search.tool, arguments))[:limit]
        if calls.fetch is not None:
            items = await self._with_texts(query, items, calls.fetch)
        self._recent.add(items)
        return items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """Return the document or passage by the server's fetch tool, else from a recent search.

        Raises:
            ServerError: as for `query`.
            SourceError: likewise.
        """
        calls = await self._find_calls()
        remembered = self._recent.get(knowledge_id)
        if calls.fetch is None:
            return remembered
        try:
            item = await self._fetch_item(calls.fetch, knowledge_id)
        except SourceError:  # the tool's own refusal: most often there is nothing with this id
            return remembered
        return item or remembered

    async def _find_calls(self) -> _ToolCalls:
        """Return the calls of the server, by its available and permitted tools."""
        if self._calls is None or time.monotonic() > self._calls.until:
            await self._connection.ready()
            listing = await self._connection.list_tools()
            tools = [tool for tool in listing.tools if self._connection.config.allows(tool.name)]
            self._calls = _ToolCalls(
                search=search_call(tools, self._config),
                fetch=fetch_call(tools, self._config),
                until=time.monotonic() + _LISTED_SECONDS,
            )
        return self._calls

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> mcp_types.CallToolResult:
        try:
            result = await self._connection.call_tool(tool, arguments, repeatable=True)
        except LoomError:
            self._calls = None  # after a reconnection, the server may have other tools
            raise
        if result.is_error:
            self._calls = None
            told = (
                escape_controls(" ".join(" ".join(_texts(result)).split())[:_MAX_TOLD])
                or "it does not say why"
            )
            raise SourceError(f"The tool {tool!r} of the server refuses: {told}")
        return result

    def _items(self, result: mcp_types.CallToolResult) -> list[KnowledgeItem]:
        """Return the passages of an answer: from structured content, JSON in text, or plain blocks."""
        refusal: SourceError | None = None
        for answer in _answers(result):
            try:
                return read_items(answer, self._config.mapping, source=self._name, titles=True)
            except SourceError as error:
                refusal = error
        mapping = self._config.mapping
        if refusal is not None and (mapping.results or mapping.text):
            raise refusal
        return [_block_item(text, uri or self._name) for text, uri in _blocks(result)]

    async def _with_texts(
        self, query: str, items: list[KnowledgeItem], fetch: FetchCall
    ) -> list[KnowledgeItem]:
        """Return the items, with the best stretch of its document for each that only has a title."""
        read: dict[str, KnowledgeItem] = {}

        async def fetch_one(item: KnowledgeItem) -> None:
            try:
                document = await self._fetch_item(fetch, item.id)
            except LoomError:
                return  # the title is still an answer
            if document is not None:
                text, start = await best_stretch(query, document.content, above=item.content)
                place = {"start": start, "end": start + len(text)}
                source = item.source if item.source != item.content else document.source
                metadata = {**document.metadata, **item.metadata, **place}
                read[item.id] = replace(item, content=text, source=source, metadata=metadata)

        bare = [item for item in items if item.content == item.metadata.get("title")][:_MAX_READ]
        async with anyio.create_task_group() as tasks:
            for item in bare:
                tasks.start_soon(fetch_one, item)
        return [read.get(item.id, item) for item in items]

    async def _fetch_item(self, fetch: FetchCall, id_: str) -> KnowledgeItem | None:
        result = await self._call_tool(fetch.tool, fetch.arguments(id_))
        found = (read_item(answer, self._config.mapping, source=self._name) for answer in _answers(result))
        item = next((each for each in found if each is not None), None)
        if item is None:
            blocks = _blocks(result)
            if not blocks:
                return None
            item = _block_item("\n\n".join(text for text, _ in blocks), blocks[0][1] or self._name)
        return replace(item, id=id_, content=item.content[:_MAX_TEXT])


def _answers(result: mcp_types.CallToolResult) -> list[JsonValue]:
    """Return the possible JSON values of an answer, the likeliest first."""
    found: list[JsonValue] = []
    if result.structured_content is not None:
        found.append(result.structured_content)
    texts = _texts(result)
    if len(texts) > 1 and (rows := [_json(text) for text in texts]) and None not in rows:
        found.append(rows)  # a list, sent as one block per entry
    else:
        found += [value for text in texts if (value := _json(text)) is not None]
    return found


def _json(text: str) -> JsonValue:
    """Parse a text as JSON, if it is an object or a list."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(replace_lone_surrogates(text.encode()))
    except (ValueError, RecursionError):
        return None


def _texts(result: mcp_types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


def _blocks(result: mcp_types.CallToolResult) -> list[tuple[str, str]]:
    """Return the texts of an answer that hold anything, each with its address, which may be empty."""
    found: list[tuple[str, str]] = []
    for block in result.content:
        if block.type == "text":
            found.append((block.text.strip(), ""))
        elif block.type == "resource":
            text: object = getattr(block.resource, "text", "")
            found.append((text.strip() if isinstance(text, str) else "", str(block.resource.uri)))
    return [(text, uri) for text, uri in found if text]


def _block_item(text: str, source: str) -> KnowledgeItem:
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return KnowledgeItem(id=digest, content=text[:_MAX_TEXT], source=source)


_LENGTH = 1600  # characters: the usual length of a passage
_SHORTEST = 800
_MAX_SEARCHED = 200_000


async def best_stretch(query: str, text: str, *, above: str = "") -> tuple[str, int]:
    """Return the window of a text with most of a question's words, and its offset.

    Args:
        query: the question.
        text: the text; only its first 200,000 characters are read.
        above: its title.
    """
    from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker

    stretches = await to_thread.run_sync(lambda: list(_stretches(text[:_MAX_SEARCHED])))
    if not stretches:
        return "", 0
    items = [
        KnowledgeItem(id=str(start), content=stretch, source="", metadata={"title": above})
        for stretch, start in stretches
    ]
    best = await FeatureReranker(weight=1.0).rerank(query, items, limit=1)
    return best[0].content, int(best[0].id)


def _stretches(text: str) -> Iterator[tuple[str, int]]:
    """Split a text at ends of sentences into pieces with offsets; none is blank."""
    start = 0
    while start < len(text):
        limit = start + _LENGTH
        end = len(text) if limit >= len(text) else find_split(text, start + _SHORTEST, limit)
        if text[start:end].strip():
            yield text[start:end].strip(), start + len(text[start:end]) - len(text[start:end].lstrip())
        start = end
