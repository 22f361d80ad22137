"""Writes docs/reference/errors.md: the errors that Loom raises (`python -m tools.reference error`).

The page is made from the classes, the comments of their closed sets, and from where they are raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from inspect import getdoc, getsource
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import loom_core
from loom_core import errors
from loom_core.errors import LoomError
from tools.provider_reference import table

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "reference" / "errors.md"

_HEAD = """\
# Errors

Made by `python -m tools.reference` from the code; do not edit.

Every error that Loom raises on purpose is a `LoomError`: `message` says what happened, `advice` what to do,
`str()` both. It reaches you in one of these forms:

| where | form |
| --- | --- |
| a tool of a server | a result with `isError`, whose text is message and advice, for the model to act on |
| a command | message and advice on standard error, exit code 1; with `--debug` the traceback |
| a run | the event `error` with `message`, `advice` and `failure` ([events.md](events.md)) |
| a program | the exception |

The examples are a selection; `{…}` stands for inserted values.
"""

_EXAMPLES = 3
_SET = re.compile(r"^(\w+Failure) = Literal\[\n(.*?)^\]", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r'^    "(\w+)",(?:\s*# (.*))?$', re.MULTILINE)


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for kind in _family(LoomError):
        parts += [*_error(kind)]
    parts += ["## Why: the values of `failure`"]
    for name, body in _SET.findall(getsource(errors)):
        users = ", ".join(f"`{kind.__name__}`" for kind in _family(LoomError) if _uses(kind, name))
        rows = [(f"`{value}`", meaning) for value, meaning in _VALUE.findall(body)]
        parts += [f"### `{name}` ({users})", table([("value", "meaning"), *rows])]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _error(kind: type[LoomError]) -> Iterator[str]:
    base = kind.__bases__[0]
    yield f"## `{kind.__name__}`"
    about, _, attributes = (getdoc(kind) or "").partition("Attributes:\n")
    below = f" A kind of `{base.__name__}`." if base is not Exception else ""
    yield f"`{kind.__module__}.{kind.__name__}`. {' '.join(about.split())}{below}"
    rows = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    if rows:
        written = [(f"`{name}`", " ".join(meaning.split())) for name, meaning in rows]
        yield table([("attribute", "meaning"), *written])
    if examples := _find_raises().get(kind.__name__, []):
        yield table([("for example", "advice"), *examples[:_EXAMPLES]])


def _family(kind: type[LoomError]) -> list[type[LoomError]]:
    """Return the class and all below it, in the order of their names."""
    _import_modules()
    found = [kind]
    for each in sorted(kind.__subclasses__(), key=lambda one: one.__name__):
        if not each.__name__.startswith("_") and each.__module__.startswith("loom_"):
            found += _family(each)
    return list(dict.fromkeys(found))


def _uses(kind: type[LoomError], name: str) -> bool:
    return "__init__" in vars(kind) and f"failure: {name}" in getsource(kind)


@cache
def _import_modules() -> tuple[ModuleType, ...]:
    """Import every module that defines an error, so that its class is known."""
    from importlib import import_module

    names = [module.name for module in walk_packages(loom_core.__path__, "loom_core.")]
    defining = [name for name in names if re.search(r"^class \w+Error\(", _source(name), flags=re.MULTILINE)]
    return tuple(import_module(name) for name in defining)


def _source(name: str) -> str:
    path = _ROOT.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


@cache
def _find_raises() -> dict[str, list[tuple[str, str]]]:
    """Collect messages with their advice for each class, one per module, in the order of the modules."""
    found: dict[str, list[tuple[str, str]]] = {}
    files = [*(_ROOT / "loom_core").rglob("*.py"), *(_ROOT / "servers").glob("*/loom_*/*.py")]
    for file in sorted(files):
        seen: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call) or not node.exc.args:
                continue
            name = ast.unparse(node.exc.func)
            advice = next((word.value for word in node.exc.keywords if word.arg == "advice"), None)
            pair = _text(node.exc.args[0]), _text(advice)
            if name not in seen and all(pair):
                seen.add(name)
                found.setdefault(name, []).append(pair)
    return found


def _text(node: ast.expr | None) -> str:
    """Return a text as in the code, with {…} for inserted values; empty if it is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [str(each.value) if isinstance(each, ast.Constant) else "{…}" for each in node.values]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
