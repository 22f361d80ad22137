"""Configuration of extraction."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loom_core.knowledge.ingest.extraction.rule_settings import RuleSettings

__all__ = ["ExtractionConfig"]


class ExtractionConfig(BaseModel):
    """A user's settings of extraction."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entity_types: list[str] = Field(default=[], description="Types to look for; empty means any.")
    relation_types: list[str] = Field(default=[], description="Predicates to look for; empty means any.")
    hints: str = Field(default="", description="Hints for the language model.")
    max_entities_per_chunk: int = Field(
        default=40, ge=0, description="Those with the highest confidence are kept."
    )
    max_relations_per_chunk: int = Field(
        default=20, ge=0, description="Those with the highest confidence are kept."
    )
    confirm_tokens: int | None = Field(
        default=1_000_000,
        ge=0,
        description=(
            "A job that needs more tokens of a language model has to be confirmed; null for no limit."
        ),
    )
    confirm_cost: float | None = Field(
        default=1.0, ge=0, description="The same for its cost in US dollars, where prices are known."
    )
    enabled: bool = Field(default=True, description="False: no graph, vectors and words only.")

    def takes_confirmation(self, tokens: int, cost: float | None) -> bool:
        """Whether an extraction of this size needs a user's confirmation."""
        is_large = self.confirm_tokens is not None and tokens > self.confirm_tokens
        is_dear = self.confirm_cost is not None and cost is not None and cost > self.confirm_cost
        return is_large or is_dear

    def rule_settings(self) -> RuleSettings:
        """Return the settings of the rules, which run in processes without Pydantic."""
        return RuleSettings(
            tuple(self.entity_types),
            tuple(self.relation_types),
            self.max_entities_per_chunk,
            self.max_relations_per_chunk,
        )
