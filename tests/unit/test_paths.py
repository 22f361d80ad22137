"""Where Loom keeps its files."""

from __future__ import annotations

from pathlib import Path

from loom_core.paths import loom_home


def test_the_given_folder_goes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path / "other"))
    assert loom_home(tmp_path) == tmp_path


def test_the_environment_goes_before_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    assert loom_home() == tmp_path


def test_the_default_is_in_the_home_folder(monkeypatch):
    monkeypatch.setenv("LOOM_HOME", "")
    assert loom_home() == Path.home() / ".loom"
