from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.trust import ToolPin, ToolPins, TrustedFiles

pytestmark = pytest.mark.hostile("MCP servers")


def _pin(digest: str) -> ToolPin:
    return ToolPin(digest=digest)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "项目"
    folder.mkdir()
    return folder / ".mcp.json"


def test_a_file_is_trusted_as_it_was_and_as_nothing_else(tmp_path: Path, project: Path) -> None:
    trusted = TrustedFiles(tmp_path)
    assert trusted.state(project, b"one") == "unknown"
    trusted.trust(project, b"one")
    assert trusted.state(project, b"one") == "trusted"
    assert trusted.state(project, b"two") == "changed"
    assert trusted.state(project.parent / "other.json", b"one") == "unknown"
    assert TrustedFiles(tmp_path).paths() == [project]


def test_trust_can_be_taken_back(tmp_path: Path, project: Path) -> None:
    trusted, other = TrustedFiles(tmp_path), TrustedFiles(tmp_path)
    trusted.trust(project, b"one")
    assert other.revoke(project)
    assert not other.revoke(project)
    assert trusted.state(project, b"one") == "unknown"


def test_a_file_is_the_same_whichever_way_leads_to_it(tmp_path: Path, project: Path) -> None:
    project.write_bytes(b"one")
    link = tmp_path / "link"
    link.symlink_to(project.parent, target_is_directory=True)
    TrustedFiles(tmp_path).trust(link / ".mcp.json", b"one")
    assert TrustedFiles(tmp_path).state(project, b"one") == "trusted"


def test_pins_of_tools_are_kept_by_server_and_tool(tmp_path: Path) -> None:
    pins = ToolPins(tmp_path)
    pins.pin("文件", {"read": _pin("h1"), "write": _pin("h2")})
    pins.pin("文件", {"read": _pin("h3")})
    pins.pin("web", {"read": _pin("h4")})
    assert ToolPins(tmp_path).of("文件") == {"read": _pin("h3"), "write": _pin("h2")}
    pins.forget("文件", ["write", "never"])
    assert pins.of("文件") == {"read": _pin("h3")}
    pins.forget("文件")
    assert (pins.of("文件"), pins.of("web")) == ({}, {"read": _pin("h4")})


def test_files_and_pins_live_side_by_side(tmp_path: Path, project: Path) -> None:
    TrustedFiles(tmp_path).trust(project, b"one")
    ToolPins(tmp_path).pin("a", {"t": _pin("h")})
    assert TrustedFiles(tmp_path).state(project, b"one") == "trusted"
    assert json.loads((tmp_path / "trust.json").read_text(encoding="utf-8"))["tools"] == {
        "a": {"t": {"digest": "h", "says": {}}}
    }


def test_what_is_handed_out_is_a_copy(tmp_path: Path) -> None:
    pins = ToolPins(tmp_path)
    pins.pin("a", {"t": _pin("h")})
    dict_of = dict(pins.of("a"))
    dict_of["t"] = _pin("other")
    assert pins.of("a") == {"t": _pin("h")}


def test_what_an_older_loom_has_approved_stays_approved(tmp_path: Path) -> None:
    old = {"version": 1, "files": {}, "tools": {"文件": {"read": "h"}}}
    (tmp_path / "trust.json").write_text(json.dumps(old), encoding="utf-8")
    pins = ToolPins(tmp_path)
    assert pins.find("文件", "read") == _pin("h")
    assert pins.find("文件", "write") is None

    pins.pin("文件", {"write": ToolPin(digest="h2", says={"description": "写"})})

    assert ToolPins(tmp_path).of("文件") == {
        "read": _pin("h"),
        "write": ToolPin(digest="h2", says={"description": "写"}),
    }
    assert json.loads((tmp_path / "trust.json").read_text(encoding="utf-8"))["version"] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_no_one_else_may_read_what_is_trusted(tmp_path: Path, project: Path) -> None:
    TrustedFiles(tmp_path).trust(project, b"one")
    assert stat.S_IMODE((tmp_path / "trust.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"version": 3}', '{"version": 0}', '{"version": 1, "files": {"a": 1}}']
)
def test_a_broken_file_trusts_nothing_and_is_not_overwritten(
    content: str, tmp_path: Path, project: Path
) -> None:
    (tmp_path / "trust.json").write_text(content, encoding="utf-8")
    trusted = TrustedFiles(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        trusted.state(project, b"one")
    with pytest.raises(ConfigError, match="cannot be read"):
        trusted.trust(project, b"one")
    assert (tmp_path / "trust.json").read_text(encoding="utf-8") == content


def test_a_link_to_a_file_that_is_trusted_elsewhere_is_not_trusted(tmp_path: Path, project: Path) -> None:
    project.write_bytes(b"one")
    link = tmp_path / "other" / ".mcp.json"
    link.parent.mkdir()
    link.symlink_to(project)
    trusted = TrustedFiles(tmp_path)
    trusted.trust(project, b"one")
    assert trusted.state(link, link.read_bytes()) == "unknown"
