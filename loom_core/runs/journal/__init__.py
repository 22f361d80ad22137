"""The journal of runs: one SQLite file with every event, from which runs resume after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.runs.journal.journal import Journal, RunLog
    from loom_core.runs.journal.rows.events import Step

__all__ = ["Journal", "RunLog", "Step"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
