"""An answer as it is written: thinking to stderr, text to stdout, and what it cost.

ANTHROPIC_API_KEY=… uv run examples/anthropic_stream.py "Why is the sky blue?"
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from loom_core.errors import LoomError
from loom_core.llm import AnthropicProvider

if TYPE_CHECKING:
    from loom_core.llm import LLMProvider


async def show(model: LLMProvider, question: str) -> None:
    """Print an answer as it comes."""
    async for chunk in model.chat_stream([{"role": "user", "content": question}], effort="low"):
        match chunk.kind:
            case "reasoning":
                print(chunk.text, end="", flush=True, file=sys.stderr)
            case "text":
                print(chunk.text, end="", flush=True)
            case "usage":
                print(f"\n{chunk.usage}", file=sys.stderr)
            case _:
                pass


async def main() -> None:
    question = " ".join(sys.argv[1:]) or "Why is the sky blue? 请用两句话回答。"
    async with AnthropicProvider() as model:
        await show(model, question)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LoomError as error:
        sys.exit(str(error))
