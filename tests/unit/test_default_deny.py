"""Default permissions of a fresh installation: no access outside Loom's home, no command, no request.

Each server is built as its own command line builds it, in an empty home, without an option.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from loom_core.errors import ConfigError
from loom_core.llm.vendors import VENDORS
from loom_core.mcp_client.configuration.servers import read_servers
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.run import serve
from loom_core.tools.builtin import BuiltinToolsConfig, builtin_tools
from loom_core.tools.permission.permissions import Permissions

_SERVERS = ("kb", "query", "agent", "flow")
_CHANGING = {  # what may change something; the hosts ask before they call it
    "kb": {"add", "remove", "job_cancel"},
    "query": set[str](),
    "agent": {"agent_run", "agent_reply", "agent_decide", "agent_control"},
    "flow": {"flow_chat", "flow_run", "flow_resume"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, on a machine where no one has a key."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("LOOM_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    for row in VENDORS.values():
        if row.key_variable:
            monkeypatch.delenv(row.key_variable, raising=False)
    return home


@pytest.fixture
def settings(home: Path) -> Callable[[str], Any]:
    """The settings of a server that is started without an option."""

    def parsed(server: str) -> Any:
        cli = importlib.import_module(f"loom_{server}.cli")
        return cli.SERVER.settings_of(cli.SERVER.parser().parse_args(["serve"]))

    return parsed


@pytest.fixture
def connected(settings: Callable[[str], Any]) -> Callable[[str], AbstractAsyncContextManager[Client]]:
    """Connects a client to such a server, in memory."""

    @asynccontextmanager
    async def connect(server: str) -> AsyncGenerator[Client]:
        app = importlib.import_module(f"loom_{server}.app")
        async with Client(app.build(settings(server)).protocol) as client:
            yield client

    return connect


async def _refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


@pytest.mark.parametrize("server", _SERVERS)
async def test_only_the_known_tools_may_change_something(server, connected) -> None:
    async with connected(server) as client:
        tools = (await client.list_tools()).tools
    assert tools
    changing = {tool.name for tool in tools if not tool.annotations.read_only_hint}
    assert changing == _CHANGING[server]


@pytest.mark.parametrize("server", _SERVERS)
def test_http_is_off_and_where_it_is_on_it_is_for_this_machine(server, home, settings) -> None:
    app, cli = (importlib.import_module(f"loom_{server}.{name}") for name in ("app", "cli"))
    parser = cli.SERVER.parser()
    options = importlib.import_module("loom_core.server.cli.http_options")
    tokens = home / "tokens" / "x.json"
    assert options.http_settings(parser.parse_args(["serve"]), tokens=tokens) is None
    chosen = options.http_settings(parser.parse_args(["serve", "--http"]), tokens=tokens)
    assert chosen.listens_locally
    assert chosen.host == HttpSettings().host == "127.0.0.1"
    others = options.http_settings(parser.parse_args(["serve", "--http", "--host", "0.0.0.0"]), tokens=tokens)
    with pytest.raises(ConfigError, match="without authentication"):
        serve(lambda: app.build(settings(server)), http=others)


@pytest.mark.parametrize("path", ["/etc/hostname", "~/.ssh/id_rsa", ".", "笔记.md"])
async def test_the_knowledge_base_reads_no_file(path, connected) -> None:
    async with connected("kb") as client:
        assert "--root" in await _refused(client, "add", paths=[path])


@pytest.mark.parametrize("url", ["https://example.com/", "http://127.0.0.1/", "http://169.254.169.254/"])
async def test_the_knowledge_base_asks_no_address(url, connected) -> None:
    async with connected("kb") as client:
        assert "--allow-urls" in await _refused(client, "add", urls=[url])


def test_the_knowledge_base_has_neither_folders_nor_networks_nor_a_model(settings) -> None:
    chosen = settings("kb")
    assert (chosen.roots, chosen.watched, chosen.allow_urls, chosen.allow_net) == ((), (), False, ())
    assert chosen.llm in {"", "none"}


async def test_the_query_server_has_no_source_that_it_would_ask(connected) -> None:
    async with connected("query") as client:
        listed = (await client.call_tool("sources", {})).structured_content
    assert listed["sources"] == []


def test_an_agent_has_no_tool_for_files_web_or_commands(settings) -> None:
    profile = importlib.import_module("loom_agent.profiles.profile_config").ProfileConfig()
    assert builtin_tools(profile.tools) == ()
    assert (profile.otherwise, profile.permissions) == ("ask", [])
    assert settings("agent").root is None


def test_a_folder_alone_is_not_writable_the_web_not_changeable_and_a_shell_not_enabled(tmp_path) -> None:
    config = BuiltinToolsConfig.model_validate({"files": {"root": "."}, "http": {}, "shell": {"root": "."}})
    tools = builtin_tools(config, folder=tmp_path)
    assert {tool.name for tool in tools} == {"read_file", "list_files", "search_files", "http_get"}
    assert all(tool.annotations.read_only for tool in tools)


def test_what_writes_runs_or_asks_the_network_waits_for_a_person(tmp_path) -> None:
    every = {"files": {"root": ".", "write": True}, "http": {"write": True}}
    shell = (
        {"shell": {"root": ".", "enabled": True}} if hasattr(importlib.import_module("os"), "fork") else {}
    )
    tools = builtin_tools(BuiltinToolsConfig.model_validate({**every, **shell}), folder=tmp_path)
    permissions = Permissions([], base=tmp_path)
    verdicts = {tool.name: permissions.decide(tool, {}).action for tool in tools}
    assert {name for name, verdict in verdicts.items() if verdict == "allow"} == {
        "read_file",
        "list_files",
        "search_files",
    }
    assert set(verdicts.values()) == {"allow", "ask"}


def test_http_tools_and_flows_may_ask_no_place_inside() -> None:
    config = BuiltinToolsConfig.model_validate({"http": {}})
    assert config.http is not None
    assert config.http.allow == ()
    assert importlib.import_module("loom_core.flow.config.models").NetConfig().allow == []


async def test_the_flow_server_has_no_flow_and_without_one_nothing_to_call(connected) -> None:
    async with connected("flow") as client:
        listed = await client.call_tool("flow_list", {})
        text = await _refused(client, "flow_run", flow_id="pay", inputs={})
    assert not (listed.structured_content or {}).get("flows")
    assert text


async def test_no_other_server_is_known_and_a_project_brings_none(home, tmp_path, monkeypatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    entry = {"command": "sh", "args": ["-c", "touch was-started"], "cwd": str(project)}
    file = project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"恶意": entry}}), encoding="utf-8")
    monkeypatch.chdir(project)
    found = read_servers(home, project=file, environment={})
    assert found.ready == ()
    assert "mcp trust" in next(iter(found.problems.values())).advice
    assert not (project / "was-started").exists()
