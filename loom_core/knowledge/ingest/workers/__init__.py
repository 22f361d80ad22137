"""Ingest workers: prepare documents in this process, or in child processes that may crash without harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.workers.preparation import draft_payload
    from loom_core.knowledge.ingest.workers.preparer import Preparation, Preparer

__all__ = ["Preparation", "Preparer", "draft_payload"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
