"""An agent with one tool: it counts the words of files, and asks no one, as that harms nothing.

    DEEPSEEK_API_KEY=… uv run examples/agent_quickstart.py "Which is longer, README.md or README.zh.md?"

Names of files count from the root of this repository, wherever you stand. Without a key, a script stands in
for the model, so that you see what an agent does. For another vendor, put its name in place of `deepseek`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from loom_core.agent import Agent
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call
from loom_core.tools import tool

ROOT = Path(__file__).resolve().parents[1]


@tool(read_only=True, open_world=False)
def count_words(path: str) -> str:
    """Count the words of a text file.

    Args:
        path: where it is, from the root of the repository on.
    """
    return f"{path}: {len((ROOT / path).read_text(encoding='utf-8').split())} words"


async def main(goal: str) -> None:
    agent = Agent("deepseek" if os.environ.get("DEEPSEEK_API_KEY") else script(), tools=[count_words])
    result = await agent.run(goal)
    print(result)
    print(f"{result.status} after {result.spent.iterations} turns", file=sys.stderr)
    await agent.aclose()


def script() -> MockLLM:
    """Stand in for a model: make two calls at once, and then report their results."""
    return MockLLM(
        [
            [call("count_words", path="README.md"), call("count_words", path="README.zh.md")],
            "README.md is the longer one.",
        ]
    )


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "Which is longer, README.md or README.zh.md?"))
    except LoomError as error:
        sys.exit(str(error))
