"""Check of the Python version; older Pythons can run this module, to report the error."""

from __future__ import annotations

import sys

__all__ = ["require_python"]

_LEAST = (3, 11)


def require_python(program: str) -> None:
    """End the process with a message if Python is too old; code on the path bypasses the installer.

    Args:
        program: the command that was started; its distribution has the same name.
    """
    if sys.version_info < _LEAST:
        here = ".".join(map(str, sys.version_info[:2]))
        sys.exit(
            f"{program} needs Python {'.'.join(map(str, _LEAST))} or newer, and this is {here}.\n"
            f"  Install it with another Python: uv tool install --python 3.12 {program}"
        )
