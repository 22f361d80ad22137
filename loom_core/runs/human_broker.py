"""Asking people, and waiting for what they say: through orders, and through the program's own function."""

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
"""Asks a person of a library's program, and waits for what they say: True or False to a call that has to be
approved; a `Decided` to change its arguments or give a reason; an `Answered` to the question of a tool."""

_DEADLINE = "nobody, in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInputPolicy:
    """Whom a run asks.

    Attributes:
        approve: is called with everything that has to be asked; None if there is no such function.
        orders: whether people are waited for who answer by orders (`Agent.order`, a server's clients).
        seconds: for how long; who has not answered by then has refused. None for no limit.
        unapproved: what they are told where a tool is wanted that no operator has approved: customers confirm
            calls, and approve no tools. Empty where those who are asked are operators.
        confirmation: words what customers are asked about a call, by its tool and arguments; by default they
            are told why it is asked.
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
        """When a question that is asked now counts as refused."""
        return None if self.seconds is None else time() + self.seconds


class HumanInputState(Protocol):
    """Questions of a run to people; the state changes by the journalled events only."""

    @property
    def pending(self) -> Mapping[str, Pending]:
        """Unanswered questions, by id."""
        ...

    @property
    def decisions(self) -> Mapping[str, ApprovalDecision]:
        """Decisions, by id."""
        ...

    @property
    def calls(self) -> Container[str]:
        """Ids of what decisions are kept of; others are about calls that a tool makes for a call."""
        ...


class HumanInputRecorder(Protocol):
    """Writes down what is asked and answered."""

    @property
    def state(self) -> HumanInputState:
        """As it stands."""
        ...

    def record_request(self, pending: Pending) -> None:
        """People are asked."""
        ...

    def record_decision(self, decision: ApprovalDecision) -> None:
        """They have decided of a call."""
        ...

    def record_answer(self, answered: InputResponse) -> None:
        """They have answered a question."""
        ...

    def close_question(self, id_: str, *, action: str, by: str, reason: str = "") -> None:
        """A question of a tool is answered, or no tool waits for the answer any more."""
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
        """Note for people about tools that no operator has approved; see `Asking`."""
        return self._asking.unapproved

    def deadline(self) -> float | None:
        """When a question that is asked now counts as refused."""
        return self._asking.deadline()

    def phrase_question(self, tool: Tool, arguments: Mapping[str, Any], *, reason: str) -> str:
        """Return the question about a call; `reason` says why, for operators."""
        confirmation = self._asking.confirmation
        return reason if confirmation is None else confirmation(tool, arguments)

    def ask(self, pending: Pending) -> None:
        """Ask, and do not wait; one that was asked before a crash is not shown to people twice."""
        self._said[pending.id] = anyio.Event()
        if pending.id not in self._record.state.pending:
            self._record.record_request(pending)
        if self._asking.approve is not None:
            self._group.start_soon(self._call_approver, self._asking.approve, pending)

    def apply_response(self, said: ApprovalDecision | InputResponse) -> None:
        """Accept a decision or an answer. Ignore it if nothing waits for it, or it was decided before."""
        pending = self._record.state.pending.get(said.id)
        if pending is None or (pending.kind == "question") != isinstance(said, InputResponse):
            return
        if isinstance(said, InputResponse):
            self._answers[said.id] = QuestionAnswer(said.action, said.content)
            self._record.record_answer(said)
        elif said.id in self._record.state.calls:
            self._record.record_decision(said)
            self._decide_others(pending, said)
        else:  # a call that a tool is about to make for its own
            self._answers[said.id] = _to_answer(said)
            self._record.close_question(said.id, action=said.action, by=said.by, reason=said.reason)
        if said.id in self._said:
            self._said[said.id].set()

    def _decide_others(self, decided: Pending, said: ApprovalDecision) -> None:
        """Approve the other calls that need no other approval: the tool is approved, or all of it is."""
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
        """Return the decision about a call; after the deadline, a refusal."""
        decisions = self._record.state.decisions
        if pending.id not in decisions:
            await self.wait_for_response(pending)
        if pending.id not in decisions:
            self._record.record_decision(deny_by_timeout(pending.id))
        return decisions[pending.id]

    async def request_input(self, pending: Pending) -> QuestionAnswer:
        """Ask for a tool, and wait for what it is told."""
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
        """Wait until something that was asked is answered, or its deadline has passed."""
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
                advice="Let it return True, False, or a `Decided` or `Answered` with the id of the pending.",
            )
        self.apply_response(said)


def deny_by_timeout(id_: str) -> ApprovalDecision:
    """The decision about a call that was not decided before the deadline."""
    return ApprovalDecision(id=id_, action="deny", by=_DEADLINE)


def is_denied_by_timeout(decision: ApprovalDecision) -> bool:
    """Whether the deadline passed without a decision."""
    return decision.action == "deny" and decision.by == _DEADLINE


def _to_answer(decision: ApprovalDecision) -> QuestionAnswer:
    """Return the answer that a tool gets for a decision about a call that it asked about; see `Answer`."""
    if decision.action == "deny":
        return QuestionAnswer("decline", {"reason": decision.reason})
    kept = {} if decision.keep else {"keep": False}
    return QuestionAnswer(
        "accept", {"arguments": decision.arguments, **kept} if decision.action == "edit" else kept
    )


def _to_response(pending: Pending, *, yes: bool) -> ApprovalDecision | InputResponse:
    if pending.kind == "question":
        answer: Literal["accept", "decline"] = "accept" if yes else "decline"
        return InputResponse(id=pending.id, action=answer)
    return ApprovalDecision(id=pending.id, action="approve" if yes else "deny")
