"""Settings of the rules."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RuleSettings"]


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Limits on the findings of the rules.

    Attributes:
        entity_types: types of entities that are kept; empty means any.
        relation_types: predicates that are kept; empty means any.
        max_entities_per_chunk: the surest ones are kept.
        max_relations_per_chunk: the surest ones are kept.
    """

    entity_types: tuple[str, ...] = ()
    relation_types: tuple[str, ...] = ()
    max_entities_per_chunk: int = 40
    max_relations_per_chunk: int = 20
