"""Metrics in a file for node_exporter's textfile collector: a stdio server has no metrics endpoint.

The collector of Prometheus's node_exporter reads whole files whose names end in `.prom`, and does not accept
two metrics of the same name and labels, so each has a label for its server.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from loom_core.server.protocol.factory import LoomServer

__all__ = ["maintain_metrics"]

_PID = "{pid}"
_EVERY_SECONDS = 15.0
_LEFT_AFTER = 4  # intervals without a write, after which its process counts as killed
_END_SECONDS = 2.0  # for the last write: a hanging disk must not block the end
_READABLE = 0o644  # by the collector, which is another user

_log = logging.getLogger(__name__)


@contextmanager
def maintain_metrics(
    file: Path | str, server: LoomServer, *, every_seconds: float = _EVERY_SECONDS
) -> Generator[None]:
    """Update a metrics file in the block, and a last time at its end.

    Readers always see a whole file: each write replaces it. A failed write is logged, once until a write
    succeeds again. All metrics have the label `loom_server`.

    Args:
        file: the file, in an existing folder. Concurrent processes of one server need separate files: `{pid}`
            in the name is the process id. Such a file is deleted with its process, and its metrics have the
            label `pid`, too; the stale file of a killed process is deleted by another one.
        server: the server.
        every_seconds: interval of the writes.

    Raises:
        ConfigError: the first write fails.
    """
    keeper = _MetricsWriter(Path(str(file).replace(_PID, str(os.getpid()))).expanduser().absolute(), server)
    if goes := _PID in str(file):
        keeper.labels["pid"] = str(os.getpid())
        keeper.left_after = _LEFT_AFTER * every_seconds
        keeper.alike = re.compile(r"\d{1,10}".join(map(re.escape, Path(file).name.split(_PID))))
    try:
        keeper.write()
        keeper.remove_left()
    except OSError as error:
        raise ConfigError(
            f"The file of metrics {keeper.path} cannot be written: {error.strerror or error}.",
            advice="Name a file in a folder that is there and that this user may write to.",
        ) from error
    ends = threading.Event()
    thread = threading.Thread(target=keeper.keep, args=(ends, every_seconds), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(_END_SECONDS)
        if goes:
            with suppress(OSError):
                keeper.path.unlink()


class _MetricsWriter:
    """Writer of the metrics file."""

    def __init__(self, path: Path, server: LoomServer) -> None:
        self.path = path
        self.labels = {"loom_server": server.protocol.name}
        self.alike: re.Pattern[str] | None = None  # names of files of this server's processes
        self.left_after = 0.0  # seconds
        self._metrics = server.metrics

    def keep(self, ends: threading.Event, every_seconds: float) -> None:
        """Write the file at each interval, and once more at the end."""
        failed = over = False
        while not over:
            over = ends.wait(every_seconds)
            try:
                self.write()
                self.remove_left()
                failed = False
            except OSError as error:
                if not failed:
                    problem = error.strerror or error
                    _log.warning("the file of metrics %s cannot be written: %s", self.path, problem)
                failed = True

    def remove_left(self) -> None:
        """Delete the stale files of killed processes."""
        if self.alike is None:
            return
        oldest = time.time() - self.left_after
        for each in self.path.parent.iterdir():
            if self.alike.fullmatch(each.name) and each != self.path:
                with suppress(OSError):  # another process was quicker, or it is another user's
                    if each.stat().st_mtime < oldest:
                        each.unlink()

    def write(self) -> None:
        """Replace the file atomically; the temporary file has another suffix."""
        descriptor, name = mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".new")
        new = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self._metrics.text(self.labels))
            new.chmod(_READABLE)
            new.replace(self.path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
