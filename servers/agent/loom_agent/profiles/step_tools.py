"""Members of a composition as tools, which a plan calls; and members that hand the conversation over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom_core.agent.calling_run import calling_run
from loom_core.agent.hooks import GuardrailError, review_input
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.agent.teams.handoff import with_handoffs
from loom_core.errors import NotFoundError
from loom_core.llm.messages import AssistantMessage, TextPart, ToolMessage, UserMessage
from loom_core.redaction import Redaction
from loom_core.runs.run import FORK_OF
from loom_core.tools.plain_text import strip_control

if TYPE_CHECKING:
    from loom_core.agent.agent import Agent
    from loom_core.agent.calling_run import CallingRun
    from loom_core.llm.messages import Message
    from loom_core.runs.run import Run
    from loom_core.tools.interface import CallContext

__all__ = [
    "IS_ANSWER",
    "IS_LAST",
    "NOTE",
    "HandoffTool",
    "StepTool",
    "find_child",
    "handoff_tools",
    "list_origins",
    "step_tools",
]

IS_ANSWER = "is_answer"
IS_LAST = "is_last"
NOTE = "note"
"""Arguments of a step: whether its output is the answer of the run; whether the member may not hand the
conversation over; the message to it about the handoff."""


class StepTool(AgentTool):
    """A member as a step. Steps run concurrently, whatever tools they have: the configuration says so."""

    @property
    def is_concurrency_safe(self) -> bool:
        """True."""
        return True

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """The schema of the arguments: a goal, and whether the output is the answer of the run."""
        return _with_arguments(super().args_schema, {IS_ANSWER: {"type": "boolean"}})

    def answer_schema(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the schema of the composition's run, if the step's output is the run's answer."""
        calling = calling_run() if arguments.get(IS_ANSWER) else None
        return None if calling is None else calling.run.request.output_schema


class HandoffTool(StepTool):
    """A member that may get the conversation, as a step.

    Its child run begins with its own conversation in the session, as its previous child run left it, and what
    was said since: messages of the user and answers of other members, without the calls of these. The
    guardrails of the member review what was said as they review a goal; what they refuse is left out.

    Args:
        agent: the member, with the tools by which it hands over.
        last: the member without them.
    """

    def __init__(self, agent: Agent, *, last: Agent) -> None:
        super().__init__(agent, description=agent.description or agent.name)
        self._last = last

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """The schema of the arguments: those of each step, and those about handoffs."""
        own = {NOTE: {"type": "string"}, IS_LAST: {"type": "boolean"}}
        return _with_arguments(super().args_schema, own)

    async def agent_for(self, arguments: Mapping[str, Any], context: CallContext) -> Agent:
        """Return the member, with the conversation so far."""
        calling = calling_run()
        assert calling is not None, "a step is a call of a run"
        agent = self._last if arguments.get(IS_LAST) else self.agent
        own, place = await self._own_conversation(calling, context.call_id)
        said = _list_said(calling.conversation, place, goal=calling.run.request.goal)
        if own and said and own[-1].role == said[0].role == "assistant":
            del said[0]  # the member's answer, as the run gave it
        if note := arguments.get(NOTE):
            said.append(UserMessage((TextPart(note),)))
        return agent.extend(history=[*own, *await self._review(calling.run, said)])

    async def _own_conversation(self, calling: CallingRun, call_id: str) -> tuple[list[Message], int]:
        """Return the conversation of the member's previous child run, and the place of what follows it."""
        messages, memory = calling.conversation, self.agent.parts.memory
        for place in range(len(messages) - 1, -1, -1):
            message = messages[place]
            for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
                if call.name == self.wire_name and call.id != call_id:
                    child = await find_child(calling, messages, call.id)
                    if child is not None and (own := await memory.messages(child.request.session_id)):
                        return own, place + 1
        return [], 0

    async def _review(self, run: Run, said: Sequence[Message]) -> list[Message]:
        reviewed: list[Message] = []
        for message in said:
            try:
                text = await review_input(self.agent.parts.hooks, run, message.text)
            except GuardrailError:
                continue
            kind = UserMessage if isinstance(message, UserMessage) else AssistantMessage
            reviewed.append(kind((TextPart(text),)))
        return reviewed


def step_tools(members: Sequence[Agent]) -> list[StepTool]:
    """Return the members of a composition as tools."""
    return [StepTool(agent, description=agent.description or agent.name) for agent in members]


def handoff_tools(members: Sequence[Agent], targets: Mapping[str, Sequence[str]]) -> list[HandoffTool]:
    """Return the members as tools; `targets` are those that each may hand over to."""
    last = {agent.name: agent for agent in members}
    return [HandoffTool(agent, last=last[name]) for name, agent in with_handoffs(last, targets).items()]


async def find_child(calling: CallingRun, messages: Sequence[Message], call_id: str) -> Run | None:
    """Return the child run whose result a call of a step has; None if it is unknown.

    Args:
        calling: the run of the composition.
        messages: its conversation, which may begin with earlier runs, or with the run that it is a fork of.
        call_id: id of the call, which begins with that of the run that made it.
    """
    results = [each for each in messages if isinstance(each, ToolMessage) and each.call_id == call_id]
    for run_id in (calling.run.id, *await list_origins(calling), call_id.rsplit("_", 2)[0]):
        try:
            caller = (await calling.journal.get(run_id)).request.caller
        except NotFoundError:
            continue
        child = await calling.journal.find_by_key(f"{run_id}/{call_id}", caller=caller)
        if child is None:
            continue
        shown = Redaction.now().text(strip_control(child.output))  # as results of tools are
        if any(each.failed or each.text == shown for each in results):
            return child
    return None


async def list_origins(calling: CallingRun) -> list[str]:
    """List the ids of the runs that a run is a fork of, directly or through other forks."""
    origins: list[str] = []
    run = calling.run
    while origin := run.request.metadata.get(FORK_OF):
        origins.append(str(origin))
        try:
            run = await calling.journal.get(origins[-1])
        except NotFoundError:  # it was purged
            break
    return origins


def _with_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**schema, "properties": {**schema["properties"], **arguments}}


def _list_said(messages: Sequence[Message], begin: int, *, goal: str) -> list[Message]:
    """Return the messages of the user, and the answers to them, from a place to the goal of the run."""
    goals = [n for n, each in enumerate(messages) if isinstance(each, UserMessage) and each.text == goal]
    return [
        each
        for each in messages[begin : goals[-1] if goals else None]
        if isinstance(each, UserMessage) or (isinstance(each, AssistantMessage) and not each.tool_calls)
    ]
