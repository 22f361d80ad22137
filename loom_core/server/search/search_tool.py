"""Search tool: a description from those of its sources, and the types of its arguments."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from loom_core.knowledge.filters import FILTERS_DESCRIPTION, FILTERS_SCHEMA, filter_mapping
from loom_core.knowledge.sources.unified_tool import UnifiedSearchToolBuilder
from loom_core.server.protocol.results import TOKEN_CAP
from loom_core.server.protocol.tools import ToolFunction, ToolWording

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.server.protocol.factory import LoomServer

__all__ = [
    "AnswerLimit",
    "Detail",
    "Filters",
    "PassageLimit",
    "Question",
    "TextLimit",
    "TextStart",
    "search_tool",
]

ToolFunctionT = TypeVar("ToolFunctionT", bound=ToolFunction)


def search_tool(
    server: LoomServer,
    *,
    title: str,
    head: str,
    tail: str,
    sources: Callable[[], Awaitable[Sequence[SourceInfo]]],
    open_world: bool,
    without_sources: str = "",
) -> Callable[[ToolFunctionT], ToolFunctionT]:
    """Return a decorator that registers an async function as a read-only search tool; see `LoomServer.tool`.

    At each `tools/list` the current sources are in its description, and in the schemas of its arguments
    `source` and `filters` if it has them.

    Args:
        server: the server.
        title: name for people.
        head: what it does and when to use it.
        tail: what it returns, and how to ask.
        sources: returns the descriptions of the sources that the caller may use.
        open_world: whether it reaches beyond what the user gave to this server.
        without_sources: text after the tail while there is no source.
    """

    def register(function: ToolFunctionT) -> ToolFunctionT:
        has = inspect.signature(function).parameters

        async def wording() -> ToolWording:
            found = await sources()
            builder = UnifiedSearchToolBuilder(found)
            end = tail if found or not without_sources else f"{tail}\n\n{without_sources}"
            schemas = {"source": builder.source_schema(), "filters": builder.filters_schema()}
            return ToolWording(
                builder.description(head=head, tail=end),
                {name: schema for name, schema in schemas.items() if name in has},
            )

        return server.tool(
            title=title,
            description=f"{head}\n\n{tail}",
            wording=wording,
            read_only=True,
            destructive=False,
            idempotent=True,
            open_world=open_world,
        )(function)

    return register


_MAX_TEXT = TOKEN_CAP - 1000  # tokens of the text; the rest is for title, address and next offset

Question = Annotated[
    str,
    Field(description="The question, or keywords.", min_length=1),
]
"""The search query."""

Filters = Annotated[
    dict[str, Any] | None,
    BeforeValidator(filter_mapping),
    WithJsonSchema(dict(FILTERS_SCHEMA)),
    Field(description=FILTERS_DESCRIPTION),
]
"""Conditions on documents. Models are shown a list of them; a mapping is accepted, too."""

PassageLimit = Annotated[int, Field(ge=1, le=50)]
"""Maximum number of passages in an answer."""

Detail = Annotated[
    Literal["concise", "detailed"],
    Field(description="`detailed` adds scores and why each was found."),
]
"""The level of detail for each passage."""

AnswerLimit = Annotated[int, Field(ge=200, le=TOKEN_CAP)]
"""Tokens of all passages together, with their details."""

TextStart = Annotated[
    int | None,
    Field(description="Character to read from; left out, around the passage.", ge=0),
]
"""Offset from which a document is read."""

TextLimit = Annotated[int, Field(ge=100, le=_MAX_TEXT)]
"""Maximum tokens of a document's excerpt."""
