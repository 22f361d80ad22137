"""The house rules that a linter does not check (docs/development.md)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.server.http import HttpSettings

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

_ROOT = Path(__file__).parents[2]
_DEMO = _ROOT / "servers" / "kb" / "loom_kb" / "demo_documents"
_PACKAGES = [_ROOT / "loom_core", *sorted((_ROOT / "servers").glob("*/loom_*"))]
_MODULES = sorted(
    path for package in _PACKAGES for path in package.rglob("*.py") if _DEMO not in path.parents
)

_MAX_LINES = 500
_VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
_HEAVY = {
    "anthropic", "chromadb", "docx", "genai_prices", "keyring", "kuzu", "lxml", "markdown_it", "numpy",
    "onnxruntime", "openai", "pathspec", "pptx", "pypdfium2", "python_calamine", "rjieba", "selectolax",
    "Stemmer", "tantivy",
}  # fmt: skip
_COMMANDS = {
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
}
_NOT_OURS = {"__pycache__", "node_modules", "build", "dist", "htmlcov"}

# In two parts each, so that this file does not name them either.
_REGISTRY_HOSTS = [
    "pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "npmmirror" + ".com",
    "yarnpkg" + ".com", "conda" + ".anaconda",
]  # fmt: skip
_PATHS_OF_MACHINES = re.compile("/" + r"work/(main|shared)\b|(?<![\w.])/" + r"root/|\.py" + "env/")


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


def _dotted(path: Path) -> str:
    package = next(package for package in _PACKAGES if package in path.parents)
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _files(folder: Path = _ROOT) -> Iterator[Path]:
    """Every file that is ours: no caches, no virtual environments, nothing that Git ignores."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in {
            ".ci",
            ".github",
            ".gitignore",
            ".importlinter",
        }
        if hidden or path.name in _NOT_OURS or path.name == "uv.lock" or path == _ROOT / ".ci" / "work":
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_module_keeps_the_house_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    if body and isinstance(body[0], ast.Expr):
        body = body[1:]
    assert len(text.splitlines()) <= _MAX_LINES, "split it: one noun per module"
    assert not _VAGUE_NAMES & set(path.with_suffix("").parts), "name it after what it holds"
    if not body:
        return
    future = body[0]
    assert isinstance(future, ast.ImportFrom)
    assert future.module == "__future__"
    assert path.stem == "__main__" or "__all__" in _assigned(body), "say what is public"


def _assigned(body: list[ast.stmt]) -> set[str]:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("path", [p for p in _MODULES if _ROOT / "loom_core" in p.parents], ids=_name)
def test_the_core_neither_prints_nor_reads_the_command_line(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    assert "print" not in {call.id for call in calls if isinstance(call, ast.Name)}
    read = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    assert "sys.argv" not in read or path.name == "sheet_reader.py", (
        "only a child process reads its arguments"
    )


def test_importing_the_servers_and_the_core_loads_no_heavy_library() -> None:
    modules = [_dotted(path) for path in _MODULES]
    program = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.stdin.read()):\n    importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(modules), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert {"loom_core", *_COMMANDS.values()} <= loaded
    assert not loaded & _HEAVY


def test_no_file_names_a_registry_or_a_path_of_this_machine() -> None:
    found: list[str] = []
    for path in _files():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{_name(path)}: {host}" for host in _REGISTRY_HOSTS if host in text]
        found += [f"{_name(path)}: {match[0]}" for match in _PATHS_OF_MACHINES.finditer(text)]
    assert not found


def test_pins_carry_hashes_and_agree_with_each_other() -> None:
    versions: dict[str, set[str]] = {}
    for name in ("dev.txt", *(f"{server}.txt" for server in _COMMANDS)):
        text = (_ROOT / "requirements" / name).read_text(encoding="utf-8")
        pins = re.findall(
            r"^(\S+)==(\S+)(?: ;[^\\]*)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
        )
        assert len(pins) == len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE)) > 40, "a pin has no hash"
        for package, version in pins:
            versions.setdefault(f"{name} {package}", set()).add(version)
    runtime = [(key.partition(" ")[2], found) for key, found in versions.items() if key.startswith("loom-")]
    assert all(found == versions[f"dev.txt {package}"] for package, found in runtime)


def test_all_packages_are_of_one_version_and_require_each_other_in_it() -> None:
    files = [_ROOT / "pyproject.toml", *_ROOT.glob("servers/*/pyproject.toml")]
    projects = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in files]
    (version,) = {project["version"] for project in projects}
    for project in projects:
        extras = project.get("optional-dependencies", {}).values()
        wanted = [each for each in (*project["dependencies"], *chain(*extras)) if each.startswith("loom-")]
        assert all(each.endswith(f"=={version}") for each in wanted), project["name"]
        assert wanted or project["name"] == "loom-mcp-core"


def _example() -> dict[str, dict[str, Any]]:
    return json.loads((_ROOT / "mcp.json.example").read_text(encoding="utf-8"))["mcpServers"]


def test_every_stdio_entry_of_the_example_configuration_starts_a_server(
    stdio_server: Callable[..., StdioServer], tmp_path: Path
) -> None:
    entries = [entry for entry in _example().values() if "command" in entry]
    assert entries
    for entry in entries:
        folder, _, server = entry["command"].rpartition("/")
        arguments = entry["args"]
        assert folder == "/path/to/clone/.venv/bin"
        # A folder of the reader's is one of the test's here.
        arguments = [str(tmp_path) if argument.startswith("/") else argument for argument in arguments]
        environment = {"LOOM_HOME": str(tmp_path / "home"), **entry.get("env", {})}
        process = stdio_server([sys.executable, "-m", _COMMANDS[server], *arguments], env=environment)
        assert process.request("tools/list")["tools"]


def test_every_http_entry_of_the_example_configuration_is_where_the_server_listens_by_default() -> None:
    defaults = HttpSettings()
    urls = [entry["url"] for entry in _example().values() if "url" in entry]
    assert urls == [f"http://{defaults.host}:{defaults.port}{defaults.path}"]
