"""Directory walk in order, and glob patterns for names."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from loom_core.errors import InvalidInputError
from loom_core.files.safe_open import real_path_of
from loom_core.tools.patterns import Matcher, text_search

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Walk", "WalkedFile", "display_path", "name_matcher"]

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_BY_DESCRIPTOR = os.scandir in os.supports_fd
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_SOURCES = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """An entry of a folder.

    Attributes:
        path: its path relative to the walk's root, with `/`.
        kind: its kind; links are not followed.
        size: bytes of a file.
    """

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int = 0


class Walk:
    """Walks everything below a folder, each folder before its content, sorted by name.

    Args:
        root: the real folder that paths are relative to, and that the walk does not leave.
        start: a real folder below it, where to start.
        depth: maximum depth; 1 for the content of `start` itself; None for no limit.
        hidden: whether to include names with a leading dot, and folders that only programs read.
        seconds: timeout of the walk.

    Attributes:
        ended: whether the timeout expired before everything was seen.
    """

    def __init__(
        self, root: Path, start: Path, *, depth: int | None = None, hidden: bool = False, seconds: float
    ) -> None:
        self._root = root
        self._start = start
        self._depth = depth
        self._hidden = hidden
        self._until = time.monotonic() + seconds
        self.ended = False

    def __iter__(self) -> Iterator[WalkedFile]:
        waiting = [(self._start, 1)]
        while waiting:
            folder, depth = waiting.pop()
            entries = self._entries(folder)
            inner: list[tuple[Path, int]] = []
            for entry in entries:
                if self.out_of_time():
                    return
                yield entry
                if entry.kind == "folder" and (self._depth is None or depth < self._depth):
                    inner.append((self._root / entry.path, depth + 1))
            waiting += reversed(inner)

    def out_of_time(self) -> bool:
        """Return whether the timeout has expired; the walk then counts as ended."""
        self.ended = self.ended or time.monotonic() > self._until
        return self.ended

    def _entries(self, folder: Path) -> Sequence[WalkedFile]:
        """Return the entries of a folder, until the timeout.

        Empty if the folder is gone, is unreadable, or has become a link to elsewhere.
        """
        found: list[WalkedFile] = []
        with suppress(OSError):
            if not _BY_DESCRIPTOR:
                with os.scandir(folder) as entries:
                    found += self._visible_entries(folder, entries)
            else:
                descriptor = os.open(folder, _FOLDER)
                try:
                    if real_path_of(descriptor, folder).is_relative_to(self._root):
                        with os.scandir(descriptor) as entries:
                            found += self._visible_entries(folder, entries)
                finally:
                    os.close(descriptor)
        return sorted(found, key=lambda walked: walked.path)

    def _visible_entries(self, folder: Path, entries: Iterable[os.DirEntry[str]]) -> Iterator[WalkedFile]:
        for entry in entries:
            if self.out_of_time():
                return
            if self._is_wanted(entry.name):
                yield self._to_walked_file(folder, entry)

    def _is_wanted(self, name: str) -> bool:
        return self._hidden or not (name.startswith(".") or name in _NOT_SOURCES)

    def _to_walked_file(self, folder: Path, entry: os.DirEntry[str]) -> WalkedFile:
        path = (folder / entry.name).relative_to(self._root).as_posix()
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return WalkedFile(path, "other")
        if stat.S_ISREG(status.st_mode):
            return WalkedFile(path, "file", status.st_size)
        if stat.S_ISLNK(status.st_mode):
            return WalkedFile(path, "link")
        return WalkedFile(path, "folder" if stat.S_ISDIR(status.st_mode) else "other")


def display_path(path: str) -> str:
    """Return a path on one line, in valid UTF-8: names may have any bytes in them."""
    text = path.encode("utf-8", "replace").decode()
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@lru_cache(maxsize=200)
def name_matcher(pattern: str) -> Matcher:
    """Compile a glob pattern for relative paths with `/`, such as `src/a.py`.

    `*` and `?` match within a name, `**` matches any folders, `[ab]` one of some characters, `{py,md}` one of
    some texts. A pattern without `/` matches the name alone, in any folder.

    Raises:
        InvalidInputError: a bracket is not closed, or it is too large.
    """
    given = pattern.strip().removeprefix("./")
    whole = given if "/" in given else f"**/{given}"
    return text_search(rf"\A{_translate_glob(whole.lstrip('/'), pattern)}\z")


def _translate_glob(glob: str, pattern: str) -> str:
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            parts.append("(?:[^/]*/)*")
            at += 2
        elif glob.startswith("**", at):
            parts.append(".*")
            at += 1
        elif char == "*":
            parts.append("[^/]*")
        elif char == "?":
            parts.append("[^/]")
        elif char == "[":
            end = glob.find("]", at + 2)
            if end < 0:
                raise _bracket_error(pattern)
            parts.append(_one_of(glob[at + 1 : end]))
            at = end
        elif char == "{":
            parts.append("(?:")
            depth += 1
        elif char in ",}" and depth:
            parts.append("|" if char == "," else ")")
            depth -= char == "}"
        else:
            parts.append(re.escape(char))
        at += 1
    if depth:
        raise _bracket_error(pattern)
    return "".join(parts)


def _one_of(characters: str) -> str:
    negated = characters[0] in "!^" and len(characters) > 1
    plain = characters[1:] if negated else characters
    escaped = re.sub(r"[\\\[\]^&~]", lambda match: "\\" + match[0], plain)
    return f"[^/{escaped}]" if negated else f"[{escaped}]"


def _bracket_error(pattern: str) -> InvalidInputError:
    return InvalidInputError(
        f"{pattern[:100]!r} has a bracket that is not closed.", advice="Close it, or write `?` in its place."
    )
