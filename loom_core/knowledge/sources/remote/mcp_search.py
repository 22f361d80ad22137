"""Detection of the search and fetch tools of an MCP server, and their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from loom_core.errors import InvalidInputError, SourceError
from loom_core.knowledge.filters import filter_conditions
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping

if TYPE_CHECKING:
    import mcp_types

__all__ = ["FetchCall", "MCPKnowledgeConfig", "SearchCall", "fetch_call", "search_call"]

_SEARCHING = ("search", "query")  # ChatGPT's contract, and Loom's own servers
_SEARCH_WORDS = ("search", "query", "retriev", "find", "lookup", "ask")
_QUERIES = ("query", "q", "question", "text", "query_text", "query_texts", "search_query", "keywords")
_LIMITS = (
    "limit", "top_k", "topK", "k", "n_results", "num_results", "max_results", "maxResults", "count", "size",
)  # fmt: skip
_FILTERS = "filters"
_FORMAT, _DETAILED = "response_format", "detailed"
_FETCHING = ("fetch", "get_document", "read_document", "get_by_id", "get_page", "read", "open")
_FETCHED = ("id", "uri", "url", "document_id", "documentId", "doc_id", "path", "ids")


class MCPKnowledgeConfig(BaseModel):
    """Configuration of an MCP server as a source. Empty settings are detected from the tools.

    The search tool is the one called `search` or `query`; else the only read-only tool whose one required
    argument is a string called `query`, `q`, `question`, `text` or the like.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = Field(
        default="",
        description="Name of the tool that searches; by default `search` or `query`, or the only "
        "read-only tool that takes a question.",
    )
    query_argument: str = Field(
        default="", description="Its argument for the question; by default detected from its schema."
    )
    limit_argument: str = Field(default="", description="Its argument for the number of passages; likewise.")
    filters_argument: str = Field(
        default="",
        description="Its argument that takes all filters; likewise.",
    )
    filters: Mapping[str, str] = Field(
        default={}, description="Filters that it supports: name to the argument that the value is put in."
    )
    arguments: Mapping[str, Any] = Field(
        default={}, repr=False, description="Further arguments, the same for every query."
    )
    fetch_tool: str = Field(default="", description="Name of the tool that reads a document by its id.")
    fetch_argument: str = Field(default="", description="Its argument for the id.")
    mapping: ResultMapping = Field(default=ResultMapping(), description="Where the parts of an answer are.")


@dataclass(frozen=True, slots=True)
class SearchCall:
    """Call of the server's search tool: its name, and how its arguments are filled.

    Attributes:
        tool: the tool to call.
        query: argument of the question.
        is_list: whether that takes a list of questions.
        limit: argument of the limit, or empty.
        most: the maximum limit that it accepts, or None.
        filters: argument that takes all filters, or empty.
        is_conditions: whether that takes a list of conditions, as Loom's own servers do, and not an object.
        by_name: arguments of single filters.
        fixed: further arguments.
    """

    tool: str
    query: str
    is_list: bool = False
    limit: str = ""
    most: int | None = None
    filters: str = ""
    is_conditions: bool = False
    by_name: Mapping[str, str] | None = None
    fixed: Mapping[str, Any] | None = None

    def arguments(self, query: str, *, limit: int, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the tool call.

        Raises:
            InvalidInputError: a filter is not supported.
        """
        arguments: dict[str, Any] = {}
        for path, value in (self.fixed or {}).items():
            JsonPath.of(path).assign(arguments, value)
        JsonPath.of(self.query).assign(arguments, [query] if self.is_list else query)
        if self.limit:
            JsonPath.of(self.limit).assign(arguments, limit if self.most is None else min(limit, self.most))
        rest: dict[str, Any] = {}
        for name, value in filters.items():
            path = (self.by_name or {}).get(name)
            if path is None:
                rest[name] = value
            else:
                JsonPath.of(path).assign(arguments, value)
        if rest and not self.filters:
            known = ", ".join(self.by_name or ())
            raise InvalidInputError(
                f"There is no filter {next(iter(rest))!r}.",
                advice=f"There are: {known}." if known else "Leave filters out here: this source has none.",
            )
        if rest:
            JsonPath.of(self.filters).assign(
                arguments, filter_conditions(rest) if self.is_conditions else rest
            )
        return arguments


@dataclass(frozen=True, slots=True)
class FetchCall:
    """Call of the server's fetch tool, which reads a document.

    Attributes:
        tool: the tool to call.
        id: argument of the id.
        is_list: whether that takes a list of ids.
    """

    tool: str
    id: str
    is_list: bool = False

    def arguments(self, id_: str) -> dict[str, Any]:
        """Return the arguments of the tool call."""
        return {self.id: [id_] if self.is_list else id_}


def search_call(tools: Sequence[mcp_types.Tool], config: MCPKnowledgeConfig) -> SearchCall:
    """Return how to search the server.

    Raises:
        SourceError: no tool searches, or it is unclear which.
    """
    if config.tool:
        tool = next((tool for tool in tools if tool.name == config.tool), None)
        if tool is None:
            raise SourceError(f"The server has no tool {config.tool!r}.", advice=_advise_tool(tools))
    else:
        tool = _searching(tools, config)
    properties = _properties(tool)
    query = config.query_argument or _first(properties, _QUERIES, {"string", "array"})
    if not query:
        raise SourceError(
            f"It is unclear which argument of {tool.name!r} takes the question.",
            advice=f"Set `query_argument` to one of: {', '.join(properties)}.",
        )
    limit = config.limit_argument or _first(properties, _LIMITS, {"integer", "number"})
    most = properties.get(limit, {}).get("maximum")
    filters = config.filters_argument or _first(properties, (_FILTERS,), {"object"})
    is_conditions = _takes_conditions(properties.get(filters or _FILTERS, {}))
    if is_conditions:
        filters = filters or _FILTERS
    return SearchCall(
        tool=tool.name,
        query=query,
        is_list="array" in _types(properties.get(query, {})),
        limit=limit,
        most=int(most) if isinstance(most, int | float) and most >= 1 else None,
        filters=filters,
        is_conditions=is_conditions,
        by_name=dict(config.filters),
        fixed={**_in_detail(properties), **config.arguments},
    )


def fetch_call(tools: Sequence[mcp_types.Tool], config: MCPKnowledgeConfig) -> FetchCall | None:
    """Return how to read a document of the server; None if no tool does.

    Raises:
        SourceError: the tool of the configuration is not there, or its argument is unclear.
    """
    names = (config.fetch_tool,) if config.fetch_tool else _FETCHING
    by_name = {tool.name: tool for tool in tools}
    for name in names:
        tool = by_name.get(name)
        if tool is None:
            continue
        properties = _properties(tool)
        argument = config.fetch_argument or _first(properties, _FETCHED, {"string", "array"})
        if argument and _mandatory(tool) <= {argument}:
            return FetchCall(name, argument, "array" in _types(properties.get(argument, {})))
    if config.fetch_tool:
        raise SourceError(
            f"The server has no tool {config.fetch_tool!r} that takes an id and needs nothing else.",
            advice=_advise_tool(tools),
        )
    return None


def _searching(tools: Sequence[mcp_types.Tool], config: MCPKnowledgeConfig) -> mcp_types.Tool:
    fitting = [tool for tool in tools if _accepts_query(tool, config)]
    for name in _SEARCHING:
        exact = next((tool for tool in fitting if tool.name == name and not _writes(tool)), None)
        if exact is not None:
            return exact
    reading = [tool for tool in fitting if tool.annotations and tool.annotations.read_only_hint]
    named = [tool for tool in reading if any(word in tool.name.lower() for word in _SEARCH_WORDS)]
    for choice in (named, reading):
        if len(choice) == 1:
            return choice[0]
    if reading:
        names = ", ".join(tool.name for tool in named or reading)
        raise SourceError(
            "It is unclear which of the server's tools searches.",
            advice=f"Set `tool` to one of: {names}.",
        )
    raise SourceError("The server has no recognizable search tool.", advice=_advise_tool(tools))


def _accepts_query(tool: mcp_types.Tool, config: MCPKnowledgeConfig) -> bool:
    properties = _properties(tool)
    query = config.query_argument or _first(properties, _QUERIES, {"string", "array"})
    return query in properties and _mandatory(tool) <= {query, *config.arguments}


def _writes(tool: mcp_types.Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is False


def _properties(tool: mcp_types.Tool) -> dict[str, Mapping[str, Any]]:
    given: object = tool.input_schema.get("properties")
    if not isinstance(given, Mapping):
        return {}
    properties = cast("Mapping[str, Any]", given)
    return {name: value for name, value in properties.items() if isinstance(value, Mapping)}


def _mandatory(tool: mcp_types.Tool) -> set[str]:
    required: object = tool.input_schema.get("required")
    return {str(name) for name in cast("list[object]", required)} if isinstance(required, list) else set()


def _takes_conditions(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is that of a list of conditions, see `filter_conditions`."""
    items: object = schema.get("items")
    if "array" not in _types(schema) or not isinstance(items, Mapping):
        return False
    named: object = cast("Mapping[str, object]", items).get("properties")
    return isinstance(named, Mapping) and {"field", "op", "value"} <= named.keys()


def _in_detail(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the usual argument for a detailed answer, if the tool has it."""
    forms: object = properties.get(_FORMAT, {}).get("enum")
    return {_FORMAT: _DETAILED} if isinstance(forms, list) and _DETAILED in forms else {}


def _first(properties: Mapping[str, Mapping[str, Any]], names: Sequence[str], types: set[str]) -> str:
    """Return the first of some names that a property of one of some types has; empty where there is none."""
    return next((name for name in names if name in properties and _types(properties[name]) & types), "")


def _types(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows, as far as it states them."""
    alternatives: object = schema.get("anyOf") or schema.get("oneOf") or []
    each = [schema, *cast("list[object]", alternatives)] if isinstance(alternatives, list) else [schema]
    found: set[str] = set()
    for one in each:
        given: object = cast("Mapping[str, object]", one).get("type") if isinstance(one, Mapping) else None
        found |= {str(t) for t in cast("list[object]", given)} if isinstance(given, list) else {str(given)}
    return found


def _advise_tool(tools: Sequence[mcp_types.Tool]) -> str:
    names = ", ".join(tool.name for tool in tools[:30])
    return f"Set `tool` to one of: {names}." if names else "It has no tools at all."
