"""Import lines that the documents, the examples and the specifications name: each works as it is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[2]
_SPECIFICATIONS = _ROOT.parent / "shared" / "spec"
_LINE = re.compile(r"\bfrom loom_core[\w.]* import (?:\([^)]*\)|\w+(?: as \w+)?(?:, *\w+(?: as \w+)?)*)")
_SPECIFIED = re.compile(r"^from loom[\w.]* import (\w+(?:, \w+)*)", re.MULTILINE)
# As docs/agent.md says.
_RENAMED = {"OpenAI": "OpenAIProvider", "InMemoryRetriever": "DocumentsKnowledgeBase"}


def _documents() -> list[Path]:
    found = [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md"), *_ROOT.glob("servers/*/*.md")]
    found += [path for path in _ROOT.glob("examples/**/*") if path.suffix in {".md", ".py"}]
    return sorted(found)


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    for line in map(str, _LINE.findall(path.read_text("utf-8"))):
        (node,) = ast.parse(line).body
        assert isinstance(node, ast.ImportFrom)
        assert node.module
        for alias in node.names:
            yield node.module, alias.name


def _missing(paths: list[Path]) -> list[str]:
    wanted = {(each, path.name) for path in paths for each in _imports(path)}
    return [
        f"{name}: from {module} import {member}"
        for (module, member), name in sorted(wanted)
        if not _has(module, member)
    ]


def _has(module: str, member: str) -> bool:
    try:
        return hasattr(import_module(module), member) or bool(import_module(f"{module}.{member}"))
    except ImportError:
        return False


def test_what_the_documents_and_examples_import_is_there() -> None:
    paths = _documents()
    assert sum(1 for path in paths for _ in _imports(path)) > 100
    assert not _missing(paths)


def test_what_the_documents_and_examples_import_is_offered_by_a_package_at_the_top() -> None:
    paths = [path for path in _documents() if path.name != "CONTRIBUTING.md"]  # shows modules of Loom itself
    wanted = {(module, path.name) for path in paths for module, _ in _imports(path)}
    assert not [f"{name}: from {module}" for module, name in sorted(wanted) if module.count(".") > 1]


def test_what_the_specifications_import_is_offered_by_a_public_package() -> None:
    if not _SPECIFICATIONS.is_dir():
        pytest.skip(f"The specifications are not at {_SPECIFICATIONS}.")
    texts = [path.read_text("utf-8") for path in sorted(_SPECIFICATIONS.glob("*.txt"))]
    named = {name for text in texts for names in _SPECIFIED.findall(text) for name in names.split(", ")}
    assert len(named) > 10
    offered = {name for package in _public_packages() for name in package.__all__}
    assert not {_RENAMED.get(name, name) for name in named} - offered


def _public_packages() -> list[ModuleType]:
    inits = [*_ROOT.glob("loom_core/*/__init__.py"), *_ROOT.glob("loom_core/knowledge/*/__init__.py")]
    packages = [import_module(".".join(init.parent.relative_to(_ROOT).parts)) for init in inits]
    return [package for package in packages if hasattr(package, "__all__")]
