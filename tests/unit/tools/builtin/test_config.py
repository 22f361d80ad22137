from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from loom_core.errors import ConfigError
from loom_core.tools.builtin import BuiltinToolsConfig, builtin_tools


def _names(folder: Path, **config: Any) -> list[str]:
    return [tool.name for tool in builtin_tools(BuiltinToolsConfig.model_validate(config), folder=folder)]


def test_there_are_none_unless_they_are_asked_for(tmp_path: Path) -> None:
    assert _names(tmp_path) == []


def test_each_part_gives_its_tools(tmp_path: Path) -> None:
    (tmp_path / "文档").mkdir()

    assert _names(tmp_path, files={"root": "文档"}) == ["read_file", "list_files", "search_files"]
    assert _names(tmp_path, files={"root": str(tmp_path), "write": True})[3:] == ["write_file", "edit_file"]
    assert _names(tmp_path, http={}) == ["http_get"]
    assert _names(tmp_path, http={"write": True, "allow": ["10.0.0.0/8"]}) == ["http_get", "http_request"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")
def test_commands_are_run_only_where_that_is_enabled(tmp_path: Path) -> None:
    assert _names(tmp_path, shell={"root": "."}) == []
    assert _names(tmp_path, shell={"root": ".", "enabled": True}) == ["shell"]


def test_only_what_changes_nothing_is_called_read_only(tmp_path: Path) -> None:
    config = BuiltinToolsConfig.model_validate(
        {"files": {"root": ".", "write": True}, "http": {"write": True}}
    )
    read_only = [tool.name for tool in builtin_tools(config, folder=tmp_path) if tool.annotations.read_only]

    assert read_only == ["read_file", "list_files", "search_files", "http_get"]


def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="rooot"):
        BuiltinToolsConfig.model_validate({"files": {"root": ".", "rooot": 1}})
    with pytest.raises(ConfigError, match="There is no folder"):
        _names(tmp_path, files={"root": "none"})
    with pytest.raises(ConfigError, match="neither a host nor a network"):
        _names(tmp_path, http={"allow": ["!"]})


def test_secrets_in_a_configuration_are_not_shown() -> None:
    config = BuiltinToolsConfig.model_validate(
        {
            "http": {"headers": {"a.example": {"X": "hunter2"}}},
            "shell": {"root": ".", "environment": {"A": "hunter2"}},
        }
    )
    assert "hunter2" not in repr(config)
