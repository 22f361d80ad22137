"""The audit of tool calls: every decision, and every call that may change something."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
from pydantic import SecretStr

from loom_core.errors import LoomError
from loom_core.tools.audit_file import AuditFile, AuditReport, verify
from loom_core.tools.calls import Verdict
from loom_core.tools.redaction import arguments_digest, redacted_arguments

__all__ = ["AuditEntry", "AuditLog"]

_log = logging.getLogger(__name__)

_MOST_WAITING = 10_000  # entries that are kept while the file cannot be written


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line.

    Attributes:
        kind: `decision`: what was decided of a call; `start`: a call that may change something begins;
            `end`: how it ended.
        run: whose call it is.
        call: its id.
        tool: as people call it.
        arguments: of the call; what is no secret is written, and the digest of that uncut.
        decision: what was decided; empty for other kinds.
        by: who decided: `rules`, or a person.
        rule: which rule said so; empty for none.
        outcome: the `CallStatus`, for `end`.
        seconds: that it took, for `end`.
        source: who called.
        at: when, in seconds since 1970.
    """

    kind: Literal["decision", "start", "end"]
    call: str
    tool: str
    run: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    decision: Verdict | Literal[""] = ""
    by: str = ""
    rule: str = ""
    outcome: str = ""
    seconds: float = 0.0
    source: str = ""
    at: float = field(default_factory=time.time)

    def as_json(self, secrets: Iterable[SecretStr] = ()) -> dict[str, Any]:
        """What is written of it; what is empty is left out."""
        written: dict[str, Any] = {"at": round(self.at, 6), "kind": self.kind}
        for name in ("run", "call", "tool", "source", "decision", "by", "rule", "outcome"):
            if value := getattr(self, name):
                written[name] = value
        if self.kind == "end":
            written["seconds"] = round(self.seconds, 6)
        else:
            written["arguments"] = redacted_arguments(self.arguments, secrets)
            written["digest"] = arguments_digest(self.arguments, secrets)
        return written


class AuditLog:
    """Writes an audit from an event loop: in a thread, and what several tasks have in one go.

    Entries that could not be written wait and go out before the next ones; so a disk that was full for a
    while leaves no gap, unless the process ends meanwhile.

    Args:
        path: the file; see `AuditFile`.
        most_bytes: when the next one is begun.
        secrets: gives what must not stand in it.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        most_bytes: int = 50_000_000,
        secrets: Callable[[], Iterable[SecretStr]] = tuple,
    ) -> None:
        self.path = Path(path)
        self._file = AuditFile(self.path, most_bytes=most_bytes)
        self._secrets = secrets
        self._waiting: list[dict[str, Any]] = []
        self._added = 0
        self._written = 0
        self._writing = anyio.Lock()

    @property
    def has_waiting(self) -> bool:
        """Whether there are entries that are not written."""
        return bool(self._waiting)

    def note(self, *entries: AuditEntry) -> None:
        """Have entries written with the next `write`."""
        secrets = tuple(self._secrets())
        self._waiting += (entry.as_json(secrets) for entry in entries)
        self._added += len(entries)
        if (lost := len(self._waiting) - _MOST_WAITING) > 0:
            del self._waiting[:lost]
            _log.error("%d entries of the audit are lost: it cannot be written", lost)

    async def write(self, *entries: AuditEntry) -> None:
        """Write entries and all that were noted, and return when they are in the file.

        Raises:
            RecordError: they cannot be written now. They wait for the next time.
        """
        self.note(*entries)
        mine = self._added
        while self._written < mine:
            async with self._writing:
                if self._written < mine:
                    await self._write_waiting()

    async def try_write(self, *entries: AuditEntry) -> None:
        """The same for what may go on without it: a failure is logged, and the entries wait."""
        try:
            await self.write(*entries)
        except LoomError as error:
            _log.error("%s", error)

    async def verify(self) -> AuditReport:
        """Look whether the audit is as it was written.

        Raises:
            RecordError: it cannot be read.
        """
        return await anyio.to_thread.run_sync(verify, self.path)

    async def _write_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        reached = self._added
        with anyio.CancelScope(
            shield=True
        ):  # a thread cannot be stopped: what it wrote must not count as lost
            try:
                await anyio.to_thread.run_sync(self._file.append, batch)
            except BaseException:
                self._waiting = [*batch, *self._waiting]
                raise
        self._written = reached
