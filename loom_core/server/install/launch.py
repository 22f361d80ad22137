"""Launch command: how to start this program again, from any folder and with a minimal environment.

The command is an absolute path, and never one into a cache:

- Run by `uvx` or `uv tool run`: `uv tool run OPTIONS PACKAGE@VERSION`, with the options that uv was
  given, and with `--from` where the package came from a file, a folder or a repository.
- Run by `uv run --with …`: the same `uv run`, in the same folder.
- Run by `pipx run`: `pipx run --spec PACKAGE==VERSION PACKAGE`.
- Installed by `uv tool install`, `pipx install`, pip, or into a virtual environment such as that of a clone:
  the script next to the interpreter. It stays where it is when the package is upgraded.
- Run by `python -m`, and there is no script: that interpreter, `-m` and the module.

uv's options are read from its command line. If that cannot be read, or is not enough, `check_launch` raises
an error before anything is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path, PureWindowsPath
from typing import Any, cast

from loom_core.errors import ConfigError
from loom_core.installation import cache_tool

__all__ = [
    "InstalledServer",
    "Interpreter",
    "Launch",
    "check_launch",
    "host_environment",
    "launch_of",
    "parent_command",
    "runs",
]

_SCRIPT_SUFFIXES = (".exe", "") if os.name == "nt" else ("",)
# Variables that hosts pass on, as in the SDK's example (mcp.client.stdio); no keys are among them.
_INHERITED = (
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE PROGRAMFILES SYSTEMDRIVE"
    " SYSTEMROOT TEMP USERNAME USERPROFILE"
    if sys.platform == "win32"
    else "HOME LOGNAME PATH SHELL TERM USER"
).split()
_ONCE = {"--refresh", "--reinstall", "--upgrade", "-U"}
"""Options of uv that are for one run, not for each start."""

_ONCE_WITH_VALUE = {"--from", "--refresh-package", "--reinstall-package", "--upgrade-package", "-P"}
"""The same, with a value; `--from` is replaced by the resolved package."""

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables with the certificates that uv trusts. Hosts do not pass them on."""

_SYSTEM_CERTIFICATES = "--system-certs"
"""Option of uv that replaces these variables."""

_WITH_CREDENTIALS = re.compile(r"://(?!git@)[^/\s]*@")
_EXTRAS = re.compile(r"[\w.-]+(\[[^\]]*\])")
_START_SECONDS = 120.0
_SHOWN = 400  # characters of a failed command's output
_FETCHED = (
    "The client starts this version by {0}, which fetches it again where its cache has been emptied. After an"
    " upgrade, run install again."
)
_TEMPORARY = "It runs from {0}, a folder for temporary files: install it elsewhere if it is to stay."
_SCRIPTS = {"bin", "scripts"}  # what the folders of commands are called


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation, and how it was started.

    Attributes:
        executable: path of the interpreter; in a virtual environment its own, not the target of the link.
        prefix: the environment's folder.
        scripts: folder of its commands.
        packages: folder of its packages.
        environment: environment variables of the process.
        folder: the current folder.
        parent: the command line that started this program, without the program's own arguments; empty if
            unknown.
    """

    executable: Path
    prefix: Path
    scripts: Path
    packages: Path
    environment: Mapping[str, str]
    folder: Path
    parent: tuple[str, ...] = ()

    @classmethod
    def this(cls) -> Interpreter:
        """Return the interpreter of this program."""
        prefix = Path(sys.prefix)
        return cls(
            executable=Path(sys.executable),
            prefix=prefix,
            scripts=Path(sysconfig.get_path("scripts")),
            packages=Path(sysconfig.get_path("purelib")),
            environment=os.environ,
            folder=Path.cwd(),
            parent=parent_command() if cache_tool(prefix) == "uv" else (),
        )


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program.

    Attributes:
        command: an absolute path.
        arguments: arguments before the program's own.
        note: note for the user; may be empty.
        keeper: the tool that runs the package from its cache, uv or pipx; empty if it is installed.
    """

    command: str
    arguments: tuple[str, ...] = ()
    note: str = ""
    keeper: str = ""


def launch_of(program: str, module: str, *, interpreter: Interpreter) -> Launch:
    """Find the command to start a program, from how it runs now.

    Args:
        program: the name of its command and of its package.
        module: the module that `python -m` would run.
        interpreter: the interpreter that runs it.

    Raises:
        ConfigError: it runs from a cache and cannot be started from there again: the tool of the cache cannot
            be found, or its options hold credentials.
    """
    keeper = cache_tool(interpreter.prefix)
    if keeper:
        runner = interpreter.environment.get("UV") if keeper == "uv" else None
        runner = runner or shutil.which(keeper, path=interpreter.environment.get("PATH", os.defpath))
        if not runner:
            raise ConfigError(
                f"{program} runs from the cache of {keeper}, and the command {keeper} cannot be found.",
                advice=f"Put {keeper} on the PATH and run install again.",
            )
        arguments = (_uv_arguments if keeper == "uv" else _pipx_arguments)(program, interpreter)
        if any(map(_WITH_CREDENTIALS.search, arguments)):
            raise ConfigError(
                f"{keeper} was given an address with credentials, which the entry would show to all.",
                advice=_install_advice(keeper, program),
            )
        return Launch(str(Path(runner).absolute()), arguments, _FETCHED.format(keeper), keeper)
    note = _TEMPORARY.format(interpreter.prefix) if _temporary(interpreter.prefix) else ""
    for suffix in _SCRIPT_SUFFIXES:
        script = interpreter.scripts / f"{program}{suffix}"
        if script.is_file():
            return Launch(str(script), note=note)
    return Launch(str(interpreter.executable), ("-m", module), note)


def check_launch(launch: Launch, program: str) -> None:
    """Run a program with `--version` as a host would start it. Blocks, usually for half a second.

    The server itself is not started: it would begin pending work, and then be interrupted.

    Raises:
        ConfigError: it does not start.
    """
    command = [launch.command, *launch.arguments, "--version"]
    try:
        done = subprocess.run(
            command,
            env=host_environment(),
            cwd=os.path.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"it did not answer within {_START_SECONDS:g} s"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if done.stdout.decode("utf-8", "replace").split()[:1] == [program]:
            return
        said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())
        reason = said[:_SHOWN] or f"it ended with code {done.returncode}"
    if launch.keeper:
        advice = _install_advice(launch.keeper, program)
    else:
        advice = f"See that this works in another folder and without your environment: {shlex.join(command)}"
    raise ConfigError(
        f"A client could not start {program} by what would be written, and nothing was changed: {reason}",
        advice=advice,
    )


def host_environment() -> dict[str, str]:
    """Return the part of this process's environment that hosts pass to servers."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def parent_command() -> tuple[str, ...]:
    """Return the command line of the parent process, without the arguments that it passed on.

    It is empty if it cannot be read.
    """
    own, parent = _command_line(os.getpid()), _command_line(os.getppid())
    while own and parent and own[-1] == parent[-1]:
        del own[-1], parent[-1]
    return tuple(parent)


def _command_line(process: int) -> list[str]:
    try:
        raw = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        if sys.platform != "darwin":
            return []
        # `ps` joins the words. Where one has a blank the command does not start, and `check_launch` says so.
        ps = ["/bin/ps", "-ww", "-o", "args=", "-p", str(process)]
        return os.fsdecode(subprocess.run(ps, capture_output=True, check=False).stdout).split()
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]


def _uv_arguments(program: str, interpreter: Interpreter) -> tuple[str, ...]:
    first, options, started = _uv_options(program, interpreter.parent)
    folder: tuple[str, ...] = ()
    if "run" in first or any(_names_path(word, interpreter.folder) for word in options):
        folder = ("--directory", str(interpreter.folder))
    if "run" in first:
        return (*folder, *first, *options, started)
    extras = _extras(program, started)
    kept: list[str] = []
    words = iter(options)
    for word in words:
        name, _, value = word.partition("=")
        if name in _ONCE_WITH_VALUE:
            value = value or next(words, "")
            extras = extras or (_extras(program, value) if name == "--from" else "")
        elif word not in _ONCE:
            kept.append(word)
    if any(interpreter.environment.get(name) for name in _CERTIFICATES) and _SYSTEM_CERTIFICATES not in kept:
        kept.append(_SYSTEM_CERTIFICATES)
    version, url = _origin(program, interpreter)
    what = ("--from", f"{program}{extras} @ {url}", program) if url else (f"{program}{extras}@{version}",)
    return (*folder, *first, "tool", "run", *kept, *what)


def _uv_options(program: str, parent: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Split uv's command line: the words up to `run`, its options, and the command.

    The first part omits `tool run`. The first two are empty if this program was started in another way.
    """
    words = list(parent[1:])
    if not words or re.split(r"[\[@=]", words[-1])[0] != program:
        return (), (), program
    started = words.pop()
    for at, word in enumerate(words):
        if word == "tool" and words[at + 1 : at + 2] in (["run"], ["uvx"]):
            return tuple(words[:at]), tuple(words[at + 2 :]), started
        if word == "run":
            return tuple(words[: at + 1]), tuple(words[at + 1 :]), started
    return (), (), program


def _names_path(word: str, folder: Path) -> bool:
    """Return whether an option has a path relative to a folder."""
    value = word.partition("=")[2] or word
    return bool(value) and not Path(value).is_absolute() and os.path.lexists(folder / value)


def _extras(program: str, requirement: str) -> str:
    found = _EXTRAS.match(requirement)
    return found[1] if found and requirement.startswith(program) else ""


def _pipx_arguments(program: str, interpreter: Interpreter) -> tuple[str, ...]:
    version, url = _origin(program, interpreter)
    return ("run", "--spec", f"{program} @ {url}" if url else f"{program}=={version}", program)


def _origin(program: str, interpreter: Interpreter) -> tuple[str, str]:
    """Return the version of a package and its origin; empty for an index or a folder of wheels."""
    for found in Distribution.discover(name=program, path=[str(interpreter.packages)]):
        origin = found.read_text("direct_url.json")
        return found.version, _url(json.loads(origin)) if origin else ""
    raise ConfigError(
        f"{program} runs from a cache, and which version it is cannot be told.",
        advice=_install_advice("uv", program),
    )


def _url(origin: Mapping[str, Any]) -> str:
    """Return the URL of a direct reference (PEP 610), with the commit of a repository."""
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    if commit := origin.get("vcs_info"):
        return f"{commit['vcs']}+{origin['url']}@{commit['commit_id']}{part}"
    return f"{origin['url']}{part}"


def _install_advice(keeper: str, program: str) -> str:
    options = f"the options that {keeper} was given, such as --index"
    if keeper == "uv":
        how, options = f"uv tool install {program}", options + " or --find-links"
    else:
        how = f"pipx install {program}"
    return f"Install it to stay ({how}, with {options}), and run `{program} install` of that."


def _temporary(folder: Path) -> bool:
    return folder.is_relative_to(Path(tempfile.gettempdir()).resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledServer:
    """A server for the entry of a client's configuration.

    Attributes:
        name: name of the entry.
        program: the server's command, such as `loom-kb`, by which its entries are recognised.
        module: the module behind it, for `python -m`.
        description: description of the server, in a sentence.
        command: an absolute path.
        arguments: arguments of the command.
        variables: names of environment variables with secrets that it needs; never their values.
    """

    name: str
    program: str
    module: str
    description: str
    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


def runs(entry: Mapping[str, Any], *, program: str, module: str) -> bool:
    """Return whether an entry of any client starts a program."""
    command = entry.get("command", entry.get("cmd"))
    arguments = entry.get("args", ())
    if not isinstance(command, str) or not isinstance(arguments, Sequence):
        return False
    words = [str(argument) for argument in cast("Sequence[object]", arguments)]
    if _script(command) == program:
        return True
    if "-m" in words and words[words.index("-m") + 1 : words.index("-m") + 2] == [module]:
        return True
    return any(_launch_target(word) == program for word in words)


def _launch_target(word: str) -> str:
    """Return what a word starts: a package, as `loom-kb@1.2` and `loom-kb[extra]==1.2`, or a script's path.

    Any other path is an argument: a folder may have the name of a program.
    """
    folder = PureWindowsPath(word).parent.name
    if folder.lower() in _SCRIPTS:
        return _script(word)
    for sign in "@=[<>~!":
        word = word.partition(sign)[0]
    return word


def _script(path: str) -> str:
    """Return the command name of a path; Windows' rules split paths of either kind."""
    return PureWindowsPath(path).name.lower().removesuffix(".exe")
