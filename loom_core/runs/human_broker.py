"""Human-in-the-loop broker: ask people, and wait for commands or for the program's `approve` function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import anyio

from loom_core.errors import ConfigError
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.tools.interface import QuestionAnswer

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from loom_core.runs.run import Pending
    from loom_core.tools.interface import Tool

__all__ = [
    "ApproveFunction",
    "HumanBroker",
    "HumanInputPolicy",
    "HumanInputRecorder",
    "HumanInputState",
    "deny_by_timeout",
    "is_denied_by_timeout",
]

ApproveFunction: TypeAlias = "Callable[[Pending], Awaitable[bool | ApprovalDecision | InputResponse]]"
"""Asks a person, in a program that uses the library, and returns their response: True or False for a call
that needs approval; an `ApprovalDecision` to edit its arguments or give a reason; an `InputResponse` for the
question of a tool."""

_DEADLINE = "no one, in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInputPolicy:
    """Human input policy of a run: whom it asks, and for how long it waits.

    Attributes:
        approve: called with each request; None if there is no such function.
        accepts_commands: whether people can respond by commands (`Agent.send_command`, a server's clients).
        seconds: time to respond; without a response, the request counts as refused. None for no limit.
        unapproved: message about a tool that no operator has approved: customers can confirm calls, but not
            approve tools. Empty if operators are asked.
        confirmation: phrases the question to customers about a call, by its tool and arguments; by default
            they see the reason.
    """

    approve: ApproveFunction | None = None
    accepts_commands: bool = False
    seconds: float | None = 600.0
    unapproved: str = ""
    confirmation: Callable[[Tool, Mapping[str, Any]], str] | None = None

    @property
    def has_approver(self) -> bool:
        """Whether there is a person to ask."""
        return self.accepts_commands or self.approve is not None

    def deadline(self) -> float | None:
        """Return the deadline of a request that is made now."""
        return None if self.seconds is None else time() + self.seconds


class HumanInputState(Protocol):
    """Requests of a run to people; only journaled events change this state."""

    @property
    def pending(self) -> Mapping[str, Pending]:
        """Unanswered requests, by id."""
        ...

    @property
    def decisions(self) -> Mapping[str, ApprovalDecision]:
        """Decisions, by id."""
        ...

    @property
    def calls(self) -> Container[str]:
        """Ids of the calls whose decisions are stored; other requests are about calls inside a call."""
        ...


class HumanInputRecorder(Protocol):
    """Recorder of requests to people and of their responses."""

    @property
    def state(self) -> HumanInputState:
        """The current state."""
        ...

    def record_request(self, pending: Pending) -> None:
        """Record a request to people."""
        ...

    def record_decision(self, decision: ApprovalDecision) -> None:
        """Record a decision about a call."""
        ...

    def record_answer(self, answered: InputResponse) -> None:
        """Record the answer to a question."""
        ...

    def close_question(self, id_: str, *, action: str, by: str, reason: str = "") -> None:
        """Record that a question is closed: it was answered, or no tool waits for the answer any more."""
        ...


class HumanBroker:
    """Human-in-the-loop broker of one run."""

    def __init__(self, record: HumanInputRecorder, asking: HumanInputPolicy, group: TaskGroup) -> None:
        self._record = record
        self._asking = asking
        self._group = group
        self._answers: dict[str, QuestionAnswer] = {}
        self._said: dict[str, anyio.Event] = {}

    @property
    def has_approver(self) -> bool:
        """Whether there is a person to ask."""
        return self._asking.has_approver

    @property
    def unapproved(self) -> str:
        """Note for people about tools that no operator has approved; see `HumanInputPolicy`."""
        return self._asking.unapproved

    def deadline(self) -> float | None:
        """Return the deadline of a request that is made now."""
        return self._asking.deadline()

    def phrase_question(self, tool: Tool, arguments: Mapping[str, Any], *, reason: str) -> str:
        """Return the question about a call; `reason` says why, for operators."""
        confirmation = self._asking.confirmation
        return reason if confirmation is None else confirmation(tool, arguments)

    def ask(self, pending: Pending) -> None:
        """Send a request, and do not wait. A request from before a crash is not shown to people again."""
        self._said[pending.id] = anyio.Event()
        if pending.id not in self._record.state.pending:
            self._record.record_request(pending)
        if self._asking.approve is not None and pending.for_user:
            recorded = self._record.state.pending[pending.id]
            self._group.start_soon(self._call_approver, self._asking.approve, recorded)

    def apply_response(self, said: ApprovalDecision | InputResponse) -> None:
        """Apply a decision or an answer. Ignore it if nothing waits for it, or it was decided before."""
        pending = self._record.state.pending.get(said.id)
        if pending is None or pending.takes_answer != isinstance(said, InputResponse):
            return
        if isinstance(said, InputResponse):
            self._answers[said.id] = QuestionAnswer(said.action, said.content)
            self._record.record_answer(said)
        elif said.id in self._record.state.calls:
            self._record.record_decision(said)
            self._decide_others(pending, said)
        else:  # a call inside a call
            self._answers[said.id] = _to_answer(said)
            self._record.close_question(said.id, action=said.action, by=said.by, reason=said.reason)
        if said.id in self._said:
            self._said[said.id].set()

    def _decide_others(self, decided: Pending, said: ApprovalDecision) -> None:
        """Approve the other pending calls that the decision covers: same tool, same fingerprint."""
        if said.action == "deny":
            return
        for other in list(self._record.state.pending.values()):
            same = (other.tool, other.fingerprint) == (decided.tool, decided.fingerprint)
            all_of_it = said.scope == "run" and decided.for_run and other.for_run
            if same and (all_of_it or (decided.of_tool and other.of_tool)):
                self._record.record_decision(replace(said, id=other.id, action="approve", arguments={}))
                if other.id in self._said:
                    self._said[other.id].set()

    async def wait_for_decision(self, pending: Pending) -> ApprovalDecision:
        """Wait for the decision about a call; after the deadline, return a denial."""
        decisions = self._record.state.decisions
        if pending.id not in decisions:
            await self.wait_for_response(pending)
        if pending.id not in decisions:
            self._record.record_decision(deny_by_timeout(pending.id))
        return decisions[pending.id]

    async def request_input(self, pending: Pending) -> QuestionAnswer:
        """Ask the question of a tool, and wait for the answer."""
        if not self.has_approver:
            return QuestionAnswer("cancel")
        self.ask(pending)
        try:
            await self.wait_for_response(pending)
        finally:
            if pending.id not in self._answers:
                late = pending.deadline is not None and time() >= pending.deadline
                self._record.close_question(pending.id, action="cancel", by=_DEADLINE if late else "")
        return self._answers.get(pending.id, QuestionAnswer("cancel"))

    async def wait_for_response(self, pending: Pending) -> None:
        """Wait for the response to a request, or for its deadline."""
        left = None if pending.deadline is None else max(pending.deadline - time(), 0.0)
        with anyio.move_on_after(left):
            await self._said[pending.id].wait()

    async def _call_approver(self, approve: ApproveFunction, pending: Pending) -> None:
        asked = approve(pending)
        if not inspect.isawaitable(asked):  # pyright: ignore[reportUnnecessaryComparison]
            raise ConfigError("`approve` is not `async`.", advice="Define it with `async def`.")
        said = await asked
        if isinstance(said, bool):
            said = _to_response(pending, yes=said)
        if not isinstance(said, ApprovalDecision | InputResponse):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"`approve` has returned {said!r}.",
                advice="Let it return True, False, or an `ApprovalDecision` or `InputResponse` with the id "
                "of the request.",
            )
        self.apply_response(said)


def deny_by_timeout(id_: str) -> ApprovalDecision:
    """Return the denial of a call that was not decided before the deadline."""
    return ApprovalDecision(id=id_, action="deny", by=_DEADLINE)


def is_denied_by_timeout(decision: ApprovalDecision) -> bool:
    """Whether a denial means that the deadline passed without a decision."""
    return decision.action == "deny" and decision.by == _DEADLINE


def _to_answer(decision: ApprovalDecision) -> QuestionAnswer:
    """Convert a decision about a call to the answer for the tool that asked; see `QuestionAnswer`."""
    if decision.action == "deny":
        return QuestionAnswer("decline", {"reason": decision.reason})
    kept = {} if decision.keep else {"keep": False}
    return QuestionAnswer(
        "accept", {"arguments": decision.arguments, **kept} if decision.action == "edit" else kept
    )


def _to_response(pending: Pending, *, yes: bool) -> ApprovalDecision | InputResponse:
    if pending.takes_answer:
        answer: Literal["accept", "decline"] = "accept" if yes else "decline"
        return InputResponse(id=pending.id, action=answer)
    return ApprovalDecision(id=pending.id, action="approve" if yes else "deny")
