"""Passages by entities alone: what the question names, and what is connected with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.expansion.entity_linking import named_entities
from loom_core.knowledge.retrieval.expansion.neighbourhood import Surroundings
from loom_core.knowledge.retrieval.expansion.walk import WalkSettings, walk

if TYPE_CHECKING:
    from loom_core.knowledge.retrieval.channels import Question
    from loom_core.knowledge.store.graph import GraphTable

__all__ = ["graph_channel"]


def graph_channel(
    question: Question, graph: GraphTable, *, settings: WalkSettings | None = None
) -> dict[int, float]:
    """Passages connected with the entities that a question names, with their weight, the highest 1.

    A random walk starts at those entities and goes over the passages about them and naming them, and the
    entities of those passages, to further ones. Nothing is found where the question names nothing.
    """
    named = [entity.key for entity in named_entities(question.text, graph)]
    found = walk(Surroundings(graph), {}, entities=named, settings=settings)
    if question.among is None:
        return found
    return {key: weight for key, weight in found.items() if key in question.among}
