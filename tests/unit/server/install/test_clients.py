from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest

from loom_core.server.cli.standard_commands import CLIENT_IDS
from loom_core.server.install.clients import CLIENTS, Machine, Platform
from loom_core.server.install.launch import InstalledServer, runs

_LINUX = Machine("linux", PurePosixPath("/home/李明"), PurePosixPath("/p"), {})
_MACOS = Machine("macos", PurePosixPath("/Users/me"), PurePosixPath("/p"), {})
_WINDOWS = Machine(
    "windows",
    PureWindowsPath(r"C:\Users\李明"),
    PureWindowsPath(r"D:\p"),
    {"APPDATA": r"C:\Users\李明\AppData\Roaming"},
)

_FILES: dict[str, tuple[str, str, str]] = {
    "claude-desktop": (
        "/home/李明/.config/Claude/claude_desktop_config.json",
        "/Users/me/Library/Application Support/Claude/claude_desktop_config.json",
        r"C:\Users\李明\AppData\Roaming\Claude\claude_desktop_config.json",
    ),
    "claude-code": ("/home/李明/.claude.json", "/Users/me/.claude.json", r"C:\Users\李明\.claude.json"),
    "cursor": (
        "/home/李明/.cursor/mcp.json",
        "/Users/me/.cursor/mcp.json",
        r"C:\Users\李明\.cursor\mcp.json",
    ),
    "vscode": (
        "/home/李明/.config/Code/User/mcp.json",
        "/Users/me/Library/Application Support/Code/User/mcp.json",
        r"C:\Users\李明\AppData\Roaming\Code\User\mcp.json",
    ),
    "codex": (
        "/home/李明/.codex/config.toml",
        "/Users/me/.codex/config.toml",
        r"C:\Users\李明\.codex\config.toml",
    ),
    "gemini-cli": (
        "/home/李明/.gemini/settings.json",
        "/Users/me/.gemini/settings.json",
        r"C:\Users\李明\.gemini\settings.json",
    ),
    "goose": (
        "/home/李明/.config/goose/config.yaml",
        "/Users/me/.config/goose/config.yaml",
        r"C:\Users\李明\AppData\Roaming\Block\goose\config\config.yaml",
    ),
    "zed": (
        "/home/李明/.config/zed/settings.json",
        "/Users/me/.config/zed/settings.json",
        r"C:\Users\李明\AppData\Roaming\Zed\settings.json",
    ),
    "windsurf": (
        "/home/李明/.codeium/windsurf/mcp_config.json",
        "/Users/me/.codeium/windsurf/mcp_config.json",
        r"C:\Users\李明\.codeium\windsurf\mcp_config.json",
    ),
}


def test_this_machine_is_where_the_user_and_the_current_folder_are() -> None:
    machine = Machine.this()
    assert (machine.home, machine.project) == (Path.home(), Path.cwd())


def test_the_command_line_offers_every_client() -> None:
    assert tuple(CLIENTS) == CLIENT_IDS == tuple(_FILES)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("machine", "column"), [(_LINUX, 0), (_MACOS, 1), (_WINDOWS, 2)])
def test_every_platform_has_its_file(client: str, machine: Machine, column: int) -> None:
    path = CLIENTS[client].file(machine, "user")
    assert str(path) == _FILES[client][column]


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini-cli", ".gemini/settings.json"),
        ("zed", ".zed/settings.json"),
        ("claude-desktop", None),
        ("goose", None),
        ("windsurf", None),
    ],
)
def test_a_project_has_its_file_where_the_client_knows_projects(client: str, expected: str | None) -> None:
    path = CLIENTS[client].file(_LINUX, "project")
    assert path == (None if expected is None else PurePosixPath("/p", expected))


@pytest.mark.parametrize(
    ("client", "platform", "variable", "expected"),
    [
        ("vscode", "linux", "XDG_CONFIG_HOME", "/x/Code/User/mcp.json"),
        ("goose", "macos", "XDG_CONFIG_HOME", "/x/goose/config.yaml"),
        ("zed", "linux", "XDG_CONFIG_HOME", "/x/zed/settings.json"),
        ("zed", "macos", "XDG_CONFIG_HOME", "/h/.config/zed/settings.json"),
        ("codex", "linux", "CODEX_HOME", "/x/config.toml"),
        ("claude-code", "macos", "CLAUDE_CONFIG_DIR", "/x/.claude.json"),
    ],
)
def test_a_variable_moves_the_file(client: str, platform: Platform, variable: str, expected: str) -> None:
    machine = Machine(platform, PurePosixPath("/h"), PurePosixPath("/p"), {variable: "/x"})
    assert CLIENTS[client].file(machine, "user") == PurePosixPath(expected)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_windows_path_survives_every_format(client: str) -> None:
    row = CLIENTS[client]
    command = r"C:\Users\李明\new tools\loom-kb.exe"
    arguments = ("serve", "--root", r"D:\文档\“引号”", '"')
    server = InstalledServer(
        name="loom-kb",
        program="loom-kb",
        module="loom_kb",
        description="",
        command=command,
        arguments=arguments,
    )
    entry = row.entry(server)
    text = row.format.put("", row.section, "loom-kb", entry)
    assert row.format.read(text) == {row.section: {"loom-kb": entry}}
    assert runs(entry, program="loom-kb", module="loom_kb")


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a b/loom-kb", "args": []}, True),
        ({"command": r"C:\x\Loom-KB.EXE", "args": []}, True),
        ({"cmd": "loom-kb"}, True),
        ({"command": "uvx", "args": ["loom-kb@0.1.0", "serve"]}, True),
        ({"command": "uv", "args": ["tool", "run", "loom-kb[minilm]==0.1"]}, True),
        ({"command": "/usr/bin/python3", "args": ["-I", "-m", "loom_kb"]}, True),
        ({"command": "env", "args": ["LOOM_HOME=/h", "/a b/.venv/bin/loom-kb", "serve"]}, True),
        ({"command": "cmd", "args": ["/c", r"C:\x\Scripts\Loom-KB.exe"]}, True),
        ({"command": "uv", "args": ["run", "--directory", "/src/loom-kb", "loom-kb"]}, True),
        ({"command": "uv", "args": ["run", "--directory", "/src/loom-kb", "else"]}, False),
        ({"command": "npx", "args": ["-y", "server-filesystem", "/home/u/loom-kb"]}, False),
        ({"command": "/bin/loom-query-server", "args": ["serve", "--home", r"D:\loom-kb"]}, False),
        ({"command": "/usr/bin/python3", "args": ["-m", "loom_flow"]}, False),
        ({"command": "loom-kb-sync", "args": []}, False),
        ({"command": "npx", "args": ["-m"]}, False),
        ({"url": "http://127.0.0.1:8765/mcp"}, False),
        ({"command": ["loom-kb"]}, False),
    ],
)
def test_an_entry_is_recognised_by_what_it_starts(entry: dict[str, object], ours: bool) -> None:
    assert runs(entry, program="loom-kb", module="loom_kb") is ours


@pytest.mark.parametrize("client", CLIENTS)
def test_names_are_those_that_the_client_takes(client: str) -> None:
    names = CLIENTS[client].names
    assert names.fullmatch("loom-kb")
    assert not any(names.fullmatch(bad) for bad in ("", " a", "a\n", "a\x7f", "x" * 65))
    assert bool(names.fullmatch("知识库")) is (client not in {"claude-code", "codex", "goose"})


@pytest.mark.parametrize("client", CLIENTS)
def test_every_row_names_its_source_and_what_to_do_afterwards(client: str) -> None:
    row = CLIENTS[client]
    assert row.source.startswith("https://")
    assert row.afterwards.endswith(".")
    assert isinstance(row.file(_LINUX, "user"), PurePath)
