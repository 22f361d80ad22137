"""Tools for operators, the people of the business who take conversations over from flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from loom_core.errors import InvalidInputError
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import SchemaTool
from loom_flow.models import OperatorResult
from loom_flow.service import OperatorAction
from loom_flow.texts import handover_info, operator_text, run_line, spoken_info

if TYPE_CHECKING:
    from loom_core.server.calls.context import ToolContext
    from loom_flow.service import FlowService

__all__ = ["operator_tools"]

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


def operator_tools(service: FlowService) -> list[SchemaTool]:
    """Return the tools of operators.

    Args:
        service: the service that executes the calls.
    """

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
