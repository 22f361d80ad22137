"""Writes the diagram of docs/explanation/architecture.md (`python -m tools.reference architecture`).

The diagram is made from what the packages import. An arrow is left out where others lead the same way, so
that the longest way from the servers down to the foundations can be seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tools.marked_block import with_block
from tools.provider_reference import table

if TYPE_CHECKING:
    from grimp import ImportGraph

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "explanation" / "architecture.md"

FOUNDATIONS = "foundations"
SERVERS = ("loom_kb", "loom_query", "loom_agent", "loom_flow")
_A_ROW = 6  # names in a row of the box of foundations
_OUTSIDE = {"loom_core.testing"}  # for tests: nothing imports it

Imports = Mapping[str, frozenset[str]]
"""Packages, each with those that it imports itself."""


def page() -> str:
    """Return the whole page."""
    text = PAGE.read_text(encoding="utf-8")
    return with_block(text, "packages", f"{diagram()}\n\n{table(_rows())}")


def diagram() -> str:
    """Return the packages and what they import, in Mermaid."""
    graph = transitive_reduction(group_foundations(imports()))
    lines = ["flowchart TD"]
    lines += [f'    {_id(name)}["{_title(name)}"]' for name in _order(graph)]
    lines += [
        f"    {_id(name)} --> {_id(each)}"
        for name in _order(graph)
        for each in _order(graph)
        if each in graph[name]
    ]
    return "```mermaid\n" + "\n".join(lines) + "\n```"


@cache
def modules() -> ImportGraph:
    """Return all modules with what they import, also inside functions; types alone do not count."""
    import grimp

    return grimp.build_graph("loom_core", *SERVERS, exclude_type_checking_imports=True, cache_dir=None)


@cache
def imports() -> Imports:
    """Return the imports among packages of `loom_core` and servers; types alone do not count."""
    graph = modules()
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        if (package := _package(module)) in _OUTSIDE:
            continue
        used = {_package(each) for each in graph.find_modules_directly_imported_by(module)}
        found.setdefault(package, set()).update(used - {package})
    found.pop("loom_core", None)
    return {name: frozenset(used - {"loom_core"}) for name, used in found.items()}


def group_foundations(graph: Imports) -> Imports:
    """Merge packages that import only foundations into the foundations.

    Foundations are single modules, and packages, that know no other part of Loom.
    """
    below: set[str] = set()
    while more := {name for name, used in graph.items() if name not in below and used <= below}:
        below |= more - _PARTS
        if more <= _PARTS:
            break

    def group(name: str) -> str:
        return FOUNDATIONS if name in below else name

    found: dict[str, set[str]] = {}
    for name, used in graph.items():
        found.setdefault(group(name), set()).update(group(each) for each in used)
    return {name: frozenset(used - {name}) for name, used in found.items()}


_PARTS = {"loom_core.llm", "loom_core.embedding"}  # of the picture, low as they stand


def transitive_reduction(graph: Imports) -> Imports:
    """Return the transitive reduction of the graph."""
    return {
        name: frozenset(
            each for each in used if not any(each in reachable(graph, by) for by in used - {each})
        )
        for name, used in graph.items()
    }


def reachable(graph: Imports, start: str) -> frozenset[str]:
    """Return the transitive dependencies of a package, with itself if it is in a cycle."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return frozenset(found)


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2]) if module.startswith("loom_core.") else module.partition(".")[0]


def _order(graph: Imports) -> list[str]:
    """Sort the packages topologically, from the servers down."""
    return sorted(graph, key=lambda name: (-len(reachable(graph, name)), name))


def _id(name: str) -> str:
    return name.replace(".", "_")


def _title(name: str) -> str:
    if name == FOUNDATIONS:
        names = [each.removeprefix("loom_core.") for each in _foundations()]
        rows = [" · ".join(names[at : at + _A_ROW]) for at in range(0, len(names), _A_ROW)]
        return "<br/>".join(rows)
    return {
        "loom_kb": "loom-kb",
        "loom_query": "loom-query-server",
        "loom_agent": "loom-agent-server",
        "loom_flow": "loom-flow-server",
    }.get(name, name.removeprefix("loom_core."))


@cache
def _foundations() -> tuple[str, ...]:
    return tuple(sorted(set(imports()) - set(group_foundations(imports()))))


def _rows() -> Iterator[tuple[str, ...]]:
    yield "package", "what it is"
    graph = group_foundations(imports())
    for name in [*_order(graph), *_foundations()]:
        if name == FOUNDATIONS:
            continue
        yield f"`{name}`", _about(name)
        for inner in sorted(each.parent.name for each in _path(name).glob("*/__init__.py")):
            yield f"· `{name}.{inner}`", _about(f"{name}.{inner}")


def _path(name: str) -> Path:
    folder = name.partition("_")[2].partition(".")[0]
    base = _ROOT if name.startswith("loom_core") else _ROOT / "servers" / folder
    return base.joinpath(*name.split("."))


def _about(name: str) -> str:
    """Return the first sentence of a package's or a module's docstring, which is not imported for it.

    Raises:
        ValueError: it has none.
    """
    path = _path(name)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"{name} does not say what it is: {file.name} has no docstring.")
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
