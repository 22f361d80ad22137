"""`loom-kb check`, `rebuild`, `export` and `import` as a person runs them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path


def test_a_damaged_knowledge_base_is_told_repaired_and_fine_again(loom_kb, home: Path, documents: Path):
    assert loom_kb("add", documents, "--kb", "文档").returncode == 3  # two files that cannot be read
    (record,) = home.glob("kb/*/record.db")
    fine = loom_kb("check", "--kb", "文档")
    assert (fine.returncode, "no problems found" in fine.stdout.decode()) == (0, True)
    db = sqlite3.connect(record)
    db.execute("DELETE FROM mentions WHERE entity IN (SELECT entity FROM mentions LIMIT 1)")
    db.execute("UPDATE chunks SET text = 'x' WHERE key = 3")
    db.commit()
    db.close()
    wrong = loom_kb("check", "--kb", "文档")
    assert wrong.returncode == 1
    assert "wrong     a passage does not match the text at its position" in wrong.stdout.decode()
    assert "--repair" in wrong.stderr.decode()
    repaired = loom_kb("check", "--repair", "--json", "--kb", "文档")
    assert repaired.returncode == 0, repaired.stdout.decode()
    assert json.loads(repaired.stdout)["repaired"]
    assert loom_kb("check", "--kb", "文档").returncode == 0


def test_a_record_that_is_no_database_is_listed_and_salvaged(loom_kb, home: Path, documents: Path):
    loom_kb("add", documents / "encrypted.pdf", "--kb", "notes")
    record = home / "kb" / "notes" / "record.db"
    record.write_bytes(b"no database" * 1000)
    for suffix in ("-wal", "-shm"):
        record.with_name(record.name + suffix).unlink(missing_ok=True)
    listed = json.loads(loom_kb("list", "--json").stdout)
    assert [entry["name"] for entry in listed["unusable"]] == ["notes"]
    assert "notes cannot be used" in loom_kb("list").stderr.decode()
    assert loom_kb("check", "--kb", "notes").returncode == 1
    done = loom_kb("check", "--repair", "--kb", "notes")
    assert done.returncode == 3, done.stderr.decode()  # what was in it is lost
    assert "the damaged file is kept as" in done.stdout.decode()
    assert "more may be lost" in done.stdout.decode()
    assert list(record.parent.glob("record.db.damaged-*"))
    assert loom_kb("check", "--kb", "notes").returncode == 0


def test_documents_that_are_lost_are_named_and_those_with_files_loaded_again(
    loom_kb, home: Path, documents: Path
):
    loom_kb("add", documents / "guide.md", "--kb", "notes")
    loom_kb("add", "-", "--kb", "notes", stdin="It is nowhere else: 青岛。".encode())
    record = home / "kb" / "notes" / "record.db"
    db = sqlite3.connect(record)
    db.execute("UPDATE documents SET text = x'00', title = CAST(x'ff' AS TEXT)")
    db.commit()
    db.close()
    assert loom_kb("query", "青岛", "--kb", "notes").returncode == 1
    done = loom_kb("check", "--repair", "--kb", "notes")
    told = done.stdout.decode()
    assert done.returncode == 3, done.stderr.decode()
    assert "1 could not be read, and are loaded again from their files" in told
    assert "1 documents could not be read and are lost: text:" in told
    assert len(json.loads(loom_kb("list", "--kb", "notes", "--json").stdout)["documents"]) == 1


def test_an_emptied_record_is_no_new_knowledge_base(loom_kb, home: Path, documents: Path):
    loom_kb("add", documents / "guide.md", "--kb", "notes")
    (home / "kb" / "notes" / "record.db").write_bytes(b"")
    assert "record.db is empty" in loom_kb("list").stderr.decode()
    refused = loom_kb("add", documents / "guide.md", "--kb", "notes")
    assert (refused.returncode, "check --repair" in refused.stderr.decode()) == (1, True)
    assert loom_kb("check", "--repair", "--kb", "notes").returncode == 3
    assert loom_kb("add", documents / "guide.md", "--kb", "notes").returncode == 0


def test_export_and_import_move_a_knowledge_base_to_another_home(
    loom_kb, home: Path, documents: Path, tmp_path: Path
):
    loom_kb("add", documents, "--kb", "文档")
    archive = tmp_path / "文档.zip"
    exported = json.loads(loom_kb("export", archive, "--kb", "文档", "--json").stdout)
    assert exported["parts"]["documents.jsonl"] == 14
    assert loom_kb("export", archive, "--kb", "文档").returncode == 1  # there is a file already
    again = loom_kb("import", archive)
    assert (again.returncode, "--kb NAME" in again.stderr.decode()) == (1, True)
    loom_kb("remove", "--all", "--kb", "文档")
    imported = loom_kb("import", archive, "--json")
    assert imported.returncode == 0, imported.stderr.decode()
    assert json.loads(imported.stdout)["job"]["counts"] == {"added": 14}
    assert loom_kb("check", "--kb", "文档").returncode == 0


def test_indexes_passages_and_vectors_are_made_again(loom_kb, home: Path, documents: Path):
    loom_kb("add", documents)
    built = loom_kb("rebuild", "--index", "words", "--json", embedder="auto")
    assert json.loads(built.stdout) == {"name": "default", "rebuilt": ["words"]}
    cut = loom_kb("rebuild", "--all-from-text", "--json", embedder="auto")
    assert json.loads(cut.stdout)["counts"] == {"unchanged": 14}
    changed = json.loads(loom_kb("rebuild", "--json", embedder="static").stdout)
    assert changed["before"].startswith("hashing")
    stats = json.loads(loom_kb("stats", "--json", embedder="auto").stdout)
    assert (stats["embedder"], stats["vectors"]) == (changed["embedder"], stats["passages"])
    assert loom_kb("check", embedder="auto").returncode == 0
    for options, embedder in (
        (("--index", "words"), "static"),
        (("--index", "words", "--all-from-text"), "auto"),
    ):
        refused = loom_kb("rebuild", *options, embedder=embedder)
        assert refused.returncode == 1
        assert b"Give it without" in refused.stderr
