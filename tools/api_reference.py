"""Writes docs/reference/api/: a page for each public package of loom_core (`python -m tools.reference api`).

A page has a table, which any browser of repositories shows, and the directive from which mkdocstrings makes
signatures and docstrings when the site is built. A package is public when it exports names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import getdoc, isclass, ismodule, isroutine
from pathlib import Path

import loom_core
from tools.provider_reference import table

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "docs" / "reference" / "api"
_MODULES = ("callbacks", "errors", "paths", "plugins", "sdk_errors")  # no packages, but for programs, too

_INDEX = """\
# Python API

Made by `python -m tools.reference` from the code; do not edit.

A program imports from `loom_core` or from one of its packages; what lies deeper may move. On the site, the
pages show signatures and docstrings, too; [development.md](../../development.md#the-site) says how to
build it.

## Packages
"""

_PAGE = """\
# {name}

Made by `python -m tools.reference` from the code; do not edit.

{table}

::: {name}
    options:
      members:
{members}
"""


def pages() -> Mapping[Path, str]:
    """Return the index, and the page of each package."""
    made = {_FOLDER / f"{name}.md": _page(name) for name in _packages()}
    return {_FOLDER / "README.md": _index(), **made}


def _packages() -> list[str]:
    inits = (_ROOT / "loom_core").glob("*/__init__.py")
    packages = [init.parent.name for init in inits if _names(init.parent.name)]
    return sorted([*packages, *_MODULES])


def _names(package: str) -> list[str]:
    return sorted(getattr(import_module(f"loom_core.{package}"), "__all__", ()))


def _index() -> str:
    rows = [(f"[`loom_core.{name}`]({name}.md)", _first_paragraph(_module(name))) for name in _packages()]
    front = [(f"`{name}`", f"[`{package}`]({package}.md)") for name, package in _front()]
    return "\n\n".join(
        [
            _INDEX.strip("\n"),
            table([("package", "what it is"), *rows]),
            "## `loom_core`",
            "The names that most programs begin with, at the top: `from loom_core import Agent`.",
            table([("name", "its page"), *front]),
            "",
        ]
    )


def _front() -> Iterator[tuple[str, str]]:
    for name in sorted(loom_core.__all__):
        yield name, next(package for package in _packages() if name in _names(package))


def _page(package: str) -> str:
    names = _names(package)
    rows = [(f"`{name}`", _first_paragraph(getattr(_module(package), name))) for name in names]
    return _PAGE.format(
        name=f"loom_core.{package}",
        table=table([("name", "what it is"), *rows]),
        members="\n".join(f"        - {name}" for name in names),
    )


def _module(package: str) -> object:
    return import_module(f"loom_core.{package}")


def _first_paragraph(thing: object) -> str:
    if not (isclass(thing) or isroutine(thing) or ismodule(thing)):
        return ""  # a constant or a type: what is said of it is not there at run time
    return (getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
