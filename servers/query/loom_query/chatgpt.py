"""The profile `chatgpt`: exactly `search(query)` and `fetch(id)`, as its connectors require.

Source: OpenAI, "Building MCP servers for ChatGPT and API integrations": each tool takes one string; the
answer is one text item holding the same JSON as the structured content; citations need a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.knowledge.unified import UnifiedSearchToolBuilder
from loom_core.server.results import TOKEN_CAP, ToolReply
from loom_core.server.tool import ToolWording
from loom_query.models import ChatDocument, ChatHit, ChatHits
from loom_query.tools import QUERY_HEAD

if TYPE_CHECKING:
    from loom_core.server.factory import LoomServer
    from loom_query.service import Service

__all__ = ["register_chatgpt_tools"]

_LIMIT = 10
_PAGE = TOKEN_CAP // 2  # the text of a document comes inside JSON, whose escapes cost something, too
_TAIL = "Returns ids for `fetch`."


def register_chatgpt_tools(server: LoomServer, service: Service) -> None:
    """Register the two tools."""

    async def wording() -> ToolWording:
        builder = UnifiedSearchToolBuilder(service.described())
        return ToolWording(builder.description(head=QUERY_HEAD, tail=_TAIL))

    @server.tool(
        title="Search all knowledge",
        description=f"{QUERY_HEAD} {_TAIL}",
        wording=wording,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=True,
    )
    async def search(
        query: Annotated[
            str, Field(description="The question, or keywords.", examples=["Who approved the Q3 budget?"])
        ],
    ) -> ToolReply[ChatHits]:
        result = await service.query(query, limit=_LIMIT)
        hits = [
            ChatHit(
                id=p.id, title=" › ".join([p.title or p.uri or p.source, *p.heading_path]), url=p.uri or p.id
            )
            for p in result.passages
        ]
        found = ChatHits(results=hits)
        return ToolReply(found.model_dump_json(), found)

    @server.tool(
        title="Read on",
        description=(
            "Read what a passage found by `search` is from. Returns the text of its document around the "
            "passage, or as much as its source gives."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=True,
    )
    async def fetch(
        id: Annotated[  # noqa: A002
            str,
            Field(description="An id that `search` returned.", examples=["notes:d2409f60bed50.88260223dd7e"]),
        ],
    ) -> ToolReply[ChatDocument]:
        result = await service.fetch(id, start=None, tokens=_PAGE)
        document = ChatDocument(
            id=id, title=result.title, text=result.text, url=result.uri or id, metadata=result.metadata
        )
        return ToolReply(document.model_dump_json(), document)
