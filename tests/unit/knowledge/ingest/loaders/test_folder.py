from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.ingest.loaders import ScanEntry, scan


def plant(root: Path, files: Iterable[str], content: str = "x") -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def taken(root: Path, entries: Iterable[ScanEntry]) -> list[str]:
    return [entry.path.relative_to(root).as_posix() for entry in entries if entry.skipped is None]


def test_files_come_sorted_with_size_and_time(tmp_path: Path) -> None:
    plant(tmp_path, ["b.md", "a/z.txt", "a/说明.md", "c.py"])
    entries = list(scan(tmp_path))
    assert taken(tmp_path, entries) == ["a/z.txt", "a/说明.md", "b.md", "c.py"]
    assert entries[0].size == 1
    assert entries[0].mtime_ns == (tmp_path / "a/z.txt").stat().st_mtime_ns
    assert entries == list(scan(tmp_path))


def test_what_no_one_means_is_left_out_silently(tmp_path: Path) -> None:
    plant(
        tmp_path,
        [
            ".git/a.md",
            ".hidden.md",
            "node_modules/a.js",
            "a/__pycache__/b.py",
            "venv/x.py",
            ".venv/x.py",
            "env2/lib/x.py",
        ],
    )
    plant(tmp_path, ["env2/pyvenv.cfg", "kept.md"])
    assert [entry.path.name for entry in scan(tmp_path)] == ["kept.md"]


def test_unsupported_and_empty_files_are_reported_with_a_reason(tmp_path: Path) -> None:
    plant(tmp_path, ["a.doc", "b.bin", "noext", "README"])
    plant(tmp_path, ["empty.md", "empty"], "")
    plant(tmp_path, ["binary"], "\0\1\2" * 9)
    reasons = {entry.path.name: entry.skipped for entry in scan(tmp_path)}
    assert reasons == {
        "README": None,
        "a.doc": "unsupported type. Save it as .docx.",
        "b.bin": "unsupported type. Convert it to PDF, DOCX, HTML, Markdown or plain text.",
        "empty.md": "empty",
        "binary": "unsupported type. Convert it to PDF, DOCX, HTML, Markdown or plain text.",
        "empty": "empty",
        "noext": None,
    }


def test_ignore_files_hold_at_every_level_with_negation(tmp_path: Path) -> None:
    plant(
        tmp_path,
        ["a.md", "build/x.md", "docs/build/y.md", "docs/draft-1.md", "docs/draft-2.md", "docs/sub/z.txt"],
    )
    plant(tmp_path, ["docs/sub/keep.txt", "top.txt", "docs/only-here.md", "only-here.md"])
    (tmp_path / ".gitignore").write_text("/build/\n*.txt\ndraft-*\n\n# comment\n!!!\n")
    (tmp_path / "docs" / ".gitignore").write_text("!draft-2.md\n/only-here.md\n")
    (tmp_path / "docs" / "sub" / ".gitignore").write_text("!keep.txt\n")
    assert taken(tmp_path, scan(tmp_path)) == [
        "a.md",
        "docs/build/y.md",
        "docs/draft-2.md",
        "docs/sub/keep.txt",
        "only-here.md",
    ]


def test_nothing_comes_back_from_an_ignored_folder(tmp_path: Path) -> None:
    plant(tmp_path, ["out/keep.md", "out/.x"])
    (tmp_path / ".gitignore").write_text("out/\n!out/keep.md\n")
    assert taken(tmp_path, scan(tmp_path)) == []


def test_loomignore_decides_before_gitignore(tmp_path: Path) -> None:
    plant(tmp_path, ["generated.md", "private.md", "open.md"])
    (tmp_path / ".gitignore").write_text("generated.md\n")
    (tmp_path / ".loomignore").write_text("!generated.md\nprivate.md\n")
    assert taken(tmp_path, scan(tmp_path)) == ["generated.md", "open.md"]


def test_include_and_exclude_are_patterns_of_the_same_kind(tmp_path: Path) -> None:
    plant(tmp_path, ["a.md", "b.txt", "src/c.md", "src/old/d.md", "src/e.py"])
    assert taken(tmp_path, scan(tmp_path, include=["*.md"])) == ["a.md", "src/c.md", "src/old/d.md"]
    assert taken(tmp_path, scan(tmp_path, include=["src/**"], exclude=["old/", "*.py"])) == ["src/c.md"]


@pytest.mark.hostile("paths and links")
def test_a_malformed_pattern_is_refused(tmp_path: Path) -> None:
    for pattern in ("!", "[z-a]"):
        with pytest.raises(InvalidInputError, match="include pattern is malformed"):
            scan(tmp_path, include=[pattern])


@pytest.mark.hostile("paths and links")
def test_malformed_patterns_of_an_ignore_file_are_skipped_and_many_are_read(tmp_path: Path) -> None:
    plant(tmp_path, ["a.md", "kept-7.md", "n1.md", "n2999.md"])
    patterns = ["*-7.md", "[z-a]", "[[:alpha:]]", "!kept-7.md", *(f"n{number}.md" for number in range(3000))]
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    assert taken(tmp_path, scan(tmp_path)) == ["a.md", "kept-7.md"]


@pytest.mark.hostile("paths and links")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_an_ignore_file_that_is_a_device_or_pipe_is_not_opened(tmp_path: Path) -> None:
    plant(tmp_path, ["a.md", "sub/b.md"])
    (tmp_path / ".gitignore").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "sub" / ".gitignore")
    assert taken(tmp_path, scan(tmp_path)) == ["a.md", "sub/b.md"]


@pytest.mark.hostile("paths and links")
def test_folders_may_nest_deeper_than_python(tmp_path: Path) -> None:
    deep = "/".join("d" * 300)
    plant(tmp_path, [f"{deep}/a.md"])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        entries = list(scan(tmp_path))
    finally:
        sys.setrecursionlimit(limit)
    assert taken(tmp_path, entries) == [f"{deep}/a.md"]


def test_an_ignore_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    plant(tmp_path, ["a.md", "draft.md"])
    (tmp_path / ".gitignore").write_text("draft.md\r\n", "utf-8-sig")
    assert taken(tmp_path, scan(tmp_path)) == ["a.md"]


@pytest.mark.hostile("paths and links")
def test_links_are_reported_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    plant(outside, ["secret.md"])
    plant(root, ["a.md", "sub/b.md"])
    (root / "out.md").symlink_to(outside / "secret.md")
    (root / "outdir").symlink_to(outside)
    (root / "in.md").symlink_to(root / "a.md")
    (root / "loop").symlink_to(root)
    (root / "gone.md").symlink_to(root / "nothing.md")
    (root / "round.md").symlink_to(root / "round.md")
    entries = list(scan(root))
    assert taken(root, entries) == ["a.md", "sub/b.md"]
    reasons = {entry.path.name: entry.skipped for entry in entries if entry.skipped}
    assert reasons["out.md"] == reasons["outdir"] == "link to a place outside the folder"
    assert reasons["gone.md"] == reasons["round.md"] == "broken link"
    assert (
        reasons["in.md"] == reasons["loop"] == "link inside the folder; its target is loaded in its own place"
    )


def test_the_root_itself_may_be_a_link_or_hidden(tmp_path: Path) -> None:
    plant(tmp_path / ".notes", ["a.md"])
    (tmp_path / "link").symlink_to(tmp_path / ".notes")
    assert [entry.path for entry in scan(tmp_path / "link")] == [(tmp_path / ".notes" / "a.md").resolve()]


def test_a_single_file_is_its_own_scan(tmp_path: Path) -> None:
    plant(tmp_path, ["a.md"])
    assert [(entry.path, entry.skipped) for entry in scan(tmp_path / "a.md")] == [
        ((tmp_path / "a.md").resolve(), None)
    ]


def test_a_root_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        scan(tmp_path / "none")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_are_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    assert [entry.skipped for entry in scan(tmp_path)] == ["not a regular file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_reported(tmp_path: Path) -> None:
    plant(tmp_path, ["closed/a.md"])
    (tmp_path / "closed").chmod(0)
    (entry,) = scan(tmp_path)
    (tmp_path / "closed").chmod(0o700)
    assert entry.skipped == "folder cannot be read: Permission denied"


def test_a_gitignore_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    plant(tmp_path, ["a.md"])
    assert taken(tmp_path, scan(tmp_path)) == ["a.md"]


def test_text_without_an_extension_is_taken(tmp_path: Path) -> None:
    plant(tmp_path, ["NOTES", "ls.1", "说明"], "some words")
    (tmp_path / "changelog.gz").write_bytes(gzip.compress(b"some words"))
    (tmp_path / "libx.so.1").write_bytes(b"\x7fELF")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(1024)))
    assert taken(tmp_path, scan(tmp_path)) == ["NOTES", "changelog.gz", "ls.1", "说明"]


@pytest.mark.hostile("secrets")
def test_keys_and_passwords_are_not_taken(tmp_path: Path) -> None:
    plant(tmp_path, ["id_rsa", "id_ed25519_work", "credentials", "known_hosts", "a.pem", "b.pfx", "netrc"])
    plant(tmp_path, ["host"], "-----BEGIN OPENSSH PRIVATE KEY-----\n")
    plant(tmp_path, ["bundle"], "Bag Attributes\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    plant(tmp_path, ["logins"], "machine example.org login anna password secret\n")
    plant(tmp_path, ["aws"], "[default]\naws_secret_access_key = x\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"-----BEGIN RSA PRIVATE KEY-----"))
    plant(tmp_path, ["tokenizer", "passage"], "some words")
    assert taken(tmp_path, scan(tmp_path)) == ["passage", "tokenizer"]
    assert {entry.skipped for entry in scan(tmp_path)} == {None, "private key or credentials, never read"}


GENERATED = "generated by a tool; to read it, add it by its own path"


def test_what_tools_made_in_built_documentation_is_one_entry_for_each_folder(tmp_path: Path) -> None:
    plant(tmp_path, ["html/_static/jquery.js", "html/_static/a.css", "html/_sources/a.rst.txt"])
    plant(tmp_path, ["html/a.html", "html/searchindex.js", "html/genindex.html", "html/search.html"])
    plant(tmp_path, ["html/py-modindex.html", "html/theme.js", "api/doxygen.css", "api/search/all_0.js"])
    plant(tmp_path, ["api/menu.js", "api/page.html", "notes/_sources/kept.txt", "notes/search/kept.md"])
    entries = list(scan(tmp_path))
    assert taken(tmp_path, entries) == [
        "api/page.html",
        "html/a.html",
        "notes/_sources/kept.txt",
        "notes/search/kept.md",
    ]
    skipped = {
        entry.path.relative_to(tmp_path).as_posix(): entry.skipped for entry in entries if entry.skipped
    }
    assert set(skipped.values()) == {GENERATED}
    assert {name for name in skipped if "." not in name} == {"html/_static", "html/_sources", "api/search"}


def test_minified_scripts_and_lock_files_are_skipped(tmp_path: Path) -> None:
    plant(tmp_path, ["jquery-3.6.0.js", "a.min.css", "package-lock.json", "go.sum", "short.js"])
    plant(tmp_path, ["packed.js"], "var a=1;" * 2_000)
    plant(tmp_path, ["written.js"], "var a = 1;\n" * 2_000)
    assert taken(tmp_path, scan(tmp_path)) == ["short.js", "written.js"]


def test_what_a_tool_made_is_read_by_its_own_path_or_where_an_ignore_file_takes_it_back(
    tmp_path: Path,
) -> None:
    plant(tmp_path, ["_static/jquery.js", "_static/deep/a.min.js", "b.min.js"])
    assert taken(tmp_path, scan(tmp_path)) == []
    assert [entry.skipped for entry in scan(tmp_path / "b.min.js")] == [None]
    assert taken(tmp_path, scan(tmp_path / "_static" / "deep" / "a.min.js")) == ["_static/deep/a.min.js"]
    (tmp_path / ".loomignore").write_text("!_static/\n!b.min.js\n")
    assert taken(tmp_path, scan(tmp_path)) == ["_static/deep/a.min.js", "_static/jquery.js", "b.min.js"]


def test_the_inside_of_a_bare_repository_is_left_out_silently(tmp_path: Path) -> None:
    plant(tmp_path, ["x.git/HEAD", "x.git/refs/heads/main", "x.git/objects/a", "x.git/description", "a.md"])
    assert [entry.path.name for entry in scan(tmp_path)] == ["a.md"]


@pytest.mark.hostile("paths and links")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_without_an_extension_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [entry.skipped for entry in scan(tmp_path)] == ["not a regular file"]
