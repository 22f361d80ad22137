"""Lazy exports: packages that import a module when one of its public names is used.

A package that imports its own modules when it is imported itself can deadlock two threads: one imports the
package and waits for one of its modules, the other imports that module and waits for the package (Python
breaks this with `_DeadlockError`). Loom imports heavy modules at first use, in threads, so its packages are
lazy.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["exports"]


def exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package with lazy exports, for the names in its `__all__`.

        if TYPE_CHECKING:
            from loom_core.llm.factory import create_provider

        __all__ = ["create_provider"]

        if not TYPE_CHECKING:
            __getattr__, __dir__ = exports(__name__)

    The module of each name is read from the `TYPE_CHECKING` imports in the package's source, at the first use
    of a name: 0.2 ms. No module of the package may have one of the names.
    """
    module = sys.modules[package]

    @cache
    def modules() -> dict[str, str]:
        import ast
        import inspect

        imports = (
            node
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.ImportFrom)
        )
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def __getattr__(name: str) -> object:  # noqa: N807 - what Python calls it
        if name not in module.__all__:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules()[name]), name)
        setattr(module, name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - what Python calls it
        return sorted({*vars(module), *module.__all__})

    return __getattr__, __dir__
