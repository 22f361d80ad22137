"""Counts how the code and the docs speak, and finds the words of a deny list in them.

    python -m tools.language            a table of figures, as Markdown
    python -m tools.language --check    a line for each of those words; exit code 1 where there are some

Words are counted in every module and every page in Markdown; names, docstrings and terms in the modules of
the core and of the servers.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.house import modules

__all__ = ["figures", "find_denied", "main"]

_ROOT = Path(__file__).parents[1]
_NOT_OURS = {"node_modules", ".venv", "demo_documents"}
_FOLDERS = ("loom_core", "servers", "tools", "tests", "benchmarks", "examples", "docs", "deploy")
# In two parts each, so that this file does not hold them either.
DENIED = (
    "a" + "new", "be" + "side", "who" + "ever", "no" + "body", "some" + "body", "any" + "body",
    "at the " + "most", "put " + "right",
)  # fmt: skip
_ALTERNATIVES = "|".join(DENIED).replace(" ", r"\s+")
_DENIED = re.compile(rf"\b({_ALTERNATIVES})\b", re.IGNORECASE)
_TERMS = (
    "SSRF", "deduplicat", "circuit breaker", "idempoten", "garbage collect", "semaphore", "slot", "backoff",
    "lexical index",
)  # fmt: skip
_IRREGULAR = frozenset(
    """
    asked begun bound brought built chosen cut done drawn driven found given gone held hidden kept known
    laid left lent lost made meant met paid put said seen sent shown spoken spent stood taken taught
    thought told understood woken won written
    """.split()
)
_NO_PARTICIPLES = {"embed", "feed", "need", "seed", "shed", "speed", "exceed", "proceed", "succeed", "bed"}


def find_denied(root: Path = _ROOT) -> list[str]:
    """The places in code and docs that have a word of the deny list, a line each."""
    return [
        f"{path.relative_to(root)}:{number}: `{match[0]}` is no plain English"
        for path in _texts(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in _DENIED.finditer(line)
    ]


def figures(root: Path = _ROOT) -> dict[str, str]:
    """Return the figures of a working tree, by name."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules(root)}
    functions = [name for tree in trees.values() for name in _functions(tree)]
    participles = sum(map(_is_participle, functions))
    docstrings = [text for tree in trees.values() for text in _docstrings(tree)]
    words = Counter(" ".join(match.lower().split()) for match in _DENIED.findall(_all_text(root)))
    code = "\n".join(path.read_text(encoding="utf-8") for path in trees).lower()
    return {
        "functions, no properties": f"{len(functions):,}",
        "named by a past participle": f"{participles:,} ({participles / len(functions):.1%})",
        "docstrings": f"{len(docstrings):,}",
        'that begin with "What"': str(sum(text.startswith("What ") for text in docstrings)),
        **{f'"{word}"': str(words[word]) for word in DENIED},
        **{f'"{term}" in code': str(code.count(term.lower())) for term in _TERMS},
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures, or the words to replace; the exit code."""
    if "--check" in arguments:
        found = find_denied()
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    print("| | |\n|---|---|")
    for name, figure in figures().items():
        print(f"| {name} | {figure} |")
    return 0


def _texts(root: Path) -> Iterator[Path]:
    """Modules and pages."""
    yield from sorted(root.glob("*.md"))
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and not _NOT_OURS & {*path.parts}:
                yield path


def _all_text(root: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in _texts(root))


def _functions(tree: ast.Module) -> Iterator[str]:
    """Names of the functions that are no properties, no overloads and no methods of the language."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter", "overload"}:
                yield node.name


def _is_participle(name: str) -> bool:
    first = name.lstrip("_").split("_")[0]
    return first in _IRREGULAR or (first.endswith("ed") and len(first) > 3 and first not in _NO_PARTICIPLES)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of modules, classes and functions, and strings below attributes and constants."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
            case _:
                pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
