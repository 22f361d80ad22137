"""Packages that offer names of their modules, and import a module when one of its names is asked for.

A package that imports its own modules when it is imported itself can bring two threads to a standstill: the
one imports the package and waits for a module of it, the other imports that module and waits for the package
(Python ends it with `_DeadlockError`). Loom imports what is heavy at first use, in threads, so its packages
do not.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["exports"]


def exports(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

        if TYPE_CHECKING:
            from loom_core.llm.factory import create_provider

        __all__ = ["create_provider"]

        if not TYPE_CHECKING:
            __getattr__, __dir__ = exports(__name__, {"create_provider": ".factory"})

    Args:
        package: its name.
        modules: the names that it offers, each with the module that has it, whole or from a dot on relative
            to the package. No module of the package may have one of these names.
    """

    def __getattr__(name: str) -> object:  # noqa: N807 - what Python calls it
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - what Python calls it
        return sorted({*vars(sys.modules[package]), *modules})

    return __getattr__, __dir__
