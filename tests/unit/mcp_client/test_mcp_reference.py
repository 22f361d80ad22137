from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from loom_core.mcp_client.configuration.config_file import ServerFile
from loom_core.mcp_client.configuration.expansion import Expansion
from loom_core.mcp_client.configuration.server_config import ServerConfig

_TOOL = Path(__file__).parents[3] / "tools" / "mcp_reference.py"


def test_the_reference_is_what_the_code_says() -> None:
    tool = runpy.run_path(str(_TOOL))
    written = tool["PAGE"].read_text(encoding="utf-8")
    assert written == tool["page"](), "run: python -m tools.mcp_reference"


def test_the_example_of_the_reference_can_be_used() -> None:
    page = runpy.run_path(str(_TOOL))["page"]()
    example = re.search(r"```jsonc\n(.*?)```", page, re.DOTALL)
    assert example
    entries = ServerFile(Path("mcp.json"), example[1].encode()).entries
    assert list(entries) == ["文件", "github"]
    for name, entry in entries.items():
        expansion = Expansion({"GITHUB_TOKEN": "x"})
        ServerConfig.of_entry(name, json.loads(json.dumps(entry)), expansion=expansion, folder=Path.cwd())
