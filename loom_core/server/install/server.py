"""What a client is to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, cast

__all__ = ["InstalledServer", "runs"]

_SCRIPTS = {"bin", "scripts"}  # what the folders of commands are called


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledServer:
    """A server as it is to stand in a client's configuration.

    Attributes:
        name: what the client calls it.
        program: the server's command, such as `loom-kb`, by which its entries are recognised.
        module: the module behind it, for `python -m`.
        description: what it does, in a sentence.
        command: an absolute path.
        arguments: what the command is given.
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
    """Whether an entry, of whichever client, starts a program."""
    command = entry.get("command", entry.get("cmd"))
    arguments = entry.get("args", ())
    if not isinstance(command, str) or not isinstance(arguments, Sequence):
        return False
    words = [str(argument) for argument in cast("Sequence[object]", arguments)]
    if _script(command) == program:
        return True
    if "-m" in words and words[words.index("-m") + 1 : words.index("-m") + 2] == [module]:
        return True
    return any(_started(word) == program for word in words)


def _started(word: str) -> str:
    """What a word starts: a package, as in `loom-kb@1.2` and `loom-kb[extra]==1.2`, or a script by its path.

    A path that leads elsewhere is something to work with: a folder may well have the name of a program.
    """
    folder = PureWindowsPath(word).parent.name
    if folder.lower() in _SCRIPTS:
        return _script(word)
    for sign in "@=[<>~!":
        word = word.partition(sign)[0]
    return word


def _script(path: str) -> str:
    """The command that a path leads to; Windows' rules find the last part of a path of either kind."""
    return PureWindowsPath(path).name.lower().removesuffix(".exe")
