"""Child processes of Loom: how to start them, limit them and describe their exit."""

from __future__ import annotations

import json
import os
import signal
import sys

__all__ = ["child_command", "describe_exit", "limit_memory", "lower_priority"]

# -I keeps the child from the user's environment; the parent's own path makes it find the same packages.
_BOOTSTRAP = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
_NICENESS = 10


def child_command(module: str) -> list[str]:
    """Return the command that runs `main` of a module in a separate Python process."""
    return [sys.executable, "-I", "-c", _BOOTSTRAP.format(module=module), json.dumps(sys.path)]


def lower_priority() -> None:
    """In a child: lower its scheduling priority."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)


def limit_memory(size: int | None) -> None:
    """In a child: limit its address space to some bytes, where the system supports it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    if size is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def describe_exit(code: int) -> str:
    """Describe the exit of a process by its exit code."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
