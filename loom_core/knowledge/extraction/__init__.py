"""Finding entities, subjects and relations in passages."""

from __future__ import annotations

from loom_core.knowledge.extraction.rules import RuleExtractor
from loom_core.knowledge.extraction.settings import RuleSettings

__all__ = ["RuleExtractor", "RuleSettings"]
