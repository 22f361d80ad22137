"""mcp.json.example: each of its entries is one that works."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.server.serving.http_settings import HttpSettings

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

_MODULES = {
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
}
_ENTRIES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "mcp.json.example").read_text(encoding="utf-8")
)["mcpServers"]


@pytest.mark.parametrize("name", [name for name, entry in _ENTRIES.items() if "command" in entry])
def test_every_stdio_entry_starts_a_server(
    name: str, stdio_server: Callable[..., StdioServer], tmp_path: Path
) -> None:
    entry = _ENTRIES[name]
    folder, _, server = entry["command"].rpartition("/")
    assert folder == "/path/to/clone/.venv/bin"
    # A folder of the reader's is one of the test's here.
    arguments = [str(tmp_path) if argument.startswith("/") else argument for argument in entry["args"]]
    environment = {"LOOM_HOME": str(tmp_path / "home"), **entry.get("env", {})}
    process = stdio_server([sys.executable, "-m", _MODULES[server], *arguments], env=environment)
    assert process.request("tools/list")["tools"]


def test_every_http_entry_is_where_the_server_listens_by_default() -> None:
    defaults = HttpSettings()
    urls = [entry["url"] for entry in _ENTRIES.values() if "url" in entry]
    assert urls == [f"http://{defaults.host}:{defaults.port}{defaults.path}"]
