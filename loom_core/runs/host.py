"""Run host: executes the runs of a server in background tasks, and adopts orphaned runs of dead processes."""

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
    """Executes one run, whose log it holds."""

    async def execute(self) -> Run:
        """Execute the run to its end; if cancelled, leave the run as it is in the journal."""
        ...

    async def detach(self) -> None:
        """Start nothing new, and wait until no call is running that must not be repeated."""
        ...


class Runner(Protocol):
    """Creates executors for the runs of a profile, such as an `Agent`."""

    def loop(self, log: RunLog) -> Executor:
        """Return the executor of a run."""
        ...


RunnerSource: TypeAlias = "Mapping[str, Runner] | Callable[[str], Awaitable[Runner]]"
"""Runners by profile name; or a function that creates the runner of a profile on first use, and raises
`NotFoundError` if there is none."""


class RunHost:
    """Owns the background tasks that execute runs: `async with RunHost(journal, runners) as host:`.

    A request only starts or reads a run; the run continues when the request ends. When the block ends,
    nothing new starts, calls that must not be repeated get a grace period to finish, everything else is
    cancelled, and the runs stay in the journal as they are. This program resumes them when it restarts, or
    another process that shares the journal does within seconds; the same holds for a process that was
    killed. Runs of profiles that are unknown here are left to other processes. A child run (see `AgentTool`)
    is executed by its parent run, so the parent is adopted for both.

    Args:
        journal: the journal with the runs; the runners use the same one.
        runners: see `RunnerSource`.
        max_runs: maximum number of concurrent runs; others wait. A run that waits for a person counts.
        look_seconds: poll interval for runs that no process executes; None for never. In PostgreSQL, a
            command for such a run is seen at once.
        grace_seconds: grace period at the end of the block for calls that must not be repeated.
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
        """The ids of the runs that are executed here, or wait for a slot."""
        return frozenset(self._taken)

    @property
    def held(self) -> Mapping[str, str]:
        """Why runs cannot continue here for now, by id: for example a full disk, or a missing key."""
        return self._held

    async def start(self, request: RunRequest) -> Run:
        """Create a run and start to execute it; return at once. Raises as `Journal.create` does.

        Raises:
            NotFoundError: there is no such profile.
        """
        await self._runner(request.profile)
        run = await self.journal.create(request)
        self._start_executing(run.id)
        return run

    async def send_commands(self, run_id: str, *orders: Command, caller: str | None = None) -> Run:
        """Send commands to a run; see `Journal.send_commands`. If no process executes the run, adopt it.

        Raises:
            InvalidInputError: as there; or a child run is to be resumed whose parent run is not active.
        """
        if any(isinstance(order, Resume | Retry) for order in orders):
            await self._check_resumable(await self.journal.get(run_id, caller=caller))
        try:
            run = await self.journal.send_commands(run_id, *orders, caller=caller)
        except InvalidInputError:
            run = await self.journal.get(run_id, caller=caller)
            if is_overdue(run):  # no answer came in time, so the run continues
                await self._adopt_outermost(run)
            raise
        await self._adopt_outermost(run)
        return run

    async def adopt(self, run_id: str) -> None:
        """Adopt a run: execute it here if no process does, for example after its process was killed.

        Raises:
            NotFoundError: there is no such run.
        """
        await self._adopt_outermost(await self.journal.get(run_id))

    def refresh_runners(self) -> None:
        """Refresh the runners: the set of profiles may have changed."""
        self._strange.clear()
        if self._make is not None:
            self._runners.clear()

    async def _check_resumable(self, run: Run) -> None:
        outermost = await self._find_outermost(run)
        if not run.driver and outermost.id != run.id and outermost.status not in _UNDER_WAY:
            raise InvalidInputError(
                f"Run {run.id} is a child of run {outermost.id}, which is {outermost.status}.",
                advice=f"Resume {outermost.id} instead, or start a new run.",
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
        """Start nothing new, and give calls that must not be repeated a grace period."""
        self._leaving = True
        with anyio.move_on_after(self._grace_seconds, shield=True):
            async with anyio.create_task_group() as group:
                for driver in self._drivers.values():
                    group.start_soon(driver.detach)

    async def _poll_unclaimed(self, seconds: float) -> None:
        failure = ""
        while True:
            try:
                for run_id in await self.journal.find_unclaimed():
                    await self._adopt_orphan(run_id)
                failure = ""
            except LoomError as error:
                if failure != str(error):  # it is retried many times
                    _log.warning("cannot look for runs that no process executes: %s", error)
                failure = str(error)
            await self.journal.wait_for_unclaimed(seconds=seconds)

    async def _adopt_orphan(self, run_id: str) -> None:
        if run_id not in self._taken and run_id not in self._strange:
            run = await self.journal.get(run_id)
            if is_for_call(run) and run.status not in FINAL_STATUSES:
                await self._adopt_outermost(run)
            else:
                self._start_executing(run_id)

    async def _adopt_outermost(self, run: Run) -> None:
        """Adopt a run; for a child run, its outermost ancestor, which executes it."""
        outermost = await self._find_outermost(run)
        if outermost.id == run.id or (outermost.status in _UNDER_WAY and not outermost.driver):
            self._start_executing(outermost.id)

    async def _find_outermost(self, run: Run) -> Run:
        """Return the outermost ancestor of a run that was not purged; the run itself if it has no parent."""
        while is_for_call(run):
            try:
                run = await self.journal.get(str(run.request.metadata[PARENT_RUN]))
            except NotFoundError:
                break
        return run

    def _start_executing(self, run_id: str) -> None:
        if self._group is None:
            raise RuntimeError("a RunHost executes runs inside its `async with` block only")
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
            if self._held.get(run_id) != str(error):  # it is retried many times
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
                log.take_commands()  # they have no effect any more
            else:
                self._strange.add(run.id)  # its parent run, which would execute it, is gone
            return None
        try:
            return await self._runner(run.request.profile)
        except NotFoundError as error:
            self._strange.add(run.id)
            _log.warning("run %s is left to others: %s", run.id, error)
            return None

    async def _runner(self, profile: str) -> Runner:
        """Return the runner of a profile."""
        if self._make is None:
            if profile not in self._runners:
                known = ", ".join(sorted(self._runners)) or "none"
                raise NotFoundError(f"There is no profile {profile!r}.", advice=f"There are: {known}.")
            return self._runners[profile]
        async with self._making:  # create it once, even for concurrent runs
            if profile not in self._runners:
                self._runners[profile] = await self._make(profile)
            return self._runners[profile]
