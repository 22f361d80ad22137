"""Asking the graph: what an entity is connected with, and how two are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import NotFoundError
from loom_kb.models import EntityInfo, GraphResult, RelationInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import EntityEdge, EntityNode
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

__all__ = ["explore"]

_MAX_PATH = 4
_MAX_NAMES = 20
_MAX_QUOTE = 240  # characters of a passage that are quoted as evidence


async def explore(
    knowledge_base: GraphRAGKnowledgeBase, entity: str, *, to: str | None, hops: int, limit: int
) -> GraphResult:
    """The surroundings of an entity, or a path to another.

    Raises:
        NotFoundError: there is no such entity, or no path.
    """
    return await to_thread.run_sync(_explore, knowledge_base, entity, to, hops, limit)


def _explore(
    knowledge_base: GraphRAGKnowledgeBase, entity: str, to: str | None, hops: int, limit: int
) -> GraphResult:
    start = _find(knowledge_base, entity)
    names = knowledge_base.aliases.names_of(start.key)[:_MAX_NAMES]
    if to is None:
        nodes, edges = knowledge_base.ask_graph(
            lambda store: store.neighbours(start.key, hops=hops, limit=limit), around=[start.key], hops=hops
        )
        edges = sorted(edges, key=lambda edge: (-edge.support, -edge.confidence))[: 2 * limit]
        path: list[str] = []
    else:
        end = _find(knowledge_base, to)
        found = knowledge_base.ask_graph(
            lambda store: store.path(start.key, end.key, max_hops=_MAX_PATH),
            around=[start.key, end.key],
            hops=_MAX_PATH // 2,
        )
        if found is None:
            raise NotFoundError(
                f"No path of up to {_MAX_PATH} relations leads from {start.name!r} to {end.name!r}.",
                advice="Ask `query` about both; passages may connect what the graph does not.",
            )
        nodes, edges = list(found.nodes), list(found.edges)
        path = [node.name for node in found.nodes]
    return GraphResult(
        entity=start.name,
        also_known_as=[name for name in names if name != start.name],
        entities=[EntityInfo(name=node.name, type=node.type, mentions=node.mentions) for node in nodes],
        relations=_relations(knowledge_base, [start, *nodes], edges),
        path=path,
    )


def _find(knowledge_base: GraphRAGKnowledgeBase, name: str) -> EntityNode:
    graph = knowledge_base.graph
    keys = graph.search(name, limit=6)
    nodes = {node.key: node for node in graph.nodes(keys)}
    if not nodes:
        raise NotFoundError(
            f"There is no entity like {name!r} in {knowledge_base.name!r}.",
            advice="Names are those that the documents use; `query` finds passages by meaning.",
        )
    return nodes[keys[0]]


def _relations(
    knowledge_base: GraphRAGKnowledgeBase, nodes: Sequence[EntityNode], edges: Sequence[EntityEdge]
) -> list[RelationInfo]:
    graph = knowledge_base.graph
    names = {node.key: node.name for node in nodes}
    missing = {key for edge in edges for key in (edge.subject, edge.object)} - names.keys()
    names |= graph.names_of(sorted(missing))
    told: list[RelationInfo] = []
    for edge in edges:
        quote, passage = "", ""
        for chunk, start, end in graph.evidence(edge.subject, edge.predicate, edge.object, limit=1):
            row = knowledge_base.documents.chunks([chunk]).get(chunk)
            if row is not None:
                quote = " ".join(row.text[start : min(end, start + _MAX_QUOTE)].split())
                passage = row.id
        told.append(
            RelationInfo(
                subject=names.get(edge.subject, ""),
                predicate=edge.predicate,
                object=names.get(edge.object, ""),
                support=edge.support,
                evidence=quote,
                passage_id=passage,
            )
        )
    return told
