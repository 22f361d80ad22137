"""What a client is told when the server is put into its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from loom_agent.cli import SERVER

from loom_core.errors import InvalidInputError
from loom_core.server.program import server_arguments


def served(*line, after=()):
    return server_arguments(SERVER, SERVER.parser().parse_args(["install", "zed", *line]), after)


def variables(*options):
    return SERVER.key_variables(SERVER.settings_of(SERVER.parser().parse_args(["serve", *options])))


def test_what_the_shell_knows_is_told_to_the_client(monkeypatch):
    monkeypatch.delenv("LOOM_HOME", raising=False)
    assert served() == ["serve"]
    monkeypatch.setenv("LOOM_HOME", "家")
    here = Path.cwd()
    assert served("--config", "a.json", "--root", "文档", "--provider", "deepseek") == [
        "serve", "--home", str(here / "家"), "--config", str(here / "a.json"),
        "--root", str(here / "文档"), "--provider", "deepseek",
    ]  # fmt: skip


@pytest.mark.parametrize("after", [("--http",), ("--root", "notes"), ("--config=a.json",)])
def test_what_makes_no_sense_for_a_client_is_refused(after):
    with pytest.raises(InvalidInputError):
        served(after=after)


def test_the_keys_of_all_profiles_are_handed_on(home, configure, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(home))
    assert variables() == []
    assert variables("--provider", "deepseek") == ["DEEPSEEK_API_KEY"]
    configure(
        default={"model": {"provider": "openai", "api_key": "env:MY_KEY"}},
        other={"model": "deepseek", "tools": {"http": {"headers": {"a.example": {"X-Key": "env:SITE"}}}}},
    )
    assert set(variables()) == {"MY_KEY", "SITE", "DEEPSEEK_API_KEY"}
