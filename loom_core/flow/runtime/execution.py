"""Drives the runs of flows and of skills with what the flow file comes to now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, NotFoundError
from loom_core.flow.runtime.skills import SKILLS_PROFILE

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.runtime.runtime import Equipment
    from loom_core.runs.host import RunDriver
    from loom_core.runs.journal import RunLog
    from loom_core.runs.run import Run

__all__ = ["FlowRunner", "can_be_driven"]


class FlowRunner:
    """Takes runs up; see `Runner`.

    Args:
        equipment: gives what the flow file comes to.
    """

    def __init__(self, equipment: Callable[[], Equipment]) -> None:
        self._equipment = equipment

    async def for_profile(self, profile: str) -> FlowRunner:
        """Itself, for the runs of flows and skills: what a `RunHost` takes.

        Raises:
            NotFoundError: it is another's profile.
        """
        if not can_be_driven(self._equipment().file, profile):
            raise NotFoundError(f"There is no flow {profile!r}.", advice="Another program may have it.")
        return self

    def loop(self, log: RunLog) -> RunDriver:
        """See `Runner.loop`.

        Raises:
            ConfigError: it is a run of skills, and there is no model.
        """
        equipment = self._equipment()
        if log.run.request.profile != SKILLS_PROFILE:
            return _Driven(equipment.executor.loop(log), equipment, log.run)
        if equipment.skill_agent is None:
            raise ConfigError("Skills need a model.", advice="Name one as `model` of the flow file.")
        return _Driven(equipment.skill_agent.loop(log), equipment, log.run)


def can_be_driven(file: FlowFile, profile: str) -> bool:
    """Whether runs of a profile can go on by a file: it has the flow, or they are of skills."""
    return profile == SKILLS_PROFILE or file.flow(profile) is not None


class _Driven:
    """A run that is driven with an equipment, which stays as long."""

    def __init__(self, driver: RunDriver, equipment: Equipment, run: Run) -> None:
        self._driver = driver
        self._equipment = equipment
        self._run = run

    async def drive(self) -> Run:
        """See `RunDriver.drive`."""
        given = self._run.request.metadata.get("context")
        context = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
        with self._equipment.used(self._run.id, context):
            return await self._driver.drive()

    async def leave(self) -> None:
        """See `RunDriver.leave`."""
        await self._driver.leave()
