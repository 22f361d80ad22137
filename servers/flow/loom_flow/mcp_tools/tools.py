"""Tools that chat, start and resume flows; flows that are tools (`as_tool`); and tools for operators."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import anyio
from pydantic import Field

from loom_core.cjk import is_chinese
from loom_core.errors import InvalidInputError
from loom_core.flow.config.models import has_side_effects
from loom_core.flow.executor.definition import hands_over
from loom_core.flow.responses.reply import CHOICE
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Pause
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.server.auth.caller import current_caller
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.elicitation import ask_form, can_ask, form_of
from loom_core.server.calls.long_polling import LONGEST_WAIT, decider_of
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import SchemaTool
from loom_flow.models import ChatResult, OperatorResult, RunInfo
from loom_flow.service import OperatorAction, tool_name
from loom_flow.texts import (
    chat_result,
    chat_text,
    handover_info,
    operator_text,
    run_info,
    run_line,
    run_text,
    spoken_info,
)

if TYPE_CHECKING:
    from loom_core.flow.config import FlowConfig, FlowFile
    from loom_core.runs.run import Pending, Run
    from loom_core.server.protocol.factory import LoomServer
    from loom_flow.service import FlowService

__all__ = [
    "RunId",
    "SessionId",
    "Wait",
    "choose_by_elicitation",
    "register_conversation_tools",
    "register_flow_tools",
    "run_reply",
    "start_and_wait",
]

Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT),
]
RunId = Annotated[str, Field(description="`run_id` of an answer.", min_length=1)]
SessionId = Annotated[str, Field(description="`session_id` of an answer; left out, a new conversation.")]
Context = Annotated[
    dict[str, Any] | None,
    Field(
        description="Variables of requests, such as tenantId; those of the caller's token are fixed.",
        json_schema_extra={"type": "object"},
    ),
]
_Key = Annotated[str, Field(description="The same key gets the same answer.")]

_WITH_ANSWER = frozenset({"answer", "approve", "retry"})
_APPLIED_SECONDS = 5.0  # for a run to apply a command before its state is returned

_CHAT = (
    "Pass on what the user says to the assistant of a business: it begins the flow that they ask for, "
    "answers, or asks back. Use it for everything that its flows are there for (flow_list), and then for "
    "each further message: an answer to a question, a correction, “never mind”. Pass the user's words on as "
    "they are, and never answer a question in their place. Returns what the user reads, and in `next` what "
    "to do."
)
_RUN = (
    "Run a flow with inputs that are known, without a conversation. What is missing is asked for; what it "
    "wants confirmed, the user confirms (`input_required`). The run outlives this call (`working`). Returns "
    "its status, the output, and in `next` what to do."
)
_RESUME = (
    "Go on with a run. `approve`, `deny`, `answer`: what the USER says to what it waits for (ask them first, "
    "never decide on your own); `retry`: once more from the step that failed, or from `step`; `resume`: "
    "after a pause or an abort. Nothing that was done is done again. Returns the run."
)


def register_conversation_tools(server: LoomServer, service: FlowService) -> None:
    """Register the tools."""
    _register_chat(server, service)
    _register_run(server, service)
    _register_resume(server, service)


def _register_chat(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="Say something to the assistant",
        description=_CHAT,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        task="optional",
    )
    async def flow_chat(
        ctx: ToolContext,
        message: Annotated[
            str,
            Field(description="What the user says, word for word."),
        ],
        session_id: SessionId = "",
        context: Context = None,
        wait_seconds: Wait = LONGEST_WAIT,
        idempotency_key: _Key = "",
    ) -> ToolReply[ChatResult]:
        until = anyio.current_time() + wait_seconds
        kept = ctx.client_input.kept
        # After an elicitation in another round trip, this runs again: the same message gets the same answer.
        key = kept.setdefault("key", idempotency_key or secrets.token_hex(8))
        session_id = kept.get("session_id", session_id)
        said, number = message, 0
        while True:
            taken_as = f"{key}.{number}" if number else key
            reply = await service.chat(
                said,
                session_id=session_id,
                context=context,
                idempotency_key=taken_as,
                seconds=max(until - anyio.current_time(), 0.0),
            )
            session_id = kept["session_id"] = reply.session_id
            choice = await choose_by_elicitation(ctx, reply.pending, name=f"choice.{number}", until=until)
            if choice is None:
                break
            said, number = choice, number + 1
        run: Run | None = None
        if reply.run_id:
            left = max(until - anyio.current_time(), 0.0)
            # A run of an earlier message is not cancelled with this call.
            is_own = (await service.run(reply.run_id)).request.idempotency_key == taken_as
            task = "aborts" if is_own else "waits"
            run = await service.long_poll.wait_for_run(ctx, reply.run_id, seconds=left, task=task)
            while run is not None and run.status in FINAL_STATUSES:
                left = max(until - anyio.current_time(), 0.0)
                more = await service.continue_session(session_id, seconds=left)
                if more is None:
                    break
                before = chat_result(reply, run, file=service.file, by_asking=False).text
                reply = more.after(before, told=(*reply.told, run.id))
                run = None
                if reply.run_id:
                    run = await service.long_poll.wait_for_run(ctx, reply.run_id, seconds=left, task="waits")
        by_asking = run is not None and service.long_poll.can_ask_user(ctx, run)
        result = chat_result(reply, run, file=service.file, by_asking=by_asking)
        await service.confirm_delivery(reply.session_id, run, reply.told)
        return tool_result(chat_text(result, reply.language), result)


def _register_run(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="Run a flow",
        description=_RUN,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        task="optional",
    )
    async def flow_run(
        ctx: ToolContext,
        flow_id: Annotated[str, Field(description="As flow_list gives it.", min_length=1)],
        inputs: Annotated[
            dict[str, Any] | None,
            Field(description="By name, as its schema says.", json_schema_extra={"type": "object"}),
        ] = None,
        message: Annotated[str, Field(description="What the user said.")] = "",
        session_id: SessionId = "",
        context: Context = None,
        wait_seconds: Wait = LONGEST_WAIT,
        idempotency_key: _Key = "",
    ) -> ToolReply[RunInfo]:
        return await start_and_wait(
            ctx,
            service,
            flow_id,
            inputs or {},
            message=message,
            session_id=session_id,
            context=context,
            seconds=wait_seconds,
            idempotency_key=idempotency_key,
        )


def _register_resume(server: LoomServer, service: FlowService) -> None:
    @server.tool(
        title="Go on with a run",
        description=_RESUME,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
    )
    async def flow_resume(
        ctx: ToolContext,
        run_id: RunId,
        action: Literal["approve", "deny", "answer", "retry", "resume", "pause", "abort"] = "resume",
        id: Annotated[  # noqa: A002
            str, Field(description="`id` in `pending`, if there are several.")
        ] = "",
        answer: Annotated[
            dict[str, Any] | None,
            Field(
                description="As `answer_schema` says; with `approve` and `retry`, inputs to change.",
                json_schema_extra={"type": "object"},
            ),
        ] = None,
        step: Annotated[str, Field(description="With `retry`.")] = "",
        reason: Annotated[str, Field(description="With `deny` and `abort`: why.")] = "",
        wait_seconds: Wait = LONGEST_WAIT,
    ) -> ToolReply[RunInfo]:
        if answer and action not in _WITH_ANSWER:
            raise InvalidInputError(
                f"An answer has no meaning with the action {action!r}.",
                advice="Use `answer`, `approve` with changed inputs, or `retry` with corrected ones.",
            )
        run = await service.run(run_id)
        by = decider_of(ctx)
        kept = ctx.client_input.kept
        if "after" not in kept:  # otherwise this is the same call again, with an answer
            stands = action == "resume" and run.status == "input_required"  # nothing new is required
            kept["after"] = "0" if stands else str(run.last_seq)
            match action:
                case "approve" | "deny" | "answer":
                    pending = find_pending(run, id, questions=action == "answer")
                    order = build_response(pending, action, answer=answer, reason=reason, by=by)
                    await service.decide(run, order)
                case "retry":
                    await service.retry(run_id, step, inputs=answer, by=by)
                case "resume":
                    await service.resume(run_id, by=by)
                case "pause":
                    await service.send_commands(run_id, Pause(by=by))
                case "abort":
                    await service.send_commands(run_id, Abort(reason=reason, by=by))
        seconds = min(wait_seconds, _APPLIED_SECONDS) if action in {"pause", "abort"} else wait_seconds
        run = await service.long_poll.wait_for_run(ctx, run_id, after=int(kept["after"]), seconds=seconds)
        return await run_reply(ctx, service, run)


def find_pending(run: Run, id_: str, *, questions: bool) -> Pending:
    """Return the pending question that a call refers to.

    Without an id, it is the only one; `questions`: a question is meant, not a yes or no.

    Raises:
        InvalidInputError: there is none, or several.
    """
    fit = [each for each in run.questions if each.takes_answer == questions]
    chosen = [each for each in run.questions if each.id == id_] if id_ else fit
    if len(chosen) == 1:
        return chosen[0]
    waits = ", ".join(f"{each.id} ({each.kind})" for each in run.pending) or "nothing"
    if id_:
        raise InvalidInputError(
            f"Run {run.id} does not wait for {id_[:80]!r}.", advice=f"It waits for: {waits}."
        )
    what = "an answer" if questions else "a yes or no"
    if chosen:
        raise InvalidInputError(f"Which is meant? It waits for: {waits}.", advice="Give its `id`.")
    raise InvalidInputError(f"Run {run.id} does not wait for {what}.", advice=f"It waits for: {waits}.")


def build_response(
    pending: Pending,
    action: Literal["approve", "deny", "answer"],
    *,
    answer: dict[str, Any] | None,
    reason: str,
    by: str,
) -> ApprovalDecision | InputResponse:
    """Return the response to a pending question.

    Raises:
        InvalidInputError: there is no response.
    """
    if pending.kind == "question":
        if action == "deny":
            return InputResponse(id=pending.id, action="decline", by=by)
        if not answer:
            raise InvalidInputError(
                f"{pending.id!r} asks for something, and there is no answer.", advice="Give it as `answer`."
            )
        return InputResponse(id=pending.id, action="accept", content=answer, by=by)
    if action == "approve" and answer:
        return ApprovalDecision(
            id=pending.id, action="edit", arguments={**pending.arguments, **answer}, by=by
        )
    return ApprovalDecision(
        id=pending.id, action="deny" if action == "deny" else "approve", reason=reason, by=by
    )


async def start_and_wait(
    ctx: ToolContext,
    service: FlowService,
    flow_id: str,
    inputs: dict[str, Any],
    *,
    message: str = "",
    session_id: str = "",
    context: dict[str, Any] | None = None,
    seconds: float,
    idempotency_key: str = "",
) -> ToolReply[RunInfo]:
    """Start a flow, or find the run that an earlier call with the key started, and wait for it.

    Raises:
        LoomError: as for `FlowService.start`.
    """
    run_id = ctx.client_input.kept.get("run_id", "")
    if not run_id:
        run = await service.start(
            flow_id,
            inputs,
            message=message,
            session_id=session_id,
            context=context,
            idempotency_key=idempotency_key,
        )
        run_id = ctx.client_input.kept["run_id"] = run.id
    run = await service.long_poll.wait_for_run(ctx, run_id, seconds=seconds, task="aborts")
    return await run_reply(ctx, service, run)


async def run_reply(ctx: ToolContext, service: FlowService, run: Run) -> ToolReply[RunInfo]:
    """Return the tool reply about a run."""
    by_asking = service.long_poll.can_ask_user(ctx, run)
    info = run_info(run, await service.steps(run.id), by_asking=by_asking)
    await service.confirm_delivery(run.request.session_id, run)
    return tool_result(run_text(run, info), info)


_MIN_ELICITATION_SECONDS = 10.0  # minimum seconds that must be left for an elicitation


async def choose_by_elicitation(
    ctx: ToolContext, pending: Sequence[Pending], *, name: str, until: float
) -> str | None:
    """Ask the user to choose by elicitation; return the choice as a message, or None.

    The name of the question is unique in the call; `until` is the deadline, as `anyio.current_time`.
    """
    asked = next((each for each in pending if each.id == CHOICE), None)
    left = until - anyio.current_time()
    if asked is None or left < _MIN_ELICITATION_SECONDS or not can_ask(ctx):
        return None
    form = form_of(asked.schema)
    if form is None:
        return None
    deadline = left if ctx.client_input.holds_call else math.inf
    answer = await ask_form(ctx, asked.reason, form, name=name, deadline=deadline)
    yes, no = ("是", "不要") if is_chinese(asked.reason) else ("yes", "no")
    if answer.outcome == "declined":
        return no
    chosen = answer.content.get("choice") if answer.outcome == "accepted" else None
    if isinstance(chosen, bool):
        return yes if chosen else no
    return str(chosen) if chosen else None


_ASKS = "What is missing is asked for. It is a flow with a run of its own: follow `next` in the answer."


def register_flow_tools(server: LoomServer, service: FlowService) -> None:
    """Register the flows of the current file as tools, and those of operators if it hands over.

    The list follows the file.
    """
    made: tuple[FlowFile | None, Sequence[SchemaTool]] = (None, ())
    for_operators = _operator_tools(service)

    def live() -> Sequence[SchemaTool]:
        nonlocal made
        file = service.current
        if made[0] is not file:
            made = (file, [] if file is None else [_tool(service, file, each) for each in _tool_flows(file)])
        caller = current_caller()
        names = {tool_name(each) for each in _tool_flows(file) if caller.may_use(each.flow_id)}
        own = [tool for tool in made[1] if tool.name in names]
        return [*own, *for_operators] if caller.may("admin") and hands_over(file) else own

    server.live_tools(live, task="optional")


def _tool_flows(file: FlowFile | None) -> list[FlowConfig]:
    return [flow for flow in file.flows if flow.enabled and flow.as_tool] if file else []


def _tool(service: FlowService, file: FlowFile, flow: FlowConfig) -> SchemaTool:
    changes = has_side_effects(file, flow)
    return SchemaTool(
        name=tool_name(flow),
        title=flow.title,
        description=f"{flow.description}\n\n{_ASKS}",
        input_schema=flow.input_schema,
        output=RunInfo,
        function=partial(_run, service, flow.flow_id),
        read_only=not changes,
        destructive=changes,
        idempotent=not changes,
        open_world=True,
    )


async def _run(
    service: FlowService, flow_id: str, given: dict[str, Any], ctx: ToolContext
) -> ToolReply[RunInfo]:
    return await start_and_wait(ctx, service, flow_id, given, seconds=LONGEST_WAIT)


_QUEUE = (
    "For an operator, a person of the business: see the conversations that flows have handed over, and with "
    "run_id all messages of one. Never for the customer. Returns who has each, what it is about, and what to "
    "return."
)
_REPLY = (
    "For an operator: `say` something to the customer, `take` a conversation, `return` it to the flow with "
    "what was `agreed` (as `agreed_schema` says), or `decline` it with a reason. Pass on the operator's own "
    "words; never decide for them. Returns the conversation, or the run after its return."
)
_RUN_ID = {"type": "string", "description": "As the queue gives it."}


def _operator_tools(service: FlowService) -> list[SchemaTool]:
    """Return the tools of operators."""

    async def queue(given: dict[str, Any], _ctx: ToolContext) -> ToolReply[OperatorResult]:
        run_id = str(given.get("run_id", ""))
        if run_id:
            return await _conversation(service, run_id)
        found = [handover_info(each) for each in await service.operator_queue()]
        result = OperatorResult(conversations=found, messages=[], run=None)
        return tool_result(operator_text(result), result)

    async def reply(given: dict[str, Any], ctx: ToolContext) -> ToolReply[OperatorResult]:
        action, run_id = str(given.get("action")), str(given.get("run_id"))
        if action not in get_args(OperatorAction):
            raise InvalidInputError(
                f"There is no action {action[:80]!r}.", advice=f"Use {', '.join(get_args(OperatorAction))}."
            )
        run = await service.operate(
            run_id,
            cast("OperatorAction", action),
            by=ctx.caller.name if ctx.caller.id else str(given.get("name") or "Operator"),
            text=str(given.get("text", "")),
            agreed=cast("dict[str, Any]", given.get("agreed") or {}),
        )
        if action in {"say", "take"}:
            return await _conversation(service, run_id)
        result = OperatorResult(conversations=[], messages=[], run=run_line(run))
        return tool_result(operator_text(result), result)

    return [
        SchemaTool(
            name="operator_queue",
            title="Conversations for operators",
            description=_QUEUE,
            input_schema={
                "type": "object",
                "properties": {"run_id": {**_RUN_ID, "description": "Of the one to read; left out, all."}},
                "additionalProperties": False,
            },
            output=OperatorResult,
            function=queue,
            read_only=True,
            destructive=False,
            idempotent=True,
            open_world=False,
        ),
        SchemaTool(
            name="operator_reply",
            title="Answer as an operator",
            description=_REPLY,
            input_schema={
                "type": "object",
                "properties": {
                    "run_id": _RUN_ID,
                    "action": {"type": "string", "enum": list(get_args(OperatorAction))},
                    "text": {"type": "string", "description": "The message, or the reason."},
                    "agreed": {"type": "object", "description": "With `return`."},
                    "name": {
                        "type": "string",
                        "description": "The operator's name, where no token says it; customers read it.",
                    },
                },
                "required": ["run_id", "action"],
                "additionalProperties": False,
            },
            output=OperatorResult,
            function=reply,
            read_only=False,
            destructive=False,
            idempotent=False,
            open_world=True,
        ),
    ]


async def _conversation(service: FlowService, run_id: str) -> ToolReply[OperatorResult]:
    handover, messages = await service.handover(run_id)
    result = OperatorResult(
        conversations=[handover_info(handover)], messages=list(map(spoken_info, messages)), run=None
    )
    return tool_result(operator_text(result), result)
