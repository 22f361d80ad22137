"""Where a flow file says that knowledge is: an API of the house, or a source as in `query.json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue

from loom_core.flow.config.models_values import Address, Headers, Query, Section
from loom_core.knowledge.sources.documents import TextDocument
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
from loom_core.knowledge.sources.remote.mcp_search import MCPKnowledgeConfig
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping

__all__ = [
    "DocumentsSource",
    "HttpSource",
    "KnowledgeEndpointConfig",
    "KnowledgeSource",
    "LocalSource",
    "McpSource",
    "WrittenKnowledgeEndpoint",
]

_OF_THE_CALLER: dict[str, JsonValue] = {
    "chatbotId": "{$context.chatbotId}",
    "tenantId": "{$context.tenantId}",
}


class KnowledgeEndpointConfig(Section):
    """An API that is asked for what is known about a message, before it is needed; a text is its address."""

    url: Address = Field(min_length=1, description="An http(s) address, or a path behind `flow_url`.")
    method: Literal["GET", "POST"] = Field(
        default="GET", description="GET sends the parameters in the address, POST as a JSON object."
    )
    headers: Headers = Field(default={}, repr=False, description="Headers, as those of an endpoint.")
    query_field: str = Field(
        default="keywords", min_length=1, description="The parameter that the message is put in."
    )
    send: Literal["question", "keywords"] = Field(
        default="question",
        description="What is put there: the message, or only its content words, with spaces between them.",
    )
    limit_field: str = Field(default="", description="The parameter of how many passages are wanted.")
    parameters: Query = Field(
        default=_OF_THE_CALLER,
        repr=False,
        description="Further parameters: templates (what has no value is left out), or secrets.",
    )
    mapping: ResultMapping = Field(
        default=ResultMapping(), description="Where the passages are in the answer, as in query.json."
    )
    limit: int = Field(default=5, ge=1, le=50, description="So many passages are used.")


def _address(written: object) -> object:
    return {"url": written} if isinstance(written, str) else written


WrittenKnowledgeEndpoint = Annotated[
    KnowledgeEndpointConfig,
    BeforeValidator(_address, json_schema_input_type=KnowledgeEndpointConfig | str),
]


class LocalSource(Section):
    """A knowledge base of Loom on this machine."""

    kind: Literal["local"]
    knowledge_base: str = Field(min_length=1, description="Its name.")
    home: str = Field(default="", description="Loom's folder that it is in; by default the server's own.")


class HttpSource(HTTPKnowledgeConfig):
    """An HTTP API that searches."""

    kind: Literal["http"]


class McpSource(MCPKnowledgeConfig):
    """A search tool of an MCP server."""

    kind: Literal["mcp"]
    server: Annotated[str, Field(min_length=1)] | dict[str, Any] = Field(
        repr=False, description="A server's name in mcp.json, or an entry as it would stand there."
    )


class DocumentsSource(Section):
    """A few texts that stand in the file itself."""

    kind: Literal["documents"]
    documents: list[TextDocument] = Field(min_length=1, description="Objects, each with a text.")


KnowledgeSource: TypeAlias = Annotated[
    LocalSource | HttpSource | McpSource | DocumentsSource, Field(discriminator="kind")
]
"""A source of knowledge, as `query.json` names them."""
