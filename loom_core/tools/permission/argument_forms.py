"""The texts in arguments, and which paths they may mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import normpath
from typing import cast
from urllib.parse import unquote

__all__ = ["as_path", "as_windows_path", "climbs", "is_path_pattern", "leaves", "members", "tidied"]

_CLIMBS = re.compile(r"(?:^|[/\\])(?:\.\.)(?:[/\\]|$)|%2e|%5c", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:/")
_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")  # how a path begins there
_DEVICE = re.compile(r"//[?.]/(?:UNC(/))?", re.IGNORECASE)  # what Windows passes over
_PASSED_OVER = re.compile(r"[. ]+(?=/|\Z)|(?<=[^/]):[^/]*(?=/|\Z)")  # likewise: streams, and ends of names
_FILE = re.compile(r"file:(?://[^/\\]*)?(?=[/\\]|\Z)", re.IGNORECASE)  # with the host


def leaves(value: object) -> Iterator[str]:
    """All texts in an argument, however deep, and the names of members.

    Numbers, truth values and nulls are as JSON writes them.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            inner = cast("Mapping[str, object]", part)
            yield from inner
            waiting += inner.values()
        elif isinstance(part, list | tuple):
            waiting += cast("list[object]", part)
        elif part is None or isinstance(part, bool):
            yield {None: "null", True: "true", False: "false"}[part]
        elif isinstance(part, float) and part.is_integer():
            yield str(int(part))  # 22.0 is the port 22
        else:
            yield str(part)


def members(arguments: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Every named value, however deep: its whole name (`options.path`), its own, and the value."""
    waiting: list[tuple[str, object]] = [("", arguments)]
    while waiting:
        above, part = waiting.pop()
        if isinstance(part, Mapping):
            for name, value in cast("Mapping[str, object]", part).items():
                whole = f"{above}.{name}" if above else name
                yield whole, name, value
                waiting.append((whole, value))
        elif isinstance(part, list | tuple):
            waiting += ((above, each) for each in cast("list[object]", part))


def climbs(text: str) -> bool:
    """Whether a text goes up (`..`), plainly or percent-encoded: it may lead elsewhere than it looks."""
    return _CLIMBS.search(text) is not None


def is_path_pattern(pattern: str) -> bool:
    """Whether a pattern is meant for paths: it has a `/`, and neither white space nor a scheme."""
    if _FILE.match(pattern) or _WINDOWS.match(pattern):
        return True
    return (
        ("/" in pattern or pattern.startswith("~"))
        and not any(map(str.isspace, pattern))
        and "://" not in pattern
    )


def tidied(text: str) -> str:
    """A relative or absolute path without what means nothing (`./`, `a/../`, double slashes)."""
    return normpath(text.replace("\\", "/")) if text else text


def as_path(text: str, base: str, *, backslashes: bool = True) -> str:
    """A text as an absolute path without `.`, `..` and double slashes. What is on the disk is not looked at.

    Args:
        text: a path, POSIX or Windows, a `file:` address, or a pattern of paths.
        base: what a relative one is relative to.
        backslashes: whether they part names, as on Windows, or are characters like others.
    """
    if file := _FILE.match(text):
        text = unquote(text[file.end() :]) or "/"
    if backslashes:
        text = _DEVICE.sub(lambda match: "//" if match[1] else "", text.replace("\\", "/"), count=1)
    if text == "~" or text.startswith("~/"):
        text = f"{Path.home().as_posix()}{text[1:]}"
    if not text.startswith("/") and not _DRIVE.match(text):
        text = f"{base}/{text}"
    path = normpath(text)
    return path[1:] if path.startswith("//") else path  # POSIX leaves two slashes, which mean one here


def as_windows_path(path: str) -> str:
    """An absolute path without what Windows passes over: dots and spaces that end a name, and streams."""
    drive = path[:2] if _DRIVE.match(path) else ""
    return drive + _PASSED_OVER.sub("", path[len(drive) :])
