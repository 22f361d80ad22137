"""Ownership of a folder: which process owns it, and its address.

The lock file `lock` decides which process owns a folder; `owner.json` next to it has the owner's address. The
latter may be stale, as a killed process does not remove it; the lock never is.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom_core.storage.local_socket import SocketAddress, Transport
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Holder", "OwnerCard", "holder_of", "lock_of", "read_card", "remove_card", "write_card"]

_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that owns a folder.

    Attributes:
        pid: its process id; 0 if the holder of the lock has not recorded it yet.
        program: its program, such as `loom-kb`; empty if it does not serve other processes.
        version: its version of Loom, or empty.
        since: start of its service, in seconds since 1970, or None.
    """

    pid: int
    program: str = ""
    version: str = ""
    since: float | None = None

    def __str__(self) -> str:
        return f"{self.program or 'a program'} (process {self.pid})"


class OwnerCard(BaseModel):
    """Content of `owner.json`: the owner, and its address.

    Attributes:
        protocol: version of its protocol.
        pid: its process id.
        program: its program.
        version: its version of Loom.
        since: its start, in seconds since 1970.
        transport: transport of its socket.
        place: path or port of its socket.
        secret: the shared secret.
    """

    model_config = ConfigDict(frozen=True)

    protocol: int
    pid: int
    program: str
    version: str
    since: float
    transport: Transport
    place: str
    secret: str = Field(repr=False)

    @property
    def address(self) -> SocketAddress:
        """Its address."""
        return SocketAddress(self.transport, self.place, self.secret)


def lock_of(folder: Path) -> ProcessLock:
    """Return the lock of a folder's owner."""
    return ProcessLock(folder / "lock")


def holder_of(folder: Path) -> Holder | None:
    """Return the current owner of a folder, or None. Blocks for some microseconds."""
    lock = lock_of(folder)
    if not lock.is_held():
        return None
    pid, card = lock.holder(), read_card(folder)
    if card is None or pid not in {None, card.pid}:
        return Holder(pid or 0)
    return Holder(card.pid, card.program, card.version, card.since)


def read_card(folder: Path) -> OwnerCard | None:
    """Read the card of a folder's last owner; None if there is none, or it cannot be read."""
    try:
        with (folder / "owner.json").open("rb") as file:
            return OwnerCard.model_validate_json(file.read(_MOST_BYTES))
    except (OSError, ValidationError):
        return None


def write_card(folder: Path, card: OwnerCard) -> None:
    """Write the owner's card atomically, readable by this user only.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / "owner.json"
    new = folder / f"owner.{secrets.token_hex(4)}.tmp"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(card.model_dump_json(indent=1).encode())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def remove_card(folder: Path, card: OwnerCard) -> None:
    """Remove the owner's card, unless another owner has written one since."""
    if read_card(folder) == card:
        (folder / "owner.json").unlink(missing_ok=True)
