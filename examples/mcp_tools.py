"""The tools of other MCP servers: of all that `mcp.json` names, started, watched and closed for you.

    uv run examples/mcp_tools.py
    uv run examples/mcp_tools.py files:read_file '{"path": "README.md"}'

Without arguments it shows which tools there are, and what is wrong with servers, or that there are none.
These stand in `$LOOM_HOME/mcp.json` (by default `~/.loom/mcp.json`), as docs/mcp-client.md tells.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from loom_core.errors import LoomError
from loom_core.mcp_client import Callbacks, MCPToolRegistry
from loom_core.paths import loom_home
from loom_core.tools import CallContext, QuestionAnswer

if TYPE_CHECKING:
    from loom_core.tools import Question, ToolOutput


async def ask(question: Question) -> QuestionAnswer:
    """Show what a server asks; only who can read it may answer, so this program makes no choice."""
    print(f"{question.origin} asks: {question.text}", file=sys.stderr)
    return QuestionAnswer("cancel")


async def progress(done: float, total: float | None, message: str) -> None:
    """Show how far a tool is."""
    print(f"… {done:g}{f' of {total:g}' if total else ''} {message}", file=sys.stderr)


async def show(registry: MCPToolRegistry) -> int:
    """Print the tools that can be called, and what is wrong with servers; 1 where there is none."""
    for tool in await registry.load_servers():
        print(f"{tool.name}  {tool.description.partition(chr(10))[0]}")
    for server in registry.servers():
        if server.problem:
            print(f"{server.name} is {server.state}: {server.problem}", file=sys.stderr)
    if registry.servers():
        return 0
    print(f"No server stands in {loom_home() / 'mcp.json'}: docs/mcp-client.md tells how.", file=sys.stderr)
    return 1


async def call(registry: MCPToolRegistry, name: str, arguments: dict[str, object]) -> ToolOutput:
    """Call one tool; only its server is started."""
    await registry.load_servers([name.partition(":")[0]])
    return await registry.find(name).call(arguments, context=CallContext(progress=progress, seconds=60))


async def main(words: list[str]) -> int:
    async with MCPToolRegistry(callbacks=Callbacks(ask=ask)) as registry:
        if not words:
            return await show(registry)
        output = await call(registry, words[0], json.loads(words[1]) if len(words) > 1 else {})
    print(output.text)
    return int(output.is_error)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(sys.argv[1:])))
    except LoomError as error:
        sys.exit(str(error))
