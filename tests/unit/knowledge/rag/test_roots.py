"""A job reads nothing outside the roots it was given, whatever has become of its paths by then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import FilesRequest

pytestmark = [
    pytest.mark.hostile("paths and links"),
    pytest.mark.skipif(sys.platform == "win32", reason="makes symbolic links"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "note.md").write_text("# Note\n\nNothing secret.", encoding="utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note.md").write_text("# Secret\n\nThe word is xyzzy.", encoding="utf-8")
    return root


async def outcome(kb: GraphRAGKnowledgeBase, job: str) -> tuple[dict[str, int], list[str]]:
    await kb.worker.drain()
    finished = kb.job(job)
    items = kb.store.jobs.report(finished, ["failed", "skipped"])
    assert not (await kb.search("xyzzy")).items or "xyzzy" not in str((await kb.search("xyzzy")).items)
    return finished.counts, [item.reason for item in items]


async def test_what_is_below_the_roots_is_read(kb, root) -> None:
    counts, _ = await outcome(kb, kb.submit(FilesRequest([root / "sub"], roots=[root])))
    assert counts == {"added": 1}


@pytest.mark.parametrize("what", ["the file", "its folder", "the whole root", "a loop"])
async def test_a_link_put_in_place_after_the_job_was_taken_leads_nowhere(
    what: str, kb, root, tmp_path
) -> None:
    jobs = [
        kb.submit(FilesRequest([root / "sub" / "note.md"], roots=[root])),
        kb.submit(FilesRequest([root / "sub"], roots=[root])),
    ]
    outside = tmp_path / "outside"
    (root / "sub" / "note.md").unlink()
    if what == "the file":
        (root / "sub" / "note.md").symlink_to(outside / "note.md")
    else:
        (root / "sub").rmdir()
        if what == "a loop":
            (root / "sub").symlink_to(root / "sub")
        elif what == "its folder":
            (root / "sub").symlink_to(outside)
        else:
            root.rmdir()
            (outside / "sub").mkdir()
            (outside / "note.md").rename(outside / "sub" / "note.md")
            root.symlink_to(outside)
    for job in jobs:
        counts, reasons = await outcome(kb, job)
        assert counts.keys() <= {"failed", "skipped"}
        assert len(reasons) == 1
        assert any(said in reasons[0] for said in ("leads out of the folders", "link", "outside the folders"))
    assert kb.store.documents.counts()[0] == 0


async def test_the_roots_hold_for_the_process_that_resumes_the_job(tmp_path, root) -> None:
    def opened() -> GraphRAGKnowledgeBase:
        return GraphRAGKnowledgeBase.from_config(
            embedding_provider=create_embedder("hashing"), path=tmp_path / "kb"
        )

    before = opened()
    job = before.submit(FilesRequest([root / "sub"], roots=[root]))
    before.close()
    (root / "sub" / "note.md").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(tmp_path / "outside")
    after = opened()
    counts, _ = await outcome(after, job)
    after.close()
    assert counts == {"failed": 1}
