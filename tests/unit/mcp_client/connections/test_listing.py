from __future__ import annotations

from dataclasses import dataclass

import pytest

from loom_core.mcp_client.connections.connection import all_pages
from loom_core.mcp_client.connections.errors import FaultError


@dataclass
class Page:
    number: int
    next_cursor: str | None


async def test_pages_come_in_their_order():
    async def page(cursor):
        number = int(cursor or 0)
        return Page(number, str(number + 1) if number < 300 else None)

    assert [page.number for page in await all_pages(page)] == list(range(301))


@pytest.mark.parametrize("cursor_after", [lambda _: "again", lambda cursor: f"{cursor}x", lambda _: ""])
async def test_a_list_without_end_is_refused(cursor_after):
    async def page(cursor):
        return Page(0, cursor_after(cursor or ""))

    with pytest.raises(FaultError, match="an endless list"):
        await all_pages(page)
