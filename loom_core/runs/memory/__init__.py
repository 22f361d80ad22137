"""Memory of an agent: the conversations of its sessions, in memory or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.runs.memory.in_memory import InMemoryMemory
    from loom_core.runs.memory.interface import Memory, MemoryHit, MemorySession
    from loom_core.runs.memory.sqlite import SQLiteMemory

__all__ = ["InMemoryMemory", "Memory", "MemoryHit", "MemorySession", "SQLiteMemory"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
