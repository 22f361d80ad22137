"""Durable storage: SQLite databases, private files, process locks and local sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.storage.lock import ProcessLock
    from loom_core.storage.sqlite import Database

__all__ = ["Database", "ProcessLock"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
