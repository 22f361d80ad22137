"""Extraction of entities, subjects and relations from passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.extraction.rule_settings import RuleSettings
    from loom_core.knowledge.ingest.extraction.rules import RuleExtractor

__all__ = ["RuleExtractor", "RuleSettings"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
