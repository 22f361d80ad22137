"""`AgentTester`: runs an agent, and asserts what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from loom_core.agent.result import RunResult
from loom_core.runs.commands import HumanInputPolicy

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.agent.agent import Agent
    from loom_core.agent.request import RunOptions
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.run import Pending
    from loom_core.testing.recording import Recording

__all__ = ["AgentTester", "SeenCall"]


@dataclass(slots=True)
class SeenCall:
    """A tool call of the model.

    Attributes:
        id: id of the call.
        tool: name of the tool for people; the model's text if there is no such tool.
        arguments: the arguments from the model.
        status: how it ended (`CallStatus`); empty if it has not.
        text: the result that the model got.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    status: str = ""
    text: str = ""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
                          for name, value in self.arguments.items())  # fmt: skip
        return f"{self.tool}({given}) → {self.status or 'no result'}"


@dataclass(slots=True)
class AgentTester:
    """Runs an agent and asserts what it did: a failed check raises AssertionError.

        llm = MockLLM([call("read_file", path="notes.md"), "Two notes."])
        tester = AgentTester(Agent(llm, tools=[read_file]))
        await tester.run("What is in my notes?")
        tester.assert_called("read_file", path="notes.md")
        tester.assert_answer("Two notes.")

    Args:
        agent: the agent; with its own model, or with a `MockLLM`.
        approve: decisions about calls that need approval, by tool name; calls of other tools are denied.
            None leaves it to the agent.

    Attributes:
        result: result of the last run.
        events: events of the last run.
        asked: requests for approval, in all runs.
    """

    agent: Agent
    approve: Mapping[str, bool] | None = None
    events: list[StreamEvent] = field(default_factory=list["StreamEvent"], init=False)
    asked: list[Pending] = field(default_factory=list["Pending"], init=False)
    _result: RunResult[Any] | None = field(default=None, init=False)

    async def run(
        self,
        goal: str,
        *,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run the agent to its end; see `Agent.run`. This discards the events of the previous run."""
        agent = self.agent
        if self.approve is not None:
            agent = agent.extend(asking=HumanInputPolicy(approve=self._approve))
        return await self._run(agent, goal, output_schema, options)

    async def replay(
        self,
        recording: Recording,
        *,
        real_calls: bool = False,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[Any]:
        """Run the agent with the recorded answers of its model, and assert that they still fit it.

        They fit if the run goes on as recorded: the same tools are there, take the same arguments, and may be
        called. People decide as recorded. No call has effects: it has its recorded result.

        Args:
            recording: the recording.
            real_calls: whether calls are made for real; their results may then differ.
            output_schema: the schema that the recorded run had.
            options: see `RunOptions`.

        Raises:
            InvalidInputError: the recorded run has not ended, or is no run of an agent.
            AssertionError: the run differs from the recording; the message has the difference.
        """
        agent = recording.agent(self.agent, real_calls=real_calls)
        try:
            result = await self._run(agent, recording.goal, output_schema, options)
        finally:
            await agent.journal.aclose()
        differs = recording.difference(self.events)
        assert not differs, f"The recording does not fit the agent.\n{differs}\n{result.problem}".rstrip()
        return result

    async def _run(
        self,
        agent: Agent,
        goal: str,
        output_schema: type[BaseModel] | Mapping[str, Any] | None,
        options: RunOptions,
    ) -> RunResult[Any]:
        self.events = []
        self._result = None
        async with aclosing(agent.stream(goal, output_schema=output_schema, **options)) as events:
            async for event in events:
                self.events.append(event)
        run = await agent.journal.get(self.events[-1].run_id)
        self._result = RunResult[Any].of(run)
        return self._result

    @property
    def result(self) -> RunResult[Any]:
        """Result of the last run."""
        assert self._result is not None, "Nothing has run yet: await run() first."
        return self._result

    @property
    def calls(self) -> list[SeenCall]:
        """All tool calls of the model, in order."""
        assert self.events, "Nothing has run yet: await run() first."
        seen: dict[str, SeenCall] = {}
        for event in self.events:
            if event.type == "tool_calls_start":
                for each in event.payload["calls"]:
                    seen[each["call_id"]] = SeenCall(each["call_id"], each["tool"], each["arguments"])
            elif event.type == "tool_result":
                made = seen[event.payload["call_id"]]
                made.status, made.text = event.payload["status"], event.payload["text"]
        return list(seen.values())

    def of_type(self, type_: EventType) -> list[StreamEvent]:
        """Return the events of one type."""
        return [event for event in self.events if event.type == type_]

    def assert_called(self, tool: str, /, *, times: int | None = None, **arguments: object) -> SeenCall:
        """Assert that the model called a tool.

        Args:
            tool: name of the tool for people.
            times: exact number of calls; None for at least one.
            arguments: arguments of the call; it may have others.

        Returns:
            The first such call.
        """
        fitting = [each for each in self.calls if each.tool == tool and _has(each, arguments)]
        wanted = f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        assert fitting, f"{wanted} was not called. {self._describe_calls()}"
        assert times in {None, len(fitting)}, (
            f"{wanted} was called {len(fitting)} times. {self._describe_calls()}"
        )
        return fitting[0]

    def assert_not_called(self, tool: str) -> None:
        """Assert that the model did not call a tool."""
        assert tool not in {each.tool for each in self.calls}, f"{tool} was called. {self._describe_calls()}"

    def assert_called_in_order(self, *tools: str) -> None:
        """Assert that the model called these tools in this order, possibly with others in between."""
        left = iter([each.tool for each in self.calls])
        assert all(tool in left for tool in tools), (
            f"Not in this order: {', '.join(tools)}. {self._describe_calls()}"
        )

    def assert_answer(self, text: str, *, exactly: bool = True) -> None:
        """Assert that the run is completed with this answer, or with one that contains it."""
        result = self.result
        assert result.status == "completed", f"The run is {result.status}: {result.problem}"
        fits = result.output == text if exactly else text in result.output
        assert fits, f"The answer is {result.output!r}."

    def assert_failed(self, problem: str = "") -> None:
        """Assert that the run failed, with a reason that contains this text."""
        result = self.result
        assert result.status == "failed", f"The run is {result.status}: {result.output or result.problem}"
        assert problem in result.problem, f"It failed with: {result.problem}"

    async def _approve(self, pending: Pending) -> bool:
        self.asked.append(pending)
        return (self.approve or {}).get(pending.tool, False)

    def _describe_calls(self) -> str:
        calls: Sequence[SeenCall] = self.calls
        return "Calls: " + ("; ".join(map(str, calls)) or "none") + "."


def _has(made: SeenCall, arguments: Mapping[str, object]) -> bool:
    return all(name in made.arguments and made.arguments[name] == value for name, value in arguments.items())
