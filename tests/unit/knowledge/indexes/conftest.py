"""A record on disk with a few documents in it, and ways to change it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore

DIMENSION = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KnowledgeStore]:
    store = KnowledgeStore(tmp_path / "record.db")
    store.set("dimension", str(DIMENSION))
    yield store
    store.close()


@pytest.fixture
def put(store: KnowledgeStore) -> Callable[..., None]:
    """Writes documents, each a line of text, and gives every chunk a vector."""
    pipeline = Pipeline(create_chunker("simple"), chunker_id="simple", extractor=RuleExtractor())

    def write(*texts: str, first: int = 0) -> None:
        drafts = [
            DocumentDraft(uri=f"text:{n}", text=text, title=text.split(" is ")[0], title_source="given")
            for n, text in enumerate(texts, start=first)
        ]
        for document in asyncio.run(pipeline.prepare(drafts)):
            store.documents.upsert(document)
        hashes = list(dict.fromkeys(hash_ for _, hash_ in store.vectors.pending(1000)))
        vectors = np.array([np.frombuffer(h, np.uint8)[:DIMENSION] for h in hashes], dtype=np.float32)
        if hashes:
            store.vectors.store(hashes, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    return write
