from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.loaders import ScanEntry, scan


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


def test_what_nobody_means_is_left_out_silently(tmp_path: Path) -> None:
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
    plant(tmp_path, ["empty.md"], "")
    reasons = {entry.path.name: entry.skipped for entry in scan(tmp_path)}
    assert reasons == {
        "README": None,
        "a.doc": "unsupported type. Save it as .docx.",
        "b.bin": "unsupported type. Convert it to PDF, DOCX, HTML, Markdown or plain text.",
        "empty.md": "empty",
        "noext": "unsupported type. Convert it to PDF, DOCX, HTML, Markdown or plain text.",
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
    with pytest.raises(InvalidInputError, match="include pattern is malformed"):
        scan(tmp_path, include=["!"])


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
