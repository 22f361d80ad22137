"""Kept in step with a folder, whatever happened to its files: as if it were built from what is there now."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from loom_core.embedding.interface import EmbeddingKind
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.model import Chunk, Extraction
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import SyncRequest
from loom_core.knowledge.store import Job
from tests.fixtures.record_content import check_indexes, content

pytestmark = pytest.mark.slow

NAMES = ["a.md", "b.md", "Zell.txt", "巴黎.md", "笔记 一.txt", "README", "data.csv"]
FOLDERS = ["", "x", "x/深", "北京"]
TEXTS = [
    "# Paris\n\nParis is the capital of France. Ada Lovelace lived in London.",
    "No heading here, but 北京大学 and Ada Lovelace.",
    "北京大学是中国的大学。李白在长安写诗。",
    "# 李白\n\n李白是唐代诗人。他生于碎叶城。\n\n## Paris\n\nThe same name again.",
    "Zell is a town. " * 30 + "It lies on a lake.",
    "Zell is a town. " * 30 + "It lies on a river.",
    "",
    " \n ",
    "\x00\x01\x02\x03 binary \x00\x00",
]


class CountingEmbedder(HashingEmbedder):
    """Counts the passages that it embeds."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        self.texts += len(texts) if kind == "passage" else 0
        return await super().embed(texts, kind=kind)


class CountingExtractor(RuleExtractor):
    """Counts the chunks that it reads: those that were cut."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = 0

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        self.chunks += len(chunks)
        return await super().extract(chunks)


class Base:
    """A knowledge base in memory that counts what is cut and embedded."""

    def __init__(self) -> None:
        self.embedder, self.extractor = CountingEmbedder(), CountingExtractor()
        self.knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=self.embedder, extractor=self.extractor
        )
        self.runner = asyncio.Runner()

    def sync(self, folder: Path, **options: object) -> Job:
        return self.runner.run(self.knowledge_base.sync_paths([folder], **options))

    def work(self) -> tuple[int, int]:
        """Chunks cut and passages embedded so far."""
        return self.extractor.chunks, self.embedder.texts

    def close(self) -> None:
        self.knowledge_base.close()
        self.runner.close()


@pytest.fixture
def base():
    base = Base()
    yield base
    base.close()


class Histories(RuleBasedStateMachine):
    """Files come, change, move and go in any order, between and during syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp()).resolve()
        self.root = self.place / "documents"
        self.root.mkdir()
        self.base = Base()
        self.in_step = False

    def teardown(self) -> None:
        self.base.close()
        shutil.rmtree(self.place)

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    @rule(folder=st.sampled_from(FOLDERS), name=st.sampled_from(NAMES), text=st.sampled_from(TEXTS))
    def write(self, folder: str, name: str, text: str) -> None:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.in_step = False

    @precondition(lambda self: self.files())
    @rule(data=st.data(), folder=st.sampled_from(FOLDERS), name=st.sampled_from(NAMES))
    def move(self, data: st.DataObject, folder: str, name: str) -> None:
        target = self.root / folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        data.draw(st.sampled_from(self.files())).replace(target)
        self.in_step = False

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.files())).unlink()
        self.in_step = False

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.files())).touch()
        self.in_step = False

    @precondition(lambda self: len(self.files()) > 1)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(self.files()))[:2]
        between = self.place / "between"
        one.replace(between)
        other.replace(one)
        between.replace(other)
        self.in_step = False

    @rule(folder=st.sampled_from(FOLDERS[1:]), name=st.sampled_from(["y", "移动"]))
    def rename_folder(self, folder: str, name: str) -> None:
        if (self.root / folder).is_dir() and not (self.root / name).exists():
            (self.root / folder).rename(self.root / name)
            self.in_step = False

    @rule(folder=st.sampled_from(FOLDERS[1:]))
    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self.root / folder, ignore_errors=True)
        self.in_step = False

    @rule(tags=st.sampled_from([None, {"tags": ["draft"]}]))
    def add(self, tags: dict[str, object] | None) -> None:
        """The whole folder is added: what is gone stays until the next sync."""
        self.base.runner.run(self.base.knowledge_base.add_paths([self.root], metadata=tags))
        self.in_step = False

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """A document is removed by hand, whose file is still there."""
        uri = data.draw(st.sampled_from(self.files())).as_uri()
        self.base.runner.run(self.base.knowledge_base.remove([uri]))
        self.in_step = False

    @rule(steps=st.integers(0, 6), cancelled=st.booleans())
    def break_off(self, steps: int, cancelled: bool) -> None:
        """A sync that is cancelled, or whose process ends after a few steps: the next goes on with it."""
        knowledge_base = self.base.knowledge_base

        async def some() -> None:
            id_ = knowledge_base.submit(SyncRequest([self.root]))
            for _ in range(steps):
                await knowledge_base.worker._ingest.step()
            if cancelled:
                knowledge_base.store.jobs.finish(knowledge_base.job(id_), "cancelled")
            knowledge_base.worker._ingest.forget()

        self.base.runner.run(some())
        self.in_step = False

    @rule()
    def sync(self) -> None:
        job = self.base.sync(self.root)
        assert job.state == "done"
        self.in_step = True

    @invariant()
    def equals_one_built_from_scratch(self) -> None:
        if not self.in_step:
            return
        grown = content(self.base.knowledge_base.store)
        check_indexes(self.base.knowledge_base)
        fresh = Base()
        fresh.runner.run(fresh.knowledge_base.add_paths([self.root]))
        built = content(fresh.knowledge_base.store)
        fresh.close()
        for name, rows in built.items():
            assert grown[name] == rows, name
        assert {row[0] for row in grown["vectors"]} == {row[12] for row in grown["chunks"]}
        before = self.base.work()
        self.base.sync(self.root)
        assert self.base.work() == before, "what is in step costs nothing"


Histories.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=14,
    suppress_health_check=list(HealthCheck),
)
test_any_history_of_files_gives_the_same_as_building_from_scratch = Histories.TestCase
