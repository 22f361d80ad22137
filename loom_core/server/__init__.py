"""The server layer: the one place where Loom touches the server side of the MCP SDK.

| module | what it is for |
|---|---|
| `run` | `serve`: what a server's command calls; safe to import before anything else |
| `factory` | `LoomServer`: tools and resources, registered under the house rules |
| `tool` | `Tool`, `ToolWording`: one function as the protocol sees it |
| `results` | `tool_result`, `TextBudget`: what a tool answers, and how long it may be |
| `context`, `progress` | `ToolContext`, `progress`: what a tool knows about the call it serves |
| `resource` | `ResourceContent`, `ResourceEntry`, `ResourcePage` |
| `stdio`, `http` | the two transports |

This package imports nothing by itself: `run` and `stdio` must be importable, and standard output claimed,
before the SDK and everything else a server needs is loaded.
"""

from __future__ import annotations

__all__: list[str] = []
