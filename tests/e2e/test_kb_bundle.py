"""What is published of loom-kb beside its package: the MCPB bundle and the registry's `server.json`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from loom_kb.cli import parser

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_SERVER = _ROOT / "servers" / "kb"


def _build(out: Path, *options: str, **environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "tools.build_mcpb", "kb", "--out", str(out), *options],
        cwd=_ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("bundle"))


def test_the_same_files_are_the_same_bundle(bundle: Path, tmp_path: Path) -> None:
    assert _build(tmp_path).read_bytes() == bundle.read_bytes()
    assert bundle.stat().st_size < 50_000


@pytest.mark.slow
def test_the_official_tool_accepts_the_bundle(load: Callable[[Path], ModuleType], tmp_path: Path) -> None:
    nodejs = load(_HERE.parent / "fixtures" / "node.py")
    node = nodejs.node(least=(18, 0))
    tool = nodejs.installed(_HERE / "mcpb") / "node_modules" / ".bin" / "mcpb"
    _build(tmp_path, "--mcpb", str(tool), PATH=f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}")


def test_the_bundle_installs_the_released_package_and_nothing_else(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["server"]["entry_point"] in archive.namelist()
    released = tomllib.loads((_SERVER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["project"]["dependencies"] == [f"loom-kb=={released['version']}"]
    assert project["project"]["requires-python"] == released["requires-python"]
    assert project["tool"]["uv"] == {"package": False}
    assert (manifest["name"], manifest["version"]) == ("loom-kb", released["version"])


@pytest.mark.parametrize("folders", [[], ["${user_config.folders}"], ["文档", "b"]])
def test_the_bundle_starts_a_server_with_the_folders_chosen_and_the_tools_promised(
    folders: list[str], bundle: Path, stdio_server: Callable[..., StdioServer], tmp_path: Path
) -> None:
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
        manifest = json.loads(archive.read("manifest.json"))
    for folder in folders:
        (tmp_path / folder).mkdir()
    chosen = [folder if folder.startswith("$") else str(tmp_path / folder) for folder in folders]
    server = stdio_server(
        [sys.executable, str(tmp_path / "src" / "server.py"), *chosen],
        env={"LOOM_HOME": str(tmp_path / "home")},
        timeout=60.0,
    )
    tools = {tool["name"]: tool for tool in server.request("tools/list")["tools"]}
    assert list(tools) == [tool["name"] for tool in manifest["tools"]]
    described = str(tools["add"])
    assert all((str(tmp_path / folder) in described) is not folder.startswith("$") for folder in folders)


def _registry_entry() -> dict[str, Any]:
    return json.loads((_SERVER / "server.json").read_text(encoding="utf-8"))


def test_the_registry_takes_the_server() -> None:
    """The rules of the schema 2025-12-11 for the parts that are used, and of the registry's requirements."""
    entry = _registry_entry()
    assert entry["$schema"] == "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    assert set(entry) <= {"$schema", "name", "title", "description", "version", "packages"}
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 3 <= len(entry["name"]) <= 200
    assert 1 <= len(entry["description"]) <= 100
    assert 1 <= len(entry["title"]) <= 100
    inputs = {"description", "isRequired", "format", "value", "default", "isSecret", "choices", "placeholder"}
    for package in entry["packages"]:
        assert {"registryType", "identifier", "transport", "version"} <= set(package)
        assert package["transport"] == {"type": "stdio"}
        for argument in package["packageArguments"]:
            assert set(argument) <= inputs | {"type", "name", "isRepeated", "valueHint"}
            assert argument["type"] in {"positional", "named"}
            assert "name" in argument or argument.keys() & {"value", "valueHint"}
        for variable in package["environmentVariables"]:
            assert set(variable) <= inputs | {"name"}
        formats = [each.get("format", "string") for each in package["packageArguments"]]
        assert set(formats) <= {"string", "number", "boolean", "filepath"}


def test_the_registry_is_told_the_version_that_is_released() -> None:
    released = tomllib.loads((_SERVER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entry = _registry_entry()
    (package,) = entry["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", released["name"])
    assert entry["version"] == package["version"] == released["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", released["version"])


def test_the_server_takes_the_arguments_that_the_registry_offers() -> None:
    (package,) = _registry_entry()["packages"]
    line = [each.get("value") or f"{each['name']}=x" for each in package["packageArguments"]]
    args = parser().parse_args(line)
    assert (args.command, args.root, args.kb) == ("serve", [Path("x")], ["x"])
