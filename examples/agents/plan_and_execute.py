"""Plan and execute: one agent plans, another does a step at a time, and the plan changes with what is found.

    uv run examples/agents/plan_and_execute.py "We need 40 lunch boxes. What do the missing ones cost?"

LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise scripts answer.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic import BaseModel, Field

from loom_core.agent import Agent
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call
from loom_core.tools import tool

GOAL = "We need 40 lunch boxes. What do the missing ones cost?"
MOST_STEPS = 8


class Plan(BaseModel):
    """The steps that are left, or the answer if none is."""

    steps: list[str] = Field(default_factory=list[str], description="Each can be done by itself.")
    answer: str = Field(default="", description="The answer to the goal, once the results allow it.")


@tool(read_only=True, open_world=False)
async def stock(item: str) -> int:
    """Return how many pieces of an item there are."""
    return {"lunch box": 28}.get(item, 0)


@tool(read_only=True, open_world=False)
async def price(item: str) -> float:
    """Return the price of a piece of an item, in euros."""
    return {"lunch box": 6.5}.get(item, 0.0)


async def main(goal: str) -> None:
    model = os.environ.get("LOOM_EXAMPLE_MODEL")
    planner = Agent(
        model or planner_script(),
        system_prompt="You plan. A worker that can look up stock and prices does one step after the other. "
        "Give the steps that are left after the results so far; or the answer.",
    )
    worker = Agent(model or worker_script(), tools=[stock, price], system_prompt="Do this one step.")
    done: list[str] = []
    async with planner, worker:
        while True:
            so_far = "\n".join(done) or "none"
            request = f"Goal: {goal}\nResults so far:\n{so_far}"
            plan = (await planner.run(request, output_schema=Plan)).data
            if plan.answer or not plan.steps or len(done) == MOST_STEPS:
                break
            print(f"plan: {'; '.join(plan.steps)}")
            result = (await worker.run(f"{plan.steps[0]}\nResults so far:\n{so_far}")).or_raise()
            done.append(f"{plan.steps[0]}: {result.output}")
            print(f"done: {done[-1]}")
    print(plan.answer or "No answer was found.")


def planner_script() -> MockLLM:
    """Stand in for the planner's model."""
    look, ask = "Count the lunch boxes in stock", "Find the price of a lunch box"
    plans = [Plan(steps=[look, ask]), Plan(steps=[ask]), Plan(answer="12 are missing; they cost 78 euros.")]
    return MockLLM([each.model_dump_json() for each in plans])


def worker_script() -> MockLLM:
    """Stand in for the worker's model."""
    item = "lunch box"
    return MockLLM(
        [call("stock", item=item), "There are 28.", call("price", item=item), "One is 6.50 euros."]
    )


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or GOAL))
    except LoomError as error:
        sys.exit(str(error))
