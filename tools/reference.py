"""Writes every page of docs/ that is made from the code.

    python -m tools.reference              all pages
    python -m tools.reference --check      writes nothing; says which pages are not what the code says
    python -m tools.reference tool error   some of them, by the names of their modules

A page is a module `tools/*_reference.py` with `PAGE`, the file, and `page()`, its text. One that makes more
than one has `pages()`, their texts by their files.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT = Path(__file__).parents[1]
_SUFFIX = "_reference"
_SHOWN = 12  # lines of a difference


def names() -> list[str]:
    """Return the names of all generators."""
    return sorted(path.stem.removesuffix(_SUFFIX) for path in Path(__file__).parent.glob(f"*{_SUFFIX}.py"))


def pages(name: str) -> Mapping[Path, str]:
    """Return the pages that the generator of this name makes from the current code, by their files."""
    module = import_module(f"tools.{name}{_SUFFIX}")
    return module.pages() if hasattr(module, "pages") else {module.PAGE: module.page()}


def differences(name: str) -> dict[Path, list[str]]:
    """Return the pages that are not what the code says, each with the first lines that differ."""
    found: dict[Path, list[str]] = {}
    for page, text in pages(name).items():
        there = page.read_text(encoding="utf-8") if page.exists() else ""
        if there != text:
            lines = difflib.unified_diff(
                there.splitlines(), text.splitlines(), "written", "code", n=0, lineterm=""
            )
            found[page] = list(islice(lines, _SHOWN))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.reference", description="Write pages from the code."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())} (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page is old")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(names()):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    old = {page: lines for name in asked.names or names() for page, lines in differences(name).items()}
    for page, lines in old.items():
        print(page.relative_to(_ROOT))
        if asked.check:
            print("\n".join(f"  {line}" for line in lines))
    if asked.check and old:
        print("They are not what the code says: python -m tools.reference", file=sys.stderr)
        return 1
    made = {page: text for name in asked.names or names() for page, text in pages(name).items()}
    for page in old:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(made[page], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
