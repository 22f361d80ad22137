"""Three agents at a help desk: one takes what people say, and hands it over to who knows about it.

    DEEPSEEK_API_KEY=… uv run examples/agent_team.py "我想退掉订单 42"

What is paid back, a person has to approve: you are asked here; where no one can be, it is refused. Without a
key, scripts stand in for the models.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from loom_core.agent import Agent, MultiAgentSystem
from loom_core.errors import LoomError
from loom_core.llm import ToolMessage, create_provider
from loom_core.testing import MockLLM, call
from loom_core.tools import tool

if TYPE_CHECKING:
    from loom_core.agent import Pending
    from loom_core.llm import ChatRequest, LLMProvider
    from loom_core.testing import MockTurn


@tool(read_only=True, open_world=False)
def find_order(number: int) -> dict[str, object]:
    """Return the data of an order."""
    return {"number": number, "what": "a kettle", "paid": 39.9, "state": "delivered"}


@tool
def pay_back(number: int, amount: float) -> str:
    """Pay money back for an order."""
    return f"{amount:.2f} are on their way, for order {number}."


async def approve(pending: Pending) -> bool:
    """Ask the person at this terminal."""
    wanted = f"{pending.tool} {dict(pending.arguments)}"
    try:
        return await asyncio.to_thread(input, f"{wanted} — {pending.reason} Do it? [y/N] ") == "y"
    except EOFError:
        print("\nThere is no one here to approve it.", file=sys.stderr)
        return False


def desk() -> MultiAgentSystem:
    """The agents, and who may hand over to whom."""
    reception = Agent(
        model([call("handoff_to_orders", note="They want to send order 42 back.")]),
        name="reception",
        description="Talks with people first, and finds out what they want.",
    )
    orders = Agent(
        model(pay_back_if_allowed),
        tools=[find_order, pay_back],
        approve=approve,
        name="orders",
        description="Knows about orders, and pays money back.",
        system_prompt="Pay back what was paid, and no more.",
    )
    repairs = Agent(model([]), name="repairs", description="Helps with things that do not work.")
    return MultiAgentSystem([reception, orders, repairs])


def pay_back_if_allowed(request: ChatRequest) -> MockTurn:
    """Stand in for a model."""
    told = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    if not any("kettle" in text for text in told):
        return call("find_order", number=42)
    if "kettle" in told[-1]:
        return call("pay_back", number=42, amount=39.9)
    is_paid = "on their way" in told[-1]
    return "You get your money back within three days." if is_paid else "I may not pay that back."


def model(turns: Sequence[MockTurn] | Callable[[ChatRequest], MockTurn]) -> LLMProvider:
    """The model of an agent, or a script in its place."""
    return create_provider("deepseek") if os.environ.get("DEEPSEEK_API_KEY") else MockLLM(turns)


async def main(words: str) -> None:
    team = desk()
    result = await team.run(words)
    for step in result.steps:
        print(f"{step.step}: {step.value}", file=sys.stderr)
    print(result)
    await team.journal.aclose()


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "I want to send order 42 back."))
    except LoomError as error:
        sys.exit(str(error))
