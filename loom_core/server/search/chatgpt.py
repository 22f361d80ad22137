"""The profile `chatgpt`: exactly `search(query)` and `fetch(id)`, as ChatGPT's connectors require.

Source: OpenAI, "Building MCP servers for ChatGPT and API integrations": each tool takes one string; the
answer is one text item holding the same JSON as the structured content; citations need a URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, Field

from loom_core.server.protocol.results import TOKEN_CAP, ToolReply
from loom_core.server.protocol.tools import ToolWording
from loom_core.server.search.search_tool import search_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.server.protocol.factory import LoomServer

__all__ = ["ChatDocument", "ChatGPTWording", "ChatHit", "ChatHits", "register_chatgpt_tools"]

_LIMIT = 10
_PAGE = TOKEN_CAP // 2  # the text is inside JSON, whose escapes cost tokens, too


class ChatHit(BaseModel):
    """A search hit in the form that ChatGPT requires."""

    id: str
    title: str
    url: str


class ChatHits(BaseModel):
    """Answer of `search` in the profile `chatgpt`."""

    results: list[ChatHit]


class ChatDocument(BaseModel):
    """Answer of `fetch` in the profile `chatgpt`."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class ChatGPTWording:
    """The wording of a server for its two tools.

    Attributes:
        search_title: name of `search` for people.
        search_head: what it searches and when to use it.
        fetch_title: name of `fetch` for people.
        fetch_description: what it reads.
        id_example: an id as `search` returns it.
    """

    search_title: str
    search_head: str
    fetch_title: str
    fetch_description: str
    id_example: str


class _Passage(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def heading_path(self) -> Sequence[str]: ...
    @property
    def uri(self) -> str: ...


class _Found(Protocol):
    @property
    def passages(self) -> Sequence[_Passage]: ...


class _Document(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def uri(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...


class _Service(Protocol):
    async def describe_sources(self) -> Sequence[SourceInfo]: ...
    async def query(self, question: str, *, limit: int) -> _Found: ...
    async def fetch(self, id_: str, *, start: int | None, tokens: int) -> _Document: ...


def register_chatgpt_tools(
    server: LoomServer, service: _Service, *, wording: ChatGPTWording, open_world: bool
) -> None:
    """Register the two tools.

    Args:
        server: the server.
        service: the service behind the tools.
        wording: their titles and descriptions.
        open_world: whether they reach beyond what the user gave to this server.
    """

    @search_tool(
        server,
        title=wording.search_title,
        head=wording.search_head,
        tail="Returns ids for `fetch`.",
        sources=service.describe_sources,
        open_world=open_world,
    )
    async def search(
        query: Annotated[
            str, Field(description="The question, or keywords.", examples=["Who approved the Q3 budget?"])
        ],
    ) -> ToolReply[ChatHits]:
        return await _hits(service, query)

    async def fetch_wording() -> ToolWording:
        return ToolWording(wording.fetch_description, {"id": {"examples": [wording.id_example]}})

    @server.tool(
        title=wording.fetch_title,
        description=wording.fetch_description,
        wording=fetch_wording,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=open_world,
    )
    async def fetch(
        id: Annotated[str, Field(description="An id that `search` returned.")],  # noqa: A002
    ) -> ToolReply[ChatDocument]:
        return await _document(service, id)


async def _hits(service: _Service, question: str) -> ToolReply[ChatHits]:
    found = await service.query(question, limit=_LIMIT)
    hits = [
        ChatHit(id=p.id, title=" › ".join([p.title or p.uri or p.source, *p.heading_path]), url=p.uri or p.id)
        for p in found.passages
    ]
    answer = ChatHits(results=hits)
    return ToolReply(answer.model_dump_json(), answer)


async def _document(service: _Service, id_: str) -> ToolReply[ChatDocument]:
    found = await service.fetch(id_, start=None, tokens=_PAGE)
    answer = ChatDocument(
        id=id_, title=found.title, text=found.text, url=found.uri or id_, metadata=dict(found.metadata)
    )
    return ToolReply(answer.model_dump_json(), answer)
