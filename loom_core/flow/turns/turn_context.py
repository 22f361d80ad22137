"""What can be done with a message: begin a flow, tell a run something, ask, answer in words."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import checked_inputs
from loom_core.flow.policy.disambiguation import Offer
from loom_core.flow.policy.router import RouteMatch
from loom_core.flow.responses.phrases import LANGUAGE
from loom_core.flow.responses.reply import Route
from loom_core.flow.runtime.execution import can_be_driven
from loom_core.flow.runtime.skills import active_skills
from loom_core.flow.turns.responses import Outcome, run_text
from loom_core.flow.turns.timeouts import Patience
from loom_core.flow.understanding.slots import refused_value
from loom_core.flow.understanding.small_talk import is_question, manner_of
from loom_core.knowledge.text.analysis import analyse
from loom_core.runs.run import BESIDE, is_overdue

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.knowledge import KnowledgeAnswer, PreQuery
    from loom_core.flow.policy.decision import Decision
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.flow.runtime.runtime import Equipment
    from loom_core.flow.turns.session import Conversation, Conversations
    from loom_core.llm.messages import Message
    from loom_core.runs.commands import Order
    from loom_core.runs.host import RunHost
    from loom_core.runs.run import Run, RunRequest

__all__ = ["Acts", "fitting_inputs", "refused_numbers"]

_log = logging.getLogger(__name__)


class Acts:
    """What is done with one message of a conversation.

    Args:
        equipment: of the flow file.
        conversations: of all sessions.
        host: drives runs.
        conversation: the session, which nobody else changes meanwhile.
        message: what the user says.
        phrases: how things are said.
        idempotency_key: of the message.
        before_order: is awaited before a run is told something, with its id and that of what is answered.
        since: when the message came, as `time.perf_counter`; by default now.

    Attributes:
        key: the idempotency key of the message; empty for none.
        timings: seconds that each part has taken.
        unfinished: runs of the session that are not at their end, the latest first.
        late: runs that have ended, and whose result is said before anything else in the reply.
        match: what the trigger patterns say, once it is `read`.
        patience: how long models and sources are waited for.
    """

    def __init__(
        self,
        equipment: Equipment,
        *,
        conversations: Conversations,
        host: RunHost,
        conversation: Conversation,
        message: str,
        phrases: Phrases,
        idempotency_key: str = "",
        before_order: Callable[[str, str], Awaitable[None]] | None = None,
        since: float | None = None,
    ) -> None:
        self.equipment = equipment
        self.conversation = conversation
        self.message = message
        self.phrases = phrases
        self.timings: dict[str, float] = {}
        self.unfinished: list[Run] = []
        self.late: list[Run] = []
        self.match = RouteMatch("none")
        self._conversations = conversations
        self._host = host
        self.key = idempotency_key
        self._before_order = before_order
        self._texts: list[Message] | None = None
        self.patience = Patience(since=time.perf_counter() if since is None else since, timings=self.timings)

    @property
    def file(self) -> FlowFile:
        """The flow file, in the language of the conversation."""
        return self.equipment.spoken(self.phrases.language)

    @property
    def context(self) -> dict[str, Any]:
        """The variables of the conversation, with the file's where it has none."""
        return {**self.file.context, **self.conversation.context}

    async def look_around(self) -> None:
        """See what the session has begun and not ended."""
        self.unfinished = await self._conversations.unfinished(self.conversation)

    @property
    def waiting(self) -> list[Run]:
        """Those of them that can be told something: their flow is there."""
        return [run for run in self.unfinished if can_be_driven(self.file, run.request.profile)]

    async def read(self) -> RouteMatch:
        """What the trigger patterns say to the message."""
        began = time.perf_counter()
        self.match = await self.equipment.router.matched(self.message)
        self.timings["rules"] = time.perf_counter() - began
        return self.match

    async def last_run(self) -> Run | None:
        """The latest run of the session."""
        return await self._conversations.last(self.conversation)

    @property
    def late_text(self) -> str:
        """What the reply begins with: how earlier runs have ended."""
        return "\n\n".join(run_text(run, file=self.file, phrases=self.phrases) for run in self.late)

    def state_of(self, run: Run) -> Outcome:
        """Say how a run stands; nothing more where the reply begins with how it has ended."""
        route = Route(action="respond", how="pending")
        if any(each.id == run.id for each in self.late):
            return Outcome(route=route)
        return Outcome(route=route, run_id=run.id, again=run.status == "input_required")

    async def run_asked_about(self) -> Run | None:
        """The run whose result, as the user was told, has what the message asks about; None if none has."""
        last = next(iter(self.late[-1:]), None) or await self.last_run()
        if last is None or last.status != "completed" or not is_question(self.message):
            return None
        asked = {word for word in analyse(self.message) if len(word) > 1 and not word.isdigit()}
        return last if asked & {*analyse(last.output)} else None

    async def texts(self) -> list[Message]:
        """What was said before."""
        if self._texts is None:
            self._texts = await self._conversations.texts(self.conversation.session_id)
        return self._texts

    async def begin(
        self,
        flow: FlowConfig,
        parameters: Mapping[str, Any],
        *,
        route: Route,
        message: str = "",
        confirm: bool | None = None,
        reason: str = "",
    ) -> Outcome:
        """Begin a flow. Inputs that do not fit are left out, so that they are asked for.

        Args:
            flow: which.
            parameters: inputs, as far as they are known.
            route: how it was chosen.
            message: what asked for it, if that is not the latest message.
            confirm: see `FlowExecutor.request`.
            reason: what the user is asked then.
        """
        route, flow = replace(route, flow_id=flow.flow_id), self.told(flow)
        request = self.equipment.executor.request(
            flow.flow_id,
            message or self.message,
            fitting_inputs(flow, parameters),
            caller=self.conversation.caller,
            confirm=confirm,
            confirm_reason=reason,
            route=asdict(route),
            idempotency_key=self.key,
        )
        run = await self.start(request)
        refused = refused_numbers(flow, parameters, phrases=self.phrases)
        return Outcome(route=route, run_id=run.id, text=refused)

    def told(self, flow: FlowConfig) -> FlowConfig:
        """A flow as the user is told of it."""
        return self.file.flow(flow.flow_id) or flow

    def can_work(self, decision: Decision) -> bool:
        """Whether there is a tool to call, or a skill that applies in the end."""
        skills = decision.action != "skill" or active_skills(self.file, decision.skills)
        return self.equipment.skill_agent is not None and bool(skills)

    async def work(self, decision: Decision, route: Route) -> Outcome:
        """Let skills work on the message, or call a tool, where that can be done."""
        agent = self.equipment.skill_agent
        assert agent is not None
        is_skill = decision.action == "skill"
        skills = active_skills(self.file, decision.skills) if is_skill else []
        tool = "" if is_skill else decision.target
        route = replace(route, skills=tuple(skill.id for skill in skills), tool=tool)
        request = agent.request(
            self.message,
            skills=skills,
            tool=tool,
            arguments=decision.parameters,
            caller=self.conversation.caller,
            route=asdict(route),
            idempotency_key=self.key,
        )
        run = await self.start(request)
        return Outcome(route=route, run_id=run.id)

    async def order(self, run: Run, order: Order, *, route: Route, answers: str = "") -> Outcome:
        """Tell a run something. What does not fit how it stands now changes nothing: it is told how it does.

        Args:
            run: which.
            order: what.
            route: how that was decided.
            answers: the id of what is answered.
        """
        if self._before_order is not None:
            await self._before_order(run.id, answers)
        route = replace(route, flow_id=run.request.profile if self.file.flow(run.request.profile) else "")
        try:
            told = await self._host.order(run.id, order, caller=self.conversation.caller)
        except InvalidInputError as error:
            _log.info("run %s was not told: %s", run.id, error)
            late = is_overdue(run)  # it counts as refused, and goes on from that
            text, after = (self.phrases.late, run.last_seq) if late else ("", 0)
            return Outcome(route=route, run_id=run.id, text=text, after=after)
        return Outcome(route=route, run_id=run.id, after=told.last_seq)

    def offer(
        self,
        flows: Sequence[FlowConfig],
        route: Route,
        *,
        parameters: Mapping[str, Any] | None = None,
        text: str = "",
    ) -> Outcome:
        """Ask which of some flows is meant, or whether the only one is.

        Args:
            flows: which.
            route: how it was decided.
            parameters: inputs of the only one; else what patterns have found is taken.
            text: what is said before.
        """
        router, matches = self.equipment.router, self.match.matches
        found = {flow.flow_id: router.inputs_of(flow, self.message, matches) for flow in flows}
        if parameters and len(flows) == 1:
            found = {flows[0].flow_id: {**found[flows[0].flow_id], **parameters}}
        ids = tuple(flow.flow_id for flow in flows)
        offer = Offer(self.message, ids, found, route.reason)
        self.conversation.offer = offer
        own = [match for match in matches if match.flow_id in ids]
        unwanted = bool(own) and all(match.negated for match in own)
        asked = offer.question(list(map(self.told, flows)), self.phrases, unwanted=unwanted)
        return Outcome(route=replace(route, candidates=ids), text=text, asked=asked)

    async def respond(self, found: PreQuery, route: Route) -> Outcome:
        """Answer in words, from what is known."""
        known = await self.known(found)
        answerer, texts = self.equipment.answerer, await self.texts()
        answering = answerer.answer(
            self.message, known, conversation=texts, phrases=self.phrases, first=self.late_text
        )
        seconds = self.file.decision_seconds
        answer, problem = await self.patience.by_model("answer", answering, seconds=seconds)
        answer = answer or answerer.plain(known, self.phrases)
        route = route.with_problem(known.problem).with_problem(problem)
        return Outcome(route=route, text=answer.text, citations=answer.citations)

    async def known(self, found: PreQuery) -> KnowledgeAnswer:
        """What the knowledge sources say, waited for as long as the file allows."""
        began = time.perf_counter()
        known = await found.answer(self.patience.left(self.file.knowledge_seconds))
        self.timings["knowledge"] = time.perf_counter() - began
        return known

    def polite(self) -> str:
        """What is said to manners."""
        match manner_of(self.message):
            case "thanks":
                return self.phrases.welcome
            case "bye":
                return self.phrases.bye
            case "assent":
                return self.phrases.noted
            case "hello":
                settings = self.file.basic_settings
                able = "" if settings.greeting else self.phrases.what_can_be_done(self.equipment.titles)
                return self.phrases.space.join(filter(None, (self.phrases.hello_of(settings), able)))

    async def go_on(self) -> Outcome | None:
        """Begin what an earlier message asked for besides, when what came before has ended; None if not yet.

        Where that did not end well, or was called off, it is asked whether the rest is wanted.
        """
        conversation = self.conversation
        await self.look_around()
        if not conversation.queue or self.unfinished or conversation.offer is not None:
            return None
        last, offer = await self.last_run(), conversation.queue.pop(0)
        flow = self.file.flow(offer.flows[0])
        if flow is None:
            return None
        parameters, route = offer.parameters.get(flow.flow_id, {}), Route(action="flow", how="rules")
        if last is None or last.status != "completed":
            conversation.offer = offer
            question = offer.question([flow], self.phrases)
            return Outcome(route=replace(route, action="clarify", candidates=offer.flows), asked=question)
        self.key = f"after {last.id}"  # begun once, whatever dies in between
        return await self.begin(flow, parameters, route=route, message=offer.message)

    async def start(self, request: RunRequest) -> Run:
        """Begin a run in the session, beside those that are not at their end.

        Raises:
            InvalidInputError: another process begins run after run in it; or the key was used otherwise.
        """
        request = replace(request, session_id=self.conversation.session_id)
        try:
            return await self._host.start(self._beside_others(request))
        except InvalidInputError:
            await self.look_around()  # another process may have begun one in this moment
            return await self._host.start(self._beside_others(request))

    def _beside_others(self, request: RunRequest) -> RunRequest:
        beside = [run.id for run in self.unfinished]
        context = self.conversation.context
        more = {"context": context, BESIDE: beside, LANGUAGE: self.phrases.language}
        return replace(request, metadata={**request.metadata, **more})


def fitting_inputs(flow: FlowConfig, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that the schema of a flow takes, each by itself."""
    known = flow.input_schema.get("properties")
    fitting: dict[str, Any] = {}
    for name, value in parameters.items():
        if not isinstance(known, Mapping) or name not in known:
            continue
        try:
            fitting |= checked_inputs(flow, {name: value}, whole=False)
        except InvalidInputError:
            continue
    return fitting


def refused_numbers(flow: FlowConfig, parameters: Mapping[str, Any], *, phrases: Phrases) -> str:
    """What is said of numbers that the schema of a flow does not take; empty if it takes all."""
    schemas: Any = flow.input_schema.get("properties") or {}
    refused = [
        refused_value(str(value), name, schemas[name])
        for name, value in parameters.items()
        if name in schemas and isinstance(value, int | float)
    ]
    return "\n".join(phrases.refused_value(each) for each in refused if each)
