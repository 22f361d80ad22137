"""Export and import: the same knowledge base again, and nothing of a file that is not whole."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loom_core.errors import ConfigError, InvalidInputError, StoreBusyError, StoreError
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.maintenance.archive import ArchiveReader, export, import_archive
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.storage import ProcessLock
from tests.fixtures.fork_server import starts_quickly

pytestmark = pytest.mark.slow

QUERIES = {
    "documents": (
        "SELECT id, uri, title, title_source, mime, language, text, hash, metadata, blocks FROM documents"
    ),
    "chunks": (
        'SELECT id, ordinal, start, "end", page, kind, heading_path, hash, vector_hash, text FROM chunks'
    ),
    "vectors": "SELECT hash, vector FROM vectors",
    "names": "SELECT id, name, type, uses FROM names JOIN entities ON key = entity",
    "fields": (
        "SELECT d.id, name, value, number, local, instant FROM fields JOIN documents AS d ON d.key = document"
    ),
    "decisions": "SELECT id, other, same FROM alias_decisions",
    "aliases": (
        "SELECT e.id, o.id FROM aliases AS a JOIN entities AS e ON e.key = a.entity "
        "JOIN entities AS o ON o.key = a.canonical"
    ),
}


def content(knowledge_base: GraphRAGKnowledgeBase) -> dict[str, list[tuple[object, ...]]]:
    rows = knowledge_base.store.database.rows
    return {name: sorted(map(tuple, rows(sql)), key=repr) for name, sql in QUERIES.items()}


def take_in(knowledge_base: GraphRAGKnowledgeBase, path: Path, **options: object) -> str:
    archive = ArchiveReader(path)
    try:
        return import_archive(
            knowledge_base.store,
            archive,
            folder=knowledge_base._folder,
            **options,  # pyright: ignore[reportArgumentType]
        )
    finally:
        archive.close()


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.fixture
def archive(filled: GraphRAGKnowledgeBase, tmp_path: Path) -> Path:
    with filled.store.database.write() as db:
        db.execute("INSERT INTO alias_decisions VALUES ('paris', '巴黎', TRUE, 1.0)")
    filled.store.set("description", "Städte und 城市")
    export(filled.store, tmp_path / "a.zip", name="wissen")
    return tmp_path / "a.zip"


def test_what_is_imported_equals_what_was_exported(filled, open_kb, archive: Path, tmp_path: Path):
    other = open_kb(tmp_path / "other")
    told: list[tuple[int, int]] = []
    job = take_in(other, archive, progress=lambda done, total: told.append((done, total)))
    asyncio.run(other.worker.drain())
    assert other.job(job).counts == {"added": 3}
    assert told == [(3, 3)]
    assert content(other) == content(filled)
    assert other.description == "Städte und 城市"
    assert not other.store.imported_vectors.has_any()
    assert asyncio.run(other.check()).sound


def test_two_exports_at_once_to_one_path_are_both_whole(filled, open_kb, tmp_path: Path):
    path = tmp_path / "both.zip"

    def export_again(done: int, _: int) -> None:
        if done == 1:
            export(filled.store, path, name="wissen")
            take_in(open_kb(tmp_path / "first"), path)

    export(filled.store, path, name="wissen", progress=export_again)
    take_in(open_kb(tmp_path / "second"), path)
    assert list(tmp_path.glob("*.partial")) == []


def test_decisions_of_an_archive_hold_for_what_is_there_already(filled, archive: Path, tmp_path: Path):
    filled.aliases.merge("Ada Lovelace", "Charles Babbage")
    export(filled.store, tmp_path / "b.zip", name="wissen")
    filled.aliases.clear_decision("Ada Lovelace", "Charles Babbage")
    take_in(filled, tmp_path / "b.zip")
    assert set(filled.aliases.group_of("Ada Lovelace").names) == {"Ada Lovelace", "Charles Babbage"}
    asyncio.run(filled.worker.drain())
    assert asyncio.run(filled.check()).sound


def test_vectors_of_the_same_embedder_are_not_made_again(open_kb, archive: Path, tmp_path: Path):
    other = open_kb(tmp_path / "other")
    take_in(other, archive)
    with other.store.database.write() as db:  # a mark that no embedder makes
        db.execute("UPDATE offered_vectors SET vector = zeroblob(1024)")
    asyncio.run(other.worker.drain())
    vectors = {row["vector"] for row in other.store.database.rows("SELECT vector FROM vectors")}
    assert vectors == {bytes(1024)}


def test_vectors_of_another_embedder_are_made_again(open_kb, archive: Path, tmp_path: Path):
    other = open_kb(tmp_path / "other", embedder="static")
    take_in(other, archive)
    assert not other.store.imported_vectors.has_any()
    asyncio.run(other.worker.drain())
    assert other.coverage()[0] == other.coverage()[1] > 0
    assert asyncio.run(other.check()).sound


def test_an_import_joins_what_is_there_and_leaves_its_own_words(
    filled, open_kb, archive: Path, tmp_path: Path
):
    other = open_kb(tmp_path / "other")
    other.store.set("description", "mine")
    asyncio.run(other.add_texts(["A note of my own.", "Old text."], uris=["text:mine", "text:paris"]))
    take_in(other, archive)
    asyncio.run(other.worker.drain())
    assert other.description == "mine"
    assert [row.uri for row in other.store.documents.list()] == [
        "text:mine",
        "text:paris",
        "text:york",
        "text:北京",
    ]


CHILD = """
import os, signal, sys
from pathlib import Path
from loom_core.knowledge.maintenance.archive import ArchiveReader
from loom_core.knowledge.maintenance.archive import import_archive
from loom_core.knowledge.store import KnowledgeStore

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
record = KnowledgeStore(folder / "record.db")
import_archive(record, ArchiveReader(Path(sys.argv[2])), folder=folder,
                progress=lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_an_import_that_was_killed_leaves_nothing_behind_once_the_next_is_made(
    filled, open_kb, archive: Path, tmp_path: Path
):
    done = subprocess.run(
        [sys.executable, "-c", starts_quickly(CHILD), str(tmp_path / "other"), str(archive)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    other = open_kb(tmp_path / "other")
    assert other.store.jobs.next() is None
    assert [job.state for job in other.store.jobs.list()] == ["receiving"]
    take_in(other, archive)
    asyncio.run(other.worker.drain())
    assert [job.state for job in other.store.jobs.list()] == ["done"]
    assert content(other) == content(filled)


def test_two_imports_at_once_are_refused(open_kb, archive: Path, tmp_path: Path):
    other = open_kb(tmp_path / "other")
    lock = ProcessLock(tmp_path / "other" / "import.lock")
    assert lock.acquire()
    with pytest.raises(StoreBusyError, match=str(os.getpid())):
        take_in(other, archive)
    lock.release()


def _newer(members: dict[str, bytes]) -> None:
    members["manifest.json"] = json.dumps({"format": 99, "whatever": 1}).encode()


def _stranger(members: dict[str, bytes]) -> None:
    members["../../evil"] = b"x"


def _missing(members: dict[str, bytes]) -> None:
    del members["vectors.bin"]


def _unknown_part(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["parts"]["evil.bin"] = {"bytes": 1, "sha256": "", "rows": 1}
    members["manifest.json"] = json.dumps(manifest).encode()
    members["evil.bin"] = b"x"


def _other_text(members: dict[str, bytes]) -> None:
    members["documents.jsonl"] = members["documents.jsonl"].replace(b"capital", b"CAPITAL")


def _longer(members: dict[str, bytes]) -> None:
    members["documents.jsonl"] += b"\n"


def _no_manifest(members: dict[str, bytes]) -> None:
    members["manifest.json"] = b"[]"


def _large_manifest(members: dict[str, bytes]) -> None:
    members["manifest.json"] = b" " * (2 << 20)


@pytest.mark.hostile("archives")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_newer, "newer Loom"),
        (_stranger, "other files"),
        (_missing, "other files"),
        (_unknown_part, "does not know"),
        (_other_text, "does not match its digest"),
        (_longer, "another size"),
        (_no_manifest, "not an archive"),
        (_large_manifest, "too large"),
    ],
)
def test_a_file_that_is_not_a_whole_archive_is_refused(
    open_kb, archive: Path, tmp_path: Path, change, words: str
):
    rewrite(archive, change)
    other = open_kb(tmp_path / "other")
    with pytest.raises(InvalidInputError, match=words):
        take_in(other, archive)
    assert other.store.jobs.list() == []


def _with_member(members: dict[str, bytes], name: str, data: bytes) -> None:
    """Replace a member, and have the manifest say so: an archive that is whole, and not of Loom's making."""
    members[name] = data
    manifest = json.loads(members["manifest.json"])
    rows = data.count(b"\n")
    manifest["parts"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": rows}
    members["manifest.json"] = json.dumps(manifest).encode()


_DOCUMENT = (
    b'{"uri": "%s", "text": "%s", "title": "", "title_source": "none", "mime": "", '
    b'"metadata": {}, "blocks": []}'
)
_HOSTILE_LINES = {
    "no JSON": b"{",
    "no UTF-8": b'"\xff\xfe"',
    "nested without end": b"[" * 100_000,
    "another kind": b"7",
    "nothing": b"null",
    "a list of other kinds": b'["a", ["b"], {"c": 1}, null]',
    "half a surrogate pair": b'["\\ud800", "b", 1, 1.0]',
    "a number without end": b'["a", "b", ' + b"9" * 400 + b", 1.0]",
    "a number too large": b'["a", "b", 9223372036854775808, 1.0]',
    "no number": b'["a", "b", 1, NaN]',
    "no time": b'["a", "b", 1, "x"]',
    "neither same nor other": b'["a", "b", 2, 1.0]',
    "an object of nothing": b"{}",
    "an object of other kinds": b'{"uri": 7, "title": [], "text": {}, "blocks": "x", "metadata": [1]}',
    "a path": b'{"uri": "../../evil", "text": 7}',
    "U+0000": _DOCUMENT % (b"text:a", b"a\\u0000b"),
    "half a surrogate pair in an address": _DOCUMENT % (b"text:\\ud800", b"a"),
}


@pytest.mark.hostile("archives")
@pytest.mark.parametrize("line", _HOSTILE_LINES.values(), ids=_HOSTILE_LINES)
@pytest.mark.parametrize("member", ["documents.jsonl", "alias_decisions.jsonl"])
def test_a_whole_archive_with_hostile_lines_is_refused(open_kb, archive: Path, tmp_path: Path, member, line):
    rewrite(archive, lambda members: _with_member(members, member, line + b"\n"))
    other = open_kb(tmp_path / "other")
    with pytest.raises(InvalidInputError):
        take_in(other, archive)
    assert other.store.jobs.list() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "kb", "other"]


@pytest.mark.hostile("archives")
@pytest.mark.parametrize("data", [b"", b"no zip at all" * 100])
def test_what_is_no_zip_is_refused(open_kb, tmp_path: Path, data: bytes):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        ArchiveReader(tmp_path / "a.zip")


@pytest.mark.hostile("archives")
def test_a_bomb_is_refused_by_its_own_numbers(open_kb, archive: Path, tmp_path: Path):
    with pytest.raises(InvalidInputError, match="line of more than"):
        take_in(open_kb(tmp_path / "other"), archive, limits=LoadLimits(max_text_chars=5))


@pytest.mark.hostile("archives")
def test_nothing_is_written_over_and_no_half_archive_stays(filled, archive: Path, tmp_path: Path):
    with pytest.raises(InvalidInputError, match="already a file"):
        export(filled.store, archive, name="wissen")
    with pytest.raises(ConfigError, match="cannot be written"):
        export(filled.store, tmp_path / "none" / "a.zip", name="wissen")
    with filled.store.database.write() as db:
        db.execute("UPDATE documents SET text = x'00'")
    with pytest.raises(StoreError, match="damaged"):
        export(filled.store, tmp_path / "b.zip", name="wissen")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "kb"]


@pytest.mark.hostile("archives")
def test_an_archive_that_has_a_member_twice_is_refused(archive: Path):
    with zipfile.ZipFile(archive, "a") as written, pytest.warns(UserWarning, match="Duplicate name"):
        written.writestr("documents.jsonl", b"{}")
    with pytest.raises(InvalidInputError, match="other files than its manifest says"):
        ArchiveReader(archive)


@pytest.mark.hostile("archives")
@pytest.mark.parametrize("member", ["manifest.json", "documents.jsonl"])
def test_an_encrypted_archive_is_refused(archive: Path, member: str):
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as written:
        start = written.getinfo(member).header_offset
    data[start + 6] |= 1  # in the header of the member
    entry = data.index(b"PK\x01\x02", data.rindex(member.encode()) - 46)
    data[entry + 8] |= 1  # and in the directory
    archive.write_bytes(data)

    def read() -> None:
        with closing(ArchiveReader(archive)) as reader:
            reader.verify()

    with pytest.raises(InvalidInputError, match="cannot be read"):
        read()


@pytest.mark.hostile("archives")
def test_a_link_in_an_archive_is_no_member_of_it(archive: Path, tmp_path: Path):
    link = zipfile.ZipInfo("vectors.bin.link")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(archive, "a") as written:
        written.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidInputError, match="other files than its manifest says"):
        ArchiveReader(archive)
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
