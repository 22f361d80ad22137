"""Recursion guard for servers that start servers: a depth limit, and no server starts itself."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from loom_core.mcp_client.connections.errors import Fault, FaultError
from loom_core.mcp_client.connections.process import program_of

if TYPE_CHECKING:
    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["MAX_DEPTH", "Lineage"]

MAX_DEPTH = 3
"""Maximum number of Loom's programs above a server, each started or called by the one before."""

_DEPTH = "LOOM_DEPTH"
_STARTED = "LOOM_STARTED"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Chain of processes that started this program.

    Attributes:
        depth: number of Loom's programs above it.
        started: fingerprints of the entries that were started on the way to it.
    """

    depth: int = 0
    started: frozenset[str] = frozenset()

    @classmethod
    def of_process(cls, *, environment: Mapping[str, str] | None = None) -> Self:
        """Read the lineage from the environment; invalid values count as none.

        Args:
            environment: by default the process's own.
        """
        environment = os.environ if environment is None else environment
        said = environment.get(_DEPTH, "")
        depth = int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0
        return cls(depth, frozenset(environment.get(_STARTED, "").split()))

    def below(self, depth: int = 0) -> int:
        """Return the depth of servers that a call of ours may start.

        Args:
            depth: number of programs above the call, as far as its caller knows.

        Raises:
            FaultError: it exceeds `MAX_DEPTH`.
        """
        deeper = max(depth, self.depth) + 1
        if deeper > MAX_DEPTH:
            what = (
                f"is not called: {MAX_DEPTH} programs are above this one already, each started or called by"
                " the one before"
            )
            advice = "Look in the configurations for servers that lead back to each other."
            raise FaultError(Fault("loop", what, advice, ran="no"))
        return deeper

    def check(self, config: ServerConfig) -> None:
        """Refuse to start a server that would lead to endless recursion.

        Raises:
            FaultError: too many programs are above this one, or the entry is among those that started it.
        """
        self.below()
        if config.transport == "stdio" and _fingerprint(config) in self.started:
            what = "is not started: this program was started by it"
            advice = "Remove it from this configuration, or give it a configuration of its own."
            raise FaultError(Fault("loop", what, advice, ran="no"))

    def environment_of(self, config: ServerConfig) -> dict[str, str]:
        """Return the environment variables that pass the lineage to a child."""
        started = self.started | {_fingerprint(config)}
        return {_DEPTH: str(self.depth + 1), _STARTED: " ".join(sorted(started))}


def _fingerprint(config: ServerConfig) -> str:
    """Hash a server's command, folder and settings, so that they cannot be read from it."""
    program = program_of(config, path=config.env.get("PATH"))
    parts = [
        os.path.realpath(program) if program else config.command,  # what cannot be started needs no real path
        list(config.args),
        str(config.cwd or ""),
        sorted(config.env.items()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
