"""Keeping in step with folders: changes are done, the rest costs nothing, nothing is lost by accident."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.folder_watch import FolderWatch
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest, SyncRequest
from loom_core.knowledge.store import Job

pytestmark = pytest.mark.slow


@pytest.fixture
def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"))
    yield knowledge_base
    knowledge_base.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = (tmp_path / "文件").resolve()
    (folder / "x").mkdir(parents=True)
    for name in ("a.md", "b.md", "x/李白.md"):
        (folder / name).write_text(f"# On {name}\n\nA text about {name} and 北京大学.", encoding="utf-8")
    return folder


def names(knowledge_base: GraphRAGKnowledgeBase, folder: Path) -> set[str]:
    rows = knowledge_base.store.database.rows("SELECT uri FROM documents")
    prefix = folder.as_uri() + "/"
    return {row["uri"].removeprefix(prefix) for row in rows}


def reasons(knowledge_base: GraphRAGKnowledgeBase, job: Job) -> list[str]:
    return [item.reason for item in knowledge_base.store.jobs.report(job, ["failed", "skipped"])]


async def test_files_come_change_and_go(knowledge_base, folder: Path):
    assert (await knowledge_base.sync_paths([folder])).counts == {"added": 3}
    (folder / "a.md").write_text("# Changed\n\nAnother text.", encoding="utf-8")
    (folder / "b.md").unlink()
    (folder / "c.md").write_text("# New\n\nA new text.", encoding="utf-8")
    job = await knowledge_base.sync_paths([folder])
    assert job.counts == {"added": 1, "updated": 1, "removed": 1, "unchanged": 1}
    assert names(knowledge_base, folder) == {"a.md", "c.md", "x/%E6%9D%8E%E7%99%BD.md"}


async def test_only_documents_below_the_folder_are_removed(knowledge_base, folder: Path):
    sibling = folder.with_name(folder.name + "2")
    sibling.mkdir()
    (sibling / "d.md").write_text("Next door.", encoding="utf-8")
    await knowledge_base.add_paths([sibling])
    await knowledge_base.add_texts(["A note."])
    await knowledge_base.sync_paths([folder])
    shutil.rmtree(sibling)
    assert (await knowledge_base.sync_paths([folder])).counts == {"unchanged": 3}
    assert knowledge_base.store.documents.counts()[0] == 5


async def test_a_file_that_is_excluded_from_now_on_is_removed(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    job = await knowledge_base.sync_paths([folder], exclude=["x/"])
    assert job.counts == {"unchanged": 2, "removed": 1}


async def test_a_moved_document_keeps_its_chunks_vectors_and_keys(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    database = knowledge_base.store.database
    chunks = "SELECT key, vector_hash FROM chunks ORDER BY key"
    before, head = list(map(tuple, database.rows(chunks))), knowledge_base.store.changes.head()
    (folder / "x").rename(folder / "y")
    job = await knowledge_base.sync_paths([folder])
    assert job.counts == {"moved": 1, "unchanged": 2}
    assert list(map(tuple, database.rows(chunks))) == before
    assert knowledge_base.store.changes.head() == head + 1, "that the document changed"
    (item,) = knowledge_base.store.jobs.report(job, ["moved"])
    assert item.reason == f"from {folder / 'x' / '李白.md'}"
    found = await knowledge_base.query("李白")
    assert found[0].source == (folder / "y" / "李白.md").as_uri()
    assert await knowledge_base.get_by_id(found[0].id) is not None


async def test_a_folder_that_is_gone_is_refused_unless_it_is_meant(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    shutil.rmtree(folder)
    job = await knowledge_base.sync_paths([folder])
    assert job.counts == {"failed": 1}
    assert "3 documents came from it" in reasons(knowledge_base, job)[0]
    assert knowledge_base.store.documents.counts()[0] == 3
    assert (await knowledge_base.sync_paths([folder], allow_empty=True)).counts == {"removed": 3}


async def test_an_empty_folder_where_there_was_much_is_refused(knowledge_base, tmp_path: Path):
    for n in range(12):
        (tmp_path / f"{n}.md").write_text(f"Number {n}.", encoding="utf-8")
    await knowledge_base.sync_paths([tmp_path])
    shutil.rmtree(tmp_path)
    (tmp_path / "x").parent.mkdir()
    job = await knowledge_base.sync_paths([tmp_path])
    assert "the folder is empty" in reasons(knowledge_base, job)[0]
    assert knowledge_base.store.documents.counts()[0] == 12
    assert (await knowledge_base.sync_paths([tmp_path], allow_empty=True)).counts == {"removed": 12}


async def test_a_folder_that_never_was_and_a_file_are_refused(knowledge_base, folder: Path):
    job = await knowledge_base.sync_paths([folder / "none"])
    assert reasons(knowledge_base, job) == ["there is no such folder"]
    with pytest.raises(InvalidInputError, match="not a folder"):
        await knowledge_base.sync_paths([folder / "a.md"])
    with pytest.raises(InvalidInputError, match="no folder"):
        await knowledge_base.sync_paths([])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
async def test_what_cannot_be_read_keeps_its_documents(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    (folder / "x").chmod(0)
    try:
        job = await knowledge_base.sync_paths([folder])
    finally:
        (folder / "x").chmod(0o755)
    assert job.counts == {"unchanged": 2, "failed": 1}
    assert knowledge_base.store.documents.counts()[0] == 3


async def test_a_file_that_holds_no_document_any_more_has_none(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    (folder / "a.md").write_text(" \n ", encoding="utf-8")
    job = await knowledge_base.sync_paths([folder])
    assert job.counts == {"failed": 1, "unchanged": 2}
    assert reasons(knowledge_base, job)[0].endswith(". What was read from it before is removed.")
    assert "a.md" not in names(knowledge_base, folder)
    again = await knowledge_base.sync_paths([folder])
    assert "removed" not in reasons(knowledge_base, again)[0]


async def test_a_file_whose_time_is_long_past_is_not_even_read(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    database = knowledge_base.store.database
    rows = database.rows("SELECT mtime_ns FROM files")
    assert {row["mtime_ns"] for row in rows} == {-1}, "they were written just now, and may be again"
    before = database.rows("SELECT f.document FROM files AS f JOIN documents AS d ON d.key = f.document")
    assert len(before) == 3
    with database.write() as db:  # as if the files had been read a while after they were written
        for path in (folder / name for name in ("a.md", "b.md", "x/李白.md")):
            db.execute(
                "UPDATE files SET mtime_ns = ? WHERE document = (SELECT key FROM documents WHERE uri = ?)",
                (path.stat().st_mtime_ns, path.as_uri()),
            )
    job = await knowledge_base.sync_paths([folder])
    assert job.counts == {"unchanged": 3}
    assert database.rows("SELECT 1 FROM items WHERE job = ?", (job.key,)) == [], "no item was looked at"
    with database.write() as db:
        db.execute("UPDATE files SET content = x'00'")
    assert (await knowledge_base.sync_paths([folder])).counts == {"unchanged": 3}
    (folder / "a.md").write_text("# On z.md\n\nA text about z.md and 北京大学.", encoding="utf-8")
    assert (await knowledge_base.sync_paths([folder])).counts == {"unchanged": 2, "updated": 1}


async def test_other_tags_are_another_document(knowledge_base, folder: Path):
    await knowledge_base.sync_paths([folder])
    job = await knowledge_base.sync_paths([folder], metadata={"tags": ["draft"]})
    assert job.counts == {"updated": 3}
    assert len(await knowledge_base.query("text", limit=9, filters={"tags": "draft"})) == 3


async def test_a_cancelled_listing_is_over_at_once_and_writes_nothing_more(knowledge_base, folder: Path):
    jobs = knowledge_base.store.jobs
    id_ = knowledge_base.submit(SyncRequest([folder]))
    await knowledge_base.worker._ingest.step()
    jobs.finish(knowledge_base.job(id_), "cancelled")
    await knowledge_base.worker.drain()
    job = knowledge_base.job(id_)
    assert (job.state, job.finished, job.counts) == ("cancelled", True, {"skipped": 3})
    assert [item.reason for item in jobs.report(job, ["skipped"])] == ["cancelled"] * 3
    assert knowledge_base.store.documents.counts()[0] == 0


async def test_duplicates_are_told_with_the_job_and_grouped(knowledge_base, tmp_path: Path):
    lines = [f"第{n}行 says that word{n} stands here." for n in range(40)]
    (tmp_path / "one.md").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "same.md").write_text("\r\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "near.md").write_text("\n".join([*lines, "And one more."]), encoding="utf-8")
    (tmp_path / "other.md").write_text("Nothing of the kind is written in this one.", encoding="utf-8")
    job = await knowledge_base.sync_paths([tmp_path])
    notes = [note for _, note in knowledge_base.store.jobs.notes(job)]
    assert len(notes) == 3
    assert any("one.md: same text as" in note and "same.md" in note for note in notes)
    assert any("near.md: 9" in note and "% the same as" in note for note in notes)
    duplicates = knowledge_base.store.duplicates
    (group,) = duplicates.groups()
    assert len(group.documents) == duplicates.count() == 3
    assert 0.9 < group.likeness < 1
    (tmp_path / "one.md").unlink()
    await knowledge_base.sync_paths([tmp_path])
    assert [len(group.documents) for group in duplicates.groups()] == [2]
    (tmp_path / "near.md").unlink()
    await knowledge_base.sync_paths([tmp_path])
    assert duplicates.groups() == []
    assert len(knowledge_base.store.database.rows("SELECT 1 FROM texts")) == 2


async def test_a_folder_that_is_watched_stays_in_step_also_when_it_is_gone_for_a_while(
    knowledge_base, folder: Path
):
    told: list[Job] = []
    watch = FolderWatch(knowledge_base, [folder], on_job_done=told.append, debounce=100, missing=0.1)

    async def until(wanted: set[str]) -> None:
        with anyio.fail_after(30):
            while {Path(name).name for name in names(knowledge_base, folder)} != wanted:  # noqa: ASYNC110
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        tasks.start_soon(watch.run)
        chinese = "%E6%9D%8E%E7%99%BD.md"
        await until({"a.md", "b.md", chinese})
        (folder / "c.md").write_text("A new one.", encoding="utf-8")
        await until({"a.md", "b.md", "c.md", chinese})
        (folder / "x").rename(folder / "y")
        (folder / "a.md").unlink()
        await until({"b.md", "c.md", chinese})
        away = folder.with_name("away")
        os.rename(folder, away)  # noqa: PTH104
        (away / "d.md").write_text("Written elsewhere.", encoding="utf-8")
        os.rename(away, folder)  # noqa: PTH104
        await until({"b.md", "c.md", "d.md", chinese})
        (folder / ".gitignore").write_text("d.md\n", encoding="utf-8")
        await until({"b.md", "c.md", chinese})
        tasks.cancel_scope.cancel()
    assert all(job.state == "done" for job in told)


async def test_what_is_removed_while_a_job_has_still_to_add_it_stays_removed() -> None:
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    drafts = [DocumentDraft(uri=f"text:{n}", text=f"Text number {n}.") for n in range(3)]
    await knowledge_base.add_documents(drafts[:1])
    job = knowledge_base.submit(
        DocumentsRequest([DocumentDraft(uri="text:0", text="Another text."), *drafts[1:]])
    )
    removed = await knowledge_base.remove(["text:0", "text:1"])
    await knowledge_base.worker.drain()
    assert [document.uri for document in removed] == ["text:0"]
    assert [document.uri for document in knowledge_base.store.documents.list()] == ["text:2"]
    assert knowledge_base.job(job).counts == {"added": 1, "skipped": 2}
    knowledge_base.close()
