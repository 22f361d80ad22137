"""What is written down of any run that is driven here, whatever drives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from loom_core.runs.stopwatch import Stopwatch

if TYPE_CHECKING:
    from loom_core.errors import LoomError
    from loom_core.runs.commands import Decided
    from loom_core.runs.events import EventType
    from loom_core.runs.journal import Journal, RunLog
    from loom_core.runs.run import Pending, Run, RunStatus, Spent

__all__ = ["RecordedRun", "RecordedState"]


class RecordedState(Protocol):
    """What a run goes on from, as far as people are asked in it.

    Attributes:
        pending: what they were asked and have not answered, by id.
    """

    @property
    def pending(self) -> dict[str, Pending]: ...  # noqa: D102

    @property
    def calls(self) -> Container[str]:
        """Ids of what the run itself asks about; what a tool asks is gone with it."""
        ...

    def asked(self, pending: Pending) -> None:
        """People are asked."""
        ...

    def decided(self, decision: Decided) -> None:
        """They have decided."""
        ...


_State = TypeVar("_State", bound=RecordedState)


class RecordedRun(ABC, Generic[_State]):
    """The events of one run that is driven here: each method adds one, and changes `state` with it.

    What is added is committed with the next `commit`, or by and by.

    Attributes:
        state: what the run goes on from.
        stopwatch: counts the time in which it is worked on.
    """

    def __init__(self, log: RunLog, state: _State) -> None:
        self.state = state
        self.stopwatch = Stopwatch(log.run.spent.seconds)
        self._log = log
        self._spent = log.run.spent
        self._paused = log.run.status == "paused"

    @property
    def run(self) -> Run:
        """As it stands."""
        return self._log.run

    @property
    def journal(self) -> Journal:
        """Where it is."""
        return self._log.journal

    @property
    @abstractmethod
    def spent(self) -> Spent:
        """What it has taken until now."""

    @property
    def paused(self) -> bool:
        """Whether nothing new may begin."""
        return self._paused

    async def commit(self, *, durable: bool = False) -> None:
        """Wait until all of it is in the file; see `RunLog.commit`."""
        await self._log.commit(durable=durable)

    async def save_blob(self, content: bytes, media_type: str) -> str:
        """Keep what is too large for an event; returns its address."""
        number = await self._log.save_blob(content, media_type)
        return f"loom://runs/{self.run.id}/blobs/{number}"

    def progress(self, id_: str, done: float, total: float | None, message: str) -> None:
        """A tool says how far a call is."""
        self._log.add("tool_progress", {"call_id": id_, "done": done, "total": total, "message": message})

    def asked(self, pending: Pending) -> None:
        """People are asked."""
        self.state.asked(pending)
        kept = asdict(pending)
        # A tool that asks is gone after a crash, and asks again when it is called again.
        state = kept if pending.id in self.state.calls else None
        shown = self._shown(pending)
        self._add("approval_required", {"pending": asdict(shown)}, state, **self._waiting())

    def decided(self, decision: Decided) -> None:
        """They have decided."""
        self.state.decided(decision)
        payload = {"call_id": decision.id, "action": decision.action, "by": decision.by}
        payload |= {"reason": decision.reason, "scope": decision.scope}
        self._add("approval_decided", payload, asdict(decision), **self._waiting())

    def question_closed(self, id_: str, *, action: str, by: str, reason: str = "") -> None:
        """A question of a tool is answered, or nobody waits for the answer any more."""
        self.state.pending.pop(id_, None)
        payload = {"call_id": id_, "action": action, "by": by, "reason": reason, "scope": "once"}
        self._add("approval_decided", payload, None, **self._waiting())

    def paused_by(self, by: str) -> None:
        """Nothing new begins until somebody resumes it."""
        self._paused = True
        self._add("paused", {"by": by}, None, **self._waiting(), spent=self.spent)

    def failed(self, error: LoomError, *, failure: str, output: str) -> None:
        """It cannot go on."""
        payload = {"message": error.message, "advice": error.advice, "failure": failure}
        self._end("error", payload, "failed", output=output, problem=str(error))

    def _shown(self, pending: Pending) -> Pending:
        """What people are asked, as its event has it."""
        return replace(pending, arguments_schema={})  # it may be long, and says nothing of the call

    def _end(self, type_: EventType, payload: dict[str, Any], status: RunStatus, **changes: object) -> None:
        """It is at its end, whatever its state says."""
        self.stopwatch.rest()
        self._paused = False
        self._add(type_, payload, None, status=status, pending=(), spent=self.spent, **changes)

    def _waiting(self) -> dict[str, object]:
        """What the run waits for, and the status that follows from it; as it waits, time stands still."""
        pending = tuple(self.state.pending.values())
        status: RunStatus = "paused" if self._paused else "input_required" if pending else "working"
        if status == "working":
            self.stopwatch.run()
        else:
            self.stopwatch.rest()
        return {"status": status, "pending": pending}

    def _add(self, type_: EventType, payload: dict[str, Any], state: object, **changes: object) -> None:
        self._log.add(type_, payload, state=state, **changes)
