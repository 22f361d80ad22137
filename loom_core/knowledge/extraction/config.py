"""What to extract."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loom_core.knowledge.extraction.settings import RuleSettings

__all__ = ["ExtractionConfig"]


class ExtractionConfig(BaseModel):
    """The direction that a user gives to extraction; the extractor does the rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entity_types: list[str] = Field(default=[], description="Types to look for; empty means any.")
    relation_types: list[str] = Field(default=[], description="Predicates to look for; empty means any.")
    hints: str = Field(default="", description="What to pay attention to, for a language model.")
    max_entities_per_chunk: int = Field(default=40, ge=0, description="The surest ones are kept.")
    max_relations_per_chunk: int = Field(default=20, ge=0, description="The surest ones are kept.")
    enabled: bool = Field(default=True, description="False: no graph, vectors and words only.")

    def rule_settings(self) -> RuleSettings:
        """What of it concerns the rules, which run in processes that do without Pydantic."""
        return RuleSettings(
            tuple(self.entity_types),
            tuple(self.relation_types),
            self.max_entities_per_chunk,
            self.max_relations_per_chunk,
        )
