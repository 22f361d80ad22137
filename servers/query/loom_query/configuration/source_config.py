"""Data models of one source in the configuration."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

from loom_core.knowledge.sources.documents import TextDocument

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
    from loom_query.configuration.collection_config import CollectionSourceConfig
    from loom_query.configuration.mcp_config import McpConfig

__all__ = [
    "KINDS",
    "ConfiguredSource",
    "DocumentsConfig",
    "Kind",
    "LocalConfig",
    "SourceConfig",
    "SourceConfigBase",
    "advice_on",
    "config_model",
]

Kind = Literal[
    "local",
    "http",
    "mcp",
    "documents",
    "qdrant",
    "milvus",
    "pgvector",
    "chroma",
    "elasticsearch",
    "opensearch",
]
"""A knowledge base on this machine; an HTTP API; a search tool of an MCP server; texts in the file itself; a
collection of an engine that others have filled."""

KINDS: tuple[Kind, ...] = get_args(Kind)

LONGEST_DEADLINE = 40.0
"""Seconds; shorter than the timeout of hosts for a call."""


class _Written(BaseModel):
    # Inputs stay out of messages, as one may be a secret in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class SourceConfigBase(_Written):
    """Keys that sources of every kind have."""

    kind: Kind = Field(
        description="What it is: local, http, mcp or documents; or the engine of a collection: qdrant, "
        "milvus, pgvector, chroma, elasticsearch or opensearch."
    )
    description: str = Field(default="", description="What is in it, in one sentence, for models to read.")
    hints: tuple[str, ...] = Field(default=(), description="Topics or kinds of question it is good for.")
    deadline: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_DEADLINE,
        description="Seconds it has for an answer, at most 40; by default those of the file.",
    )


class LocalConfig(_Written):
    """Knowledge bases of Loom on this machine."""

    knowledge_base: str = Field(
        default="", description="Name of one; without it, all there are, each a source by its own name."
    )
    home: str = Field(default="", description="Loom's folder that they are in; by default the server's own.")
    retriever: str = Field(
        default="",
        description="Name of the retriever that finds the passages, such as hybrid, fusion or hyde; "
        "by default the knowledge base's own retrieval.",
    )
    retriever_params: dict[str, Any] = Field(
        default={}, description='Parameters of the retriever, such as {"dense_weight": 0.5}.'
    )


class DocumentsConfig(_Written):
    """A few texts in the configuration itself."""

    documents: tuple[TextDocument, ...] = Field(
        min_length=1, description="A list of objects, each with a text."
    )


SourceConfig: TypeAlias = (
    "LocalConfig | HTTPKnowledgeConfig | McpConfig | DocumentsConfig | CollectionSourceConfig"
)
"""The keys of a source besides those of `SourceConfigBase`."""


def config_model(
    kind: Kind,
) -> type[LocalConfig | HTTPKnowledgeConfig | McpConfig | DocumentsConfig | CollectionSourceConfig]:
    """Return the model of a kind's own keys; modules for remote sources are imported on demand."""
    if kind == "http":
        from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig

        return HTTPKnowledgeConfig
    if kind == "mcp":
        from loom_query.configuration.mcp_config import McpConfig

        return McpConfig
    if kind == "local":
        return LocalConfig
    if kind == "documents":
        return DocumentsConfig
    from loom_query.configuration.collection_config import CollectionSourceConfig

    return CollectionSourceConfig


@dataclass(frozen=True, slots=True)
class ConfiguredSource:
    """One entry of the configuration, read.

    Attributes:
        name: name of the source; for all knowledge bases of a home, that of the entry.
        written: the common keys.
        config: the keys of its kind.
        deadline: seconds it has for an answer.
        where: `file:line:column` of the entry.
    """

    name: str
    written: SourceConfigBase
    config: SourceConfig
    deadline: float
    where: str = field(compare=False)

    @property
    def kind(self) -> Kind:
        """Kind of the source."""
        return self.written.kind


def advice_on(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return advice for a validation error.

    Args:
        error: the error of Pydantic.
        model: the model that was validated.
    """
    names = [name for name in model.model_fields if name not in SourceConfigBase.model_fields]
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        known = [*SourceConfigBase.model_fields, *names]
        near = difflib.get_close_matches(name, known, n=1)
        return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(dict.fromkeys(known))}."
    found = model.model_fields.get(name) or SourceConfigBase.model_fields.get(name)
    return f"{name}: {found.description}" if found and found.description else "Correct it there."
