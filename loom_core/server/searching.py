"""A tool that searches: what is said of it follows from what its sources say of themselves."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

from loom_core.knowledge.unified import UnifiedSearchToolBuilder
from loom_core.server.tool import ToolFunction, ToolWording

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom_core.knowledge.unified import SourceInfo
    from loom_core.server.factory import LoomServer

__all__ = ["searching_tool"]

ToolFunctionT = TypeVar("ToolFunctionT", bound=ToolFunction)


def searching_tool(
    server: LoomServer,
    *,
    title: str,
    head: str,
    tail: str,
    sources: Callable[[], Awaitable[Sequence[SourceInfo]]],
    open_world: bool,
    without_sources: str = "",
) -> Callable[[ToolFunctionT], ToolFunctionT]:
    """Register an async function as a tool that searches, as `LoomServer.tool` does; it changes nothing.

    At each `tools/list` its sources are in its description, and in the schemas of its arguments `source` and
    `filters` where it has them.

    Args:
        server: gets it.
        title: name for people.
        head: what it does and when to use it.
        tail: what it returns, and how to ask.
        sources: what the sources say of themselves, those that the caller may use.
        open_world: whether it asks beyond what the user gave to this server.
        without_sources: what to add to the tail while there is no source.
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
