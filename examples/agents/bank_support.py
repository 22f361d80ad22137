"""Bank support: tools and instructions with dependencies, and answers that the program acts on.

    uv run examples/agents/bank_support.py "我的余额是多少？" "我的卡丢了！"

The bank is a dependency of the agent, and the customer belongs to the run: its tools see both, and the model
can name no other customer. LOOM_EXAMPLE_MODEL=deepseek asks that model; otherwise a script answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from loom_core.agent import Agent, RunContext
from loom_core.errors import LoomError
from loom_core.testing import MockLLM, call
from loom_core.tools import tool

QUESTIONS = ["我的余额是多少？", "我的卡丢了！"]


class Advice(BaseModel):
    """Answer to a customer."""

    text: str = Field(description="What the customer reads, in their language.")
    blocks_card: bool = Field(description="Whether the card is to be blocked at once.")
    risk: int = Field(ge=0, le=10, description="How urgent it is: 10 if money may be lost right now.")


@dataclass
class Bank:
    """The accounts of a bank: name and balance in yuan, by customer number."""

    accounts: dict[str, tuple[str, float]]
    blocked: set[str] = field(default_factory=set[str])


@tool(read_only=True, open_world=False)
async def balance(context: RunContext[Bank]) -> str:
    """Return the balance of the customer."""
    return f"{context.deps.accounts[context.caller][1]:.2f} 元"


def instructions(context: RunContext[Bank]) -> str:
    name, _ = context.deps.accounts[context.caller]
    return f"You are the support of a bank. You talk with {name}; call them by their name."


async def main(questions: list[str]) -> None:
    bank, customer, session = Bank({"C-7": ("李娜", 1234.5)}), "C-7", ""
    model = os.environ.get("LOOM_EXAMPLE_MODEL") or script()
    async with Agent(model, tools=[balance], system_prompt=instructions, deps=bank) as agent:
        for question in questions:
            result = await agent.run(question, output_schema=Advice, caller=customer, session_id=session)
            advice, session = result.data, result.session_id
            if advice.blocks_card:
                bank.blocked.add(customer)
            print(f"> {question}\n{advice.text} (risk {advice.risk})")
    print(f"blocked cards: {', '.join(bank.blocked)}")


def script() -> MockLLM:
    """Stand in for a model."""
    told = Advice(text="李娜，您的余额是 1234.50 元。", blocks_card=False, risk=0)
    lost = Advice(text="李娜，您的卡已冻结，新卡三天内寄到。", blocks_card=True, risk=9)
    return MockLLM([call("balance"), told.model_dump_json(), lost.model_dump_json()])


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:] or QUESTIONS))
    except LoomError as error:
        sys.exit(str(error))
