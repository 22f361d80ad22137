"""Steps that wait for something outside of the conversation: a time, an event, an operator."""

from __future__ import annotations

from datetime import datetime
from time import time
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.steps.context import StepOutcome, StepResponse
from loom_core.flow.expressions import fill, text_of
from loom_core.flow.understanding.moments import zone_of
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import HandoverConfig, StepConfig, WaitConfig
    from loom_core.flow.executor.state import Frame
    from loom_core.flow.executor.steps.context import RunScope

__all__ = ["OutsideSteps"]


class OutsideSteps:
    """Runner of steps that wait for something outside; no process holds the run meanwhile.

    Args:
        scene: the run.
    """

    def __init__(self, scene: RunScope) -> None:
        self._scene = scene

    async def run(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Wait, as the step says."""
        self._scene.enter(frame, step, "")
        key = self._scene.record.state.key_of(frame, step.step_id)
        if step.wait_for is not None:
            return await self._wait(frame, key, step.wait_for)
        assert step.handover is not None
        return await self._hand_over(frame, key, step.handover)

    async def _wait(self, frame: Frame, key: str, wait: WaitConfig) -> StepOutcome:
        wording = self._scene.wording
        title = self._scene.parts.file.find_flow(frame.flow_id).title
        deadline = None if wait.timeout_seconds is None else time() + wait.timeout_seconds
        if not wait.event:
            deadline = self._end_of(frame, wait)
        pending = Pending(
            id=key,
            kind="event",
            tool=wait.event,
            arguments={"key": self._text(frame, wait.key)} if wait.key else {},
            reason=self._text(frame, wait.text) or wording.waiting.format(flow=title),
            deadline=deadline,
        )
        told = await self._scene.questions.wait_outside(pending)
        if not wait.event:
            return StepOutcome()
        if told is None:
            problem = f"The event {wait.event!r} did not come within {wait.timeout_seconds:g} s."
            return StepOutcome(status="failure", problem=problem, said=wording.too_long)
        payload = told.content.get("payload")
        return StepOutcome(response=StepResponse(body=payload), outputs={"result": payload})

    def _end_of(self, frame: Frame, wait: WaitConfig) -> float:
        """Return when a wait for a time ends, in seconds since 1970.

        Raises:
            InvalidInputError: it is no date or time.
        """
        if wait.seconds is not None:
            return time() + wait.seconds
        written = self._text(frame, wait.until)
        try:
            moment = datetime.fromisoformat(written)
        except ValueError:
            raise InvalidInputError(
                f"{written[:80]!r} is no date or time in ISO 8601.",
                advice='Give one such as 2026-12-01T15:00, by an input with "format": "date-time".',
            ) from None
        if moment.tzinfo is None:
            file, context = self._scene.parts.file, self._scene.values(frame).context
            zone = zone_of(context.get("timezone")) or zone_of(file.basic_settings.timezone)
            moment = moment.replace(tzinfo=zone)  # without a zone it is this machine's
        return moment.timestamp()

    async def _hand_over(self, frame: Frame, key: str, handover: HandoverConfig) -> StepOutcome:
        wording, seconds = self._scene.wording, handover.timeout_seconds
        about = self._text(frame, handover.about)
        pending = Pending(
            id=key,
            kind="operator",
            tool=handover.queue,
            arguments={"about": about} if about else {},
            reason=self._text(frame, handover.text) or wording.handed_over,
            schema=dict(handover.agreed or {}),
            deadline=None if seconds is None else time() + seconds,
        )
        told = await self._scene.questions.wait_outside(pending)
        if told is None:
            problem = f"No operator took the conversation within {seconds:g} s."
            return StepOutcome(status="failure", problem=problem, said=wording.no_operator)
        agreed = dict(told.content)
        if told.action != "accept":
            reason = str(agreed.get("reason", ""))
            problem = f"The operator {told.by!r} returned the conversation without a result. {reason}".strip()
            return StepOutcome(status="failure", problem=problem, said=reason or wording.not_agreed)
        return StepOutcome(
            response=StepResponse(body=agreed), outputs={"result": agreed, "operator": told.by}
        )

    def _text(self, frame: Frame, template: str) -> str:
        return text_of(fill(template, self._scene.values_for_text(frame))) if template else ""
