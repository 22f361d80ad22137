"""What a client is to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath, PureWindowsPath
from typing import Any, cast

__all__ = ["InstalledServer", "runs"]


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
    # Windows' rules find the last part of a path of either kind.
    if PureWindowsPath(command).name.lower().removesuffix(".exe") == program:
        return True
    if "-m" in words and words[words.index("-m") + 1 : words.index("-m") + 2] == [module]:
        return True
    return any(_requirement(word) == program for word in words)


def _requirement(word: str) -> str:
    """The package that a word names, as in `loom-kb@1.2` and `loom-kb[extra]==1.2`."""
    for sign in "@=[<>~!":
        word = word.partition(sign)[0]
    return PurePath(word).name
