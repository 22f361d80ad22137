"""MCPB bundles and the registry's `server.json`, which are published with the servers' packages."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loom_agent.cli
import loom_flow.cli
import loom_kb.cli
import loom_query.cli
import pytest

from tests.fixtures import node as nodejs
from tests.fixtures.fork_server import starts_quickly

if TYPE_CHECKING:
    import argparse

    from tests.e2e.jsonrpc import StdioServer

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]

Started = tuple["StdioServer", dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Published:
    """A server as it is published.

    Attributes:
        key: its folder below servers/.
        name: of its distribution.
        parser: of its command line.
        offered: what the arguments that the registry offers come to, each given as `x`.
    """

    key: str
    name: str
    parser: Callable[[], argparse.ArgumentParser]
    offered: Mapping[str, object]

    def __str__(self) -> str:
        return self.key

    @property
    def folder(self) -> Path:
        return _ROOT / "servers" / self.key

    @property
    def released(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    @property
    def registry_entry(self) -> dict[str, Any]:
        return json.loads((self.folder / "server.json").read_text(encoding="utf-8"))


_FILE, _MODEL = {"config": Path("x")}, {"provider": "x"}
KB = Published("kb", "loom-kb", loom_kb.cli.SERVER.parser, {"root": [Path("x")], "kb": ["x"]})
QUERY = Published("query", "loom-query-server", loom_query.cli.SERVER.parser, _FILE)
AGENT = Published("agent", "loom-agent-server", loom_agent.cli.SERVER.parser, _FILE | _MODEL)
FLOW = Published("flow", "loom-flow-server", loom_flow.cli.SERVER.parser, _FILE | _MODEL)

every_server = pytest.mark.parametrize("published", [KB, QUERY, AGENT, FLOW], ids=str)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Published], Path]:
    """The bundle of a server."""
    build, out = (
        runpy.run_path(str(_ROOT / "tools" / "build_mcpb.py"))["build"],
        tmp_path_factory.mktemp("out"),
    )
    return lambda published: build(published.folder, out)


@pytest.fixture
def start(
    bundle: Callable[[Published], Path], stdio_server: Callable[..., StdioServer], tmp_path: Path
) -> Callable[..., Started]:
    """Starts the server in a bundle as a host does; gives it and its tools, which are as promised."""

    def start(published: Published, *arguments: str) -> Started:
        with zipfile.ZipFile(bundle(published)) as archive:
            archive.extractall(tmp_path)
            manifest = json.loads(archive.read("manifest.json"))
        server = stdio_server(
            [sys.executable, starts_quickly(tmp_path / "src" / "server.py"), *arguments],
            env={"LOOM_HOME": str(tmp_path / "home")},
            timeout=60.0,
        )
        tools = {tool["name"]: tool for tool in server.request("tools/list")["tools"]}
        assert list(tools) == [tool["name"] for tool in manifest["tools"]]
        return server, tools

    return start


def _built(out: Path, *options: str, **environment: str) -> Path:
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


def test_the_same_files_are_the_same_bundle(bundle: Callable[[Published], Path], tmp_path: Path) -> None:
    assert _built(tmp_path).read_bytes() == bundle(KB).read_bytes()


@pytest.mark.slow
def test_the_official_tool_accepts_the_bundle(tmp_path: Path) -> None:
    node = nodejs.node(least=(18, 0))
    tool = nodejs.installed(_HERE / "mcpb") / "node_modules" / ".bin" / "mcpb"
    _built(tmp_path, "--mcpb", str(tool), PATH=f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}")


@every_server
def test_a_bundle_installs_the_released_package_and_nothing_else(
    published: Published, bundle: Callable[[Published], Path]
) -> None:
    path = bundle(published)
    assert path.stat().st_size < 50_000
    with zipfile.ZipFile(path) as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["server"]["entry_point"] in archive.namelist()
    released = published.released
    assert project["project"]["dependencies"] == [f"{published.name}=={released['version']}"]
    assert project["project"]["requires-python"] == released["requires-python"]
    assert project["tool"]["uv"] == {"package": False}
    assert (manifest["name"], manifest["version"]) == (published.name, released["version"])


@pytest.mark.parametrize("folders", [[], ["${user_config.folders}"], ["文档", "b"]])
def test_the_bundle_of_a_knowledge_base_reads_from_the_folders_chosen(
    folders: list[str], start: Callable[..., Started], tmp_path: Path
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
    chosen = [folder if folder.startswith("$") else str(tmp_path / folder) for folder in folders]
    _, tools = start(KB, *chosen)
    described = str(tools["add"])
    assert all((str(tmp_path / folder) in described) is not folder.startswith("$") for folder in folders)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_bundle_of_the_search_asks_the_sources_of_the_file_chosen(
    chosen: bool, start: Callable[..., Started], tmp_path: Path
) -> None:
    texts = {"港口": {"kind": "documents", "documents": [{"text": "港长是李明。"}]}}
    config = tmp_path / "来源.json"
    config.write_text(json.dumps({"sources": texts}, ensure_ascii=False), encoding="utf-8")
    _, tools = start(QUERY, str(config) if chosen else "${user_config.config}")
    assert ("港口" in str(tools["query"])) is chosen


@pytest.mark.parametrize("chosen", [False, True])
def test_the_bundle_of_agents_has_the_profiles_of_the_file_chosen(
    chosen: bool, start: Callable[..., Started], tmp_path: Path
) -> None:
    config = tmp_path / "智能体.json"
    config.write_text('{"profiles": {"研究": {}}}', encoding="utf-8")
    server, _ = start(AGENT, *([str(config), "mock"] if chosen else ["${user_config.config}", ""]))
    run = server.call("agent_run", goal="现在几点？")
    assert run.get("isError", False) is not chosen
    assert not chosen or run["structuredContent"]["profile"] == "研究"


@pytest.mark.parametrize("chosen", [False, True])
def test_the_bundle_of_flows_has_the_flows_of_the_file_chosen(
    chosen: bool, start: Callable[..., Started], tmp_path: Path
) -> None:
    config = tmp_path / "流程.json"
    flow = {"flow_id": "问", "trigger_patterns": ["请问"], "steps": [{"stepId": "a", "ask": "什么？"}]}
    config.write_text(json.dumps({"flows": [flow]}), encoding="utf-8")
    given = [str(config), ""] if chosen else ["${user_config.config}", "${user_config.provider}"]
    server, _ = start(FLOW, *given)
    reply = server.call("flow_chat", message="请问")
    assert reply.get("isError", False) is not chosen
    assert not chosen or reply["structuredContent"]["flow_id"] == "问"


@every_server
def test_the_registry_takes_the_server(published: Published) -> None:
    """The rules of the schema 2025-12-11 for the parts that are used, and of the registry's requirements."""
    entry = published.registry_entry
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


@every_server
def test_the_registry_is_told_the_version_that_is_released(published: Published) -> None:
    released, entry = published.released, published.registry_entry
    (package,) = entry["packages"]
    assert released["name"] == published.name
    assert (package["registryType"], package["identifier"]) == ("pypi", published.name)
    assert entry["version"] == package["version"] == released["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", released["version"])


@every_server
def test_a_server_takes_the_arguments_that_the_registry_offers(published: Published) -> None:
    (package,) = published.registry_entry["packages"]
    line = [each.get("value") or f"{each['name']}=x" for each in package["packageArguments"]]
    args = vars(published.parser().parse_args(line))
    assert args["command"] == "serve"
    assert {name: args[name] for name in published.offered} == published.offered
