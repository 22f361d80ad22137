"""Runs of an agent framework with a scripted model, for `agent.py`, which says how long each is.

    python benchmarks/agent_runs.py loom FOLDER
    python benchmarks/agent_runs.py loom-everything FOLDER
    python benchmarks/agent_runs.py loom-audited FOLDER
    python benchmarks/agent_runs.py langgraph

Reads lines `STEPS CALLS`, makes one run of so many turns with so many parallel calls each, and prints the
seconds of processor time and of wall time that it took. The model answers at once and the tool adds two
numbers, so that all of it is the framework's. Everybody streams the events of the run; Loom keeps its journal
in a file. `loom-everything` has besides what a service in production turns on: guardrails, memory of the
user, skills, permissions by rules, retries, a context, an injected argument, and instructions that are
computed each turn. `loom-audited` writes an audit log, too, which has each decision before its call is made.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Run = Callable[[int, int], Awaitable[None]]
    """Makes a run of so many turns with so many calls each."""


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def loom(folder: str) -> Run:
    """Loom, with its journal in a file of a folder."""
    from loom_core.agent.agent import Agent
    from loom_core.llm.messages import ToolCallPart
    from loom_core.llm.mock import MockAnswer, MockProvider
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Budget
    from loom_core.tools.function_tool import tool

    journal = Journal(Path(folder) / "runs.db")
    adding = tool(add, read_only=True, open_world=False)

    async def run(steps: int, calls: int) -> None:
        answers = [
            MockAnswer(
                calls=tuple(ToolCallPart(f"c{step}_{i}", "add", {"a": step, "b": i}) for i in range(calls))
            )
            for step in range(steps)
        ]
        llm = MockProvider([*answers, "done"])
        agent = Agent(llm, tools=[adding], journal=journal, budget=Budget(iterations=steps + 1))
        finished = [event async for event in agent.stream("go") if event.type == "agent_finish"]
        assert finished[0].payload["output"] == "done"

    return run


def loom_everything(folder: str, *, audited: bool = False) -> Run:
    """Loom with all that a run can have, see the head of this file."""
    from loom_core.agent import (
        Agent,
        AnswerValidator,
        Budget,
        DenyPattern,
        Journal,
        PiiRedaction,
        RunContext,
        SQLiteMemory,
        UserMemory,
    )
    from loom_core.callbacks import MetricsCallback
    from loom_core.llm.messages import ToolCallPart
    from loom_core.testing import MockAnswer, MockLLM
    from loom_core.tools import AuditLog, PermissionRule, Permissions, Toolbox, ToolRetries, tool

    def instructions(context: RunContext[list[int]]) -> str:
        return f"You add numbers for {context.caller}, who has {len(context.deps)} accounts."

    async def add_to_account(context: RunContext[list[int]], a: int, b: int, account: str) -> str:
        """Add two numbers."""
        return f"{a + b + len(context.deps)} on {account} of {context.caller}"

    home = Path(folder) / ("audited" if audited else "everything")
    skill = home / "skills" / "sums" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: sums\ndescription: How sums are written.\n---\nWrite digits.\n")
    journal = Journal(home / "runs.db")
    rules = [
        PermissionRule(action="deny", tool="*", args={"account": "closed-*"}, reason="It is closed."),
        PermissionRule(action="allow", tool="add", args={"account": "A-*"}),
    ]
    parts: dict[str, Any] = {
        "toolbox": Toolbox(
            [tool(add_to_account, name="add", read_only=True, open_world=False)],
            inject={"add": {"account": "account"}},
        ),
        "journal": journal,
        "memory": SQLiteMemory(journal=journal),
        "user_memory": UserMemory(home / "users"),
        "skills": [home / "skills"],
        "permissions": Permissions(rules),
        "audit": AuditLog(home / "audit.jsonl") if audited else None,
        "tool_retries": ToolRetries(retries=2, tools={"add": 3}),
        "hooks": [
            DenyPattern("(?i)ignore .* instructions", "That is no sum.", on=["input", "calls", "results"]),
            AnswerValidator(lambda answer: None if answer else "Say something."),
            PiiRedaction(),
        ],
        "callbacks": [MetricsCallback()],
        "system_prompt": instructions,
        "deps": [1, 2, 3],
    }

    async def run(steps: int, calls: int) -> None:
        answers = [
            MockAnswer(
                calls=tuple(ToolCallPart(f"c{step}_{i}", "add", {"a": step, "b": i}) for i in range(calls))
            )
            for step in range(steps)
        ]
        agent = Agent(MockLLM([*answers, "done"]), budget=Budget(iterations=steps + 1), **parts)
        stream = agent.stream("go", caller="Anna", context={"account": "A-1"})
        finished = [event async for event in stream if event.type == "agent_finish"]
        assert finished[0].payload["output"] == "done"

    return run


def openai_agents() -> Run:
    """openai-agents, without tracing."""
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)
    adding = function_tool(add)

    class Scripted(Model):
        def __init__(self, steps: int, calls: int) -> None:
            self.left, self.calls = steps, calls

        async def get_response(self, *_: object, **__: object) -> Any:  # noqa: ANN401
            raise NotImplementedError

        async def stream_response(self, *_: object, **__: object) -> AsyncIterator[Any]:
            self.left -= 1
            output: list[Any] = [
                ResponseFunctionToolCall(
                    arguments=json.dumps({"a": self.left, "b": i}),
                    call_id=f"c{self.left}_{i}",
                    name="add",
                    type="function_call",
                )
                for i in range(self.calls)
            ]
            if self.left < 0:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                output = [
                    ResponseOutputMessage(
                        id="m", role="assistant", status="completed", type="message", content=[text]
                    )
                ]
            response = Response(
                id="r",
                created_at=0,
                model="scripted",
                object="response",
                output=output,
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
            )
            yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    async def run(steps: int, calls: int) -> None:
        agent = Agent(name="adder", tools=[adding], model=Scripted(steps, calls))
        result = Runner.run_streamed(agent, "go", max_turns=steps + 2)
        async for _ in result.stream_events():
            pass
        assert result.final_output == "done"

    return run


def pydantic_ai() -> Run:
    """pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel
    from pydantic_ai.usage import UsageLimits

    async def run(steps: int, calls: int) -> None:
        async def scripted(messages: list[Any], _info: object) -> AsyncIterator[Any]:
            step = sum(message.kind == "response" for message in messages)
            if step == steps:
                yield "done"
                return
            yield {
                i: DeltaToolCall(
                    name="add", json_args=json.dumps({"a": step, "b": i}), tool_call_id=f"c{step}_{i}"
                )
                for i in range(calls)
            }

        agent = Agent(FunctionModel(stream_function=scripted))
        agent.tool_plain(add)
        last: Any = None
        async with agent.run_stream_events("go", usage_limits=UsageLimits(request_limit=None)) as events:
            async for event in events:
                last = event
        assert last.result.output == "done"

    return run


def langgraph() -> Run:
    """The agent of langchain on langgraph, with its checkpoints in memory."""
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver

    adding = tool(add)

    class Scripted(BaseChatModel):
        steps: int
        calls: int

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_: object, **__: object) -> Any:  # noqa: ANN401
            return self

        def _generate(self, *_: object, **__: object) -> ChatResult:
            raise NotImplementedError

        async def _agenerate(self, messages: list[Any], *_: object, **__: object) -> ChatResult:
            step = sum(message.type == "ai" for message in messages)
            message = AIMessage("done")
            if step < self.steps:
                called = [
                    {"name": "add", "args": {"a": step, "b": i}, "id": f"c{step}_{i}"}
                    for i in range(self.calls)
                ]
                message = AIMessage("", tool_calls=called)
            return ChatResult(generations=[ChatGeneration(message=message)])

    async def run(steps: int, calls: int) -> None:
        agent = create_agent(Scripted(steps=steps, calls=calls), [adding], checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 10_000}
        last: Any = None
        async for chunk in agent.astream({"messages": [("user", "go")]}, config, stream_mode="updates"):
            last = chunk
        assert last["model"]["messages"][-1].content == "done"

    return run


FRAMEWORKS: dict[str, Callable[..., Run]] = {
    "loom": loom,
    "loom-everything": loom_everything,
    "loom-audited": partial(loom_everything, audited=True),
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "langgraph": langgraph,
}


async def main() -> None:
    run = FRAMEWORKS[sys.argv[1]](*sys.argv[2:])
    while line := await asyncio.to_thread(sys.stdin.readline):
        steps, calls = map(int, line.split())
        wall, processor = time.perf_counter(), time.process_time()
        await run(steps, calls)
        print(time.process_time() - processor, time.perf_counter() - wall, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
