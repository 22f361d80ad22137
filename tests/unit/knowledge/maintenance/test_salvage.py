"""A damaged SQLite file: what can be read of it lives on in a new one."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from loom_core.errors import StoreBusyError
from loom_core.knowledge.maintenance.salvage import check_file, salvage
from loom_core.knowledge.model import DocumentDraft
from loom_core.storage import ProcessLock

COUNT = 300


@pytest.fixture
def damaged(filled, folder: Path) -> Path:
    """A larger knowledge base, an unfinished job in it, with pages of its documents overwritten."""
    texts = [
        f"# Note {n}\n\nNote {n} is about Person{n} in Town{n % 7}. " + "长城很长。" * 200
        for n in range(COUNT)
    ]
    drafts = [DocumentDraft(uri=f"text:{n}", text=f"{text} {n}") for n, text in enumerate(texts)]
    asyncio.run(filled.add_documents(drafts))
    filled.submit_documents([DocumentDraft(uri="text:later", text="This was acknowledged.")])
    filled.record.set("description", "wichtig")
    filled.close()
    path = folder / "record.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = db.execute("PRAGMA page_size").fetchone()[0]
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.close()
    with path.open("r+b") as file:
        for page in range(pages // 2, pages // 2 + 4):
            file.seek(page * size)
            file.write(b"\xff" * size)
    return folder


def test_documents_vectors_and_unfinished_jobs_are_saved(damaged: Path, open_kb):
    (finding,) = check_file(damaged / "record.db")
    assert finding.repair == "salvage"
    saved = salvage(damaged)
    assert saved.kept is not None
    assert saved.kept.exists()
    assert saved.documents + saved.lost >= COUNT
    assert saved.documents > COUNT * 0.8
    assert saved.jobs == 1
    assert check_file(damaged / "record.db") == []
    again = open_kb()
    asyncio.run(again.worker.drain())
    assert again.description == "wichtig"
    assert again.record.documents.get("text:later") is not None
    assert again.record.documents.counts()[0] == saved.documents + 1
    assert asyncio.run(again.check()).sound


def test_a_file_that_is_no_database_gives_an_empty_one(filled, folder: Path, open_kb):
    filled.close()
    (folder / "record.db").write_bytes(b"this is no database" * 1000)
    assert "cannot be read" in check_file(folder / "record.db")[0].text
    saved = salvage(folder)
    assert (saved.documents, saved.vectors, saved.jobs) == (0, 0, 0)
    assert asyncio.run(open_kb().check()).sound


def test_what_is_in_use_is_not_touched(filled, folder: Path):
    lock = ProcessLock(folder / "lock")
    assert lock.acquire()
    with pytest.raises(StoreBusyError, match="works on"):
        salvage(folder)
    lock.release()
