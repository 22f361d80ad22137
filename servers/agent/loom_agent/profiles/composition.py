"""Compositions of profiles as runs: a plan in place of the model calls the members as tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from loom_agent.profiles.step_tools import IS_ANSWER, IS_LAST, NOTE, find_child, list_origins
from loom_core.agent.calling_run import CallingRun, calling_run
from loom_core.agent.teams.handoff import Handoff
from loom_core.agent.teams.router import Route, Router
from loom_core.agent.teams.step import StepError
from loom_core.llm.interface import ChatOptions, ChatRequest, LLMProvider, LLMResponse, Usage
from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage, UserMessage

if TYPE_CHECKING:
    from loom_agent.profiles.profile_config import HandoffConfig, ProfileConfig
    from loom_agent.profiles.step_tools import StepTool
    from loom_core.llm.messages import Message, MessageLike
    from loom_core.runs.run import Run

__all__ = ["CompositionModel"]

_ENDS = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class _Step:
    """Step of a plan.

    Attributes:
        member: the member that does it.
        after: numbers of the steps that it waits for.
        arguments: arguments of its call that do not follow from these steps or the goal of the run.
    """

    member: str
    after: Sequence[int] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


class CompositionModel(LLMProvider):
    """Plan of a composition, in place of a model.

    A composition is a run of an agent whose only tools are the members, and whose model is this plan. So its
    steps are child runs, with what all calls of an `AgentTool` have: the journal, the budget of the outer
    run, approvals that the outer run asks for, and a resume after a crash.

    Each turn calls all steps whose prerequisites have ended. A step gets the outputs of the steps that it
    waits for, or else the goal; and messages that the user has sent since. If a step failed, the run fails;
    when it is resumed, the step is called again.

    In a handoff, the member that had the conversation last in the session is called first. If it hands over,
    the member that it named is called with the same goal; else its output is the answer, unless the user has
    sent a message meanwhile, which it gets then.

    Args:
        profile: the configuration of the composition.
        tools: its members.
        llm: the model of a router; None for rules alone.
    """

    def __init__(self, profile: ProfileConfig, tools: Sequence[StepTool], *, llm: LLMProvider | None) -> None:
        self._kind = profile.composition
        self._llm = llm
        self._tools = {tool.name: tool for tool in tools}
        self._members = {tool.wire_name: tool.name for tool in tools}
        self._steps = dict(enumerate(_steps(profile)))
        self._handoff = profile.handoff
        self._router: Router | None = None
        if profile.router is not None:
            routes = [
                Route(
                    name,
                    tool.agent,
                    description=tool.agent.description,
                    when=profile.router.routes[name].when,
                )
                for name, tool in self._tools.items()
            ]
            self._router = Router(routes, llm=llm, default=profile.router.default)

    @property
    def name(self) -> str:
        """`plan`."""
        return "plan"

    @property
    def model(self) -> str:
        """The kind of composition; for a router, with its model."""
        return self._kind if self._llm is None else f"{self._kind} ({self._llm.name}/{self._llm.model})"

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Return the next calls, or the output of the last steps.

        Raises:
            StepError: a step failed, or cannot be called.
            LLMError: the model of a router failed, and there is no default.
        """
        request = ChatRequest.of(messages, options)
        calling = calling_run()
        assert calling is not None, "a plan is the model of a run"
        progress = _Progress(calling, request.messages, await list_origins(calling))
        steps, usage = await self._choose(progress)
        done: dict[int, str] = {}
        for number, step in steps.items():
            if (output := await progress.output_of(number, step)) is not None:
                done[number] = output
        waited = {each for step in steps.values() for each in step.after}
        if len(done) == len(steps):
            parts = [TextPart(_join(steps, done, [n for n in done if n not in waited]))]
            return self._response(parts, usage)
        there = {spec.name for spec in request.tools}
        calls: list[ToolCallPart] = []
        for number, step in steps.items():
            if number in done or not all(each in done for each in step.after):
                continue
            wire_name = self._tools[step.member].wire_name
            if wire_name not in there:
                raise StepError(
                    f"The step {step.member!r} cannot be called.",
                    step=step.member,
                    advice="Allow the run a larger budget, and the member among its tools.",
                )
            arguments: dict[str, Any] = {"goal": progress.goal, **step.arguments}
            if number in progress.calls:  # it failed, and had what the user said before that
                arguments["goal"] = progress.calls[number].arguments["goal"]
            elif step.after:
                arguments["goal"] = _join(steps, done, step.after)
            arguments["goal"] = "\n\n".join(filter(None, [arguments["goal"], *progress.replies]))
            if calling.run.request.output_schema is not None and number not in waited:
                arguments[IS_ANSWER] = True
            calls.append(ToolCallPart(progress.next_id(number), wire_name, arguments))
        return self._response(calls, usage)

    async def aclose(self) -> None:
        """Close the model of a router."""
        if self._llm is not None:
            await self._llm.aclose()

    async def _choose(self, progress: _Progress) -> tuple[Mapping[int, _Step], Usage]:
        """Return the steps by number; for a router its route, for a handoff the last or the next one."""
        if self._handoff is not None:
            number, step = await self._continue_conversation(self._handoff, progress)
            return {number: step}, Usage()
        if self._router is None:
            return self._steps, Usage()
        if progress.calls:
            return {0: _Step(self._member_of(progress.calls[0]))}, Usage()
        choice = await self._router.choose("\n\n".join([progress.goal, *progress.replies]))
        return {0: _Step(choice.route)}, choice.usage

    async def _continue_conversation(self, handoff: HandoffConfig, progress: _Progress) -> tuple[int, _Step]:
        """Return the step of the member that has the conversation, with its number."""
        if not progress.calls:
            return 0, _Step(await self._find_first(handoff, progress))
        number, last = max(progress.calls.items())
        step = _Step(self._member_of(last), arguments=last.arguments)
        if await progress.output_of(number, step) is None:
            return number, step
        handed = await self._find_handoff(handoff, progress, last)
        if handed is None and not progress.replies:
            return number, step
        handoffs = sum(NOTE in call.arguments for call in progress.calls.values())
        arguments: dict[str, Any] = {"goal": ""}
        if handed is not None:
            arguments = {
                "goal": last.arguments["goal"],
                NOTE: handed.message(step.member, goal=progress.goal),
            }
            handoffs += 1
        if handoffs >= handoff.max_handoffs:
            arguments[IS_LAST] = True
        return number + 1, _Step(step.member if handed is None else handed.to, arguments=arguments)

    def _member_of(self, call: ToolCallPart) -> str:
        if call.name not in self._members:
            raise StepError(
                f"{call.name!r} is not a member any more.",
                step=call.name,
                advice="Make it one again, or start a new run.",
            )
        return self._members[call.name]

    async def _find_first(self, handoff: HandoffConfig, progress: _Progress) -> str:
        """Return the member that had the conversation last in the session; the first one in a new session."""
        for message in reversed(progress.messages):
            for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
                if call.name in self._members and await progress.find_child(call) is not None:
                    handed = await self._find_handoff(handoff, progress, call)
                    return self._members[call.name] if handed is None else handed.to
        return handoff.members[0]

    async def _find_handoff(
        self, handoff: HandoffConfig, progress: _Progress, call: ToolCallPart
    ) -> Handoff | None:
        """Return the handoff that a call of a member ended with; None if the member answered or failed."""
        child = None if call.arguments.get(IS_LAST) else await progress.find_child(call)
        handed = None if child is None else Handoff.of(child.structured)
        allowed = handoff.targets[self._members[call.name]]
        return handed if handed is not None and handed.to in allowed else None

    def _response(self, parts: Sequence[TextPart | ToolCallPart], usage: Usage) -> LLMResponse:
        message = AssistantMessage(tuple(parts), provider=self.name, model=self.model)
        return LLMResponse(message, finish="tool_calls" if message.tool_calls else "stop", usage=usage)


def _steps(profile: ProfileConfig) -> list[_Step]:
    """Return the steps of a composition; none for a router or a handoff, whose steps depend on the run."""
    if profile.chain:
        return [_Step(name, [] if number == 0 else [number - 1]) for number, name in enumerate(profile.chain)]
    if profile.parallel:
        return [_Step(name) for name in profile.parallel]
    numbers = {name: number for number, name in enumerate(profile.workflow)}
    return [_Step(name, [numbers[each] for each in after]) for name, after in profile.workflow.items()]


def _join(steps: Mapping[int, _Step], outputs: Mapping[int, str], chosen: Sequence[int]) -> str:
    """Return the output of a step; the outputs of several under their names as headings."""
    if len(chosen) == 1:
        return outputs[chosen[0]]
    return "\n\n".join(f"## {steps[number].member}\n\n{outputs[number]}" for number in chosen)


class _Progress:
    """Progress of a composition's run, as its conversation shows it.

    The id of a call is that of the run, the number of its step and of the attempt; so calls of earlier runs
    of the session do not count.

    Args:
        calling: the run.
        messages: its conversation.
        origins: the ids of runs that it is a fork of; their calls count.

    Attributes:
        goal: the goal of the run.
        messages: the conversation.
        calls: the last call of each step that was called, by its number.
        replies: messages of the user since the last calls.
    """

    def __init__(self, calling: CallingRun, messages: Sequence[Message], origins: Sequence[str]) -> None:
        self._calling = calling
        self.goal = calling.run.request.goal
        self.messages = messages
        own = tuple(f"{id_}_" for id_ in (calling.run.id, *origins))
        answers = [each for each in messages if isinstance(each, AssistantMessage)]
        calls = [call for each in answers for call in each.tool_calls if call.id.startswith(own)]
        self.calls = {int(_step_and_attempt(call.id).split("_")[0]): call for call in calls}
        self._results = {
            _step_and_attempt(each.call_id): each
            for each in messages
            if isinstance(each, ToolMessage) and each.call_id.startswith(own)
        }
        self.replies = _replies(messages, None if self.calls else self.goal)

    async def output_of(self, number: int, step: _Step) -> str | None:
        """Return the output of a step; None if it has to be called.

        Raises:
            StepError: it failed, and the run has not been resumed since.
        """
        attempt = self._attempts(number)
        if not attempt:
            return None
        result = self._results[f"{number}_{attempt - 1}"]
        if not result.failed:
            return result.text
        if await self._has_ended_since(result.call_id):
            return None
        raise StepError(
            f"The step {step.member!r} failed: {result.text}",
            step=step.member,
            advice="If you resume the run, it continues with this step.",
        )

    async def find_child(self, call: ToolCallPart) -> Run | None:
        """Return the child run of a call; see `step_tools.find_child`."""
        return await find_child(self._calling, self.messages, call.id)

    def next_id(self, number: int) -> str:
        """Return the id for the next call of a step."""
        return f"{self._calling.run.id}_{number}_{self._attempts(number)}"

    def _attempts(self, number: int) -> int:
        attempt = 0
        while f"{number}_{attempt}" in self._results:
            attempt += 1
        return attempt

    async def _has_ended_since(self, call_id: str) -> bool:
        """Whether the run has failed or was aborted after the result of a call: it has been resumed."""
        last, is_after = 0, False
        while events := await self._calling.journal.events(self._calling.run.id, after=last):
            for event in events:
                if is_after and event.type in _ENDS:
                    return True
                is_after = is_after or (event.type == "tool_result" and event.payload["call_id"] == call_id)
            last = events[-1].seq
        return False


def _step_and_attempt(call_id: str) -> str:
    return "_".join(call_id.split("_")[-2:])


def _replies(messages: Sequence[Message], goal: str | None) -> list[str]:
    """Return what the user has said after the last answer, and after the goal if it is not None."""
    said: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            said = []
        elif isinstance(message, UserMessage):
            said = [] if message.text == goal else [*said, message.text]
    return said
