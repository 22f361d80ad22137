"""Loom's folder: what keeps it from being used is told, and nothing is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loom_core.server.doctor.checks import home_section


def test_a_folder_that_can_be_made_is_fine_and_is_not_made(tmp_path: Path):
    section = home_section(tmp_path / "新" / "home")
    assert [found.severity for found in section.findings] == ["ok"]
    assert section.facts["exists"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    [found] = home_section(tmp_path / "file" / "home").findings
    assert (found.code, found.severity) == ("home-unwritable", "problem")
    assert "is a file where a folder has to be" in found.message
    assert "--home" in found.remedy


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path):
    tmp_path.chmod(0o500)
    [found] = home_section(tmp_path / "home").findings
    tmp_path.chmod(0)
    [closed] = home_section(tmp_path / "a" / "home").findings
    tmp_path.chmod(0o700)
    assert (found.code, found.severity) == ("home-unwritable", "problem")
    assert str(tmp_path) in found.message
    assert closed == found


def test_a_disk_with_little_room_is_told(tmp_path: Path):
    [found] = home_section(tmp_path, needed=1 << 62).findings
    assert (found.code, found.severity) == ("disk-full", "problem")
    assert "MiB are free" in found.message
