"""The handshake of a client over stdio, answered before the MCP SDK is loaded.

Loading the SDK and the rest of a server takes most of its start, and some clients give up their first request
after a second. The answers to `server/discover` and `initialize` do not need them. Only clearly valid
requests are answered here, with the SDK's answers: tests compare the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

__all__ = ["FIXED_TTL_MS", "Handshake", "Introduction", "RequestId"]

RequestId: TypeAlias = int | str

FIXED_TTL_MS = 300_000
"""TTL of lists that change only with the program's version, in milliseconds."""

_MODERN = "2026-07-28"
_LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_META = "io.modelcontextprotocol/"
_LONGEST = 65_536  # bytes of a line that may be part of a handshake


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """A server's description of itself in the handshake.

    Attributes:
        name: name for programs.
        version: version of the server.
        title: name for people.
        instructions: how its tools work together, for the model; empty for none.
        resources: whether it has resources.
        completions: whether it completes arguments.
        tasks: whether its calls can continue as tasks.
    """

    name: str
    version: str
    title: str
    instructions: str = ""
    resources: bool = False
    completions: bool = False
    tasks: bool = False

    def discovery(self) -> dict[str, Any]:
        """Build the result of `server/discover`."""
        return {
            "resultType": "complete",
            "supportedVersions": [_MODERN],
            "capabilities": {
                **self._capabilities(subscribe=True),
                **({"extensions": {f"{_META}tasks": {}}} if self.tasks else {}),
            },
            **self._instructions(),
            "ttlMs": FIXED_TTL_MS,
            "cacheScope": "private",
            "_meta": {f"{_META}serverInfo": self._server_info()},
        }

    def initialization(self, version: str) -> dict[str, Any]:
        """Build the result of `initialize` for a version of the handshake era."""
        return {
            "protocolVersion": version,
            "capabilities": self._capabilities(subscribe=False),
            "serverInfo": self._server_info(),
            **self._instructions(),
        }

    def _capabilities(self, *, subscribe: bool) -> dict[str, Any]:
        return {
            **({"completions": {}} if self.completions else {}),
            "prompts": {"listChanged": True},
            **({"resources": {"listChanged": True, "subscribe": subscribe}} if self.resources else {}),
            "tools": {"listChanged": True},
        }

    def _server_info(self) -> dict[str, str]:
        return {"name": self.name, "title": self.title, "version": self.version}

    def _instructions(self) -> dict[str, str]:
        return {"instructions": self.instructions} if self.instructions else {}


class Handshake:
    """One client's handshake: any number of probes with `server/discover`, then perhaps an `initialize`.

    Args:
        introduction: the server's introduction.

    Attributes:
        is_open: whether the handshake may continue.
        initialize_id: id of the `initialize` that was answered, or None.
    """

    def __init__(self, introduction: Introduction) -> None:
        self.is_open = True
        self.initialize_id: RequestId | None = None
        self._introduction = introduction
        self._probes: list[RequestId] = []

    def answer(self, line: bytes) -> bytes | None:
        """Answer a message of the handshake.

        Returns:
            The line to send, which may be empty; None for a message that ends the handshake without an
            answer.
        """
        message = _read(line)
        params: dict[str, Any] = message.get("params") or {}
        match message:
            case {"method": "server/discover", "id": int() | str() as id_} if _is_probe(params):
                self._probes.append(id_)
                return _response(id_, self._introduction.discovery())
            case {"method": "notifications/cancelled"} if params.get("requestId") in self._probes:
                return b""  # the probe is answered
            case {"method": "initialize", "id": int() | str() as id_} if _is_initialize(params):
                self.is_open = False
                self.initialize_id = id_
                return _response(id_, self._introduction.initialization(params["protocolVersion"]))
            case _:
                self.is_open = False
                return None


def _read(line: bytes) -> dict[str, Any]:
    """Parse a message that may belong to a handshake; empty for any other."""
    try:
        message: object = json.loads(line) if len(line) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(message, dict):
        return {}
    read = cast("dict[str, Any]", message)
    id_: object = read.get("id")
    is_sound = (
        read.get("jsonrpc") == "2.0"
        and isinstance(read.get("params"), dict)
        and not isinstance(id_, bool)
        and str(id_).isascii()
    )
    return read if is_sound else {}


def _is_probe(params: dict[str, Any]) -> bool:
    told = params.get("_meta")
    if not isinstance(told, dict):
        return False
    meta = cast("dict[str, Any]", told)
    return (
        meta.get(f"{_META}protocolVersion") == _MODERN
        and isinstance(meta.get(f"{_META}clientCapabilities"), dict)
        and (f"{_META}clientInfo" not in meta or _is_client(meta[f"{_META}clientInfo"]))
    )


def _is_initialize(params: dict[str, Any]) -> bool:
    return (
        params.get("protocolVersion") in _LEGACY
        and isinstance(params.get("capabilities"), dict)
        and _is_client(params.get("clientInfo"))
    )


def _is_client(told: object) -> bool:
    match told:
        case {"name": str(), "version": str()}:
            return True
        case _:
            return False


def _response(id_: RequestId, result: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "result": result}
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"
