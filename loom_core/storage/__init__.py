"""Files that must survive: SQLite databases and locks between processes."""

from __future__ import annotations

from loom_core.storage.lock import ProcessLock
from loom_core.storage.sqlite import Database

__all__ = ["Database", "ProcessLock"]
