"""Whether the server could listen over HTTP, and who is there if not."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from typing import cast

from loom_core.server.cli.health import Finding, Section, fine, problem, warning
from loom_core.server.doctor.port_holder import port_holder

__all__ = ["port_section"]

_SECONDS = 2.0
_MOST_BYTES = 1 << 16


def port_section(host: str, port: int, *, program: str) -> Section:
    """See whether the port is free, by binding and not listening; blocks.

    A port that is taken is a warning: a server over stdio needs none.

    Args:
        host: a loopback address.
        port: the port, or 0 for any free one.
        program: the server that would listen, such as `loom-kb`.
    """
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    facts = {"address": address, "port": str(port)}
    return Section(name="port", facts=facts, findings=[_finding(address, port, program)])


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
    if served := _served(address, port):
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


def _served(address: str, port: int) -> str:
    """What a Loom server that listens there calls itself, or empty."""
    connection = http.client.HTTPConnection(address, port, timeout=_SECONDS)
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
