"""All pages of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from loom_core.mcp_client.fault import Fault, FaultError

if TYPE_CHECKING:
    import mcp_types

__all__ = ["ToolListing", "all_pages"]

_MOST_PAGES = 1000

PageT = TypeVar("PageT", bound="_Page")


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server.

    Attributes:
        tools: as the server defines them, in its order.
        ttl_ms: for so many milliseconds they may be kept; None where the server does not say.
        scope: whether others may be shown what was kept; None where the server does not say.
    """

    tools: list[mcp_types.Tool]
    ttl_ms: int | None = None
    scope: Literal["public", "private"] | None = None


async def all_pages(page: Callable[[str | None], Awaitable[PageT]]) -> list[PageT]:
    """The pages of a list, first to last.

    Args:
        page: asks for the page at a cursor, the first one at None.

    Raises:
        FaultError: the list has no end.
    """
    pages = [await page(None)]
    seen: set[str] = set()
    while (cursor := pages[-1].next_cursor) is not None:
        if cursor in seen or len(pages) >= _MOST_PAGES:
            raise FaultError(Fault("unreadable", "sends a list without end", "Update the server.", ran="no"))
        seen.add(cursor)
        pages.append(await page(cursor))
    return pages
