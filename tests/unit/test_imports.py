"""Servers and commands start quickly: no module loads a library when it is imported that few calls need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

from tools.house import modules

_HEAVY = {
    "anthropic", "chromadb", "docx", "genai_prices", "keyring", "kuzu", "lxml", "markdown_it", "numpy",
    "onnxruntime", "openai", "pathspec", "pptx", "pypdfium2", "python_calamine", "rjieba", "selectolax",
    "Stemmer", "tantivy",
}  # fmt: skip
_IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.stdin.read()):
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def test_importing_the_servers_and_the_core_loads_no_heavy_library() -> None:
    loaded = _loaded_by(modules().values())
    assert {"loom_core", "loom_agent", "loom_flow", "loom_kb", "loom_query"} <= loaded
    assert not loaded & _HEAVY


def test_importing_the_commands_of_the_servers_does_not_load_the_sdk_of_mcp() -> None:
    loaded = _loaded_by(name for name in modules().values() if ".command_line" in name)
    assert {"loom_agent", "loom_flow", "loom_kb", "loom_query"} <= loaded
    assert not loaded & {"mcp", "mcp_types", "starlette"}


def _loaded_by(names: Iterable[str]) -> set[str]:
    """The packages that a process has loaded once it has imported modules."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL],
        input=json.dumps(list(names)), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return {name.partition(".")[0] for name in json.loads(done.stdout)}
