"""The journal of runs: every event, in a SQLite file or PostgreSQL, from which runs resume after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.runs.journal.creation import NewEvent
    from loom_core.runs.journal.journal import Journal, RunLog
    from loom_core.runs.journal.rows.runs import Step
    from loom_core.runs.journal.store import PostgresPlace

__all__ = ["Journal", "NewEvent", "PostgresPlace", "RunLog", "Step"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
