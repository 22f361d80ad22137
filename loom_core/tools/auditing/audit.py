"""Audit log: decisions about calls, calls that may change something, and refused requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic import SecretStr

from loom_core.errors import LoomError
from loom_core.redaction import Redaction
from loom_core.tools.auditing.file import AuditFile, AuditReport, verify
from loom_core.tools.calls import Verdict
from loom_core.tools.redaction import arguments_digest, redact_arguments

__all__ = ["AUDIT_FIELDS", "AuditEntry", "AuditKind", "AuditLog"]

_log = logging.getLogger(__name__)


AuditKind: TypeAlias = Literal["decision", "order", "start", "end", "refused", "command"]
"""Kind of an audit entry; see `AuditEntry.kind`."""

AUDIT_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "at": "Time, in seconds since 1970",
        "kind": "`decision`: the decision about a call; `order`: a command to pause, continue or end a "
        "run of a flow; `start`: a call that may change something begins; `end`: how it ended; `refused`: "
        "refused requests; `command`: something is done on the command line, with `outcome` "
        "once it has ended",
        "server": "The server, such as `loom-kb`; empty for an agent's own calls in a program",
        "run": "The run of an agent or a flow: the one whose call it is, or that a client's call has begun "
        "or is about, as far as its answer says",
        "call": "Id of the call, the request, or what was decided; for a command the number of its process",
        "tool": "Tool as people call it, request of a flow (`POST https://…`), command, or method and path",
        "caller": "Caller: name of the token, subject of an access token, user of the terminal; `local` "
        "without authentication; in a run of an agent or a flow, who has asked for it",
        "caller_id": "Distinguishes callers of the same name",
        "client": "Name and version that the client gives itself; not to be trusted",
        "source": "Origin: `stdio`, the address over HTTP, `terminal`",
        "decision": "The decision: `allow`, `deny`, `ask`",
        "by": "Who decided, or gave the command: `rules`, or a person",
        "rule": "The rule that decided; empty if a person decided, or for another reason",
        "reason": "Reason of the decision, as shown to people and models",
        "outcome": "Outcome: of a tool `success`, `error`, `denied`, `timeout`, `aborted`; of a client's"
        " call also `input_required`, `task`, `refused`, `cancelled`; of a refusal the reason; of"
        " a command `paused`, `resumed`, `retried`, `aborted`",
        "times": "How many requests were refused since the last line about this source, with this one",
        "seconds": "Duration; for `end`",
        "arguments": "Arguments of the call, without secrets, long ones truncated; not for `end`",
        "digest": "SHA-256 of the arguments uncut, without secrets",
        "file": "Number of the file that begins with this line",
        "torn": "Whether the line before was cut off, as a process died in the middle of it",
        "seen": "Hash of the end in `audit.head`, if the line before is another: lines were removed, or a"
        " process died in between",
        "prev": "SHA-256 of the line before this one; zeros for the first ever",
    }
)
"""Every field of a line, in writing order; empty fields are left out."""

_TEXTS = (
    "server", "run", "call", "tool", "caller", "caller_id", "client", "source", "decision", "by", "rule",
    "reason", "outcome", "times",
)  # fmt: skip
_LONGEST = 300  # characters of a text, as clients choose some texts


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the audit log; `AUDIT_FIELDS` says what its fields mean. Empty fields are left out.

    `arguments` are written without secrets and with long ones cut, with a digest of the uncut ones.
    """

    kind: AuditKind
    call: str = ""
    tool: str
    server: str = ""
    run: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    decision: Verdict | Literal[""] = ""
    by: str = ""
    rule: str = ""
    reason: str = ""
    outcome: str = ""
    times: int = 0
    seconds: float = 0.0
    caller: str = ""
    caller_id: str = ""
    client: str = ""
    source: str = ""
    at: float = field(default_factory=time.time)

    def as_json(self, secrets: Iterable[SecretStr] = ()) -> dict[str, Any]:
        """Return the JSON of the line; empty fields are left out."""
        secrets = tuple(secrets)
        hidden = Redaction.now(secrets, assigned=True)
        written: dict[str, Any] = {"at": round(self.at, 6), "kind": self.kind}
        for name in _TEXTS:
            if value := getattr(self, name):
                hide = hidden.identifier if name == "caller_id" else hidden.text
                written[name] = hide(value)[:_LONGEST] if isinstance(value, str) else value
        if self.kind == "end":
            written["seconds"] = round(self.seconds, 6)
        elif self.kind != "refused":
            written["arguments"] = redact_arguments(self.arguments, secrets)
            written["digest"] = arguments_digest(self.arguments, secrets)
        return written


class AuditLog:
    """Writes the audit log from an event loop: in a thread, and in batches.

    Entries that could not be written wait, and are written before the next ones; so a disk that was full for
    a while leaves no gap, unless the process ends before.

    Args:
        path: the file; see `AuditFile`.
        most_bytes: size at which the file is rotated.
        most_waiting: maximum of waiting entries; beyond it the oldest are lost, which is logged.
        secrets: returns further secrets to redact, in addition to those that this process knows; called in
            threads.
        server: the server that writes, for entries without one.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        most_bytes: int = 50_000_000,
        most_waiting: int = 10_000,
        secrets: Callable[[], Iterable[SecretStr]] = tuple,
        server: str = "",
    ) -> None:
        self.path = Path(path)
        self._file = AuditFile(self.path, most_bytes=most_bytes)
        self._most_waiting = most_waiting
        self._secrets = secrets
        self._server = server
        self._waiting: list[dict[str, Any]] = []
        self._added = 0
        self._written = 0
        self._writing = anyio.Lock()

    @property
    def has_waiting(self) -> bool:
        """Whether there are entries that are not written."""
        return bool(self._waiting)

    def note(self, *entries: AuditEntry) -> None:
        """Queue entries for the next `write`."""
        self._queue(self._lines(entries))

    def _lines(self, entries: Iterable[AuditEntry]) -> list[dict[str, Any]]:
        secrets = tuple(self._secrets())
        named = (entry if entry.server else replace(entry, server=self._server) for entry in entries)
        return [entry.as_json(secrets) for entry in named]

    def _queue(self, lines: Sequence[dict[str, Any]]) -> None:
        self._waiting += lines
        self._added += len(lines)
        if (lost := len(self._waiting) - self._most_waiting) > 0:
            del self._waiting[:lost]
            _log.error("%d entries of the audit are lost: it cannot be written", lost)

    async def write(self, *entries: AuditEntry) -> None:
        """Write entries and all queued ones; return when they are in the file.

        Raises:
            StoreError: they cannot be written now. They wait for the next time.
        """
        if entries:  # redacted in a thread: megabytes of arguments take seconds
            with anyio.CancelScope(shield=True):
                self._queue(await anyio.to_thread.run_sync(self._lines, entries))
        mine = self._added
        while self._written < mine:
            async with self._writing:
                if self._written < mine:
                    await self._write_waiting()

    async def try_write(self, *entries: AuditEntry) -> None:
        """Write entries if possible: a failure is logged, and the entries wait."""
        try:
            await self.write(*entries)
        except LoomError as error:
            _log.error("%s", error)

    async def verify(self) -> AuditReport:
        """Verify the integrity of the audit.

        Raises:
            StoreError: it cannot be read.
        """
        return await anyio.to_thread.run_sync(verify, self.path)

    async def _write_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        reached = self._added
        with anyio.CancelScope(
            shield=True
        ):  # a thread cannot be stopped: its written entries must not count as lost
            try:
                await anyio.to_thread.run_sync(self._file.append, batch)
            except BaseException:
                self._waiting = [*batch, *self._waiting]
                raise
        self._written = reached
