"""The server layer: the one place where Loom touches the server side of the MCP SDK.

| package | its subject |
|---|---|
| `serving` | `serve`, the transports (stdio, Streamable HTTP), sessions, limits, metrics |
| `protocol` | `LoomServer`: tools, resources, prompts, completions, notifications, the handshake |
| `calls` | one call: its context, progress, elicitation, tasks, long polling |
| `middleware` | around every request: authorization, audit, logs, traces |
| `auth` | callers, bearer tokens, access tokens of an issuer |
| `search` | tools that search and read: citations, excerpts, the profile `chatgpt` |
| `runs`, `pages` | runs as a server shows them; pages of HTML |
| `cli`, `mcp_cli`, `install`, `doctor` | the commands that every server has |
| `program` | `ServerProgram`, `run_server`: a server defines its own parts, the rest is common |

This package imports a module only when one of its names is used: `serving.run` and `serving.stdio` must be
importable, and standard output claimed, before the SDK and everything else a server needs is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.server.calls.context import ToolContext
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.results import ToolReply, tool_result
    from loom_core.server.serving.run import serve

__all__ = [
    "LoomServer",
    "ToolContext",
    "ToolReply",
    "serve",
    "tool_result",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
