"""Carrying out jobs: everything readable gets in, everything else gets one clear line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import date
from itertools import permutations
from pathlib import Path

import anyio
import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.ingest.batches import IngestBatch, ItemAction
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.runner import IngestLimits, IngestRunner
from loom_core.knowledge.ingest.workers import Preparation, draft_payload
from loom_core.knowledge.model import Chunk, DocumentDraft, Extraction
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest, FilesRequest
from loom_core.knowledge.store import Job, JobItem, KnowledgeStore
from loom_core.knowledge.store.prepared_documents import ItemOutcome

pytestmark = pytest.mark.slow


@pytest.fixture
def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    yield knowledge_base
    knowledge_base.close()


def problems(knowledge_base: GraphRAGKnowledgeBase, job: Job) -> dict[str, str]:
    items = knowledge_base.store.jobs.report(job, ["failed", "skipped"])
    return {item.uri.rsplit("/", 1)[-1]: item.reason for item in items}


def uris(knowledge_base: GraphRAGKnowledgeBase) -> list[str]:
    return [document.uri for document in knowledge_base.store.documents.list(limit=100)]


async def test_a_folder_is_read_and_what_cannot_be_gets_one_line_each(knowledge_base, tmp_path: Path):
    (tmp_path / "good.md").write_text("# Zell\n\nA town in Austria.", encoding="utf-8")
    (tmp_path / "国标.txt").write_bytes("知识图谱是一种网络。".encode("gb18030"))
    (tmp_path / "empty.md").write_text("", encoding="utf-8")
    (tmp_path / "blank.txt").write_text(" \n\n ", encoding="utf-8")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    (tmp_path / "broken.docx").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 20)
    job = await knowledge_base.add_paths([tmp_path])
    assert job.state == "done"
    assert job.counts == {"added": 2, "failed": 4, "skipped": 2}
    found = problems(knowledge_base, job)
    assert found.keys() == {"empty.md", "blank.txt", "broken.pdf", "broken.docx", "picture.png", "binary.txt"}
    for name, reason in found.items():
        assert reason
        assert "\n" not in reason
        assert name in reason or name in {"picture.png", "empty.md"}
    assert sorted(document.title for document in knowledge_base.store.documents.list()) == ["Zell", "国标"]


async def test_a_path_that_does_not_exist_does_not_stop_the_others(knowledge_base, tmp_path: Path):
    (tmp_path / "a.md").write_text("Some text.", encoding="utf-8")
    job = await knowledge_base.add_paths([tmp_path / "none", tmp_path / "a.md"])
    assert job.counts == {"added": 1, "skipped": 1}
    assert problems(knowledge_base, job) == {"none": "there is no such file or folder"}


async def test_a_malformed_pattern_fails_its_job_and_no_other(knowledge_base, tmp_path: Path):
    (tmp_path / "a.md").write_text("Some text.", encoding="utf-8")
    bad = await knowledge_base.add_paths([tmp_path], include=["!"])
    assert bad.state == "failed"
    assert "pattern" in bad.error
    assert (await knowledge_base.add_paths([tmp_path])).counts == {"added": 1}


async def test_patterns_choose_files(knowledge_base, tmp_path: Path):
    for name in ("a.md", "b.txt", "c.md"):
        (tmp_path / name).write_text(f"Text of {name}", encoding="utf-8")
    await knowledge_base.add_paths([tmp_path], include=["*.md"], exclude=["c.*"], metadata={"tags": ["x"]})
    (document,) = knowledge_base.store.documents.list()
    assert document.uri == (tmp_path / "a.md").as_uri()
    assert document.metadata["tags"] == ["x"]


async def test_a_file_that_goes_between_listing_and_reading_is_one_failure(knowledge_base, tmp_path: Path):
    (tmp_path / "a.md").write_text("Some text.", encoding="utf-8")
    (tmp_path / "b.md").write_text("Other text.", encoding="utf-8")
    job = knowledge_base.submit(FilesRequest([tmp_path]))
    await knowledge_base.worker.drain(progress=lambda: (tmp_path / "a.md").unlink(missing_ok=True))
    finished = knowledge_base.job(job)
    assert finished.counts == {"added": 1, "failed": 1}
    assert "does not exist" in problems(knowledge_base, finished)["a.md"]


async def test_the_same_folder_again_costs_nothing_and_an_edit_is_one_update(knowledge_base, tmp_path: Path):
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(f"Text of {name}", encoding="utf-8")
    assert (await knowledge_base.add_paths([tmp_path])).counts == {"added": 2}
    head = knowledge_base.store.changes.head()
    assert (await knowledge_base.add_paths([tmp_path])).counts == {"unchanged": 2}
    assert knowledge_base.store.changes.head() == head
    (tmp_path / "b.md").write_text("Something else", encoding="utf-8")
    assert (await knowledge_base.add_paths([tmp_path])).counts == {"unchanged": 1, "updated": 1}


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="file names are Unicode there")
async def test_a_file_whose_name_is_no_utf_8_is_read(knowledge_base, tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / os.fsdecode(b"na\xefve.txt")).write_bytes(b"Some text.")
    (folder / os.fsdecode(b"br\xe9ken.pdf")).write_bytes(b"nothing")
    job = await knowledge_base.add_paths([folder])
    assert job.counts == {"added": 1, "failed": 1}
    assert len(problems(knowledge_base, job)) == 1


async def test_the_same_text_twice_is_one_document(knowledge_base):
    ids = await knowledge_base.add_texts(["Some text.", "Some text.", "Other text."])
    assert ids[0] == ids[1] != ids[2]
    await knowledge_base.add_texts(["Some text."])
    assert len(uris(knowledge_base)) == 2


async def test_a_text_with_a_known_address_replaces_what_was_there(knowledge_base):
    await knowledge_base.add_texts(["Old text."], uris=["text:a"])
    await knowledge_base.add_texts(["New text."], uris=["text:a"])
    assert uris(knowledge_base) == ["text:a"]
    assert [item.content for item in await knowledge_base.query("text")] == ["New text."]


class FragileExtractor:
    """Finds nothing, and breaks on one word."""

    id = "fragile-1"

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        if any("poison" in chunk.text for chunk in chunks):
            raise RuntimeError("cannot digest it")
        return [Extraction() for _ in chunks]


async def test_a_text_that_breaks_the_extractor_fails_alone(caplog: pytest.LogCaptureFixture):
    knowledge_base = GraphRAGKnowledgeBase.from_config(extractor=FragileExtractor())
    job = await knowledge_base.add_documents(
        [
            DocumentDraft(uri="text:a", text="Good text."),
            DocumentDraft(uri="text:b", text="A poison text."),
            DocumentDraft(uri="text:c", text="Good text, too."),
        ]
    )
    assert job.counts == {"added": 2, "failed": 1}
    assert problems(knowledge_base, job) == {
        "text:b": "it could not be prepared: RuntimeError: cannot digest it"
    }
    assert "text:b" in caplog.text
    knowledge_base.close()


async def test_a_text_without_any_words_fails_alone(knowledge_base):
    job = await knowledge_base.add_documents(
        [DocumentDraft(uri="text:a", text=" \n "), DocumentDraft(uri="text:b", text="Some text.")]
    )
    assert job.counts == {"failed": 1, "added": 1}
    assert "is empty" in problems(knowledge_base, job)["text:a"]


class Ingesting:
    """A record with an ingest that does as much at a time as a test wants."""

    def __init__(self, limits: IngestLimits, *, children: int = 0) -> None:
        self.store = KnowledgeStore(None)
        self.ingest = IngestRunner(
            self.store,
            Pipeline.of(PipelineSpec("structure", {}, RuleSettings())),
            LexicalIndexes(self.store, None),
            limits=limits,
            children=children,
        )

    def submit(self, documents: Sequence[DocumentDraft]) -> str:
        return self.store.jobs.submit({}, [JobItem(d.uri, draft_payload(d)) for d in documents], listed=True)

    def job(self, id_: str) -> Job:
        job = self.store.jobs.get(id_)
        assert job is not None
        return job

    async def run(self, id_: str, *, after_each: Callable[[], None] = lambda: None) -> list[int]:
        """Do all there is to do.

        Returns:
            The numbers of documents that were through after the steps.
        """
        processed: list[int] = []
        while await self.ingest.step():
            processed.append(self.job(id_).processed)
            if processed[-1]:
                after_each()
        self.ingest.forget()
        return list(dict.fromkeys(processed))


async def test_a_job_that_is_cancelled_leaves_what_was_not_begun():
    ingesting = Ingesting(IngestLimits(items=64))
    id_ = ingesting.submit([DocumentDraft(uri=f"text:{n}", text=f"Text number {n}.") for n in range(70)])
    jobs = ingesting.store.jobs
    await ingesting.run(id_, after_each=lambda: jobs.finish(ingesting.job(id_), "cancelled"))
    cancelled = ingesting.job(id_)
    assert cancelled.state == "cancelled"
    assert cancelled.counts == {"added": 64, "skipped": 6}
    assert ingesting.store.documents.counts()[0] == 64


async def test_large_texts_go_in_smaller_batches():
    ingesting = Ingesting(IngestLimits(size=500))
    id_ = ingesting.submit(
        [
            DocumentDraft(uri=f"text:{n}", text=f"Text {n}. " + "word " * size)
            for n, size in enumerate([9, 9, 300, 9])
        ]
    )
    assert await ingesting.run(id_) == [2, 3, 4]


@pytest.mark.parametrize("children", [0, 2])
async def test_links_are_the_same_for_every_batching_and_every_worker(children: int):
    documents = [
        DocumentDraft(
            uri=f"text:{n}/{copy}", title=f"Cape {name}", text=f"It is near Cape {other}, 在{name}灯塔旁。"
        )
        for copy in range(6)
        for n, (name, other) in enumerate(permutations(["Alder", "Birch", "Cedar", "水星"], 2))
    ]
    found: list[list[tuple[object, ...]]] = []
    for limits in (
        IngestLimits(items=1),
        IngestLimits(items=5, words=0.0),
        IngestLimits(items=5, words=0.0, unlinked=0),
        IngestLimits(items=5, words=0.0, unlinked=7),
        IngestLimits(flush_seconds=0.0),
    ):
        ingesting = Ingesting(limits, children=children)
        await ingesting.run(ingesting.submit(documents))
        rows = ingesting.store.database.rows(
            "SELECT c.id, e.id, m.start, m.end, m.method FROM mentions AS m "
            "JOIN chunks AS c ON c.key = m.chunk JOIN entities AS e ON e.key = m.entity ORDER BY 1, 2, 3"
        )
        assert ingesting.store.graph.new_names() == []
        found.append([tuple(row) for row in rows])
    assert any(row[4] == "title" for row in found[0])
    assert all(links == found[0] for links in found)


async def test_a_document_that_is_removed_while_it_is_compared_is_rewritten():
    ingesting = Ingesting(IngestLimits(items=1, ahead=3))
    documents = [DocumentDraft(uri=f"text:{n}", text=f"Text number {n}.") for n in range(3)]
    await ingesting.run(ingesting.submit(documents))
    store = ingesting.store
    removed: list[int] = []

    def remove_last() -> None:
        document = store.documents.get("text:2")
        if document is not None and not removed:
            removed.append(document.key)
            store.documents.remove(document.key)

    id_ = ingesting.submit(documents)
    await ingesting.run(id_, after_each=remove_last)
    assert ingesting.job(id_).counts == {"unchanged": 2, "added": 1}
    assert store.documents.counts()[0] == 3


def test_what_is_ready_of_a_batch_can_be_taken_before_the_rest():
    items = [JobItem(f"text:{n}", b"", size=10, ordinal=n) for n in range(5)]
    fates = [
        ItemAction("unchanged"),
        ItemAction("prepare"),
        ItemAction("failed"),
        ItemAction("prepare"),
        ItemAction("gone"),
    ]
    preparation = Preparation(2)
    batch = IngestBatch(list(zip(items, fates, strict=True)), size=50, preparation=preparation)
    taken = batch.take_ready()
    assert ([item.ordinal for item, _ in taken.items], taken.ready_results()) == ([0], [])
    preparation.deliver(0, ItemOutcome("failed", "first"))
    taken = batch.take_ready()
    assert [item.ordinal for item, _ in taken.items] == [1, 2]
    assert (taken.ready_results(), taken.size, batch.size) == ([ItemOutcome("failed", "first")], 20, 20)
    preparation.deliver(1, ItemOutcome("failed", "second"))
    assert taken.ready_results() == [ItemOutcome("failed", "first")]
    assert (batch.ready_results(), batch.last, preparation.done) == (
        [ItemOutcome("failed", "second")],
        4,
        True,
    )


def test_what_is_prepared_while_a_part_of_a_batch_is_taken_is_not_lost():
    first, second = ItemOutcome("failed", "first"), ItemOutcome("failed", "second")
    preparation = Preparation(2)

    class Growing(list):
        """The results, of which the second comes right after they were looked at."""

        def __getitem__(self, part):
            seen = super().__getitem__(part)
            self[1] = second
            return seen

    preparation.made = Growing([first, None])
    items = [(JobItem(f"text:{n}", ordinal=n), ItemAction("prepare")) for n in range(2)]
    batch = IngestBatch(items, preparation=preparation)
    taken = batch.take_ready()
    assert ([item.ordinal for item, _ in taken.items], taken.ready_results()) == ([0], [first])
    assert ([item.ordinal for item, _ in batch.items], batch.ready_results()) == ([1], [second])


async def test_an_unknown_job_and_lists_of_different_lengths_are_told(knowledge_base):
    with pytest.raises(NotFoundError, match="job-none"):
        knowledge_base.job("job-none")
    with pytest.raises(InvalidInputError, match="2 texts, but 1 titles"):
        await knowledge_base.add_texts(["a", "b"], titles=["one"])


async def test_halves_of_surrogate_pairs_do_no_harm(knowledge_base):
    (id_,) = await knowledge_base.add_texts(
        ["A smile \ud83d and text."], titles=["Half \ude00"], metadatas=[{"note": "\ud83d"}]
    )
    document = knowledge_base.store.documents.get(id_)
    assert document is not None
    assert (document.title, document.metadata["note"]) == ("Half ?", "?")
    assert await knowledge_base.query("smile \ud83d")


def test_metadata_that_json_does_not_know_is_kept_as_text():
    draft = DocumentDraft(uri="text:a", text="x", metadata={"date": date(2024, 5, 1)})
    assert b"2024-05-01" in draft_payload(draft)


async def test_work_in_the_background_finishes_jobs_as_they_come(knowledge_base):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        job = knowledge_base.submit(DocumentsRequest([DocumentDraft(uri="text:a", text="Some text.")]))
        with anyio.fail_after(20):
            await knowledge_base.worker.drain()
        assert knowledge_base.job(job).state == "done"
        assert knowledge_base.worker.is_running
        assert await knowledge_base.query("text")
        tasks.cancel_scope.cancel()
    assert not knowledge_base.worker.is_running


async def test_of_versions_in_one_batch_the_last_one_stays_also_after_an_unchanged_one():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    old, new = (DocumentDraft(uri="text:0", text=text) for text in ("The old text.", "The new text."))
    await knowledge_base.add_documents([old])
    for versions in ([old, new], [old, new, old], [new, old, new]):
        await knowledge_base.add_documents(versions)
        (document,) = knowledge_base.store.documents.list()
        assert knowledge_base.store.documents.text(document.key) == versions[-1].text
    knowledge_base.close()
