"""Agents as tools: an editor has translators work at the same time, and puts their answers together.

    uv run examples/agents/agents_as_tools.py "Translate into Chinese and French: The library opens at nine."

Each call is a run of its own, in the journal of the editor's run, and counts towards its budget.
LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise scripts answer.
"""

from __future__ import annotations

import asyncio
import os
import sys

from loom_core.agent import Agent, AgentTool, Journal
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call

GOAL = "Translate into Chinese and French: The library opens at nine."
SENTENCES = {"Chinese": "图书馆九点开门。", "French": "La bibliothèque ouvre à neuf heures."}


def translator(language: str, journal: Journal) -> AgentTool:
    """Make an agent that translates, as a tool."""
    agent = Agent(
        os.environ.get("LOOM_EXAMPLE_MODEL") or MockLLM([SENTENCES[language]]),
        name=f"to_{language.casefold()}",
        description=f"Translates a text into {language}, and returns the translation alone.",
        system_prompt=f"Translate into {language}. Answer with the translation alone.",
        journal=journal,
    )
    return AgentTool(agent)


async def main(goal: str) -> None:
    journal = Journal()
    editor = Agent(
        os.environ.get("LOOM_EXAMPLE_MODEL") or script(),
        tools=[translator(language, journal) for language in SENTENCES],
        system_prompt="Never translate yourself: call the translators, all at once.",
        name="editor",
        journal=journal,
    )
    async with editor:
        result = (await editor.run(goal)).or_raise()
        print(result)
        for run in await journal.runs():
            print(f"{run.request.profile}: {run.spent.iterations} turns", file=sys.stderr)


def script() -> MockLLM:
    """Stand in for the editor's model."""
    text = "The library opens at nine."
    both = [call("to_chinese", goal=text), call("to_french", goal=text)]
    return MockLLM([both, lambda request: "\n".join(m.text for m in request.messages if m.role == "tool")])


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or GOAL))
    except LoomError as error:
        sys.exit(str(error))
