"""Metrics of a knowledge base: questions by channel, and ingestion."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.observability import LoomMetrics
from loom_core.observability.families import (
    CHANNEL_SECONDS,
    INGESTED_CHUNKS,
    INGESTED_DOCUMENTS,
    SEARCH_SECONDS,
)
from loom_core.observability.metrics import new_registry, process_metrics
from loom_core.observability.registry import Registry

pytestmark = pytest.mark.slow

TEXTS = ["Anna Berg painted the sea at Zell.", "厦门是一座城市，有灯塔。"]


def opened(**more: Any) -> GraphRAGKnowledgeBase:
    return GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), name="港口", **more
    )


async def test_a_question_is_timed_with_the_channels_that_it_asks() -> None:
    registry = new_registry()
    base = opened(metrics=LoomMetrics(agent_id="agent-1", registry=registry))
    await base.add_texts(TEXTS, titles=["Anna Berg", "厦门"])
    await base.search("灯塔在哪里？")
    assert registry.samples(SEARCH_SECONDS) == {("hybrid", "agent-1"): 1}
    channels = {channel: number for (channel, _), number in registry.samples(CHANNEL_SECONDS).items()}
    assert channels == {"embedding": 1, "lexical": 1, "vector": 1, "expansion": 1, "graph": 1}
    sums = registry.sums(CHANNEL_SECONDS)
    assert all(seconds > 0 for seconds in sums.values())
    assert sum(sums.values()) <= sum(registry.sums(SEARCH_SECONDS).values())

    await base.search("灯塔", strategy="bm25")
    await base.search("灯塔", strategy="vector_first")
    counted = {channel: number for (channel, _), number in registry.samples(CHANNEL_SECONDS).items()}
    assert counted == {"embedding": 2, "lexical": 2, "vector": 2, "expansion": 1, "graph": 1}
    base.close()


async def test_metrics_that_are_given_count_without_anything_else(
    counted: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_metrics, "enabled", False)  # as in a program that enabled nothing
    base = opened(metrics=LoomMetrics(agent_id="agent-1"))
    await base.add_texts(TEXTS)
    await base.query("灯塔在哪里？")
    assert counted.samples(SEARCH_SECONDS) == {("hybrid", "agent-1"): 1}
    base.close()


async def test_a_channel_that_a_retriever_asks_is_timed() -> None:
    registry = new_registry()
    base = opened(metrics=LoomMetrics(registry=registry))
    await base.add_texts(TEXTS)
    for channel in ("dense", "bm25", "keyword", "graph"):
        await base.ask(channel, "灯塔", limit=3)
    assert registry.samples(CHANNEL_SECONDS) == {
        ("vector",): 1,
        ("lexical",): 1,
        ("keyword",): 1,
        ("graph",): 1,
    }
    assert registry.samples(SEARCH_SECONDS) == {}
    base.close()


async def test_documents_are_counted_by_what_becomes_of_them(counted: Any, tmp_path: Any) -> None:
    base = opened()
    folder = tmp_path / "文档"
    folder.mkdir()
    (folder / "a.md").write_text("# 灯塔\n\n灯塔在青岛。", encoding="utf-8")
    (folder / "b.md").write_text("# Sea\n\nThe sea is blue.", encoding="utf-8")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    await base.sync_paths([folder])
    taken = counted.samples(INGESTED_DOCUMENTS)
    assert taken == {("added",): 2, ("failed",): 1}
    chunks = counted.samples(INGESTED_CHUNKS)[()]
    assert chunks >= 2
    (folder / "a.md").write_text("# 灯塔\n\n灯塔在厦门。", encoding="utf-8")
    (folder / "b.md").unlink()
    await base.sync_paths([folder])
    now = counted.samples(INGESTED_DOCUMENTS)
    assert now["updated",] == now["removed",] == 1
    assert now["added",] == 2
    base.close()
