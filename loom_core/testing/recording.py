"""Recorded runs as test fixtures: the model's answers and the results of calls, replayed to an agent."""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from loom_core.agent.calling_run import calling_run
from loom_core.agent.steps import AgentStep, StepCall, read_steps
from loom_core.agent.user_memory.memory import UserMemory
from loom_core.errors import InvalidInputError, LLMError, NotFoundError
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer
from loom_core.runs.commands import ApprovalDecision, HumanInputPolicy, Reply
from loom_core.runs.events import FINAL_EVENTS, StreamEvent
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory
from loom_core.testing.mock_llm import MockLLM
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from loom_core.agent.agent import Agent
    from loom_core.llm.interface import ChatOptions, FinishReason, StreamChunk
    from loom_core.llm.messages import MessageLike
    from loom_core.runs.run import Pending

__all__ = ["Recording"]

_APPLIED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run of an agent.

        recording = Recording.from_file("tests/runs/leave.jsonl")  # loom-agent-server events RUN --json
        await AgentTester(agent).replay(recording)

    Attributes:
        events: all events of the run, in order.
    """

    events: Sequence[StreamEvent]

    @classmethod
    async def from_journal(cls, journal: Journal, run_id: str) -> Self:
        """Read a run from a journal.

        Raises:
            NotFoundError: there is no such run.
            StoreError: the journal cannot be read.
        """
        run = await journal.get(run_id)
        return cls(await journal.events(run_id, limit=run.last_seq))

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """Read a file with an event as JSON in each line, as `loom-agent-server events RUN --json` prints it.

        Raises:
            InvalidInputError: it is no such file.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            return cls([StreamEvent(**json.loads(line)) for line in lines if line.strip()])
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"{path} has no events of a run: {error}.",
                advice="Make it by `loom-agent-server events RUN --json`.",
            ) from None

    @property
    def goal(self) -> str:
        """The goal of the run.

        Raises:
            InvalidInputError: it is no run of an agent, or has not ended.
        """
        start = next((event for event in self.events if event.type == "request_start"), None)
        if start is None:
            raise InvalidInputError("The recording is not one of an agent's run.")
        if self.events[-1].type not in FINAL_EVENTS:
            raise InvalidInputError(
                "The recorded run has not ended.", advice="Record it again when it has an answer."
            )
        return str(start.payload["goal"])

    def agent(self, agent: Agent, *, real_calls: bool) -> Agent:
        """Return a copy of an agent for a replay: it gets the recorded answers, decisions and results.

        It has a journal and a memory of its own. It retrieves and compacts nothing, and notes nothing about
        users.

        Args:
            agent: the agent.
            real_calls: whether its calls are made for real.
        """
        decisions = dict(self._decisions())

        async def approve(pending: Pending) -> ApprovalDecision | bool:
            return decisions.get(pending.id, False)

        asking = HumanInputPolicy(approve=approve)
        copy = agent.extend(journal=Journal(), memory=InMemoryMemory(), asking=asking)
        steps, toolbox = read_steps(self.events), agent.parts.toolbox
        if not real_calls:
            copy._audit = None  # pyright: ignore[reportPrivateUsage] - no person decides, and no call is made
            results = {step.calls[0].id: step for step in steps if step.kind == "call"}
            recorded = tuple(
                _RecordedTool(tool, results, ends=_ending_calls(steps)) for tool in toolbox.tools()
            )
            toolbox = Toolbox(live=(lambda: recorded,))
        answers = [_answer(step, toolbox) for step in steps if step.kind == "answer"]
        llm = _RecordedLLM(answers, self._messages(steps))
        copy.parts = replace(
            copy.parts,
            llm=llm,
            toolbox=toolbox,
            user_memory=copy.parts.user_memory and UserMemory(),  # of no user: it reads and notes nothing
            knowledge=None,
            compactor=None,
            guard=None,
        )
        return copy

    def difference(self, events: Iterable[StreamEvent]) -> str:
        """Return how the events of a replay differ, line by line; empty if they agree.

        Compared are the answers, the calls, whether each succeeds, and whether the run is completed.
        """
        before, now = _lines(self.events), _lines([*events])
        return "\n".join(difflib.unified_diff(before, now, "recorded", "replayed", n=2, lineterm=""))

    def _decisions(self) -> Iterable[tuple[str, ApprovalDecision]]:
        """Return the decisions of people about calls, by call id. They approve nothing for later runs."""
        begun = {each.payload["call_id"]: each.payload for each in self.events if each.type == "tool_start"}
        for event in self.events:
            if event.type == "approval_decided" and event.payload["action"] in {"approve", "deny", "edit"}:
                it = event.payload
                arguments = begun.get(it["call_id"], {}).get("arguments", {})
                yield (
                    it["call_id"],
                    ApprovalDecision(
                        id=it["call_id"],
                        action=it["action"],
                        arguments=arguments if it["action"] == "edit" else {},
                        reason=it["reason"],
                        by=it["by"],
                        scope=it["scope"],
                        keep=False,
                    ),
                )

    def _messages(self, steps: Sequence[AgentStep]) -> Mapping[int, Sequence[str]]:
        """Return the user's messages by the number of the request, from 0, during which they have to come."""
        starts = [step.start for step in steps if step.kind == "answer"]
        found: defaultdict[int, list[str]] = defaultdict(list)
        for event in self.events:
            if event.type == "message_received":
                number = sum(start < event.seq for start in starts)
                found[max(number - 1, 0)].append(event.payload["text"])
        return found


def _answer(step: AgentStep, toolbox: Toolbox) -> MockAnswer:
    calls = tuple(
        ToolCallPart(each.id, _wire_name(each.tool, toolbox), each.arguments) for each in step.calls
    )
    finish = cast("FinishReason | None", step.status or None)
    return MockAnswer(step.text, step.reasoning, calls, finish=finish)


def _wire_name(tool: str, toolbox: Toolbox) -> str:
    try:
        return toolbox.find(tool).wire_name
    except NotFoundError:  # the model called no tool, or one that the agent does not have any more
        return tool


def _ending_calls(steps: Sequence[AgentStep]) -> frozenset[str]:
    """Return the ids of the last calls if no answer follows: their outputs ended the run."""
    if not steps or steps[-1].kind == "answer":
        return frozenset()
    last = next((step for step in reversed(steps) if step.kind == "answer"), steps[-1])
    return frozenset(call.id for call in last.calls)


def _lines(events: Sequence[StreamEvent]) -> list[str]:
    """Describe a run: its answers, its calls in the order of the model, and its end if it is completed."""
    steps, lines = read_steps(events), list[str]()
    results = {step.calls[0].id: step for step in steps if step.kind == "call"}
    for step in steps:
        if step.kind == "answer":
            lines.append(f"answer: {step.text}".rstrip())
            lines += (f"  {_call_line(call, results.get(call.id))}" for call in step.calls)
    return lines + ["completed" for event in events[-1:] if event.type == "agent_finish"]


def _call_line(call: StepCall, result: AgentStep | None) -> str:
    arguments = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True, default=str)
    if result is None or result.status == "success":
        return f"{call.tool} {arguments}" + ("" if result is None else " → success")
    return f"{call.tool} {arguments} → {result.status}: {result.text}"


class _RecordedLLM(MockLLM):
    """Scripted model that answers as recorded; the user's messages come while it does."""

    def __init__(self, answers: Sequence[MockAnswer], messages: Mapping[int, Sequence[str]]) -> None:
        super().__init__([*answers, LLMError("The recording has no more answers.")], model="recorded")
        self._messages = messages

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Return the next answer; see `MockProvider.chat_stream`."""
        asked = calling_run()
        replies = [Reply(text=text) for text in self._messages.get(len(self.calls), ())]
        if asked is not None and replies:
            await asked.journal.send_commands(asked.run.id, *replies)
            await asked.journal.wait_until_applied(asked.run.id, seconds=_APPLIED_SECONDS)
        async for chunk in super().chat_stream(messages, **options):
            yield chunk


class _RecordedTool(Tool):
    """Tool whose calls return their recorded results, by call id."""

    def __init__(self, tool: Tool, results: Mapping[str, AgentStep], *, ends: frozenset[str]) -> None:
        self._tool = tool
        self._results = results
        self._ends = ends

    @property
    def name(self) -> str:
        return self._tool.name

    @property
    def wire_name(self) -> str:
        return self._tool.wire_name

    @property
    def description(self) -> str:
        return self._tool.description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return self._tool.args_schema

    @property
    def annotations(self) -> ToolAnnotations:
        return self._tool.annotations

    @property
    def approval_reason(self) -> str:
        return self._tool.approval_reason

    @property
    def keeps_approval(self) -> bool:
        return self._tool.keeps_approval

    @property
    def is_trusted(self) -> bool:
        return self._tool.is_trusted

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._tool.prepare_arguments(arguments)

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        id_ = "" if context is None else context.call_id
        step = self._results.get(id_)
        if step is None:
            return ToolOutput("The recording has no result of this call.", is_error=True)
        return ToolOutput(step.text, is_error=step.status != "success", ends_run=id_ in self._ends)
