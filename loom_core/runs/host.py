"""Drives the runs of a server outside the requests that start them, and those that dead processes left."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import anyio

from loom_core.errors import InvalidInputError, LoomError, NotFoundError
from loom_core.runs.commands import Resume, Retry
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import PARENT_RUN, is_for_call, is_overdue

if TYPE_CHECKING:
    from types import TracebackType

    from loom_core.runs.commands import Command
    from loom_core.runs.journal import Journal, RunLog
    from loom_core.runs.run import Run, RunRequest

__all__ = ["Executor", "RunHost", "Runner", "RunnerSource"]

_log = logging.getLogger(__name__)
_UNDER_WAY = frozenset({"working", "input_required"})


class Executor(Protocol):
    """Drives one run, whose log it holds."""

    async def execute(self) -> Run:
        """Go on until the run is at its end; cancelled, it leaves the run as it is in the journal."""
        ...

    async def detach(self) -> None:
        """Begin nothing new, and wait until no call runs that must not be made twice."""
        ...


class Runner(Protocol):
    """Executor of the runs of a profile, such as an `Agent`."""

    def loop(self, log: RunLog) -> Executor:
        """Take a run up."""
        ...


RunnerSource: TypeAlias = "Mapping[str, Runner] | Callable[[str], Awaitable[Runner]]"
"""Runners by the names of profiles; or a function that makes the runner of a profile when it is first
wanted, and raises `NotFoundError` where there is none."""


class RunHost:
    """Owns the tasks that drive runs: `async with RunHost(journal, runners) as host:`.

    A request only starts a run, or looks at one; when it goes, the run goes on. When the block ends, nothing
    new begins, calls that must not be made twice have a moment to end, everything else is cancelled where it
    is, and the runs stay in the journal as they are: this program takes them up again when it
    restarts, or another one that shares the journal does within seconds. So it does with the runs of a
    program that was killed. A run of a profile that is not here is left to others. A run for a call of
    another one (see `AgentTool`) is driven by that one: so it is that one that is taken up for both.

    Args:
        journal: where the runs are; that of the runners, too.
        runners: see `RunnerSource`.
        max_runs: so many are driven at the same time, and the others wait for their turn. One that waits for
            a person counts.
        look_seconds: how often to look for runs that no process drives; None for never.
        grace_seconds: so long may calls that must not be made twice take to end when the block does.
    """

    def __init__(
        self,
        journal: Journal,
        runners: RunnerSource,
        *,
        max_runs: int = 1000,
        look_seconds: float | None = 2.0,
        grace_seconds: float = 3.0,
    ) -> None:
        self.journal = journal
        self._make = runners if callable(runners) else None
        self._runners: dict[str, Runner] = {} if callable(runners) else dict(runners)
        self._making = anyio.Lock()
        self._room = anyio.Semaphore(max_runs)
        self._look_seconds = look_seconds
        self._grace_seconds = grace_seconds
        self._leaving = False
        self._drivers: dict[str, Executor] = {}
        self._taken: set[str] = set()
        self._strange: set[str] = set()
        self._held: dict[str, str] = {}
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def driven(self) -> frozenset[str]:
        """The ids of the runs that are driven here, or wait for their turn."""
        return frozenset(self._taken)

    @property
    def held(self) -> Mapping[str, str]:
        """Why runs do not go on here for now, by their ids: such as a full disk, or a missing key."""
        return self._held

    async def start(self, request: RunRequest) -> Run:
        """Record a run and begin to drive it; returns at once. Raises as `Journal.create` does.

        Raises:
            NotFoundError: there is no such profile.
        """
        await self._runner(request.profile)
        run = await self.journal.create(request)
        self._start_executing(run.id)
        return run

    async def send_commands(self, run_id: str, *orders: Command, caller: str | None = None) -> Run:
        """Tell a run something; see `Journal.order`. One that no process drives is taken up here.

        Raises:
            InvalidInputError: as there; or a run for a call of another one is to be resumed, which is not
                under way itself.
        """
        if any(isinstance(order, Resume | Retry) for order in orders):
            await self._check_resumable(await self.journal.get(run_id, caller=caller))
        try:
            run = await self.journal.send_commands(run_id, *orders, caller=caller)
        except InvalidInputError:
            run = await self.journal.get(run_id, caller=caller)
            if is_overdue(run):  # no answer came in time, and so it goes on
                await self._adopt_outermost(run)
            raise
        await self._adopt_outermost(run)
        return run

    async def adopt(self, run_id: str) -> None:
        """Drive a run here, if no process does: such as one whose program was killed.

        Raises:
            NotFoundError: there is no such run.
        """
        await self._adopt_outermost(await self.journal.get(run_id))

    def refresh_runners(self) -> None:
        """Ask again who drives which profile: there may be others here now, and some may be gone."""
        self._strange.clear()
        if self._make is not None:
            self._runners.clear()

    async def _check_resumable(self, run: Run) -> None:
        outermost = await self._find_outermost(run)
        if not run.driver and outermost.id != run.id and outermost.status not in _UNDER_WAY:
            raise InvalidInputError(
                f"Run {run.id} is for a call of run {outermost.id}, which is {outermost.status}.",
                advice=f"Resume {outermost.id} instead, or begin a new run.",
            )

    async def __aenter__(self) -> Self:
        self._leaving = False
        self._group = await anyio.create_task_group().__aenter__()
        if self._look_seconds is not None:
            self._group.start_soon(self._poll_unclaimed, self._look_seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group is not None:
            await self._detach()
            self._group.cancel_scope.cancel()
            try:
                await self._group.__aexit__(kind, error, trace)
            finally:
                self._group = None

    async def _detach(self) -> None:
        """Begin nothing new, and wait a moment for calls that must not be made twice."""
        self._leaving = True
        with anyio.move_on_after(self._grace_seconds, shield=True):
            async with anyio.create_task_group() as group:
                for driver in self._drivers.values():
                    group.start_soon(driver.detach)

    async def _poll_unclaimed(self, seconds: float) -> None:
        while True:
            try:
                for run_id in await self.journal.find_unclaimed():
                    await self._adopt_orphan(run_id)
            except LoomError as error:
                _log.warning("cannot look for runs that no process drives: %s", error)
            await anyio.sleep(seconds)

    async def _adopt_orphan(self, run_id: str) -> None:
        """Take up a run that no process drives."""
        if run_id not in self._taken and run_id not in self._strange:
            run = await self.journal.get(run_id)
            if is_for_call(run) and run.status not in FINAL_STATUSES:
                await self._adopt_outermost(run)
            else:
                self._start_executing(run_id)

    async def _adopt_outermost(self, run: Run) -> None:
        """Take a run up, or the one that goes on with it: the outermost of those for whose calls it is."""
        outermost = await self._find_outermost(run)
        if outermost.id == run.id or (outermost.status in _UNDER_WAY and not outermost.driver):
            self._start_executing(outermost.id)

    async def _find_outermost(self, run: Run) -> Run:
        """The run at the top of those for whose calls a run is; the highest that was not forgotten."""
        while is_for_call(run):
            try:
                run = await self.journal.get(str(run.request.metadata[PARENT_RUN]))
            except NotFoundError:
                break
        return run

    def _start_executing(self, run_id: str) -> None:
        if self._group is None:
            raise RuntimeError("a RunHost drives runs inside its `async with` block only")
        if not self._leaving and run_id not in self._taken and run_id not in self._strange:
            self._taken.add(run_id)
            self._group.start_soon(self._execute, run_id, name=f"run {run_id}")

    async def _execute(self, run_id: str) -> None:
        try:
            async with self._room:
                log = None if self._leaving else await self.journal.claim(run_id)
                if log is not None:
                    async with log:
                        runner = await self._runner_of(log)
                        self._held.pop(run_id, None)
                        if runner is not None and not self._leaving:
                            driver = self._drivers[run_id] = runner.loop(log)
                            await driver.execute()
        except LoomError as error:
            if self._held.get(run_id) != str(error):  # it is tried again and again
                _log.warning("run %s stays as it is for now: %s", run_id, error)
            self._held[run_id] = str(error)
        except Exception:  # noqa: BLE001 - it is in the journal; the other runs go on
            _log.exception("run %s has failed", run_id)
        finally:
            self._drivers.pop(run_id, None)
            self._taken.discard(run_id)

    async def _runner_of(self, log: RunLog) -> Runner | None:
        run = log.run
        if is_for_call(run):
            if run.status in FINAL_STATUSES:
                log.take_commands()  # nothing comes of them any more
            else:
                self._strange.add(run.id)  # nothing is left of the run that would go on with it
            return None
        try:
            return await self._runner(run.request.profile)
        except NotFoundError as error:
            self._strange.add(run.id)
            _log.warning("run %s is left to others: %s", run.id, error)
            return None

    async def _runner(self, profile: str) -> Runner:
        """Return the runner of a profile.

        Raises:
            NotFoundError: there is none.
        """
        if self._make is None:
            if profile not in self._runners:
                known = ", ".join(sorted(self._runners)) or "none"
                raise NotFoundError(f"There is no profile {profile!r}.", advice=f"There are: {known}.")
            return self._runners[profile]
        async with self._making:  # two runs at once do not make it twice
            if profile not in self._runners:
                self._runners[profile] = await self._make(profile)
            return self._runners[profile]
