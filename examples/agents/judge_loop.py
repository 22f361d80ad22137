"""A model as a judge: a slogan goes back to its writer until the judge passes it, three times at most.

    uv run examples/agents/judge_loop.py 为一家旧书店写一句广告语

The writer keeps its session, so it remembers its drafts; the judge sees one draft at a time, without history.
LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise scripts answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Literal

from pydantic import BaseModel

from loom_core.agent import Agent
from loom_core.errors import LoomError
from loom_core.testing import MockLLM

ROUNDS = 3


class Judgement(BaseModel):
    """Judgement of a draft."""

    verdict: Literal["pass", "revise"]
    advice: str = ""


async def main(task: str) -> None:
    model = os.environ.get("LOOM_EXAMPLE_MODEL")
    writer = Agent(
        model or MockLLM(["买书就来我们店。", "旧书新读，老友重逢。"]),
        system_prompt="You write slogans. Answer with the slogan alone.",
    )
    judge = Agent(
        model or judge_script(),
        system_prompt="Judge the slogan for the task. Pass it only if people would remember it.",
    )
    wish, session = task, ""
    async with writer, judge:
        for number in range(1, ROUNDS + 1):
            draft = (await writer.run(wish, session_id=session)).or_raise()
            session = draft.session_id
            goal = f"Task: {task}\nSlogan: {draft.output}"
            judgement = (await judge.run(goal, output_schema=Judgement)).data
            print(f"{number}. {draft.output} → {judgement.verdict} {judgement.advice}".rstrip())
            if judgement.verdict == "pass":
                return
            wish = f"Revise it: {judgement.advice}"
    print("No draft has passed.")


def judge_script() -> MockLLM:
    """Stand in for the judge's model."""
    first = Judgement(verdict="revise", advice="太普通，写出旧书的温度。")
    return MockLLM([first.model_dump_json(), Judgement(verdict="pass").model_dump_json()])


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "为一家旧书店写一句广告语"))
    except LoomError as error:
        sys.exit(str(error))
