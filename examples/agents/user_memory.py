"""Memory of each user: what one says in a session is known in the next one, and to no other user.

    uv run examples/agents/user_memory.py

Notes are extracted by rules from what users say about themselves. They are in the folder that you name;
without one, they are deleted at the end. LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise a script
answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.agent import Agent, UserMemory
from loom_core.errors import LoomError
from loom_core.testing import MockLLM

if TYPE_CHECKING:
    from loom_core.llm import ChatRequest

CONVERSATIONS = [
    ("李明", "你好，我对花生过敏。"),
    ("李明", "今晚吃什么好？"),
    ("Anna", "What should I cook tonight?"),
]


async def main(folder: Path) -> None:
    memory = UserMemory(folder)
    model = os.environ.get("LOOM_EXAMPLE_MODEL") or MockLLM(answer)
    async with Agent(model, user_memory=memory, system_prompt="You help people to cook.") as agent:
        for user, words in CONVERSATIONS:
            result = await agent.run(words, caller=user)  # without `session_id`: a new session each time
            print(f"{user}: {words}\n→ {result.or_raise()}")
        for user in await memory.users():
            print(f"{user}: {[note.text for note in await memory.notes(user)]}")


def answer(request: ChatRequest) -> str:
    """Stand in for a model, which reads the notes about the user before the goal."""
    goal, known = request.messages[-1].text, "".join(each.text for each in request.messages)
    if "过敏" in goal:
        return "记住了。"
    return "清炒时蔬，不放花生。" if "花生过敏" in known else "Kung pao chicken with peanuts."


if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            asyncio.run(main(Path(sys.argv[1])))
        else:
            with tempfile.TemporaryDirectory() as temporary:
                asyncio.run(main(Path(temporary)))
    except LoomError as error:
        sys.exit(str(error))
