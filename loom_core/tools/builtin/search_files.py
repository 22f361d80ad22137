"""`search_files`: find lines of files by text or regular expression."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.errors import LoomError
from loom_core.plugin_registry import register
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.list_files import folder_in
from loom_core.tools.builtin.text_file import TextFile
from loom_core.tools.builtin.walk import Walk, WalkedFile, display_path, name_matcher
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext
from loom_core.tools.patterns import Matcher, text_search

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from loom_core.tools.interface import Tool

__all__ = ["search_files_tool"]

_SECONDS = 20.0
_MOST_BYTES = 8 << 20  # of one file
_MOST_FOUND = 500
_LINE = 300  # characters of a line that are shown
_EVERY = 2000  # lines between two checks of the clock


@register("tool", "search_files")
def search_files_tool(root: FileRoot | Path) -> Tool:
    """Create the tool for the files of one folder."""
    root = FileRoot.of(root)

    def search_files(
        context: CallContext,
        query: Annotated[str, Field(min_length=1, max_length=1000)],
        path: str = ".",
        files: str = "",
        regex: bool = False,
        ignore_case: bool = False,
        around: Annotated[int, Field(ge=0, le=10)] = 0,
        hidden: bool = False,
        limit: Annotated[int, Field(ge=1, le=_MOST_FOUND)] = 50,
    ) -> str:
        """Search in the text files of a folder, line by line. Shows `file:line: text`.

        Args:
            context: Of the call.
            query: What to look for: a text as it stands, or a regular expression.
            path: A folder, or one file.
            files: Only files whose names match, such as `*.py`.
            regex: `query` is a regular expression (without look-arounds and back references).
            ignore_case: `A` is `a`.
            around: How many lines to show before and after each that is found.
            hidden: Look into names that begin with a dot, `node_modules` and `__pycache__` as well.
            limit: How many lines are found at most.
        """
        seconds = min(_SECONDS, context.seconds or _SECONDS)
        start = root.locate(path)
        if start.is_file():
            walk = Walk(root.folder, start.parent, seconds=seconds)
            entries: Iterable[WalkedFile] = [WalkedFile(root.name(start), "file")]
        else:
            entries = walk = Walk(root.folder, folder_in(root, path), hidden=hidden, seconds=seconds)
        below = f"{root.name(start)}/" if start != root.folder else ""
        wanted = name_matcher(files) if files else None
        search = _Search(root, walk, _matcher(query, regex=regex, ignore_case=ignore_case), around, limit)
        for entry in entries:
            named = wanted is None or wanted(display_path(entry.path.removeprefix(below)))
            if entry.kind == "file" and named:
                search.look_into(entry.path)
            if search.full or walk.out_of_time():
                break
        return search.report()

    return tool(search_files, read_only=True, open_world=False)


def _matcher(query: str, *, regex: bool, ignore_case: bool) -> Matcher:
    if regex:
        return text_search(query, ignore_case=ignore_case)
    if ignore_case:
        folded = query.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: query in line


class _Search:
    def __init__(self, root: FileRoot, walk: Walk, matches: Matcher, around: int, limit: int) -> None:
        self._root = root
        self._walk = walk
        self._matches = matches
        self._around = around
        self._limit = limit
        self._shown: list[str] = []
        self._found = self._files = self._passed_over = 0
        self.full = False

    def look_into(self, path: str) -> None:
        """Search one file; skip it if it is no readable text."""
        try:
            data, _ = self._root.read(path, most=_MOST_BYTES)
        except LoomError:
            self._passed_over += 1
            return
        read = TextFile.of(data)
        if read is None:
            self._passed_over += 1
            return
        self._files += 1
        self._shown += self._lines(display_path(path), read.text.split("\n"))

    def report(self) -> str:
        """Return the result for a model."""
        notes: list[str] = []
        if self._walk.ended:
            notes.append("time ran out before everything was searched: narrow it by `path` or `files`")
        if self.full:
            notes.append(f"the first {self._limit} are shown: narrow it, or raise `limit`")
        if not self._found:
            notes.append(f"nothing found in {self._files:,} files")
        if self._passed_over:
            notes.append(f"{self._passed_over:,} files are not text, too large or may not be read")
        return "\n".join([*self._shown, *([f"[{'; '.join(notes)}]"] if notes else [])])

    def _lines(self, path: str, lines: list[str]) -> Iterator[str]:
        before = deque[str](maxlen=self._around)
        follow = 0
        for number, line in enumerate(lines, start=1):
            if number % _EVERY == 0 and self._walk.out_of_time():
                return
            if self._matches(line.removesuffix("\r")):
                if self._found == self._limit:
                    self.full = True
                    return
                self._found += 1
                yield from before
                before.clear()
                follow = self._around
                yield f"{path}:{number}: {_truncate(line)}"
            elif follow:
                follow -= 1
                yield f"{path}-{number}- {_truncate(line)}".rstrip()
            elif self._around:
                before.append(f"{path}-{number}- {_truncate(line)}".rstrip())


def _truncate(line: str) -> str:
    text = line.strip("\r") if len(line) <= _LINE else f"{line[:_LINE]} … ({len(line):,} characters)"
    return text.rstrip()
