"""Which process listens on a TCP port, as far as the system tells this user."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PortHolder", "port_holder"]

_LISTENING = "0A"  # the state LISTEN in /proc/net/tcp
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PortHolder:
    """A process that listens.

    Attributes:
        pid: its process id.
        program: the name of its program, never its arguments: there may be secrets in them.
    """

    pid: int
    program: str

    def __str__(self) -> str:
        return f"{self.program} (process {self.pid})"


def port_holder(port: int) -> PortHolder | None:
    """The process that listens on a port of this machine; None if it cannot be told.

    Processes of other users can be seen by an administrator only. Linux tells it in `/proc`, macOS by the
    command `lsof`; on Windows it is not told. Blocks.
    """
    if sys.platform == "linux":
        return _by_proc(port)
    return _by_lsof(port) if shutil.which("lsof") else None


def _by_proc(port: int) -> PortHolder | None:
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").iterdir() if wanted else ():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended, or is another user's
            if any(str(link.readlink()) in wanted for link in (folder / "fd").iterdir()):
                return PortHolder(int(folder.name), (folder / "comm").read_text("utf-8", "replace").strip())
    return None


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):  # a kernel without IPv6
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _by_lsof(port: int) -> PortHolder | None:
    command = ["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    fields = {line[:1]: line[1:] for line in done.stdout.decode("utf-8", "replace").splitlines()}
    pid = fields.get("p", "")
    return PortHolder(int(pid), fields.get("c", "a program")) if pid.isdecimal() else None
