"""Secrets that the system hands over as files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from loom_core.errors import ConfigError
from loom_core.keys import list_known_secrets
from loom_core.server.cli.command_line import run_to_exit_code
from loom_core.server.cli.secret_files import VARIABLE, take_secret_files


def taken(folder: Path, **others: str) -> dict[str, str]:
    variables = {VARIABLE: str(folder), **others}
    names = take_secret_files(variables)
    assert set(names) <= set(variables)
    return {name: variables[name] for name in names}


def test_each_file_is_the_variable_that_it_is_named_as(tmp_path: Path):
    (tmp_path / "DEEPSEEK_API_KEY").write_text("sk-一个\n", encoding="utf-8")
    (tmp_path / "LOOM_KB_TOKEN").write_text("  loom_abc  ", encoding="utf-8")
    assert taken(tmp_path) == {"DEEPSEEK_API_KEY": "sk-一个", "LOOM_KB_TOKEN": "loom_abc"}


def test_what_they_hold_is_known_as_secret(tmp_path: Path):
    (tmp_path / "A_TOKEN").write_text("planted-in-a-file")
    taken(tmp_path)
    assert "planted-in-a-file" in {secret.get_secret_value() for secret in list_known_secrets()}


def test_a_variable_that_is_set_counts_more_than_a_file(tmp_path: Path):
    (tmp_path / "A_KEY").write_text("from the file")
    (tmp_path / "B_KEY").write_text("from the file")
    assert taken(tmp_path, A_KEY="set", B_KEY="") == {"B_KEY": "from the file"}


def test_what_is_no_file_named_as_a_variable_is_left_alone(tmp_path: Path):
    for name in ("grafana_password", ".hidden", "A-KEY", "1KEY", "密钥"):
        (tmp_path / name).write_text("x")
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "EMPTY").write_text(" \n")
    assert taken(tmp_path) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="links want a right there")
def test_links_are_followed_as_kubernetes_lays_them(tmp_path: Path):
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "A_KEY").write_text("linked")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "A_KEY").symlink_to("..data/A_KEY")
    assert taken(tmp_path) == {"A_KEY": "linked"}


def test_a_folder_that_is_not_there_counts_as_empty(tmp_path: Path):
    assert taken(tmp_path / "nowhere") == {}
    assert take_secret_files({}) == []


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b", b"x" * 70_000])
def test_what_can_be_no_secret_is_an_error_that_does_not_repeat_it(tmp_path: Path, content: bytes):
    (tmp_path / "A_KEY").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        taken(tmp_path)
    assert "A_KEY" in caught.value.message
    assert "xxxx" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path):
    (tmp_path / "A_KEY").write_text("x")
    (tmp_path / "A_KEY").chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        taken(tmp_path)


def test_every_command_has_them_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "LOOM_TEST_SECRET").write_text("handed over")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv("LOOM_TEST_SECRET", "")
    found: list[str] = []

    def run() -> int:
        found.append(os.environ["LOOM_TEST_SECRET"])
        return 0

    assert run_to_exit_code("loom-kb", run, debug=False) == 0
    assert found == ["handed over"]
    (tmp_path / "BROKEN").write_bytes(b"\xff")
    assert run_to_exit_code("loom-kb", run, debug=False) == 1
    assert "BROKEN" in capsys.readouterr().err
