"""Task board: calls that continue as tasks, with status, pending input and result.

A task lives in this process and is bound to its caller. It is kept for a while after its end, so that a
client that has lost its connection can still fetch the result.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from loom_core.errors import unwrap_group
from loom_core.server.auth.caller import current_caller
from loom_core.server.calls.client_input import client_input_of, response_to

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup
    from mcp.server import ServerRequestContext
    from mcp.server.context import HandlerResult
    from mcp_types import ErrorData, InputRequest, InputResponse

__all__ = ["SEAL_KEY", "Task", "TaskBoard", "TaskCall", "TaskLimits", "TaskStatus", "current_task_call"]

SEAL_KEY = "loom.seal"
"""Key in the scope of an HTTP request: a function that makes the id of a task, where nodes share clients."""

_CANCEL_SECONDS = 10.0  # that the work behind a cancelled task has to be called off

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits and retention of tasks.

    Attributes:
        per_caller: maximum of running tasks of one caller, and of finished ones that are kept for it.
        in_all: maximum of running tasks of all callers, and of finished ones.
        keep: retention of a task after its end; beyond the maximum, the oldest ones go earlier.
        poll: interval at which a client should poll.
    """

    per_caller: int = 64
    in_all: int = 1024
    keep: timedelta = timedelta(minutes=30)
    poll: timedelta = timedelta(seconds=1)


class TaskCall:
    """A call that may continue as a task.

    Before it becomes a task, it sends requests to its client as any call does; afterwards the task does.
    """

    def __init__(self, board: TaskBoard, ctx: ServerRequestContext[Any, Any]) -> None:
        self._board = board
        self._before = client_input_of(ctx)
        self._session = ctx.session
        self.seal = _seal_of(ctx)
        self._settled = anyio.Event()
        self._scope = anyio.CancelScope()
        self._on_cancel: Callable[[], Awaitable[None]] | None = None
        self._outcome: HandlerResult = None
        self._failure: Exception | None = None
        self._task: Task | None = None

    @property
    def available(self) -> bool:
        """See `ClientInput.available`."""
        return self._task is not None or self._before.available

    @property
    def holds_call(self) -> bool:
        """See `ClientInput.holds_call`."""
        return self._task is None and self._before.holds_call

    @property
    def kept(self) -> dict[str, str]:
        """See `ClientInput.kept`."""
        return self._before.kept

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """See `ClientInput.fetch`."""
        return await (self._task or self._before).fetch(requests, deadline=deadline)

    def become_task(self, message: str, on_cancel: Callable[[], Awaitable[None]] | None) -> bool:
        """Make the call a task; return False if there are too many already."""
        self._on_cancel = on_cancel
        if self._task is None:
            self._task = self._board.open(self, message)
        if self._task is None:
            return False
        self._settled.set()
        return True

    async def report(self, value: float, total: float | None, message: str | None) -> None:
        """Report progress: to the client while it waits for the answer, to the task afterwards."""
        if self._task is None:
            await self._session.report_progress(value, total, message)
        elif not self._task.finished:
            share = f"{value:g}" if total is None else f"{value:g} of {total:g}"
            self._task.set_status(self._task.status, message=message or share)

    def cancel(self) -> None:
        """Cancel the call, at its client's request."""
        self._scope.cancel()

    async def wait_for_reply(self) -> HandlerResult | Task:
        """Return the reply to the call: its result, or the task that it has become.

        Raises:
            Exception: what the function raised before.
        """
        try:
            await self._settled.wait()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()  # no caller waits for an answer any more, and there is no task
            raise
        if self._task is not None:
            return self._task
        if self._failure is not None:
            raise self._failure
        if self._outcome is None:
            raise MCPError(INTERNAL_ERROR, "The server is shutting down; it stopped this call.")
        return self._outcome

    async def run(self, function: Callable[[], Awaitable[HandlerResult]]) -> None:
        """Run the function to its end, and store its outcome."""
        token = _current.set(self)
        try:
            with self._scope:
                self._outcome = await function()
        except Exception as error:  # noqa: BLE001 - it is raised or reported where the call is answered
            self._failure = unwrap_group(error)
        finally:
            _current.reset(token)
            self._settled.set()
        if self._task is not None:
            await self._finish(self._task)

    async def _finish(self, task: Task) -> None:
        if self._scope.cancelled_caught:
            if self._on_cancel is not None:
                with anyio.move_on_after(_CANCEL_SECONDS):
                    await self._call_off(self._on_cancel)
            task.set_status("cancelled", message="cancelled by the client")
        elif self._failure is not None:
            failure = self._failure
            known = isinstance(failure, MCPError)
            task.error = failure.error if known else MCPError(INTERNAL_ERROR, "Internal error").error
            if not known:
                _log.error("task %s failed unexpectedly", task.id[:8], exc_info=failure)
            task.set_status("failed", message=task.error.message)
        else:
            task.result = self._outcome
            task.set_status("completed")

    async def _call_off(self, on_cancel: Callable[[], Awaitable[None]]) -> None:
        try:
            await on_cancel()
        except Exception:  # noqa: BLE001 - the outermost handler of work that no caller waits for
            _log.exception("the work behind a cancelled task goes on")


class TaskBoard:
    """All tasks of a server while it runs: `async with TaskBoard() as board`."""

    def __init__(self, limits: TaskLimits | None = None) -> None:
        self._limits = limits or TaskLimits()
        self._tasks: dict[str, tuple[Task, TaskCall]] = {}
        self._group: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop running calls; work that continues on its own, such as a job in a store, is not cancelled."""
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):  # goes on as it is, not in a group
            kind, error, traceback = None, None, None
        return await self._group.__aexit__(kind, error, traceback)

    @property
    def poll_ms(self) -> int:
        """Interval at which a client should poll, in milliseconds."""
        return round(self._limits.poll / timedelta(milliseconds=1))

    async def serve(
        self, ctx: ServerRequestContext[Any, Any], function: Callable[[], Awaitable[HandlerResult]]
    ) -> HandlerResult | Task:
        """Run the function of a call; return its result, or the task as soon as it becomes one.

        Raises:
            Exception: what the function raises before the call has become a task.
        """
        call = TaskCall(self, ctx)
        self._group.start_soon(call.run, function)
        return await call.wait_for_reply()

    def open(self, call: TaskCall, message: str) -> Task | None:
        """Make a task of a call, or None if there are too many."""
        now = datetime.now(UTC)
        self._forget(now)
        self._drop_oldest()
        owner = current_caller().id
        running = [task.owner for task, _ in self._tasks.values() if not task.finished]
        mine = running.count(owner)
        if mine >= self._limits.per_caller or len(running) >= self._limits.in_all:
            _log.warning(
                "a call did not become a task: %d tasks of this caller run, %d in total", mine, len(running)
            )
            return None
        task = Task(call.seal(secrets.token_urlsafe(24)), owner, now, now, message=message)
        self._tasks[task.id] = (task, call)
        return task

    def get(self, id_: str) -> Task | None:
        """Return the current caller's task with this id, or None."""
        self._forget(datetime.now(UTC))
        task, _ = self._tasks.get(id_, (None, None))
        return task if task is not None and task.owner == current_caller().id else None

    def cancel(self, task: Task) -> None:
        """Stop a task; one that has finished stays as it is."""
        if not task.finished:
            self._tasks[task.id][1].cancel()

    def ttl_ms(self, task: Task) -> int:
        """Return the retention of the task since its creation, in milliseconds; it grows while it runs."""
        until = task.updated if task.finished else datetime.now(UTC)
        return round((until - task.created + self._limits.keep) / timedelta(milliseconds=1))

    def _forget(self, now: datetime) -> None:
        for id_, (task, _) in list(self._tasks.items()):
            if task.finished and now - task.updated > self._limits.keep:
                del self._tasks[id_]

    def _drop_oldest(self) -> None:
        """Drop the finished tasks that are too many, those that ended first before the others."""
        kept: Counter[str] = Counter()
        finished = (task for task, _ in self._tasks.values() if task.finished)
        for task in sorted(finished, key=lambda task: task.updated, reverse=True):
            if kept[task.owner] < self._limits.per_caller and kept.total() < self._limits.in_all:
                kept[task.owner] += 1
            else:
                del self._tasks[task.id]


def _seal_of(ctx: ServerRequestContext[Any, Any]) -> Callable[[str], str]:
    """Return the function that makes the id of a task which the client of a call gets."""
    return str if ctx.request is None else ctx.request.scope.get(SEAL_KEY, str)


_current: ContextVar[TaskCall | None] = ContextVar("loom_task_call", default=None)


def current_task_call() -> TaskCall | None:
    """Return the current call, if it may continue as a task."""
    return _current.get()


TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


@dataclass(eq=False, slots=True)
class _Question:
    """A pending request of a task to its client."""

    request: InputRequest
    response: InputResponse | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, slots=True)
class Task:
    """One call that continues as a task.

    Attributes:
        id: its id for the client, which cannot be guessed.
        owner: id of its caller; empty without authentication.
        status: status in terms of the protocol.
        message: status message for people, or empty.
        result: result of the call, once it is completed.
        error: error of the call, if it failed.
        created: when it became a task.
        updated: time of the latest change.
    """

    id: str
    owner: str
    created: datetime
    updated: datetime
    status: TaskStatus = "working"
    message: str = ""
    result: HandlerResult = None
    error: ErrorData | None = None
    _questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    _asked: set[str] = field(default_factory=set[str])

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def requests(self) -> dict[str, InputRequest]:
        """Pending requests to its client, by keys that are never used again."""
        return {key: question.request for key, question in self._questions.items()}

    def set_status(self, status: TaskStatus, *, message: str | None = None) -> None:
        """Set the status, and the message if it is given."""
        self.status = status
        self.message = self.message if message is None else message
        self.updated = datetime.now(UTC)

    def answer(self, key: str, given: object) -> None:
        """Accept a response to a pending request; ignore one to any other.

        Raises:
            MCPError: it does not fit the request.
        """
        if question := self._questions.get(key):
            question.response = response_to(question.request, key, given)
            question.answered.set()
            self._close(key)

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """See `ClientInput.fetch`."""
        asked = {self._key(name): _Question(request) for name, request in requests.items()}
        self._questions |= asked
        self.set_status("input_required")
        try:
            with anyio.fail_after(deadline):
                for question in asked.values():
                    await question.answered.wait()
        finally:
            for key in asked:
                self._close(key)
        pairs = zip(requests, asked.values(), strict=True)
        return {name: question.response for name, question in pairs if question.response is not None}

    def _key(self, name: str) -> str:
        key, number = name, 1
        while key in self._asked:
            number += 1
            key = f"{name}-{number}"
        self._asked.add(key)
        return key

    def _close(self, key: str) -> None:
        self._questions.pop(key, None)
        if not self._questions and self.status == "input_required":
            self.set_status("working")
