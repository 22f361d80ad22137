"""Finding entities, subjects and relations in passages."""

from __future__ import annotations

from loom_core.knowledge.extraction.config import ExtractionConfig
from loom_core.knowledge.extraction.rules import RuleExtractor

__all__ = ["ExtractionConfig", "RuleExtractor"]
