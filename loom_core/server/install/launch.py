"""Which command starts this program tomorrow, too.

A client starts a server long after `install` has run, from another folder and with hardly any environment.
So the command is an absolute path, and none into a place that is tidied up:

- Started by `uvx` or `uv tool run`: `uv tool run PACKAGE`. Its environment is in uv's cache, which may be
  emptied.
- Started by `pipx run`: `pipx run PACKAGE`. The same, after some days.
- Installed by `uv tool install`, `pipx install`, pip, or into a virtual environment: the script beside the
  interpreter. It stays where it is when the package is upgraded.
- Started by `python -m`, and there is no script: that interpreter, `-m` and the module.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loom_core.errors import ConfigError
from loom_core.installation import cache_keeper

__all__ = ["Interpreter", "Launch", "launch_of"]

_SCRIPT_SUFFIXES = (".exe", "") if os.name == "nt" else ("",)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation.

    Attributes:
        executable: the interpreter as it was called: that of a virtual environment, not what it links to.
        prefix: the environment's folder.
        scripts: where its commands are.
        environment: what the process was given.
    """

    executable: Path
    prefix: Path
    scripts: Path
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> Interpreter:
        """The one that runs this program."""
        scripts = Path(sysconfig.get_path("scripts"))
        return cls(Path(sys.executable), Path(sys.prefix), scripts, os.environ)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program.

    Attributes:
        command: an absolute path.
        arguments: what comes before the program's own arguments.
        note: what the user should know about it; may be empty.
    """

    command: str
    arguments: tuple[str, ...] = ()
    note: str = ""


def launch_of(program: str, module: str, *, interpreter: Interpreter) -> Launch:
    """How to start a program, given how it runs now.

    Args:
        program: the name of its command and of its package.
        module: the module that `python -m` would run.
        interpreter: what runs it.

    Raises:
        ConfigError: it runs from a cache, and the program that keeps the cache cannot be found.
    """
    keeper = cache_keeper(interpreter.prefix)
    if keeper == "uv":
        uv = interpreter.environment.get("UV") or shutil.which("uv", path=_path(interpreter))
        return Launch(_kept(uv, "uv", program), ("tool", "run", program), _FETCHED.format("uv"))
    if keeper == "pipx":
        pipx = shutil.which("pipx", path=_path(interpreter))
        return Launch(_kept(pipx, "pipx", program), ("run", program), _FETCHED.format("pipx"))
    note = _TEMPORARY.format(interpreter.prefix) if _temporary(interpreter.prefix) else ""
    for suffix in _SCRIPT_SUFFIXES:
        script = interpreter.scripts / f"{program}{suffix}"
        if script.is_file():
            return Launch(str(script), note=note)
    return Launch(str(interpreter.executable), ("-m", module), note)


_FETCHED = "The client starts it by {0}, which fetches the package again where its cache has been emptied."
_TEMPORARY = "It runs from {0}, a folder for temporary files: install it elsewhere if it is to stay."


def _path(interpreter: Interpreter) -> str:
    return interpreter.environment.get("PATH", os.defpath)


def _kept(runner: str | None, name: str, program: str) -> str:
    if not runner:
        raise ConfigError(
            f"{program} runs from the cache of {name}, and the command {name} cannot be found.",
            advice=f"Put {name} on the PATH, or install {program} for good.",
        )
    return str(Path(runner).absolute())


def _temporary(folder: Path) -> bool:
    return folder.is_relative_to(Path(tempfile.gettempdir()).resolve())
