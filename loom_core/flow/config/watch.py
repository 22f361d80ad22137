"""A flow file that may change while it is used."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.flow.config.flow_file import LoadedFlows, flow_file_warnings, read_flow_file

__all__ = ["FlowFileWatch"]

_log = logging.getLogger(__name__)

_Stamp: TypeAlias = tuple[int, int, int, int]


class FlowFileWatch:
    """What a flow file says now. If it becomes wrong, what it said before stays, and it is said so.

    A file that has not changed is not opened again. What has been handed out never changes: who holds it
    goes on with it.

    Args:
        path: the file.
        tools: names of tools that there are besides `system_tools`.
        interval: seconds in which the file is looked at once at the most.
    """

    def __init__(self, path: Path, *, tools: Collection[str] = (), interval: float = 1.0) -> None:
        self._path = path
        self._tools = tools
        self._interval = interval
        self._loaded: LoadedFlows | None = None
        self._stamp: _Stamp | None = None
        self._looked = float("-inf")
        self._problem = ""
        self._lock = anyio.Lock()

    @property
    def problem(self) -> str:
        """Why what stands in the file is not used; empty if it is."""
        return self._problem

    async def latest(self) -> LoadedFlows:
        """What the file says, or what it said when it was last in order.

        Raises:
            ConfigError: it is wrong, and has never been in order.
        """
        async with self._lock:
            if self._loaded is not None and time.monotonic() - self._looked < self._interval:
                return self._loaded
            return await to_thread.run_sync(self._look)

    def _look(self) -> LoadedFlows:
        self._looked = time.monotonic()
        stamp = _stamp(self._path)
        if self._loaded is not None and stamp == self._stamp:
            return self._loaded
        try:
            loaded = read_flow_file(self._path, tools=self._tools)
        except ConfigError as error:
            if self._loaded is None:
                raise
            self._problem = f"{error} What it said before is still used."
            _log.warning("%s", self._problem)
            loaded = self._loaded
        else:
            if self._problem or (self._loaded and loaded.version != self._loaded.version):
                _log.info("%s has been read again.", self._path)
            self._problem = ""
            if self._loaded is not None and loaded.version == self._loaded.version:
                loaded = self._loaded
            else:
                for warning in flow_file_warnings(self._path):
                    _log.warning("%s", warning)
        self._loaded, self._stamp = loaded, stamp
        return loaded


def _stamp(path: Path) -> _Stamp | None:
    """What changes when a file does; None if it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
