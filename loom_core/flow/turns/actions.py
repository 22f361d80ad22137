"""Actions of a turn: start a run, send it a command, ask the user, answer in words."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import validate_inputs
from loom_core.flow.policy.router import Disambiguation
from loom_core.flow.responses.phrases import LANGUAGE
from loom_core.flow.responses.reply import RoutingOutcome, TurnOutcome
from loom_core.flow.runtime.skills import active_skills
from loom_core.flow.turns.replies import late_text
from loom_core.flow.turns.session import ASIDE, KeyedMessage
from loom_core.flow.understanding.choices import properties_of
from loom_core.flow.understanding.slots import find_rejected_value
from loom_core.flow.understanding.small_talk import classify_small_talk, is_question
from loom_core.knowledge.text.analysis import analyse
from loom_core.runs.run import PARALLEL_RUNS, is_overdue

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.knowledge import KnowledgeAnswer, KnowledgePrefetch
    from loom_core.flow.policy.decision import RoutingDecision
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.flow.turns.turn_context import TurnContext
    from loom_core.runs.commands import Command
    from loom_core.runs.run import Run, RunRequest

__all__ = [
    "answer_small_talk",
    "ask_sources",
    "ask_which_flow",
    "begin_flow",
    "begin_skill_run",
    "can_use_skills",
    "describe_refused_numbers",
    "drop_invalid_inputs",
    "find_run_asked_about",
    "respond",
    "send_run_command",
    "start_run",
    "status_outcome",
]

_log = logging.getLogger(__name__)


async def begin_flow(
    turn: TurnContext,
    flow: FlowConfig,
    parameters: Mapping[str, Any],
    *,
    route: RoutingOutcome,
    message: str = "",
    confirm: bool | None = None,
    reason: str = "",
    aside: bool = False,
) -> TurnOutcome:
    """Start a flow. Invalid inputs are left out, so that the run asks for them.

    `message` asked for it, if not the latest one did; for `confirm` and its reason see
    `FlowExecutor.build_request`. `aside`: it only answers a question next to what the message is about.
    """
    route, flow = replace(route, flow_id=flow.flow_id), turn.file.counterpart_of(flow)
    request = turn.runtime.executor.build_request(
        flow.flow_id,
        message or turn.message,
        drop_invalid_inputs(flow, parameters),
        context=turn.context,
        caller=turn.conversation.caller,
        confirm=confirm,
        confirm_reason=reason,
        route=asdict(route),
        idempotency_key=turn.run_key,
    )
    if aside:
        request = replace(request, metadata={**request.metadata, ASIDE: True})
    run = await start_run(turn, request)
    return TurnOutcome(
        route=route, run_id=run.id, text=describe_refused_numbers(flow, parameters, phrases=turn.phrases)
    )


def can_use_skills(turn: TurnContext, decision: RoutingDecision) -> bool:
    """Return whether there is a tool to call, or a skill that applies."""
    skills = decision.action != "skill" or active_skills(turn.file, decision.skills)
    return turn.runtime.skill_agent is not None and bool(skills)


async def begin_skill_run(turn: TurnContext, decision: RoutingDecision, route: RoutingOutcome) -> TurnOutcome:
    """Start a run of skills, or of a single tool, if possible."""
    agent = turn.runtime.skill_agent
    assert agent is not None
    is_skill = decision.action == "skill"
    skills = active_skills(turn.file, decision.skills) if is_skill else []
    tool = "" if is_skill else decision.target
    route = replace(route, skills=tuple(skill.id for skill in skills), tool=tool)
    request = agent.request(
        turn.message,
        skills=skills,
        tool=tool,
        arguments=decision.parameters,
        caller=turn.conversation.caller,
        route=asdict(route),
        idempotency_key=turn.run_key,
    )
    run = await start_run(turn, request)
    return TurnOutcome(route=route, run_id=run.id)


async def start_run(turn: TurnContext, request: RunRequest) -> Run:
    """Start a run in the session, next to those that have not ended.

    Raises:
        InvalidInputError: another process keeps starting runs in it; or the key was used otherwise.
    """
    request = replace(request, session_id=turn.conversation.session_id)
    try:
        return await turn.host.start(_with_conversation(turn, request, turn.unfinished))
    except InvalidInputError:
        unfinished = await turn.conversations.list_unfinished(turn.conversation)
        # Another process may have started one at the same time.
        return await turn.host.start(_with_conversation(turn, request, unfinished))


def _with_conversation(turn: TurnContext, request: RunRequest, unfinished: Sequence[Run]) -> RunRequest:
    parallel = [run.id for run in unfinished]
    more = {"context": turn.conversation.context, PARALLEL_RUNS: parallel, LANGUAGE: turn.phrases.language}
    return replace(request, metadata={**request.metadata, **more})


async def send_run_command(
    turn: TurnContext, run: Run, order: Command, *, route: RoutingOutcome, answers: str = ""
) -> TurnOutcome:
    """Send a command to a run. If it does not fit the run's state, only return that state.

    `answers` is the id of the question that it answers.
    """
    if turn.key:
        turn.conversation.note(KeyedMessage(turn.key, turn.message, run.id, answers))
        await turn.conversations.save(turn.conversation)
    route = replace(route, flow_id=run.request.profile if turn.file.flow(run.request.profile) else "")
    try:
        told = await turn.host.send_commands(run.id, order, caller=turn.conversation.caller)
    except InvalidInputError as error:
        _log.info("run %s did not accept a command: %s", run.id, error)
        late = is_overdue(run)  # it counts as declined, and the run continues from that
        text, after = (turn.phrases.late, run.last_seq) if late else ("", 0)
        return TurnOutcome(route=route, run_id=run.id, text=text, after=after)
    return TurnOutcome(route=route, run_id=run.id, after=told.last_seq)


def ask_which_flow(
    turn: TurnContext,
    flows: Sequence[FlowConfig],
    route: RoutingOutcome,
    *,
    parameters: Mapping[str, Any] | None = None,
    text: str = "",
) -> TurnOutcome:
    """Ask which of some flows is meant, or whether the only one is.

    `parameters` are inputs of a single candidate; by default those found by patterns. `text` comes before the
    question.
    """
    router, matches = turn.runtime.router, turn.match.matches
    found = {flow.flow_id: router.inputs_of(flow, turn.message, matches) for flow in flows}
    if parameters and len(flows) == 1:
        found = {flows[0].flow_id: {**found[flows[0].flow_id], **parameters}}
    ids = tuple(flow.flow_id for flow in flows)
    offer = Disambiguation(turn.message, ids, found, route.reason)
    turn.conversation.offer = offer
    own = [match for match in matches if match.flow_id in ids]
    unwanted = bool(own) and all(match.negated for match in own)
    asked = offer.question(list(map(turn.file.counterpart_of, flows)), turn.phrases, unwanted=unwanted)
    return TurnOutcome(route=replace(route, candidates=ids), text=text, asked=asked)


async def respond(turn: TurnContext, found: KnowledgePrefetch, route: RoutingOutcome) -> TurnOutcome:
    """Answer in words, from the knowledge found."""
    known = await ask_sources(turn, found)
    answerer = turn.runtime.answerer
    answering = answerer.answer(
        turn.message,
        known,
        conversation=await turn.conversations.messages(turn.conversation.session_id),
        phrases=turn.phrases,
        first=late_text(turn),
    )
    answer, problem = await turn.clock.wait_for_model("answer", answering, seconds=turn.file.decision_seconds)
    answer = answer or answerer.answer_without_model(known, turn.phrases)
    route = route.with_problem(known.problem).with_problem(problem)
    return TurnOutcome(route=route, text=answer.text, citations=answer.citations)


async def ask_sources(turn: TurnContext, found: KnowledgePrefetch) -> KnowledgeAnswer:
    """Wait for the answer of the knowledge sources, up to the file's timeout."""
    with turn.clock.measure("knowledge"):
        return await found.answer(turn.clock.remaining(turn.file.knowledge_seconds))


def answer_small_talk(turn: TurnContext) -> str:
    """Return the reply to small talk."""
    phrases = turn.phrases
    match classify_small_talk(turn.message):
        case "thanks":
            return phrases.welcome
        case "bye":
            return phrases.bye
        case "assent":
            return phrases.noted
        case "hello":
            settings = turn.file.basic_settings
            able = "" if settings.greeting else phrases.what_can_be_done(turn.runtime.titles)
            return phrases.space.join(filter(None, (phrases.greeting_of(settings), able)))


def status_outcome(turn: TurnContext, run: Run) -> TurnOutcome:
    """Report the state of a run; nothing more if the reply starts with its result."""
    route = RoutingOutcome(action="respond", how="pending")
    if any(each.id == run.id for each in turn.late):
        return TurnOutcome(route=route)
    return TurnOutcome(route=route, run_id=run.id, again=run.status == "input_required")


async def find_run_asked_about(turn: TurnContext) -> Run | None:
    """Return the run whose reported result the message asks about; None if there is none."""
    last = next(iter(turn.late[-1:]), None) or await turn.conversations.latest_run(turn.conversation)
    if last is None or last.status != "completed" or not is_question(turn.message):
        return None
    asked = {word for word in analyse(turn.message) if len(word) > 1 and not word.isdigit()}
    return last if asked & {*analyse(last.output)} else None


def drop_invalid_inputs(flow: FlowConfig, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the inputs that are valid by the schema of a flow."""
    known = properties_of(flow.input_schema)
    fitting: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in known:
            continue
        try:
            fitting |= validate_inputs(flow, {name: value}, whole=False)
        except InvalidInputError:
            continue
    return fitting


def describe_refused_numbers(flow: FlowConfig, parameters: Mapping[str, Any], *, phrases: Phrases) -> str:
    """Describe the numbers that the schema of a flow rejects; empty if there are none."""
    schemas = properties_of(flow.input_schema)
    refused = [
        find_rejected_value(str(value), name, schemas[name])
        for name, value in parameters.items()
        if name in schemas and isinstance(value, int | float)
    ]
    return "\n".join(phrases.rejection_text(each) for each in refused if each)
