"""Check of the HTTP port: whether it is free, or which process listens."""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loom_core.server.cli.health import Finding, HealthSection, fine, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PortHolder", "port_holder", "port_section"]

_LSOF_SECONDS = 5.0
_HTTP_SECONDS = 2.0
_MOST_BYTES = 1 << 16
_LISTENING = "0A"  # the state LISTEN in /proc/net/tcp


def port_section(host: str, port: int, *, program: str) -> HealthSection:
    """Check whether the port is free, by binding to it; blocks.

    A port that is taken is a warning: a server over stdio needs none.

    Args:
        host: a loopback address.
        port: the port, or 0 for any free one.
        program: the server that would listen, such as `loom-kb`.
    """
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    facts = {"address": address, "port": str(port)}
    return HealthSection(name="port", facts=facts, findings=[_finding(address, port, program)])


def _finding(address: str, port: int, program: str) -> Finding:
    if not 0 <= port <= 65_535:
        return problem("port-unusable", f"{port} is not a TCP port.", "Choose one from 1 to 65535.")
    other = f"or choose another port: {program} serve --http --port 0"
    try:
        _bind(address, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = os.strerror(error.errno) if error.errno else str(error)
            message = f"Nothing can listen on port {port} of {address}: {reason}."
            return warning("port-unusable", message, f"Check the address, {other}.")
    else:
        return fine("port", f"Port {port} is free for {program} serve --http.")
    if served := _find_server(address, port):
        return fine("port", f"{served} serves on port {port} already.")
    holder = port_holder(port)
    message = f"Port {port} is taken by {holder or 'a program that this user may not see'}."
    return warning("port-taken", message, f"Stop that program if it is not needed, {other}")


def _bind(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        if os.name == "posix":  # as the server does; on Windows it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))


def _find_server(address: str, port: int) -> str:
    """Return the name of the Loom server that listens there, or empty."""
    connection = http.client.HTTPConnection(address, port, timeout=_HTTP_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer: object = json.loads(connection.getresponse().read(_MOST_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    finally:
        connection.close()
    told = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
    name, version = str(told.get("name", "")), str(told.get("version", ""))
    return f"{name} {version}"[:80] if name.startswith("loom-") else ""


@dataclass(frozen=True, slots=True)
class PortHolder:
    """A process that listens on a port.

    Attributes:
        pid: its process id.
        program: name of its program, without arguments, which may hold secrets.
    """

    pid: int
    program: str

    def __str__(self) -> str:
        return f"{self.program} (process {self.pid})"


def port_holder(port: int) -> PortHolder | None:
    """Find the process that listens on a port of this machine; None if unknown.

    Only an administrator can see the processes of other users. It is found in `/proc` on Linux, by `lsof` on
    macOS; on Windows it is unknown. Blocks.
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
        done = subprocess.run(command, capture_output=True, timeout=_LSOF_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    fields = {line[:1]: line[1:] for line in done.stdout.decode("utf-8", "replace").splitlines()}
    pid = fields.get("p", "")
    return PortHolder(int(pid), fields.get("c", "a program")) if pid.isdecimal() else None
