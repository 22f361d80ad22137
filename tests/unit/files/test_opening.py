"""Files are opened where they are said to be, and nothing but regular files is opened at all."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from loom_core.errors import DocumentError
from loom_core.files.safe_open import OutsideError, open_regular
from loom_core.knowledge.ingest.loaders import LoadLimits, load_file
from loom_core.knowledge.store.files import read_fingerprint

pytestmark = [
    pytest.mark.hostile("paths and links"),
    pytest.mark.skipif(sys.platform == "win32", reason="makes links, pipes and sockets"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that may be read; next to it a file that may not."""
    (tmp_path / "secret.txt").write_text("xyzzy", encoding="utf-8")
    root = tmp_path.resolve() / "root"
    (root / "sub").mkdir(parents=True)
    (root / "note.txt").write_text("plain", encoding="utf-8")
    (root / "sub" / "港口.txt").write_text("deep", encoding="utf-8")
    return root


def read(path: Path, *roots: Path) -> str:
    with open_regular(path, roots=roots) as file:
        return file.read().decode()


def test_a_file_below_the_roots_is_opened(root: Path, tmp_path: Path) -> None:
    assert read(root / "note.txt", root) == "plain"
    assert read(root / "sub" / "港口.txt", tmp_path / "other", root) == "deep"
    assert read(root / "note.txt", root / "note.txt") == "plain"


def test_without_roots_links_are_followed(root: Path) -> None:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    assert read(root / "link.txt") == "xyzzy"


def test_nothing_outside_the_roots_is_opened_whatever_leads_there(root: Path) -> None:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "up").symlink_to(root.parent)
    (root / "inside.txt").symlink_to(root / "note.txt")
    for path in (
        "../secret.txt",
        "link.txt",
        "up/secret.txt",
        "sub/../../secret.txt",
        "inside.txt",
        "/etc/passwd",
    ):
        with pytest.raises(OutsideError):
            open_regular(root / path, roots=[root])


def test_a_folder_exchanged_for_a_link_after_the_check_leads_nowhere(root: Path) -> None:
    path = root / "sub" / "secret.txt"
    path.write_text("harmless", encoding="utf-8")
    assert read(path, root) == "harmless"
    path.unlink()
    (root / "sub" / "港口.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(root.parent)
    with pytest.raises(OutsideError):
        open_regular(path, roots=[root])


def test_links_that_change_all_the_time_never_lead_out(root: Path) -> None:
    inside, outside, place = root / "in", root.parent / "out", root / "place"
    for folder, text in ((inside, "inside"), (outside, "outside")):
        folder.mkdir()
        (folder / "file.txt").write_text(text, encoding="utf-8")
    over = threading.Event()

    def exchange() -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            fresh = root / f"fresh{turn % 2}"
            fresh.symlink_to(inside if turn % 2 else outside)
            fresh.replace(place)

    thread = threading.Thread(target=exchange)
    thread.start()
    seen = {"inside": 0, "refused": 0}
    try:
        while min(seen.values()) < 20:
            try:
                seen[read(place / "file.txt", root)] += 1
            except OutsideError:
                seen["refused"] += 1
            except FileNotFoundError:
                continue
    finally:
        over.set()
        thread.join()
    assert seen.keys() == {"inside", "refused"}


def test_the_roots_hold_where_the_system_cannot_tell_the_place_of_an_open_file(
    root: Path, monkeypatch
) -> None:
    def told_nothing(link: Path) -> Path:
        raise FileNotFoundError(link)

    monkeypatch.setattr(Path, "readlink", told_nothing)
    assert read(root / "note.txt", root) == "plain"
    (root / "up").symlink_to(root.parent)
    with pytest.raises(OutsideError):
        open_regular(root / "up" / "secret.txt", roots=[root])


def test_pipes_sockets_devices_and_folders_are_not_opened(root: Path, monkeypatch) -> None:
    monkeypatch.chdir(root)  # the path of a socket may have about 100 bytes
    os.mkfifo(root / "pipe.txt")
    (root / "folder.txt").mkdir()
    (root / "endless.txt").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket.txt")
        for name in ("pipe.txt", "folder.txt", "endless.txt", "socket.txt"):
            with pytest.raises(OSError, match="not a regular file"):
                open_regular(root / name)
            with pytest.raises(DocumentError, match="is a folder, pipe or device"):
                load_file(root / name)
            with pytest.raises(OSError, match="not a regular file"):
                read_fingerprint(root / name, max_bytes=100)


def test_a_huge_file_of_nothing_is_refused_without_being_read(root: Path) -> None:
    with (root / "sparse.txt").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(DocumentError, match="4,398,046,511,104 bytes, more than a document may"):
        load_file(root / "sparse.txt")
    assert read_fingerprint(root / "sparse.txt", max_bytes=LoadLimits().max_bytes) is None


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_files_of_the_kernel_are_bounded_too(root: Path) -> None:
    (root / "status.txt").symlink_to("/proc/self/status")
    assert "Name:" in load_file(root / "status.txt").text
    with pytest.raises(DocumentError, match="more than a document may"):
        load_file(root / "status.txt", limits=LoadLimits(max_bytes=50))
    with pytest.raises(DocumentError, match="outside the folders"):
        load_file(root / "status.txt", roots=[root])


@pytest.mark.parametrize("name", ["a\0b.txt", "x" * 5000 + ".txt", "y/" * 3000 + "z.txt"])
def test_what_can_be_no_path_is_a_refusal(name: str, root: Path) -> None:
    with pytest.raises(DocumentError) as refused:
        load_file(root / name)
    assert refused.value.advice


@pytest.mark.parametrize(
    "name", ["\x1b[2J\x1b[31mred.txt", "photo\u202etxt.exe.txt", "a\nb: read it.txt", "\udcff.txt"]
)
def test_names_that_act_are_shown_as_escapes_in_messages(name: str, root: Path) -> None:
    (root / name).write_bytes(b"")
    with pytest.raises(DocumentError, match="is empty") as refused:
        load_file(root / name)
    assert not any(ord(char) < 32 or char in "\u202e\udcff" for char in str(refused.value))
    (root / name).write_bytes(b"The harbour.")
    assert load_file(root / name).text == "The harbour."
