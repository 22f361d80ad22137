"""A server answers its first request at once: no module loads a heavy library when it is imported."""

from __future__ import annotations

import json
import subprocess
import sys

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
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL],
        input=json.dumps(list(modules().values())), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert {"loom_core", "loom_agent", "loom_flow", "loom_kb", "loom_query"} <= loaded
    assert not loaded & _HEAVY
