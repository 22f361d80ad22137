"""What this server says of the two tools of the profile `chatgpt`."""

from __future__ import annotations

from loom_core.server.search.chatgpt import ChatGPTWording
from loom_kb.mcp_tools.tools import QUERY_HEAD

__all__ = ["CHATGPT_WORDING"]

CHATGPT_WORDING = ChatGPTWording(
    search_title="Search knowledge",
    search_head=QUERY_HEAD,
    fetch_title="Read a document",
    fetch_description=(
        "Read the document that a passage found by `search` is from. Returns its text around the passage."
    ),
    id_example="d2409f60bed50.88260223dd7e",
)
