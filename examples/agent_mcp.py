"""An agent with the tools of an MCP server: it makes files searchable with loom-kb, and answers from them.

    DEEPSEEK_API_KEY=… uv run examples/agent_mcp.py docs "How do I trust a project's servers?"

Without a folder it takes the docs of this repository.

Its runs are in a file. Press Ctrl-C in the middle, and start it again with the same words: it goes on where
it was, and nothing that was done is done twice. Without a key, a script stands in for the model.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.agent import Agent, Journal, RunResult
from loom_core.errors import LoomError
from loom_core.llm import ToolMessage, create_provider
from loom_core.mcp_client import MCPToolRegistry, ServerConfig
from loom_core.paths import loom_home
from loom_core.testing import MockLLM, call
from loom_core.tools import Toolbox

if TYPE_CHECKING:
    from loom_core.agent import Pending
    from loom_core.llm import ChatRequest, LLMProvider
    from loom_core.testing import MockTurn


def server(folder: Path) -> ServerConfig:
    """loom-kb, which may read one folder and nothing else."""
    return ServerConfig(
        name="kb",
        transport="stdio",
        command=sys.executable,
        args=("-m", "loom_kb", "serve", "--root", str(folder)),
        trusted=True,
    )


async def approve(pending: Pending) -> bool:
    """The tools of a server have to be approved, and again when they say something else of themselves."""
    return pending.tool in {"kb:add", "kb:query", "kb:fetch", "kb:job"}


async def answer(llm: LLMProvider, folder: Path, question: str) -> str:
    """Have a question answered from the files in a folder."""
    async with MCPToolRegistry(servers=[server(folder)]) as registry:
        await registry.load_servers(["kb"])
        agent = Agent(
            llm,
            toolbox=Toolbox(live=[registry.tools]),
            approve=approve,
            journal=Journal(loom_home() / "runs.db"),
        )
        async with agent:
            goal = f"{question}\n\nThe answer is in the files of {folder}: add them to the knowledge base."
            run_id = ""
            async with aclosing(agent.stream(goal, idempotency_key=goal)) as events:
                async for event in events:
                    run_id = event.run_id
                    if event.type == "tool_start":
                        print(f"→ {event.payload['tool']}", file=sys.stderr)
            return RunResult.of(await agent.journal.get(run_id)).or_raise().output


async def main(folder: Path, question: str) -> None:
    model = create_provider("deepseek") if os.environ.get("DEEPSEEK_API_KEY") else script(folder, question)
    print(await answer(model, folder, question))


def script(folder: Path, question: str) -> MockLLM:
    """Stand in for a model, with fixed wording."""
    calls = [call("kb__add", paths=[str(folder)]), call("kb__query", query=question, limit=1)]

    def turn(request: ChatRequest) -> MockTurn:
        told = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        return calls[len(told)] if len(told) < len(calls) else told[-1]

    return MockLLM(turn)


if __name__ == "__main__":
    words = sys.argv[1:]
    about = Path(words[0]).resolve() if words else Path(__file__).resolve().parents[1] / "docs"
    try:
        asyncio.run(main(about, " ".join(words[1:]) or "What is a knowledge base?"))
    except LoomError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Start it again to go on.")
