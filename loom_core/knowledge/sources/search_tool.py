"""`DocumentSearchTool`: the knowledge sources as a search tool for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from loom_core.errors import LoomError
from loom_core.knowledge.filters import FILTERS_SCHEMA, filter_mapping
from loom_core.knowledge.sources.federation.federation import Federation, timeout_message
from loom_core.knowledge.sources.quoting import quote_passages
from loom_core.knowledge.sources.unified_tool import SourceInfo, UnifiedSearchToolBuilder
from loom_core.tools.interface import Tool, ToolAnnotations, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.federation.federation import FederatedAnswer
    from loom_core.tools.interface import CallContext

__all__ = ["DocumentSearchTool"]

_HEAD = (
    "Search the knowledge sources and get the passages that answer a question, each with a citation. Use it "
    "before answering anything that they may know better than you: facts, names, procedures, decisions."
)
_TAIL = (
    "Ask one whole question in natural language. Returns passages under a line “[id] title (address)”: cite "
    "what you use by its id."
)
_SECONDS = 30.0
_LIMIT, _MAX_LIMIT = 5, 50


class _Arguments(BaseModel):
    """Arguments of the tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Annotated[str, Field(min_length=1)]
    source: str | None = None
    filters: Annotated[dict[str, Any] | None, BeforeValidator(filter_mapping)] = None
    limit: Annotated[int, Field(ge=1, le=_MAX_LIMIT)] = _LIMIT


class DocumentSearchTool(Tool):
    """Searches one source or several; its description is built from the current sources.

    Args:
        source: the source to query: a federation, or a knowledge base.
        name: name of the tool.
        max_tokens: maximum cost of an answer, by `estimate_tokens`.
    """

    def __init__(
        self,
        source: Federation | KnowledgeBaseProvider,
        *,
        name: str = "search_documents",
        max_tokens: int = 4000,
    ) -> None:
        self._federation = source if isinstance(source, Federation) else Federation([source])
        self._name = name
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self._name

    @property
    def description(self) -> str:
        """When to search, what in, and what comes back."""
        return self._builder().description(head=_HEAD, tail=_TAIL)

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments, with the names of the sources and their filters."""
        builder = self._builder()
        properties: dict[str, Any] = {
            "query": {"type": "string", "minLength": 1, "description": "The question, or keywords."},
            "source": {
                "type": "string",
                "description": "Only this source; left out, all are asked.",
                **builder.source_schema(),
            },
            "limit": {
                "type": "integer",
                "description": "How many passages.",
                "minimum": 1,
                "maximum": _MAX_LIMIT,
                "default": _LIMIT,
            },
        }
        if filters := builder.filters_schema():
            properties["filters"] = {**FILTERS_SCHEMA, **filters}
        return {
            "type": "object",
            "properties": properties,
            "required": ["query"],
            "additionalProperties": False,
        }

    @property
    def annotations(self) -> ToolAnnotations:
        """Read-only, and limited to the configured sources."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """See `Tool.call`; `structured` has the passages, and `metadata` the reports of the sources."""
        try:
            given = _Arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return ToolOutput(_refusal(error), is_error=True)
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)
        seconds = _SECONDS if context is None or context.seconds is None else context.seconds
        answer: FederatedAnswer | None = None
        try:
            with anyio.move_on_after(seconds):
                answer = await self._federation.query(
                    given.query, source=given.source, filters=given.filters, limit=given.limit
                )
        except LoomError as error:
            return ToolOutput(str(error), is_error=True)
        if answer is None:
            return ToolOutput(f"{timeout_message(seconds)} Ask for less, or again later.", is_error=True)
        return self._output(answer)

    def _output(self, answer: FederatedAnswer) -> ToolOutput:
        shown = quote_passages(answer.items, max_tokens=self._max_tokens)
        lines = [*filter(None, [answer.match.note, shown.text])]
        if len(shown.items) < len(answer.items):
            lines.append(
                f"[truncated: {len(shown.items)} of {len(answer.items)} passages shown; ask a more "
                "specific question, or for fewer]"
            )
        elif shown.is_cut:
            lines.append("[truncated: the passage is cut short]")
        passages = [
            {"id": item.id, "source": item.source, "text": item.content, "relevance": item.relevance}
            for item in shown.items
        ]
        return ToolOutput(
            "\n\n".join(lines),
            structured={"passages": passages},
            metadata={"reports": answer.reports},
            warnings=tuple(answer.notes),
        )

    def _builder(self) -> UnifiedSearchToolBuilder:
        return UnifiedSearchToolBuilder([SourceInfo.of(each) for each in self._sources()])

    def _sources(self) -> Sequence[KnowledgeBaseProvider]:
        return self._federation.sources


def _refusal(error: ValidationError) -> str:
    """Describe the errors in the arguments, for a model."""
    problems = [
        f"{'.'.join(map(str, detail['loc'])) or 'arguments'}: {detail['msg']}"
        for detail in error.errors(include_url=False, include_input=False)
    ]
    return f"The arguments cannot be used: {'; '.join(problems)}. It takes query, source, filters and limit."
