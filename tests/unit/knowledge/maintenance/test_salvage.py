"""A damaged SQLite file: what can be read of it lives on in a new one."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_core.errors import StoreBusyError, StoreError
from loom_core.knowledge.maintenance.salvage import check_file, salvage
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest
from loom_core.storage import ProcessLock

pytestmark = pytest.mark.slow

COUNT = 150
_LEAVES = (10, 13)  # first bytes of pages without pages below them, of an index and of a table


@pytest.fixture
def damaged(filled, folder: Path) -> Path:
    """A larger knowledge base with an unfinished job; a page of its documents is overwritten, and others."""
    texts = [
        f"# Note {n}\n\nNote {n} is about Person{n} in Town{n % 7}. " + "长城很长。" * 60
        for n in range(COUNT)
    ]
    drafts = [DocumentDraft(uri=f"text:{n}", text=f"{text} {n}") for n, text in enumerate(texts)]
    asyncio.run(filled.add_documents(drafts))
    filled.submit(DocumentsRequest([DocumentDraft(uri="text:later", text="This was acknowledged.")]))
    filled.store.set("description", "wichtig")
    filled.close()
    path = folder / "record.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = db.execute("PRAGMA page_size").fetchone()[0]
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (text,) = db.execute("SELECT text FROM documents WHERE uri = 'text:60'").fetchone()
    db.close()
    content = path.read_bytes()
    of_documents = content.index(text) // size
    leaves = [page for page in range(pages // 2, pages) if content[page * size] in _LEAVES]
    with path.open("r+b") as file:
        for page in (of_documents, *leaves[:3]):
            file.seek(page * size)
            file.write(b"\xff" * size)
    return folder


def test_documents_vectors_and_unfinished_jobs_are_saved(damaged: Path, open_kb):
    (finding,) = check_file(damaged / "record.db")
    assert finding.repair == "salvage"
    saved = salvage(damaged)
    assert saved.kept is not None
    assert saved.kept.exists()
    assert saved.lost
    assert saved.documents + len(saved.lost) == COUNT + 3
    assert saved.documents > COUNT * 0.4  # where pages are varies: a page has 19 documents
    assert saved.jobs == 1
    assert check_file(damaged / "record.db") == []
    again = open_kb()
    asyncio.run(again.worker.drain())
    assert again.description == "wichtig"
    assert again.store.documents.get("text:later") is not None
    assert again.store.documents.counts()[0] == saved.documents + 1
    assert asyncio.run(again.check()).sound


def test_a_file_that_is_no_database_gives_an_empty_one(filled, folder: Path, open_kb):
    filled.close()
    (folder / "record.db").write_bytes(b"this is no database" * 1000)
    assert "cannot be read" in check_file(folder / "record.db")[0].text
    saved = salvage(folder)
    assert (saved.documents, saved.vectors, saved.jobs) == (0, 0, 0)
    assert saved.incomplete
    assert asyncio.run(open_kb().check()).sound


def test_what_is_in_use_is_not_touched(filled, folder: Path):
    lock = ProcessLock(folder / "lock")
    assert lock.acquire()
    with pytest.raises(StoreBusyError, match="works on"):
        salvage(folder)
    lock.release()


# -- damage of every kind ---------------------------------------------------------------------------

PAGE = 4096
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base whose documents fill most of its record, closed; tests damage copies of it."""
    folder = tmp_path_factory.mktemp("closed") / "kb"
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=folder)
    asyncio.run(knowledge_base.add_documents([DocumentDraft(uri=uri, text=noise(uri)) for uri in URIS]))
    knowledge_base.close()
    with sqlite3.connect(folder / "record.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return folder


URIS = [f"text:文{n}" for n in range(12)]


def noise(uri: str) -> str:
    """A text of some pages that hardly becomes smaller by packing."""
    choose = random.Random(uri).choice
    return "长城北京大学 " + " ".join("".join(choose(LETTERS) for _ in range(9)) for _ in range(250))


def zeroed(file: Path, rng: random.Random) -> None:
    with file.open("r+b") as store:
        for _ in range(rng.randint(1, 5)):
            store.seek(PAGE * rng.randrange(1, file.stat().st_size // PAGE))
            store.write(bytes(PAGE))


def flipped(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(20):
        content[rng.randrange(PAGE, len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def exchanged(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    one, other = (slice(PAGE * n, PAGE * (n + 1)) for n in rng.sample(range(1, len(content) // PAGE), 2))
    content[one], content[other] = content[other], content[one]
    file.write_bytes(content)


def cut_off(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size // 4, file.stat().st_size))


def without_header(file: Path, rng: random.Random) -> None:
    with file.open("r+b") as store:
        store.write(rng.randbytes(100))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("damage", [zeroed, flipped, exchanged, cut_off, without_header])
def test_whatever_is_damaged_nothing_is_lost_without_being_told(
    damage: Callable[[Path, random.Random], None], seed: int, closed: Path, folder: Path
):
    shutil.copytree(closed, folder)
    damage(folder / "record.db", random.Random(seed))
    found = check_file(folder / "record.db")
    saved = salvage(folder) if found else None
    assert check_file(folder / "record.db") == []
    again = GraphRAGKnowledgeBase.from_config(path=folder)
    asyncio.run(again.worker.drain())
    report = asyncio.run(again.check(repair=True))
    there = {uri for uri in URIS if again.store.documents.get(uri) is not None}
    gone = set(URIS) - there
    assert report.sound or [finding.repair for finding in report.findings] == ["lost_texts"]
    told = {uri for uri in gone if any(uri in finding.text for finding in report.findings)}
    if saved is not None:
        told |= gone if saved.incomplete else set(saved.lost)
    assert gone <= told
    for uri in there & {row["uri"] for row in again.store.database.rows("SELECT uri FROM documents")}:
        answer = asyncio.run(again.search(noise(uri).split()[120])).items
        assert any(item.source == uri for item in answer) or not report.sound
    again.close()


def test_a_record_without_a_readable_header_is_saved_whole(closed: Path, folder: Path):
    shutil.copytree(closed, folder)
    without_header(folder / "record.db", random.Random(0))
    saved = salvage(folder)
    assert (saved.documents, saved.lost) == (len(URIS), ())
    assert not (folder / "record.db.mended").exists()


def test_text_that_is_no_text_is_found_and_made_again(closed: Path, folder: Path):
    shutil.copytree(closed, folder)
    db = sqlite3.connect(folder / "record.db")
    db.execute(
        "UPDATE chunks SET text = CAST(x'e995' || CAST(substr(text, 2) AS BLOB) AS TEXT) WHERE key = 3"
    )
    db.commit()
    db.close()
    (finding,) = check_file(folder / "record.db")
    assert "Could not decode" in finding.text
    assert salvage(folder).documents == len(URIS)
    assert check_file(folder / "record.db") == []


def test_a_lost_document_is_loaded_again_from_its_file(folder: Path, tmp_path: Path, open_kb):
    file = tmp_path / "长城.md"
    file.write_text("# 长城\n\n长城很长。", encoding="utf-8")
    knowledge_base = open_kb()
    asyncio.run(knowledge_base.add_paths([file]))
    asyncio.run(knowledge_base.add_documents([DocumentDraft(uri="text:gone", text="It is nowhere else.")]))
    knowledge_base.close()
    db = sqlite3.connect(folder / "record.db")
    db.execute("UPDATE documents SET text = x'00', title = CAST(x'ff' AS TEXT)")
    db.commit()
    db.close()
    saved = salvage(folder)
    assert (saved.documents, saved.lost) == (0, ("text:gone",))
    assert [path.endswith(".md") for path in saved.reloaded] == [True]
    again = open_kb()
    asyncio.run(again.worker.drain())
    assert [row.uri for row in again.store.documents.by_key([1, 2, 3]).values()] == list(saved.reloaded)


def test_an_emptied_record_is_told_and_not_taken_for_a_new_one(closed: Path, folder: Path):
    shutil.copytree(closed, folder)
    os.truncate(folder / "record.db", 0)
    (finding,) = check_file(folder / "record.db")
    assert "is empty" in finding.text
    with pytest.raises(StoreError, match="is empty") as refused:
        GraphRAGKnowledgeBase.from_config(path=folder)
    assert "--repair" in refused.value.advice
    saved = salvage(folder)
    assert (saved.documents, saved.incomplete) == (0, True)
    GraphRAGKnowledgeBase.from_config(path=folder).close()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["a folder", "a pipe"])
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], None], closed: Path, folder: Path):
    shutil.copytree(closed, folder)
    (folder / "record.db").unlink()
    make(folder / "record.db")
    for opening in (
        check_file,
        lambda path: salvage(path.parent),
        lambda path: GraphRAGKnowledgeBase.from_config(path=path.parent),
    ):
        with pytest.raises(StoreError, match="is not a file"):
            opening(folder / "record.db")


@pytest.mark.parametrize("left", [b"", None], ids=["emptied", "removed"])
def test_a_log_that_is_lost_leaves_what_was_before_and_indexes_that_agree(
    left: bytes | None, folder: Path, tmp_path: Path, open_kb
):
    knowledge_base = open_kb()
    asyncio.run(knowledge_base.add_texts(["# Before\n\nIt was here before."], uris=["text:before"]))
    with knowledge_base.store.database.read() as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    asyncio.run(knowledge_base.add_texts(["# After\n\nIt came after."], uris=["text:after"]))
    copy = tmp_path / "as after a kill"
    shutil.copytree(folder, copy)  # the log holds the second document, the indexes do, too
    (copy / "record.db-shm").unlink()
    (copy / "record.db-wal").unlink() if left is None else (copy / "record.db-wal").write_bytes(left)
    assert check_file(copy / "record.db") == []
    again = open_kb(copy)
    asyncio.run(again.search("before"))
    asyncio.run(again.worker.drain())
    report = asyncio.run(again.check(repair=True))
    assert report.sound
    assert again.store.documents.get("text:before") is not None
    answer = asyncio.run(again.search("What came after?"))
    assert {item.source for item in answer.items} <= {"text:before"}


def test_a_damaged_record_of_a_newer_loom_is_left_to_that(closed: Path, folder: Path):
    shutil.copytree(closed, folder)
    db = sqlite3.connect(folder / "record.db")
    db.execute("PRAGMA user_version = 1000")
    db.commit()
    db.close()
    cut_off(folder / "record.db", random.Random(0))
    before = (folder / "record.db").read_bytes()
    with pytest.raises(StoreError, match="newer Loom"):
        salvage(folder)
    assert (folder / "record.db").read_bytes() == before
