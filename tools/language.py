"""Lint program for the language of the code and the docs: a deny list, docstrings, names of functions.

    python -m tools.language            a table of figures, as Markdown
    python -m tools.language --check    a line for each fault; the exit code is 1 if there is one

A fault is a word of the deny list in a module or a Markdown page, a docstring that begins with "What", and
a share of functions named by a past participle above the limit. Names and terms are those of the core and
the servers, docstrings those of all but the tests. A line that holds data, such as a user's question, ends
with `# plain-english: data`, in Markdown with `<!-- plain-english: data -->`: the deny list does not apply
to it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from tools.house import modules

__all__ = ["faults", "figures", "find_denied", "main"]

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
_DATA = re.compile(r".*(# plain-english: data|<!-- plain-english: data -->)$", re.MULTILINE)
_MAX_PARTICIPLES = 0.06  # of the functions; a few are terms of the field
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


def faults(root: Path = _ROOT) -> list[str]:
    """Return every fault in a working tree, a line each."""
    return list(chain(find_denied(root), _docstring_faults(root), _name_faults(root)))


def find_denied(root: Path = _ROOT) -> list[str]:
    """Return the places in code and docs that have a word of the deny list, a line each."""
    return [
        f"{path.relative_to(root)}:{line}: `{word}` is no plain English" for path, line, word in _words(root)
    ]


def figures(root: Path = _ROOT) -> dict[str, str]:
    """Return the figures of a working tree, by name."""
    trees = _trees(root).values()
    functions, participles = _count(trees)
    docstrings = [text for tree in trees for _, text in _docstrings(tree)]
    words = Counter(word.lower() for _, _, word in _words(root))
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules(root)).lower()
    return {
        "functions, no properties": f"{functions:,}",
        "named by a past participle": f"{participles:,} ({participles / max(functions, 1):.1%})",
        "docstrings": f"{len(docstrings):,}",
        'that begin with "What"': str(sum(map(_is_riddle, docstrings))),
        **{f'"{word}"': str(words[word]) for word in DENIED},
        **{f'"{term}" in code': str(code.count(term.lower())) for term in _TERMS},
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures or the faults of this working tree; return the exit code."""
    if "--check" not in arguments:
        print("| | |\n|---|---|")
        for name, figure in figures().items():
            print(f"| {name} | {figure} |")
        return 0
    found = faults()
    for fault in found:
        print(fault)
    return 1 if found else 0


def _docstring_faults(root: Path) -> Iterator[str]:
    for path in _texts(root):
        if path.suffix != ".py" or path.relative_to(root).parts[0] == "tests":
            continue
        for line, text in _docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            if _is_riddle(text):
                yield f'{path.relative_to(root)}:{line}: a docstring that begins with "What"'


def _name_faults(root: Path) -> Iterator[str]:
    functions, participles = _count(_trees(root).values())
    if participles > _MAX_PARTICIPLES * functions:
        yield (
            f"{participles:,} of {functions:,} functions ({participles / functions:.1%}) are named by a past "
            f"participle, at most {_MAX_PARTICIPLES:.0%} may be: name them by a verb"
        )


def _trees(root: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in modules(root)}


def _texts(root: Path) -> Iterator[Path]:
    """Yield the modules and the pages."""
    yield from sorted(root.glob("*.md"))
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".md"} and not _NOT_OURS & {*path.parts}:
                yield path


def _words(root: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield the words of the deny list, each with its file and line."""
    for path in _texts(root):
        text = _DATA.sub("", path.read_text(encoding="utf-8"))
        for match in _DENIED.finditer(text):
            yield path, text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


def _functions(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions, without properties, overloads and methods of the language."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter", "overload"}:
                yield node.name


def _count(trees: Iterable[ast.Module]) -> tuple[int, int]:
    """Return how many functions there are, and how many of them are named by a past participle."""
    names = [name for tree in trees for name in _functions(tree)]
    return len(names), sum(map(_is_participle, names))


def _is_participle(name: str) -> bool:
    first = name.lstrip("_").split("_")[0]
    return first in _IRREGULAR or (first.endswith("ed") and len(first) > 3 and first not in _NO_PARTICIPLES)


def _is_riddle(docstring: str) -> bool:
    return re.match(r"What\b", docstring) is not None


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings and strings below attributes and constants, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
