from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.storage.lock import ProcessLock
from loom_core.storage.private_file import PrivateFile

_ADDER = """
import sys
from contextlib import suppress
from pathlib import Path
from loom_core.storage.private_file import PrivateFile

file = PrivateFile(Path(sys.argv[1]), title="The file")
for _ in range(20):
    with file.writing() as draft:
        draft.raw = (draft.raw or b"") + b"x"
"""


def _file(path: Path) -> PrivateFile:
    return PrivateFile(path, title="The file of tests")


def test_a_file_that_is_not_there_is_none_and_is_made_with_its_folder(tmp_path: Path) -> None:
    file = _file(tmp_path / "家" / "a.json")
    assert file.read() is None
    with file.writing() as draft:
        assert draft.raw is None
        draft.raw = b"one"
    assert file.read() == b"one"
    assert file.path.read_bytes() == b"one"


@pytest.mark.hostile("other users of the machine")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_its_owner_may_read_it_even_where_others_might_before(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with _file(path).writing() as draft:
        draft.raw = b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_another_has_written_is_seen_at_the_next_look(tmp_path: Path) -> None:
    mine, other = _file(tmp_path / "a"), _file(tmp_path / "a")
    for content in (b"one", b"two"):
        with other.writing() as draft:
            draft.raw = content
        assert mine.read() == content
    (tmp_path / "a").unlink()
    assert mine.read() is None


def test_nothing_is_written_if_the_block_fails_or_changes_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path / "a")
    with file.writing() as draft:
        draft.raw = b"old"
    before = file.path.stat().st_ino
    with suppress(ZeroDivisionError), file.writing() as draft:
        draft.raw = b"new"
        _ = 1 // 0
    assert file.read() == b"old"
    with file.writing() as draft:
        draft.raw = b"old"
    assert (file.path.read_bytes(), file.path.stat().st_ino) == (b"old", before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.lock"]


def test_no_change_of_several_processes_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a"
    children = [subprocess.Popen([sys.executable, "-c", _ADDER, str(path)]) for _ in range(3)]
    assert [child.wait(timeout=30) for child in children] == [0, 0, 0]
    assert path.read_bytes() == b"x" * 60


def test_who_holds_it_too_long_is_told_of(tmp_path: Path) -> None:
    holder = ProcessLock(tmp_path / "a.lock")
    assert holder.acquire()
    file = PrivateFile(tmp_path / "a", title="The file", lock_seconds=0.05)
    with pytest.raises(StoreBusyError, match="Another process is writing"), file.writing():
        raise AssertionError
    holder.release()


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() == 0, reason="every folder may be written")
def test_a_folder_that_may_not_be_written_is_told_of(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written"), _file(tmp_path / "a").writing():
        raise AssertionError


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The file of tests .* cannot be read"):
        _file(tmp_path).read()
