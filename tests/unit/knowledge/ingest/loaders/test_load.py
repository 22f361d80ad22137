from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits, list_extensions, load_bytes, load_file


def test_the_uri_is_that_of_the_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "说明 1.txt").write_text("织机")
    monkeypatch.chdir(tmp_path)
    draft = load_file(Path("说明 1.txt"))
    assert draft.uri == (tmp_path / "说明 1.txt").as_uri()
    assert draft.mime == "text/plain"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"none\.txt does not exist\. Check the path\."):
        load_file(tmp_path / "none.txt")
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(DocumentError, match="does not exist"):
        load_file(tmp_path / "file.txt" / "below.txt")


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        load_file(tmp_path / "a\0b.txt")
    with pytest.raises(DocumentError, match="cannot be read"):
        load_file(tmp_path / f"{'x' * 400}.txt")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "closed.txt"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(DocumentError, match="permission denied"):
        load_file(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_folders_pipes_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "device.txt").symlink_to("/dev/zero")
    for name in ("folder.txt", "pipe.txt", "device.txt"):
        with pytest.raises(DocumentError, match="not a regular file"):
            load_file(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"  \n\t ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DocumentError, match=r"a\.txt (is empty|has no text)"):
        load_file(path)


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 1_001)
    limits = LoadLimits(max_bytes=1_000)
    with pytest.raises(DocumentError, match=r"has 1,001 bytes, more than a document may \(1,000\)"):
        load_file(path, limits=limits)
    with pytest.raises(DocumentError, match="has 1,001 bytes"):
        load_bytes(path.read_bytes(), uri="u", name="a.txt", limits=limits)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.py", "a.html", "a.json"])
def test_a_text_over_the_limit_is_refused(load, name: str) -> None:
    data = {"a.csv": "ab,cd\n" * 100, "a.json": '["abc"]'.replace("abc", "abc" * 100)}.get(name, "abc " * 100)
    with pytest.raises(DocumentError, match="holds more text than a document may"):
        load(name, data, LoadLimits(max_text_chars=100))


@pytest.mark.parametrize(
    ("name", "advice"),
    [("a.doc", "Save it as .docx"), ("a.bin", "Convert it to PDF"), ("a.tar.gz", "Unpack it")],
)
def test_an_unsupported_type_is_refused_with_advice(load, name: str, advice: str) -> None:
    with pytest.raises(DocumentError, match=f"cannot be loaded.*{advice}|{advice}"):
        load(name, b"x")


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.txt", b"%PDF-1.7 x", "a PDF"),
        ("a.md", b"\x89PNG\r\n\x1a\n", "a PNG image"),
        ("a.csv", b"PK\x03\x04xxxx", "a ZIP archive or Office file"),
        ("a.txt", bytes(range(256)) * 8, "binary data"),
        ("a.py", b"\x00\x01\x02\x03" * 100, "binary data"),
        ("a.pdf", b"\x7fELFxxxx", "a program"),
        ("a.docx", b"%PDF-1.7 x", "a PDF"),
        ("a.pdf", b"\x89PNG\r\n\x1a\n", "a PNG image"),
    ],
)
def test_binary_content_under_a_wrong_name_is_told(load, name: str, data: bytes, found: str) -> None:
    with pytest.raises(DocumentError, match=f"{name} is {found}, not "):
        load(name, data)


def test_old_binary_office_files_are_told_apart_from_encrypted_ones(load) -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    with pytest.raises(DocumentError, match="old binary Office format, not a Word document"):
        load("a.docx", ole)
    with pytest.raises(DocumentError, match="is encrypted"):
        load("a.pptx", ole + "EncryptedPackage".encode("utf-16-le"))


def archive_of(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.ods"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(load, name: str) -> None:
    bomb = archive_of({"word/document.xml": bytes(40 * 1024 * 1024)})
    assert len(bomb) < 100_000
    with pytest.raises(DocumentError, match="which no ordinary document does"):
        load(name, bomb)
    with pytest.raises(DocumentError, match="unpacks to"):
        load(name, archive_of({"a.xml": os.urandom(9_000)}), LoadLimits(max_unpacked_bytes=8_000))


def test_an_archive_with_a_password_is_encrypted(load) -> None:
    data = bytearray(archive_of({"word/document.xml": b"x"}))
    data[6] |= 1  # the flag in the local header, and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DocumentError, match="is encrypted"):
        load("a.docx", bytes(data))


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("name", ["a.docx", "a.pptx"])
def test_an_archive_of_something_else_is_broken(load, name: str) -> None:
    with pytest.raises(DocumentError, match="cannot be read as a"):
        load(name, archive_of({"hello.txt": b"x"}))
    with pytest.raises(DocumentError, match="cannot be read as a"):
        load(name, b"PK\x03\x04 cut short")


def test_the_media_type_decides_where_the_name_says_nothing() -> None:
    draft = load_bytes(b"<h1>A</h1>", uri="https://x.org/", name="", mime="text/html; charset=utf-8")
    assert draft.blocks[0].kind == "heading"
    draft = load_bytes(b"# A", uri="https://x.org/a.php", name="a", mime="text/markdown")
    assert draft.title == "A"


def test_a_document_without_any_name_has_no_title() -> None:
    draft = load_bytes(b"text", uri="text:1", name="", mime="text/plain")
    assert (draft.title, draft.title_source) == ("", "none")


@pytest.mark.hostile("files of any kind")
def test_a_name_that_is_no_unicode_is_survived(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text("x")
    draft = load_file(path)
    draft.title.encode()
    draft.uri.encode()
    path.write_text("")
    with pytest.raises(DocumentError) as raised:
        load_file(path)
    str(raised.value).encode()


def test_every_supported_extension_is_lower_case_with_a_dot() -> None:
    extensions = list_extensions()
    assert {".md", ".txt", ".html", ".pdf", ".docx", ".pptx", ".xlsx", ".csv", ".jsonl", ".py"} <= extensions
    assert all(extension == f".{extension.lstrip('.').lower()}" for extension in extensions)


@pytest.mark.parametrize(
    ("name", "text", "mime"),
    [
        ("NOTES", "Anna Berg approved the budget.", "text/plain"),
        ("说明", "议会批准了预算。", "text/plain"),
        ("syslog.1", "Nov 24 10:00:00 host kernel: ok", "text/plain"),
        ("README.Debian", "Notes for Debian", "text/plain"),
        ("deploy", "#!/bin/sh\nset -e\n", "text/x-source"),
        ("index", "<!DOCTYPE html><html><body><p>Hello</p></body></html>", "text/html"),
        ("veld.7", ".TH VELD 7\n.SH NAME\nveld \\- a harbour\n", "text/troff"),
    ],
)
def test_content_tells_the_format_where_the_name_does_not(load, name: str, text: str, mime: str) -> None:
    assert load(name, text).mime == mime


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01", b"\x00\x01\x02" * 99, b"a" * 9_000])
def test_what_is_no_text_is_refused_under_a_name_without_extension(load, data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"program is of a type that cannot be loaded \(no extension\)"):
        load("program", data)


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("name", ["id_rsa", "key.txt", "notes.md", "a.txt.gz"])
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_is_never_read(load, name: str, kind: str) -> None:
    text = f"\n-----BEGIN {kind}-----\nAAAA\n"
    with pytest.raises(DocumentError, match=r"is a private key, which is never read"):
        load(name, gzip.compress(text.encode()) if name.endswith(".gz") else text)


def test_a_packed_file_reads_as_what_is_in_it(load) -> None:
    draft = load("报告.md.gz", gzip.compress("# 港口\n\nSalt.".encode()))
    assert (draft.title, draft.mime, draft.text) == ("港口", "text/markdown", "# 港口\n\nSalt.")
    draft = load("changelog.gz", gzip.compress(b"One\n") + gzip.compress(b"Two\n") + bytes(100))
    assert (draft.title, draft.mime, draft.text) == ("changelog", "text/plain", "One\nTwo\n")
    assert load("rows.tsv.gz", gzip.compress(b"a\tb\n1\t2\n")).text == "a: 1; b: 2"
    assert load("plain.txt.gz", b"not packed at all").text == "not packed at all"


@pytest.mark.hostile("files of any kind")
def test_a_packed_file_that_is_damaged_or_too_large_is_refused(load) -> None:
    whole = gzip.compress(b"The harbour is old. " * 100)
    with pytest.raises(
        DocumentError, match=r"a\.txt\.gz cannot be read as a gzip file: it ends in the middle"
    ):
        load("a.txt.gz", whole[:-20])
    with pytest.raises(DocumentError, match="cannot be read as a gzip file"):
        load("a.txt.gz", whole[:30] + b"xxxx" + whole[34:])
    with pytest.raises(DocumentError, match=r"unpacks to more bytes than a document may have \(5,000\)"):
        load("a.txt.gz", gzip.compress(bytes(100_000)), LoadLimits(max_bytes=5_000))
    with pytest.raises(DocumentError, match="more than 1,000 members"):
        load("a.txt.gz", gzip.compress(b"") * 2_000)
    with pytest.raises(DocumentError, match=r"a\.txt\.gz is a gzip archive, not plain text"):
        load("a.txt.gz", gzip.compress(gzip.compress(b"twice")))
