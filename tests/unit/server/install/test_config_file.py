from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.server.install.config_file import ConfigFile

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights and links")


def _written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


def test_a_byte_order_mark_and_line_ends_stay(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"\xef\xbb\xbf{\r\n}\r\n")
    file = ConfigFile.read(path)
    assert file.text == "{\r\n}\r\n"
    file.write("{\r\n  1\r\n}\r\n")
    assert path.read_bytes() == b"\xef\xbb\xbf{\r\n  1\r\n}\r\n"


@posix
def test_the_mode_stays_and_so_does_that_of_the_backup(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{}")
    path.chmod(0o600)
    backup = ConfigFile.read(path).write("{ }")
    assert backup is not None
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, backup)] == [0o600, 0o600]
    assert backup.read_bytes() == b"{}"


@posix
def test_a_full_disk_leaves_no_part_of_a_backup(tmp_path: Path) -> None:
    import resource

    path = _written(tmp_path / "c.json", b" " * 4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            ConfigFile.read(path).write("{}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{}")
    _written(tmp_path / f".c.json.{os.getpid()}.tmp", b"half")
    ConfigFile.read(path).write("[]")
    assert path.read_bytes() == b"[]"


@posix
def test_what_a_link_points_to_is_changed_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = _written(tmp_path / "dotfiles" / "设置.json", b"{}")
    link = tmp_path / "c.json"
    link.symlink_to(real)
    backup = ConfigFile.read(link).write("[]")
    assert link.is_symlink()
    assert real.read_bytes() == b"[]"
    assert backup is not None
    assert backup.parent == real.parent


@posix
def test_a_link_to_nothing_gets_a_file_where_it_points_to(tmp_path: Path) -> None:
    link = tmp_path / "c.json"
    link.symlink_to(tmp_path / "later" / "real.json")
    assert ConfigFile.read(link).write("{}") is None
    assert link.is_symlink()
    assert (tmp_path / "later" / "real.json").read_bytes() == b"{}"


def test_backups_of_one_second_do_not_replace_each_other(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"0")
    backups = [ConfigFile.read(path).write(str(number)) for number in range(1, 4)]
    assert [backup.read_bytes() for backup in backups if backup] == [b"0", b"1", b"2"]


def test_the_oldest_and_the_three_newest_backups_are_kept(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"0")
    for number in range(1, 15):
        ConfigFile.read(path).write(str(number))
    assert [backup.read_bytes() for backup in ConfigFile.read(path).backups()] == [b"13", b"12", b"11", b"0"]
    assert len(list(tmp_path.iterdir())) == 5


def test_what_only_looks_like_a_backup_is_never_deleted(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"0")
    names = [
        "c.json.bak",
        "c.json.20200101-000000.bak",
        "c.json.20200101-000000.loom.bak.txt",
        "d.json.20200101-000000.loom.bak",
        "xc.json.20200101-000000.loom.bak",
        "c.json.文.loom.bak",
    ]
    theirs = [_written(tmp_path / name, b"theirs") for name in names]
    (folder := tmp_path / "c.json.20200102-000000.loom.bak").mkdir()
    for number in range(1, 9):
        ConfigFile.read(path).write(str(number))
    assert all(each.read_bytes() == b"theirs" for each in theirs)
    assert folder.is_dir()
    assert len(list(tmp_path.iterdir())) == len(theirs) + 1 + 1 + 4


def test_a_file_is_deleted_with_the_folders_that_are_empty_then(tmp_path: Path) -> None:
    home = tmp_path / "李明"
    path = home / "kept" / ".config" / "app" / "c.json"
    path.parent.mkdir(parents=True)
    _written(home / "kept" / "other", b"")
    _written(path, b"{}")
    ConfigFile.read(path).remove(within=home)
    assert [each.name for each in home.rglob("*")] == ["kept", "other"]
    _written(home / "c.json", b"{}")
    (home / "kept" / "other").unlink()
    (home / "kept").rmdir()
    ConfigFile.read(home / "c.json").remove(within=home)
    assert home.is_dir()


def test_outside_the_folder_that_stays_the_file_alone_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    path = _written(tmp_path / "moved" / "c.json", b"{}")
    ConfigFile.read(path).remove(within=tmp_path / "home")
    assert list(tmp_path.iterdir()) == [tmp_path / "moved"]


def test_a_file_that_another_program_changes_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{}")
    file = ConfigFile.read(path)
    path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(StoreBusyError, match="another program"):
        file.remove(within=tmp_path)
    assert path.read_bytes() == b'{"theirs": 1}'


def test_a_file_that_someone_else_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{}")
    file = ConfigFile.read(path)
    path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(StoreBusyError, match="another program"):
        file.write('{"ours": 1}')
    assert path.read_bytes() == b'{"theirs": 1}'
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_someone_else_makes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    file = ConfigFile.read(path)
    path.write_bytes(b"theirs")
    with pytest.raises(StoreBusyError):
        file.write("ours")
    assert path.read_bytes() == b"theirs"


def test_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{\n  //" + "中文".encode("gb18030"))
    with pytest.raises(ConfigError, match=r"c\.json:2: this is not UTF-8"):
        _ = ConfigFile.read(path).text


def test_a_path_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with pytest.raises(ConfigError, match="valid Unicode"):
        ConfigFile.read(path).write("\udcff")
    assert not path.exists()


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        ConfigFile.read(tmp_path)


def test_a_file_in_the_place_of_its_folder_is_refused(tmp_path: Path) -> None:
    _written(tmp_path / "folder", b"")
    with pytest.raises(ConfigError, match=r"cannot be (read|written)"):
        ConfigFile.read(tmp_path / "folder" / "c.json").write("{}")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    path = _written(tmp_path / "c.json", b"{}")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            ConfigFile.read(path).write("[]")
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == b"{}"
