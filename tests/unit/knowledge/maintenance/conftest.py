"""A knowledge base on disk that tests damage."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

TEXTS = {
    "text:paris": "# Paris\n\nParis is the capital of France. Ada Lovelace met Charles Babbage there. "
    "Charles Babbage died in London.",
    "text:york": "# New York City\n\nShe moved from Paris to New York City, where the Navy is.\n\n"
    "## Harbour\n\n"
    "Ships of the U.S. Navy lie in the harbour of New York City.",
    "text:北京": "# 北京大学\n\n北京大学（简称北大）是中国的大学。李白诗集在图书馆。\n\n"
    "## 图书馆\n\n图书馆由李明建立。",
}


def drafts() -> list[DocumentDraft]:
    return [
        DocumentDraft(uri=uri, text=text, mime="text/markdown", metadata={"tags": ["note", uri]})
        for uri, text in TEXTS.items()
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kb"


@pytest.fixture
def open_kb(folder: Path) -> Iterator[Callable[..., GraphRAGKnowledgeBase]]:
    """Opens the knowledge base in `folder`, or another; all are closed with the test."""
    opened: list[GraphRAGKnowledgeBase] = []

    def open_(path: Path | None = None, *, embedder: str = "hashing") -> GraphRAGKnowledgeBase:
        opened.append(
            GraphRAGKnowledgeBase.from_config(
                embedding_provider=create_embedder(embedder), path=path or folder, name="wissen"
            )
        )
        return opened[-1]

    yield open_
    for knowledge_base in opened:
        knowledge_base.close()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed knowledge base with three documents, all indexes built; tests use copies of it."""
    folder = tmp_path_factory.mktemp("built") / "kb"
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=folder, name="wissen"
    )
    asyncio.run(knowledge_base.add_documents(drafts()))
    knowledge_base.close()
    return folder


@pytest.fixture
def filled(built: Path, folder: Path, open_kb: Callable[..., GraphRAGKnowledgeBase]) -> GraphRAGKnowledgeBase:
    """An open copy of `built`."""
    shutil.copytree(built, folder)
    return open_kb()
