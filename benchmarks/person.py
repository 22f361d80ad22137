"""The person in a crash run: begins runs, says what they ask for, and now and then has a hand in them."""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from killing import journal_place

from loom_core.errors import InvalidInputError
from loom_core.runs.commands import Abort, Command, Pause, Resume
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, Run

__all__ = ["BY", "Person", "act"]

BY = "小王"

_MOST_OPEN = 12  # runs at the same time
_LOOK_SECONDS = 0.05


class Person(ABC):
    """Lives until the process is killed; once the file `JOURNAL.stop` is there it begins nothing.

    Args:
        path: the journal.
        seed: of the dice.
    """

    resumes = 0.05  # how probable it is that a look has an aborted run go on

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._journal = Journal(journal_place(path))
        self._stop = path.with_name(f"{path.name}.stop")
        self._dice = random.Random(seed)

    async def live(self) -> None:
        """Go on until the process ends."""
        while True:
            stopping = self._stop.exists()
            runs = await self._journal.runs(status=("working", "input_required", "paused"), limit=1000)
            for run in runs:
                await self._see_to(run, stopping=stopping)
            await self._look_back(stopping=stopping)
            for run in await self._journal.runs(status=("aborted",), limit=5):
                if not stopping and self._dice.random() < self.resumes:
                    await self._order(run, Resume(by=BY))
            if not stopping and sum(map(self._is_own, runs)) < _MOST_OPEN:
                await self._begin()
            await anyio.sleep(_LOOK_SECONDS)

    @abstractmethod
    async def _begin(self) -> None:
        """Begin a run."""

    @abstractmethod
    def _said(self, pending: Pending) -> Command:
        """Return the command that answers a waiting run."""

    async def _look_back(self, *, stopping: bool) -> None:  # noqa: B027 - who does nothing says nothing
        """Have a hand in runs that are at their end."""

    async def _interfere(self, run: Run, dice: float) -> None:  # noqa: B027 - likewise
        """Have a hand in a run that goes on; the dice have shown more than what is for all kinds of runs."""

    def _is_own(self, run: Run) -> bool:
        """Whether it is one that a person begins."""
        return True

    async def _see_to(self, run: Run, *, stopping: bool) -> None:
        dice = self._dice
        for pending in run.pending:
            if stopping or dice.random() < 0.5:
                await self._order(run, self._said(pending))
        if run.status == "paused" and (stopping or dice.random() < 0.2):
            await self._order(run, Resume(by=BY))
        if not stopping:
            shown = dice.random()
            if shown < 0.002:
                await self._order(run, Abort(reason="先不做", by=BY))
            elif shown < 0.007:
                await self._order(run, Pause(by=BY))
            else:
                await self._interfere(run, shown)

    async def _order(self, run: Run, order: Command) -> None:
        try:
            await self._journal.send_commands(run.id, order)
        except InvalidInputError:  # it stands differently by now
            return


async def act(drive: Callable[[Path, str], Awaitable[None]], person: Callable[[Path, int], Person]) -> None:
    """Be what the command line says, `drive JOURNAL SHARED` or `person JOURNAL SEED`, until killed."""
    role, path, more = sys.argv[1:]
    if role == "drive":
        await drive(Path(path), more)
        return
    someone = person(Path(path), int(more))
    print("began", flush=True)
    await someone.live()
