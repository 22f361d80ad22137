"""A model that calls a tool, with its thinking handed back as DeepSeek demands.

    DEEPSEEK_API_KEY=… uv run examples/deepseek_tools.py "上海明天适合跑步吗？"

The loop is all there is to it: put the answer behind the conversation as it came, then a `ToolMessage` for
each call. What of the thinking goes back, and in which field, is the provider's business, so another class in
place of `DeepSeekProvider` needs no other change.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from loom_core.errors import LoomError
from loom_core.llm import DeepSeekProvider, TextPart, ToolMessage, ToolSpec, UserMessage

if TYPE_CHECKING:
    from loom_core.llm import LLMProvider, Message, ToolCallPart

FORECAST = ToolSpec(
    "forecast",
    "The weather of a city tomorrow.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def call(part: ToolCallPart) -> str:
    """Return the tool's result. A real one would look it up."""
    if part.unreadable:
        return f"These are no arguments: {part.unreadable}"
    return f"{part.arguments.get('city', 'There')}: 18 °C, dry, a light wind."


async def answer(model: LLMProvider, question: str) -> str:
    """Ask until the model calls no more tools."""
    conversation: list[Message] = [UserMessage((TextPart(question),))]
    while True:
        response = await model.chat(conversation, tools=[FORECAST])
        conversation.append(response.message)
        if not response.message.tool_calls:
            return response.content
        for part in response.message.tool_calls:
            print(f"→ {part.name} {dict(part.arguments)}", file=sys.stderr)
            conversation.append(ToolMessage(part.id, (TextPart(call(part)),)))


async def main() -> None:
    question = " ".join(sys.argv[1:]) or "Is tomorrow a good day for a run in Shanghai?"
    async with DeepSeekProvider() as model:
        print(await answer(model, question))
        print(model.spent, file=sys.stderr)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LoomError as error:
        sys.exit(str(error))
