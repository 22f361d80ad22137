"""A record in memory, and documents ready to be written into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore, PreparedDocument

Prepare = Callable[..., PreparedDocument]
Steps = Callable[[KnowledgeStore], AbstractContextManager[list[int]]]


@pytest.fixture
def store() -> Iterator[KnowledgeStore]:
    store = KnowledgeStore(None)
    yield store
    store.close()


@pytest.fixture
def steps() -> Steps:
    """Counts the steps of SQLite's machine, in tens: what a statement costs, whatever the clock says."""

    @contextmanager
    def counted(store: KnowledgeStore) -> Iterator[list[int]]:
        count = [0]

        def tick() -> int:
            count[0] += 1
            return 0

        with store.database.read() as db:
            db.set_progress_handler(tick, 10)
            yield count
            db.set_progress_handler(None, 0)

    return counted


@pytest.fixture
def prepare() -> Prepare:
    pipeline = Pipeline(
        create_chunker("simple", chunk_size=64), chunker_id="simple", extractor=RuleExtractor()
    )

    def prepared(text: str, *, uri: str = "text:a", title: str = "", **metadata: object) -> PreparedDocument:
        draft = DocumentDraft(
            uri=uri,
            text=text,
            title=title,
            title_source="given" if title else "none",
            metadata=metadata,
        )
        (document,) = asyncio.run(pipeline.prepare([draft]))
        return document

    return prepared
