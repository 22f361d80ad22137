"""Time travel: what would the agent have answered, had the forecast been another one?

    uv run examples/agents/time_travel.py

The run is forked at the step of the call: what was before is kept, the given result takes the place of the
recorded one, and the model goes on from there. The original stays as it is. LOOM_EXAMPLE_MODEL=deepseek asks
that model; otherwise a script answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from loom_core.agent import Agent, read_steps
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call
from loom_core.tools import tool

if TYPE_CHECKING:
    from loom_core.llm import ChatRequest
    from loom_core.testing import MockTurn

GOAL = "周六带孩子去哪儿玩？先看天气。"


@tool(read_only=True, open_world=False)
async def forecast(day: str) -> str:
    """Return the weather of a day."""
    return f"{day}：大雨"


async def main(goal: str) -> None:
    model = os.environ.get("LOOM_EXAMPLE_MODEL") or MockLLM(decide)
    async with Agent(model, tools=[forecast]) as agent:
        original = (await agent.run(goal)).or_raise()
        steps = read_steps(await agent.journal.events(original.run_id))
        for step in steps:
            print(f"{step.number}. {step.kind}: {step.text or [each.tool for each in step.calls]}")
        called = next(step for step in steps if step.kind == "call")
        fork = await agent.fork(original.run_id, at=called.number, outcome="周六：晴，22 °C")
        print(f"fork at {called.number}: {fork.or_raise()}")
        print(f"original: {(await agent.journal.get(original.run_id)).output}")


def decide(request: ChatRequest) -> MockTurn:
    """Stand in for a model."""
    last = request.messages[-1]
    if last.role != "tool":
        return call("forecast", day="周六")
    return "去自然博物馆。" if "雨" in last.text else "去植物园野餐。"


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or GOAL))
    except LoomError as error:
        sys.exit(str(error))
