"""What this server says of the two tools of the profile `chatgpt`."""

from __future__ import annotations

from loom_core.server.search.chatgpt import ChatGPTWording
from loom_query.mcp_tools.tools import QUERY_HEAD

__all__ = ["CHATGPT_WORDING"]

CHATGPT_WORDING = ChatGPTWording(
    search_title="Search all knowledge",
    search_head=QUERY_HEAD,
    fetch_title="Read on",
    fetch_description=(
        "Read what a passage found by `search` is from. Returns the text of its document around the "
        "passage, or as much as its source gives."
    ),
    id_example="notes:d2409f60bed50.88260223dd7e",
)
