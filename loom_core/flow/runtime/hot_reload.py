"""The flow file that is in use: another may take its place while runs go on with what they began with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup, TaskStatus

    from loom_core.flow.config.flow_file import LoadedFlows
    from loom_core.flow.runtime.runtime import Equipment, Outfit

__all__ = ["EquipmentInUse"]


class EquipmentInUse:
    """Holds the equipment of the file that counts, and those before it as long as anything needs them.

    An asynchronous context manager; it may be looked at before, and exchanged only within.

    Args:
        loaded: the file to begin with.
        outfit: what the program gives.
        make: makes the equipment of a file.

    Attributes:
        outfit: what the program gives now.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(
        self, loaded: LoadedFlows, outfit: Outfit, *, make: Callable[[LoadedFlows, Outfit], Equipment]
    ) -> None:
        self.outfit = outfit
        self._make = make
        self._now = make(loaded, outfit)
        self._held: list[Equipment] = []
        self._group: TaskGroup | None = None

    @property
    def now(self) -> Equipment:
        """That of the file that counts."""
        return self._now

    def check_open(self) -> None:
        """See that it is used within its block.

        Raises:
            RuntimeError: it is not.
        """
        self._opened()

    async def exchange(self, loaded: LoadedFlows, outfit: Outfit) -> None:
        """Go by another file from now on; that before is let go of when nothing uses it any more.

        Raises:
            ConfigError: it cannot be used; everything stays as it was.
        """
        group = self._opened()
        equipment = self._make(loaded, outfit)
        await group.start(self._hold, equipment)
        self.outfit = outfit
        old, self._now = self._now, equipment
        old.retire()

    async def __aenter__(self) -> Self:
        group = anyio.create_task_group()
        await group.__aenter__()
        try:
            await group.start(self._hold, self._now)
        except BaseException:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)
            raise
        self._group = group
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for equipment in self._held:
            equipment.let_go()
        group, self._group = self._group, None
        if group is None:
            return
        if error is not None:
            group.cancel_scope.cancel()
        await group.__aexit__(None, None, None)

    def _opened(self) -> TaskGroup:
        if self._group is None:
            raise RuntimeError("a WorkflowOrchestrator is used inside its `async with` block only")
        return self._group

    async def _hold(self, equipment: Equipment, *, task_status: TaskStatus[None]) -> None:
        """Keep what was made of a file open as long as anything needs it; it is opened and closed in here."""
        async with equipment:
            self._held.append(equipment)
            task_status.started()
            await equipment.gone()
            self._held.remove(equipment)
