"""Checks the house rules that ruff and pyright do not know; docs/development.md lists them.

    python -m tools.house               this working tree
    python -m tools.house FOLDER        another one

Every module is short, named after one noun, and says what is public; the core neither prints nor reads the
command line; no file names a package registry or a path of one machine; pins have hashes and agree with each
other; all packages are of one version; a server reads a knowledge base by its own methods, never from its
store. Prints a line for each fault; the exit code is 1 where there is one.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

__all__ = ["faults", "main", "modules"]

_ROOT = Path(__file__).parents[1]
_MAX_LINES = 800
_FEWEST_PINS = 40
_VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
_READS_ITS_ARGUMENTS = "sheet_reader.py"  # a child process
_PINNED = ("loom-agent-server", "loom-flow-server", "loom-kb", "loom-query-server")
_SHOWN_THOUGH_HIDDEN = {".ci", ".github", ".gitignore", ".importlinter"}
_NOT_OURS = {"__pycache__", "node_modules", "build", "dist", "htmlcov", "uv.lock"}

# In two parts each, so that this file does not name them either.
_REGISTRY_HOSTS = [
    "pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "npmmirror" + ".com",
    "yarnpkg" + ".com", "conda" + ".anaconda",
]  # fmt: skip
_PATHS_OF_MACHINES = re.compile("/" + r"work/(main|shared)\b|(?<![\w.])/" + r"root/|\.py" + "env/")
_PIN = re.compile(r"^(\S+)==(\S+)(?: ;[^\\]*)? \\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)


def modules(root: Path = _ROOT) -> dict[Path, str]:
    """Return the modules of the core and the servers by their files, without the demo documents."""
    found: dict[Path, str] = {}
    for package in (root / "loom_core", *sorted((root / "servers").glob("*/loom_*"))):
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            if "demo_documents" not in parts:
                found[path] = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return found


def faults(root: Path = _ROOT) -> list[str]:
    """Return every fault in a working tree, a line each."""
    return list(chain(_module_faults(root), _file_faults(root), _pin_faults(root), _version_faults(root)))


def main(arguments: Sequence[str]) -> int:
    """Print the faults of a working tree; return the exit code."""
    found = faults(*map(Path, arguments))
    for fault in found:
        print(fault)
    return 1 if found else 0


def _module_faults(root: Path) -> Iterator[str]:
    for path in modules(root):
        text = path.read_text(encoding="utf-8")
        inside = path.relative_to(root)
        tree = ast.parse(text)
        found = list(_style_faults(tree, inside))
        if len(text.splitlines()) > _MAX_LINES:
            found.append(f"longer than {_MAX_LINES} lines: split it, one noun per module")
        if inside.parts[0] == "loom_core":
            found += _core_faults(tree, path.name)
        else:
            found += _store_faults(tree)
        yield from (f"{inside}: {fault}" for fault in found)


def _style_faults(tree: ast.Module, path: Path) -> Iterator[str]:
    if _VAGUE_NAMES & set(path.with_suffix("").parts):
        yield "a vague name: name it after what it holds"
    body = tree.body[1:] if tree.body and isinstance(tree.body[0], ast.Expr) else tree.body
    if not body:
        return
    if not isinstance(body[0], ast.ImportFrom) or body[0].module != "__future__":
        yield "begins without `from __future__ import annotations`"
    if path.stem != "__main__" and "__all__" not in _assignments(body):
        yield "has no __all__: say what is public"


def _assignments(body: list[ast.stmt]) -> set[str]:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _core_faults(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"prints (line {node.lineno}): the core never does"
        elif (
            isinstance(node, ast.Attribute)
            and ast.unparse(node) == "sys.argv"
            and name != _READS_ITS_ARGUMENTS
        ):
            yield f"reads the command line (line {node.lineno}): only a child process reads its arguments"


def _store_faults(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "store":
            yield (
                f"reaches into a store (line {node.lineno}): use the knowledge base's own methods, "
                "such as `documents` and `jobs`"
            )


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield every file of the project: no caches, no virtual environments, nothing that Git ignores."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in _SHOWN_THOUGH_HIDDEN
        if hidden or path.name in _NOT_OURS or path == root / ".ci" / "work":
            continue
        if path.is_dir():
            yield from _files(path, root)
        else:
            yield path


def _file_faults(root: Path) -> Iterator[str]:
    for path in _files(root, root):
        text = path.read_bytes().decode("utf-8", "replace")
        named = [host for host in _REGISTRY_HOSTS if host in text]
        named += [match[0] for match in _PATHS_OF_MACHINES.finditer(text)]
        yield from (f"{path.relative_to(root)}: names {name}: leave it out" for name in named)


def _pin_faults(root: Path) -> Iterator[str]:
    pinned: dict[str, dict[str, set[str]]] = {}
    for name in ("dev", *_PINNED):
        text = (root / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        pins = _PIN.findall(text)
        entries = len(re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE))
        if len(pins) != entries:
            yield f"requirements/{name}.txt: {entries - len(pins)} of {entries} pins have no hash"
        if entries <= _FEWEST_PINS:
            yield f"requirements/{name}.txt: has {entries} pins only"
        for package, version in pins:
            pinned.setdefault(name, {}).setdefault(package, set()).add(version)
    for name in _PINNED:
        for package, versions in pinned.get(name, {}).items():
            if versions != pinned.get("dev", {}).get(package):
                yield f"requirements/{name}.txt: {package} is not of the version that dev.txt pins"


def _version_faults(root: Path) -> Iterator[str]:
    files = [root / "pyproject.toml", *sorted(root.glob("servers/*/pyproject.toml"))]
    projects = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in files]
    version = projects[0]["version"]
    for path, project in zip(files, projects, strict=True):
        name = path.relative_to(root)
        if project["version"] != version:
            yield f"{name}: is of version {project['version']}, the core of {version}"
        extras = project.get("optional-dependencies", {}).values()
        loom = [each for each in (*project["dependencies"], *chain(*extras)) if each.startswith("loom-")]
        if path != files[0] and not loom:
            yield f"{name}: does not require the core"
        others = [each for each in loom if not each.endswith(f"=={version}")]
        yield from (f"{name}: {each} is not =={version}" for each in others)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
