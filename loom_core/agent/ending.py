"""How a run ends before it has an answer: its calls are closed, and its conversation is kept."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from loom_core.agent.call_review import LoopStoppedError
from loom_core.agent.hooks import HookError
from loom_core.agent.spending import BudgetError
from loom_core.errors import LLMError, LoomError
from loom_core.llm.messages import AssistantMessage
from loom_core.tools.calls import UNKNOWN_TOOL, CallResult
from loom_core.tools.interface import CallContext, ToolOutput
from loom_core.tools.permissions import UnapprovedToolError

if TYPE_CHECKING:
    from loom_core.agent.model_turns import ModelTurns
    from loom_core.agent.notices import Notices
    from loom_core.agent.parts import Parts
    from loom_core.agent.record import RunRecord
    from loom_core.agent.state import OpenCall
    from loom_core.runs.orders import Abort

__all__ = ["Ending"]

_log = logging.getLogger(__name__)

_ABANDON_SECONDS = 10.0


class Ending:
    """Ends one run that was aborted or has failed, so that its session can go on.

    Every call has a result then, and the memory has the conversation.

    Args:
        parts: what drives the run.
        record: is told how it ends.
        model: knows what there is of an answer that is under way.
        notices: what is said of an abort, and of calls that were not made, or broken off.
    """

    def __init__(self, parts: Parts, record: RunRecord, model: ModelTurns, notices: Notices) -> None:
        self._parts = parts
        self._record = record
        self._model = model
        self._notices = notices

    async def aborted(self, abort: Abort) -> None:
        """Somebody has ended it."""
        await self._abandon_calls()
        self._close_calls(self._notices.told(abort.reason))
        await self.remember()
        problem = self._notices.aborted_because(by=abort.by, reason=abort.reason)
        self._record.aborted(by=abort.by, reason=abort.reason, problem=problem, output=self._output())

    async def failed(self, error: LoomError) -> None:
        """It cannot go on."""
        if isinstance(error, UnapprovedToolError):
            _log.warning("run %s has failed: %s", self._record.run.id, error)
        await self._abandon_calls()
        self._close_calls(error.message)
        try:
            await self.remember()
        except LoomError as forgotten:
            _log.warning("the conversation of run %s is not remembered: %s", self._record.run.id, forgotten)
        said = error.said if isinstance(error, UnapprovedToolError) else self._output()
        self._record.failed(error, failure=_failure(error), output=said)

    async def remember(self) -> None:
        """Have the memory keep the conversation as it is now."""
        await self._parts.memory.replace(
            self._record.run.request.session_id, self._record.state.conversation()
        )

    async def _abandon_calls(self) -> None:
        """Have what goes on for calls that are given up ended."""
        for call in self._record.state.open_calls:
            if call.started:
                context = CallContext(run_id=self._record.run.id, call_id=call.part.id)
                try:
                    with anyio.move_on_after(_ABANDON_SECONDS):
                        await self._parts.toolbox.find(call.part.name).abandoned(context=context)
                except LoomError as error:
                    _log.warning("what goes on for the call %s may go on: %s", call.part.id, error)

    def _close_calls(self, reason: str) -> None:
        """Give every call that has none a result, so that the conversation can go on."""
        for call in self._record.state.open_calls:
            self._record.call_ended(self._closed(call, reason))

    def _closed(self, call: OpenCall, reason: str) -> CallResult:
        template = self._notices.stopped if call.started else self._notices.not_run
        output = ToolOutput(template.format(reason=reason).strip(), is_error=True)
        return CallResult(
            call_id=call.part.id,
            tool=call.part.name if call.started else UNKNOWN_TOOL,  # nobody has looked whether it is one
            status="aborted",
            output=output,
            message=output.message(call.part.id),
            stages={},
        )

    def _output(self) -> str:
        """As much of an answer as there is."""
        state = self._record.state
        if text := state.prefix + self._model.text or state.output:
            return text
        said = (each.text for each in reversed(state.history) if isinstance(each, AssistantMessage))
        return next((text for text in said if text), "")


def _failure(error: LoomError) -> str:
    match error:
        case LLMError():
            return error.failure
        case BudgetError():
            return "budget"
        case LoopStoppedError():
            return "loop"
        case HookError():
            return "hook"
        case UnapprovedToolError():
            return "unapproved"
        case _:
            return "other"
