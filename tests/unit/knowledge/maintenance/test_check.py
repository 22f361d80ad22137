"""`check`: finds what is wrong, says it in plain words, and puts it right."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.errors import StoreBusyError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

pytestmark = pytest.mark.slow


def damage(knowledge_base: GraphRAGKnowledgeBase, *statements: str) -> None:
    """Change the record behind the back of the library, as no constraint would let it."""
    path = knowledge_base._folder
    assert path is not None
    db = sqlite3.connect(path / "record.db")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def content(knowledge_base: GraphRAGKnowledgeBase) -> dict[str, list[tuple[object, ...]]]:
    rows = knowledge_base.store.database.rows
    return {
        "chunks": sorted(map(tuple, rows('SELECT id, ordinal, start, "end", text, vector_hash FROM chunks'))),
        "vectors": sorted(map(tuple, rows("SELECT hash, vector FROM vectors"))),
        "names": sorted(
            map(tuple, rows("SELECT id, name, type, uses FROM names JOIN entities ON key = entity"))
        ),
        "mentions": sorted(
            map(
                tuple,
                rows(
                    "SELECT c.id, e.id, m.start, m.end, m.name FROM mentions AS m "
                    "JOIN chunks AS c ON c.key = m.chunk JOIN entities AS e ON e.key = m.entity"
                ),
            )
        ),
        "abouts": sorted(
            map(
                tuple,
                rows(
                    "SELECT c.id, e.id, a.source, a.name FROM abouts AS a "
                    "JOIN chunks AS c ON c.key = a.chunk JOIN entities AS e ON e.key = a.entity"
                ),
            )
        ),
        "fields": sorted(map(tuple, rows("SELECT document, name, value FROM fields"))),
    }


def test_a_healthy_knowledge_base_has_nothing_wrong(filled):
    report = asyncio.run(filled.check())
    assert report.findings == []
    assert report.notes == []
    assert report.checked[0].startswith("store: 3 documents")
    assert report.checked[-1] == "indexes: words, vectors, links, graph"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM chunks WHERE key = 1", "missing or out of order|no passages|refer to rows"),
        ("UPDATE chunks SET text = 'Something else.' WHERE key = 2", "does not match the text"),
        ("UPDATE chunks SET start = 100000, end = 100001 WHERE key = 2", "outside of the text"),
        ("UPDATE chunks SET ordinal = ordinal + 5 WHERE key = 2", "out of order"),
        ("UPDATE chunks SET vector_hash = x'00' WHERE key = 2", "does not match its text"),
        ("UPDATE chunks SET heading_path = 'no json' WHERE key = 2", "cannot be read"),
        ("UPDATE chunks SET id = 'd.0' WHERE key = 2", "the id of a passage"),
        ("DELETE FROM documents WHERE uri = 'text:york'", "documents that are gone"),
        ("DELETE FROM fields WHERE name = 'tags'", "fields for filters"),
        ("UPDATE fields SET value = 'other' WHERE name = 'tags' AND value = 'note'", "fields for filters"),
        ("UPDATE mentions SET end = 100000", "outside of their passages"),
        ("DELETE FROM entities WHERE id = 'paris'", "refer to rows of 'entities'"),
        ("INSERT INTO entities (id) VALUES ('unmentioned')", "entities are in no passage"),
        ("UPDATE names SET uses = uses + 1 WHERE name = 'Paris'", "how often a name is used"),
        ("UPDATE entities SET common = TRUE WHERE id = 'paris'", "whether they are common words"),
        ("DELETE FROM aliases", "wrong group of aliases"),
        ("DELETE FROM edge_lines WHERE document = 1", "which passages are boilerplate"),
        ("INSERT INTO boilerplate SELECT key FROM chunks LIMIT 1", "which passages are boilerplate"),
        ("INSERT INTO boilerplate VALUES (99)", "refer to rows of 'chunks'"),
        ("DELETE FROM mentions WHERE name = 'London'", "not mentioned there"),
        ("INSERT INTO vectors VALUES (x'aa', x'0000')", "belong to no passage"),
        ("UPDATE vectors SET vector = x'0000'", "do not have length"),
        ("UPDATE vectors SET vector = CAST(zeroblob(1022) || x'007e' AS BLOB)", "or are not numbers"),
        ("UPDATE indexes SET watermark = 100000 WHERE name = 'words'", "beyond the last change"),
        ("UPDATE coverage SET unembedded = 7", "passages to embed"),
        ("INSERT INTO unembedded SELECT key FROM chunks", "passages to embed"),
        ("UPDATE coverage SET linked = 100000", "watermark of entity linking"),
        ("DELETE FROM coverage", "passages to embed"),
        (
            "INSERT INTO items (job, ordinal, uri, size, state) SELECT key, 99, 'text:x', 1, 'pending' "
            "FROM jobs LIMIT 1",
            "unprocessed documents",
        ),
    ],
)
def test_each_damage_is_told_in_words_and_repaired(filled, statement: str, words: str):
    before = content(filled)
    damage(filled, statement)
    report = asyncio.run(filled.check(repair=True))  # checks before and after
    assert any(re.search(words, text) for text in report.repaired)
    assert report.findings == []
    if "documents" not in statement:
        assert content(filled) == before


def test_changes_that_are_missing_have_the_index_rebuilt(filled):
    asyncio.run(filled.add_documents([DocumentDraft(uri="text:new", text="Something about Rome.")]))
    damage(filled, "UPDATE indexes SET watermark = 1 WHERE name = 'words'", "DELETE FROM changes")
    findings = asyncio.run(filled.check()).findings
    assert {finding.keys for finding in findings} == {("words",), ("links",)}
    assert all("still to apply are missing" in finding.text for finding in findings)
    assert asyncio.run(filled.check(repair=True)).sound


def test_a_damaged_text_is_loaded_again_from_its_file(open_kb, tmp_path: Path):
    file = tmp_path / "城市.md"
    file.write_text("# 巴黎\n\n巴黎是法国的首都。", encoding="utf-8")
    knowledge_base = open_kb()
    asyncio.run(knowledge_base.add_paths([file]))
    damage(knowledge_base, "UPDATE documents SET text = x'00'")
    (finding,) = asyncio.run(knowledge_base.check()).findings
    assert "text in the store is damaged" in finding.text
    assert "城市.md" in finding.text
    assert asyncio.run(knowledge_base.check(repair=True)).sound


def test_a_damaged_text_without_a_file_stays_a_finding(filled):
    damage(filled, "UPDATE documents SET text = x'00' WHERE uri = 'text:paris'")
    report = asyncio.run(filled.check(repair=True))
    assert [finding.repair for finding in report.findings] == ["lost_texts"]


@pytest.mark.parametrize("index", ["words", "vectors", "graph"])
def test_an_emptied_index_is_found_and_rebuilt(filled, folder: Path, index: str):
    filled.worker.release()
    filled._words.close()
    filled._vectors.close()
    (path,) = folder.glob(f"{index}-*")
    shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"")
    report = asyncio.run(filled.check())
    assert [finding.keys for finding in report.findings] == [(index,)]
    assert asyncio.run(filled.check(repair=True)).sound


@pytest.mark.parametrize("index", ["words", "vectors", "graph"])
def test_the_index_of_another_knowledge_base_is_found_out(filled, open_kb, folder: Path, index: str):
    other_folder = folder.parent / "other"
    other = open_kb(other_folder)
    # The same keys with other content.
    texts = [f"# Title {n}\n\nA note about Rome {n} and Ostia {n}." for n in range(3)]
    texts[1] += "\n\n## Part\n\nThe second part is about Naples."
    texts[2] += "\n\n## Part\n\nThe third part is about Capua."
    asyncio.run(other.add_texts(texts))
    for knowledge_base in (filled, other):
        knowledge_base.close()
    (mine,), (theirs,) = folder.glob(f"{index}-*"), other_folder.glob(f"{index}-*")
    shutil.rmtree(mine) if mine.is_dir() else mine.unlink()
    shutil.copytree(theirs, mine) if theirs.is_dir() else shutil.copy(theirs, mine)
    again = open_kb()
    report = asyncio.run(again.check())
    assert {finding.keys for finding in report.findings} == {(index,)}
    assert asyncio.run(again.check(repair=True)).sound


def test_surplus_and_missing_keys_of_the_index_of_words_are_counted(filled):
    words = filled._words._local
    words._check(1)
    index = words._open(1, writable=True)
    index.delete([1])
    index.add([(77, ["nothing"])])
    index.commit()
    words.close()
    texts = [finding.text for finding in asyncio.run(filled.check()).findings]
    assert any(text.startswith("1 of ") and "not in the index 'words'" in text for text in texts)
    assert any("has 1 passages that are gone" in text for text in texts)
    assert asyncio.run(filled.check(repair=True)).sound


def test_while_another_process_works_the_rest_is_checked_and_repairs_are_refused(filled, folder: Path):
    program = (
        "import sys, pathlib; from loom_core.storage import ProcessLock;"
        "print(ProcessLock(pathlib.Path(sys.argv[1])).acquire(), flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        report = asyncio.run(filled.check(repair=True))
        assert report.sound
        assert str(child.pid) in report.notes[0]
        damage(filled, "UPDATE names SET uses = 99")
        with pytest.raises(StoreBusyError, match=str(child.pid)):
            asyncio.run(filled.check(repair=True))
    finally:
        child.kill()
        child.communicate()


def test_documents_cut_by_other_rules_are_a_note_and_cut_again_when_asked(filled):
    before = content(filled)
    # Both hashes are functions of the rules.
    damage(filled, "UPDATE documents SET hash = x'11'")
    report = asyncio.run(filled.check())
    assert report.sound
    assert "3 documents were chunked" in report.notes[0]
    job = asyncio.run(filled.rebuild_from_texts())
    assert job.counts == {"updated": 3}
    assert content(filled) == before
    assert asyncio.run(filled.check()).notes == []


def test_indexes_are_rebuilt_on_demand(filled, folder: Path):
    asyncio.run(filled.rebuild(["words", "graph"]))
    names = {path.name for path in folder.iterdir()}
    assert {"words-2", "graph-2", "vectors-1"} <= names
    assert not {"words-1", "graph-1"} & names
    assert asyncio.run(filled.check()).sound


def test_in_memory_only_the_record_is_checked():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    asyncio.run(knowledge_base.add_texts(["Some text about Paris."]))
    report = asyncio.run(knowledge_base.check(repair=True))
    assert report.sound
    assert not any("indexes" in line for line in report.checked)
    knowledge_base.close()
