"""Extraction settings of a user reach the rules."""

from __future__ import annotations

from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.extraction.config import ExtractionConfig


def test_the_rules_are_told_what_concerns_them():
    config = ExtractionConfig(
        entity_types=["place"], relation_types=["is a"], max_entities_per_chunk=3, max_relations_per_chunk=2
    )
    assert config.rule_settings() == RuleSettings(("place",), ("is a",), 3, 2)


def test_what_no_one_asks_for_is_the_same_for_both():
    assert ExtractionConfig().rule_settings() == RuleSettings()
