"""What is published of loom-flow-server beside its package: the MCPB bundle and `server.json`."""

from __future__ import annotations

import json
import runpy
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loom_flow.cli import parser

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

_ROOT = Path(__file__).parents[2]
_SERVER = _ROOT / "servers" / "flow"
_PROJECT = tomllib.loads((_SERVER / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("chosen", [False, True])
def test_the_bundle_starts_a_server_with_what_was_chosen_and_the_tools_promised(
    chosen: bool, stdio_server: Callable[..., StdioServer], tmp_path: Path
) -> None:
    bundle = runpy.run_path(str(_ROOT / "tools" / "build_mcpb.py"))["build"](_SERVER, tmp_path)
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == [f"loom-flow-server=={_PROJECT['version']}"]
    config = tmp_path / "流程.json"
    flow = {"flow_id": "问", "trigger_patterns": ["请问"], "steps": [{"stepId": "a", "ask": "什么？"}]}
    config.write_text(json.dumps({"flows": [flow]}), encoding="utf-8")
    given = [str(config), ""] if chosen else ["${user_config.config}", "${user_config.provider}"]
    server = stdio_server(
        [sys.executable, str(tmp_path / "src" / "server.py"), *given],
        env={"LOOM_HOME": str(tmp_path / "home")},
        timeout=60.0,
    )
    tools = {tool["name"] for tool in server.request("tools/list")["tools"]}
    assert tools == {tool["name"] for tool in manifest["tools"]}
    reply = server.call("flow_chat", message="请问")
    assert reply.get("isError", False) is not chosen
    assert not chosen or reply["structuredContent"]["flow_id"] == "问"


def test_the_registry_is_told_the_version_and_arguments_that_are_released() -> None:
    entry = json.loads((_SERVER / "server.json").read_text(encoding="utf-8"))
    (package,) = entry["packages"]
    assert package["identifier"] == _PROJECT["name"]
    assert entry["version"] == package["version"] == _PROJECT["version"]
    assert len(entry["description"]) <= 100
    line = [each.get("value") or f"{each['name']}=x" for each in package["packageArguments"]]
    args = parser().parse_args(line)
    assert (args.command, args.config, args.provider) == ("serve", Path("x"), "x")
