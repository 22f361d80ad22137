"""Engine: the lazily opened parts of a process: configuration, journal, agents and run host."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Self

import anyio
from anyio import to_thread

from loom_core.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from anyio.abc import TaskGroup

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.agents import Agents
    from loom_agent.settings import Settings
    from loom_core.agent.agent import Agent
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal

__all__ = ["Engine"]

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
_RESUME_SECONDS = 30.0  # that a resumed run waits for MCP servers, which may take as long to start
_ADOPT_AFTER = 1.0  # seconds; first the client's first requests
_LOOK_SECONDS = 2.0


class Engine:
    """Opens each part on first use. Use it as `async with`.

    It adopts orphaned runs of other processes a second after the start.

    Args:
        settings: settings of the process.
        adopts: whether to adopt orphaned runs of other processes.
    """

    def __init__(self, settings: Settings, *, adopts: bool = True) -> None:
        self.adopts = adopts
        self._settings = settings
        self._file: AgentFile | None = None
        self._tasks: TaskGroup | None = None
        self._journal: Journal | None = None
        self._agents: Agents | None = None
        self._host: RunHost | None = None
        self._waited: set[str] = set()
        self._wanted = anyio.Event()
        self._ready = anyio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run_host, name="runs")
        if self.adopts:
            self._tasks.start_soon(self._adopt)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        # Do not pass the error, which the group would wrap: it is not from one of its tasks.
        await self._tasks.__aexit__(None, None, None)
        await self._close()

    def load(self) -> AgentFile:
        """Return the configuration, loaded on first use. Blocks.

        Raises:
            ConfigError: the file is invalid.
        """
        if self._file is None:
            from loom_agent.profiles.agent_file import read_agent_file

            self._file = read_agent_file(
                self._settings.config, required=self._settings.config_given, provider=self._settings.provider
            )
        return self._file

    def journal(self) -> Journal:
        """Return the journal of this home."""
        if self._journal is None:
            from loom_core.runs.journal import Journal

            self._journal = Journal(self._settings.journal)
        return self._journal

    def agents(self) -> Agents:
        """Return the agents of this process."""
        if self._agents is None:
            from loom_agent.profiles.agents import Agents

            assert self._tasks is not None, "an engine is used as `async with`"
            self._agents = Agents(self._settings, self.journal())
            self._agents.work_in(self._tasks)
        return self._agents

    async def host(self) -> RunHost:
        """Return the run host.

        Raises:
            LoomError: it has ended unexpectedly, or could not start.
        """
        self._wanted.set()
        await self._ready.wait()
        if self._host is None:
            raise LoomError(
                "This process cannot execute runs any more.", advice="See its log, and restart it."
            )
        return self._host

    @property
    def held(self) -> Mapping[str, str]:
        """Why runs cannot continue now, by id; see `RunHost.held`."""
        return {} if self._host is None else self._host.held

    def mark_servers_awaited(self, profile: str) -> None:
        """Mark that the MCP servers of a profile had time to start: its runs no longer wait for them."""
        self._waited.add(profile)

    async def _run_host(self) -> None:
        await self._wanted.wait()
        try:
            await to_thread.run_sync(import_module, "loom_core.agent.agent")  # it takes a while
            from loom_core.runs.host import RunHost

            look = _LOOK_SECONDS if self.adopts else None
            async with RunHost(self.journal(), self._agent, look_seconds=look) as host:
                self._host = host
                self._ready.set()
                await anyio.sleep_forever()
        except Exception:  # noqa: BLE001 - calls report that there is no host, and the server continues
            _log.exception("runs are not executed any more")
        finally:
            self._host = None
            self._ready.set()

    async def _agent(self, profile: str) -> Agent:
        """Return the agent for resumed runs; wait for the MCP servers whose tools they may have called."""
        file = await to_thread.run_sync(self.load)
        seconds = 0.0 if profile in self._waited else _RESUME_SECONDS
        return (await self.agents().get(file, profile, seconds=seconds)).agent

    async def _adopt(self) -> None:
        """Start the host, to adopt orphaned runs, as soon as there is a journal."""
        await anyio.sleep(_ADOPT_AFTER)
        while not self._settings.journal.exists():  # noqa: ASYNC110 - another process creates it
            await anyio.sleep(_LOOK_SECONDS)
        await self.host()

    async def _close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            if self._agents is not None:
                await self._agents.close()
            if self._journal is not None:
                await self._journal.aclose()
