"""Retrieval with one part switched off at a time: what each of them is worth."""

from __future__ import annotations

from loom_core.knowledge.retrieval.channels import FirstStageSettings
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.retrieval.graph_expansion import LinkSettings, WalkSettings
from loom_core.knowledge.retrieval.sub_questions import SubQuestionSettings

__all__ = ["variants"]


def variants() -> dict[str, RAGConfig]:
    """The settings of each variant, by what is different about it; the first is the default."""
    return {
        "default": RAGConfig(),
        "no words in the first stage": RAGConfig(lexical_weight=0.0),
        "no vectors in the first stage": RAGConfig(vector_weight=0.0),
        "cosine from the pool's worst": RAGConfig(first_stage=FirstStageSettings(centred=False)),
        "languages count alike": RAGConfig(first_stage=FirstStageSettings(floor=1.0)),
        "no links": RAGConfig(expansion_weight=0.0),
        "no walk": RAGConfig(graph_weight=0.0),
        "no links, no walk": RAGConfig(expansion_weight=0.0, graph_weight=0.0),
        "no gain by the question's names": RAGConfig(links=LinkSettings(named=0.0)),
        "links not gated by certainty": RAGConfig(links=LinkSettings(certainty=0.0)),
        "child not capped by parent": RAGConfig(
            links=LinkSettings(cap=float("inf"), shared_cap=float("inf"))
        ),
        "one hop": RAGConfig(links=LinkSettings(hops=1)),
        "links worth nothing by themselves": RAGConfig(links=LinkSettings(base=0.0)),
        "no links to what mentions the same": RAGConfig(links=LinkSettings(shared=0.0)),
        "those links capped like the others": RAGConfig(links=LinkSettings(shared_cap=0.9)),
        "those links by common names, too": RAGConfig(links=LinkSettings(rare=100)),
        "target not judged by the residual question": RAGConfig(links=LinkSettings(residual=0.0)),
        "no sub-questions": RAGConfig(sub_questions=SubQuestionSettings(most=0)),
        "thorough": RAGConfig(thorough=True),
        "walk over subjects and mentions alike": RAGConfig(walk=WalkSettings(about=1.0)),
        "bm25": RAGConfig(strategy="bm25"),
        "vector_first": RAGConfig(strategy="vector_first"),
        "graph_first": RAGConfig(strategy="graph_first"),
        "graph_only": RAGConfig(strategy="graph_only"),
    }
