"""Nothing outside of the folder is read or written, whatever leads there."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
import unicodedata
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NotFoundError
from loom_core.tools.builtin.file_root import FileRoot

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes links, pipes and sockets")

_SECRET = b"xyzzy"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder; next to it a file that is not to be reached, and links that lead there."""
    (tmp_path / "secret.txt").write_bytes(_SECRET)
    (tmp_path / "root-and-more").mkdir()
    (tmp_path / "root-and-more" / "secret.txt").write_bytes(_SECRET)
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "note.txt").write_bytes(b"plain")
    (folder / "sub" / "港口.txt").write_bytes("深".encode())
    (folder / "out").symlink_to(tmp_path)
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "none.txt").symlink_to(tmp_path / "not-there.txt")
    (folder / "in.txt").symlink_to("note.txt")
    (folder / "in").symlink_to("sub")
    (folder / "loop").symlink_to("loop")
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    """Return everything outside the root, to see that nothing of it changes."""
    return {
        str(path): path.read_bytes()
        for path in folder.parent.rglob("*")
        if path.is_file() and folder not in path.parents
    }


def _read(root: FileRoot, path: str) -> bytes:
    return root.read(path, most=1000)[0]


def test_files_are_read_by_paths_from_the_folder_on_whole_paths_and_links_inside(folder: Path) -> None:
    root = FileRoot(folder)

    assert _read(root, "note.txt") == _read(root, str(folder / "note.txt")) == b"plain"
    assert _read(root, "sub/../note.txt") == _read(root, "in.txt") == b"plain"
    assert _read(root, "in/港口.txt") == "深".encode()
    assert root.name(root.locate("in/港口.txt")) == "sub/港口.txt"


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "sub/../../secret.txt", "out.txt", "out/secret.txt", "/etc/passwd", "none.txt",
        "../root-and-more/secret.txt", "in/../../secret.txt",
        "C:\\Windows\\win.ini", "c:/x", "\\\\host\\share",
    ],
)  # fmt: skip
def test_what_leads_outside_is_refused(folder: Path, path: str) -> None:
    root = FileRoot(folder)
    before = _files(folder)

    with pytest.raises(InvalidInputError, match="outside the folder"):
        _read(root, path)
    with pytest.raises(InvalidInputError, match="outside the folder"):
        root.write(path, b"mine")
    assert _files(folder) == before


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize("path", ["", " ", "a\0b", "x" * 5000, "loop", "loop/x", "x" * 300, "note.txt/x"])
def test_what_can_be_no_file_is_told(folder: Path, path: str) -> None:
    with pytest.raises(LoomError) as refused:
        _read(FileRoot(folder), path)
    assert refused.value.advice


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize("path", [".", "sub", "a\nb", "a\x1b[31m", "a\u202eb", "/"])
def test_what_can_be_no_new_file_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(InvalidInputError):
        FileRoot(folder).write(path, b"x")


_PARTS = st.sampled_from(
    ["..", ".", "", "~", "out", "in", "loop", "out.txt", "none.txt", "sub", "note.txt", "港口.txt",
     "NOTE.TXT", "new", "a\0", "x" * 300, "C:", "\\..\\", "．．", "..%2f", "\udc80", "é", "e\u0301", "/"]
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.hostile("paths and links")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(parts=st.lists(_PARTS | st.text(max_size=3), max_size=6), absolute=st.booleans())
def test_no_path_reaches_outside(folder: Path, parts: list[str], absolute: bool) -> None:
    root = FileRoot(folder)
    path = ("/" if absolute else "") + "/".join(parts)
    before = _files(folder)

    with suppress(LoomError):
        assert _read(root, path) != _SECRET
    with suppress(LoomError):
        root.write(path, b"mine")
    assert _files(folder) == before


def test_a_name_composed_otherwise_means_the_file_that_is_there(folder: Path) -> None:
    root = FileRoot(folder)
    name = unicodedata.normalize("NFD", "Résumé.txt")
    (folder / name).write_bytes(b"1")

    assert _read(root, unicodedata.normalize("NFC", name)) == b"1"
    assert not root.write(unicodedata.normalize("NFC", name), b"2")
    assert (folder / name).read_bytes() == b"2"


def test_folders_are_known_however_their_names_are_composed(folder: Path) -> None:
    root = FileRoot(folder)
    apart, together = (unicodedata.normalize(form, "がぎ/ぐ.md") for form in ("NFD", "NFC"))
    (folder / together).parent.mkdir()
    (folder / together).parent.joinpath(Path(apart).name).write_bytes("混".encode())

    assert _read(root, apart) == _read(root, together) == "混".encode()
    assert root.write(unicodedata.normalize("NFD", "がぎ/新/ば.md"), b"")
    assert [each.name for each in folder.iterdir() if not each.name.isascii()] == ["がぎ"]


@pytest.mark.hostile("paths and links")
def test_pipes_sockets_and_devices_are_not_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = FileRoot(folder)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path in ("pipe", "socket"):
            with pytest.raises(InvalidInputError, match="not a regular file"):
                _read(root, path)
            with pytest.raises(InvalidInputError, match="not a regular file"):
                root.write(path, b"x")


def test_a_file_that_is_not_there_is_told_with_those_called_alike(folder: Path) -> None:
    root = FileRoot(folder)

    with pytest.raises(NotFoundError) as missing:
        _read(root, "sub/../Note.text")
    assert missing.value.advice.startswith("Did you mean `note.txt`")
    with pytest.raises(NotFoundError) as missing:
        _read(root, "nowhere/at/all")
    assert "List the folder" in missing.value.advice


@pytest.mark.hostile("paths and links")
def test_too_much_is_not_read(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="too large"):
        FileRoot(folder).read("note.txt", most=4)


def test_a_file_is_written_whole_with_its_folders_and_keeps_its_mode(folder: Path) -> None:
    root = FileRoot(folder)

    assert root.write("新/文件夹/a.txt", b"1")
    (folder / "新/文件夹/a.txt").chmod(0o750)
    assert not root.write("新/文件夹/a.txt", b"22")

    assert (folder / "新/文件夹/a.txt").read_bytes() == b"22"
    assert stat.S_IMODE((folder / "新/文件夹/a.txt").stat().st_mode) == 0o750
    assert [path.name for path in (folder / "新/文件夹").iterdir()] == ["a.txt"]


@pytest.mark.hostile("paths and links")
def test_a_link_inside_is_written_through_and_a_hard_link_is_cut(folder: Path) -> None:
    root = FileRoot(folder)
    os.link(folder.parent / "secret.txt", folder / "hard.txt")

    root.write("in.txt", b"new")
    root.write("hard.txt", b"new")

    assert (folder / "in.txt").is_symlink()
    assert (folder / "note.txt").read_bytes() == b"new"
    assert (folder.parent / "secret.txt").read_bytes() == _SECRET


def test_what_is_there_is_not_replaced_unless_it_may_be(folder: Path) -> None:
    root = FileRoot(folder)
    state = root.read("note.txt", most=10)[1]

    with pytest.raises(InvalidInputError, match="is there already"):
        root.write("note.txt", b"x", exclusive=True)
    assert root.write("other.txt", b"x", exclusive=True)
    root.write("note.txt", b"plain", replacing=state)
    with pytest.raises(InvalidInputError, match="has changed since it was read"):
        root.write("note.txt", b"x", replacing=state)
    assert not list(folder.glob(".*"))


def test_a_folder_that_may_not_be_written_is_told(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (folder / "sub").chmod(0o500)
    with pytest.raises(InvalidInputError, match="permission denied"):
        FileRoot(folder).write("sub/x", b"")


@pytest.mark.slow
@pytest.mark.hostile("paths and links")
def test_a_link_that_is_put_in_the_way_meanwhile_leads_nowhere(folder: Path) -> None:
    """A folder and a link to the outside take turns in one place while it is read and written."""
    root = FileRoot(folder)
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "f.txt").write_bytes(_SECRET)
    (folder / "real").mkdir()
    (folder / "real" / "f.txt").write_bytes(b"ours")
    (folder / "evil").symlink_to(outside)
    ended = threading.Event()

    def exchange() -> None:
        for source in cycle((folder / "real", folder / "evil")):
            if ended.is_set():
                return
            try:
                source.rename(folder / "d")
            except OSError:  # the other one has made a folder there
                rmtree(folder / "d", ignore_errors=True)
            else:
                (folder / "d").rename(source)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        seen: set[bytes] = set()
        for turn in range(1500):
            try:
                if turn % 2:
                    root.write(f"d/{turn}.txt", b"mine")
                else:
                    seen.add(_read(root, "d/f.txt"))
            except LoomError:
                continue
    finally:
        ended.set()
        thread.join()
    assert _SECRET not in seen
    assert [path.name for path in outside.iterdir()] == ["f.txt"]


def test_the_folder_itself_has_to_be_one(folder: Path) -> None:
    for wrong in (folder / "note.txt", folder / "none", folder / "loop"):
        with pytest.raises(ConfigError):
            FileRoot(wrong)
    root = FileRoot(folder)
    assert FileRoot.of(root) is root
    assert FileRoot.of(folder / "in").folder == (folder / "sub").resolve()
