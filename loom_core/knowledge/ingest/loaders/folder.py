"""Find the documents in a folder; skip files that no user means to load."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.files.safe_open import open_regular
from loom_core.knowledge.ingest.loaders.credentials import (
    holds_credentials,
    is_named_as_credentials,
    is_private_key,
)
from loom_core.knowledge.ingest.loaders.generated import (
    GENERATED,
    is_generated,
    is_generated_folder,
    is_minified,
    may_be_minified,
)
from loom_core.knowledge.ingest.loaders.gzipped import GZIP, inner_path, unpack_head
from loom_core.knowledge.ingest.loaders.registry import (
    PROBE,
    advise_on_format,
    format_for,
    format_of_content,
    is_known_by_content,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pathspec import GitIgnoreSpec

__all__ = ["ScanEntry", "scan"]

_IGNORE_FILES = (".loomignore", ".gitignore")
"""Ignore files read in every folder; the first one with a matching rule decides."""

_MAX_RULES = 256 * 1024
_NEVER = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "CVS", "_darcs", "$RECYCLE.BIN"})
_VENV_MARK = "pyvenv.cfg"
_BARE_REPOSITORY = frozenset({"HEAD", "objects", "refs"})
_CREDENTIALS = "private key or credentials, never read"


@dataclass(frozen=True, slots=True)
class ScanEntry:
    """A file that was found.

    Attributes:
        path: absolute; below the real path of the folder that was scanned.
        size: in bytes; 0 if it could not be read.
        mtime_ns: time of its last change, in nanoseconds since the epoch.
        ctime_ns: time of the last change of its inode; of its creation on Windows.
        skipped: why it will not be loaded, in a few words, or None if it will.
        is_known: whether it could be read; if a folder could not, nothing below it is known.
    """

    path: Path
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    skipped: str | None = None
    is_known: bool = True


def scan(
    root: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    within: Sequence[Path] = (),
) -> Iterator[ScanEntry]:
    """Walk a folder, sorted by name, and report for every file whether it will be loaded.

    Files that are excluded already are left out silently: hidden ones, version
    control, virtual environments, `node_modules`, `__pycache__`, whatever `.gitignore` or `.loomignore` files
    name (at every level, with Git's rules; `.loomignore` decides first), and whatever `include` and `exclude`
    leave out. Any other file that will not be loaded comes with the reason: no loader for its type, a link
    out of the folder, no permission, keys or passwords in it, made by a tool. A folder that a tool made is
    one entry. What an ignore file includes again (`!_static/`), and the root, never count as generated.

    Links are not followed: a target inside the folder is found at its own path.

    Args:
        root: a folder, or a single file, which is then the only entry.
        include: patterns as in `.gitignore`, relative to the root; where given, only files they match.
        exclude: such patterns for files and folders to leave out.
        within: if given, only these files and folders below the root's real path are scanned.

    Raises:
        InvalidInputError: the root does not exist, or a pattern is malformed.
    """
    try:
        real = root.resolve(strict=True)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{root} does not exist or cannot be read.", advice="Check the path."
        ) from error
    included, excluded = _spec(include, "include"), _spec(exclude, "exclude")
    if not real.is_dir():
        return iter((_entry(real, real.parent),))
    return _Walk(real, included, excluded, _Within.of(real, within)).run()


def _spec(patterns: Sequence[str], what: str) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(patterns) if patterns else None
    except Exception as error:  # see `_compile`
        raise InvalidInputError(
            f"The {what} pattern is malformed: {error}", advice="Use .gitignore syntax."
        ) from error


@dataclass(frozen=True, slots=True)
class _Rules:
    """One ignore file and the folder its patterns are relative to (`` or `a/b/`)."""

    base: str
    spec: GitIgnoreSpec


@dataclass(frozen=True, slots=True)
class _Within:
    """The part of a folder that is walked.

    Attributes:
        wanted: paths from the root, such as `a/b`, that are scanned with all below them; the empty one
            is the root.
        above: the folders above them.
    """

    wanted: frozenset[str]
    above: frozenset[str]

    @classmethod
    def of(cls, root: Path, paths: Sequence[Path]) -> _Within:
        """Return the selection of some paths below a root; no paths select all of it."""
        parts = [path.relative_to(root).parts for path in paths if path.is_relative_to(root)]
        wanted = frozenset("/".join(each) for each in parts) if paths else frozenset(("",))
        return cls(wanted, frozenset("/".join(each[:n]) for each in parts for n in range(len(each))))

    def has(self, relative: str) -> bool:
        """Whether a path is one of them, or on the way to one."""
        return relative in self.wanted or relative in self.above


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to walk.

    Attributes:
        path: the folder.
        prefix: its path from the root, ending in a slash.
        rules: of ignore files above it.
        whole: whether all below it is scanned.
        asked: whether an ignore file included it again, so that it is read even if it looks generated.
    """

    path: Path
    prefix: str = ""
    rules: tuple[_Rules, ...] = ()
    whole: bool = False
    asked: bool = False


class _Walk:
    def __init__(
        self, root: Path, included: GitIgnoreSpec | None, excluded: GitIgnoreSpec | None, within: _Within
    ) -> None:
        self._root = root
        self._included = included
        self._excluded = excluded
        self._within = within

    def run(self) -> Iterator[ScanEntry]:
        # An explicit stack: folders nest deeper than Python's.
        stack = [self._contents(_Folder(self._root))]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif isinstance(found, _Folder):
                stack.append(self._contents(found))
            else:
                yield found

    def _contents(self, folder: _Folder) -> Iterator[ScanEntry | _Folder]:
        """Yield the files and folders in a folder."""
        prefix = folder.prefix
        whole = folder.whole or prefix.rstrip("/") in self._within.wanted
        try:
            with os.scandir(folder.path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            yield ScanEntry(folder.path, skipped=f"folder cannot be read: {error.strerror}", is_known=False)
            return
        names = {entry.name for entry in entries}
        if (prefix and _VENV_MARK in names) or names >= _BARE_REPOSITORY:
            return
        rules = (*_read_rules(folder.path, prefix, names), *folder.rules)
        for entry in entries:
            relative = prefix + entry.name
            if not whole and not self._within.has(relative):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            left_out = self._is_ignored(entry, relative + "/" * is_folder, rules)
            if left_out:
                continue
            path = folder.path / entry.name
            wanted = folder.asked or left_out is False
            if entry.is_symlink():
                yield self._link(path)
            elif is_folder and not wanted and is_generated_folder(entry.name, names):
                if self._included is None:
                    yield ScanEntry(path, skipped=GENERATED)
            elif is_folder:
                yield _Folder(path, f"{relative}/", rules, whole, wanted)
            elif self._included is None or self._included.match_file(relative):
                yield _entry(path, self._root, siblings=None if wanted else names)

    def _is_ignored(self, entry: os.DirEntry[str], relative: str, rules: tuple[_Rules, ...]) -> bool | None:
        """Whether rules exclude an entry (True) or include it again (False); None if no rule matches."""
        if entry.name.startswith(".") or entry.name in _NEVER:
            return True
        if self._excluded is not None and self._excluded.match_file(relative):
            return True
        for rule in rules:  # innermost first
            verdict = rule.spec.check_file(relative.removeprefix(rule.base)).include
            if verdict is not None:
                return verdict
        return None

    def _link(self, path: Path) -> ScanEntry:
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return ScanEntry(path, skipped="broken link")
        if not target.is_relative_to(self._root):
            return ScanEntry(path, skipped="link to a place outside the folder")
        return ScanEntry(path, skipped="link inside the folder; its target is loaded in its own place")


def _read_rules(folder: Path, prefix: str, names: set[str]) -> Iterator[_Rules]:
    for name in _IGNORE_FILES:
        if name in names:
            try:
                with open_regular(folder / name) as file:
                    lines = file.read(_MAX_RULES).decode("utf-8-sig", "replace").splitlines()
            except OSError:
                continue
            yield from (_Rules(prefix, spec) for spec in _compile(lines))


def _compile(lines: Sequence[str]) -> list[GitIgnoreSpec]:
    """Compile ignore patterns, the last ones first; skip malformed ones, as Git does."""
    from pathspec import GitIgnoreSpec

    try:
        return [GitIgnoreSpec.from_lines(lines)]
    except Exception:  # noqa: BLE001 - RE2, which limits the size of a set, and `re` raise errors of their own
        middle = len(lines) // 2
        return [*_compile(lines[middle:]), *_compile(lines[:middle])] if middle else []


def _entry(path: Path, root: Path, *, siblings: set[str] | None = None) -> ScanEntry:
    """Scan one file: load it or skip it; its siblings help to detect generated files."""
    try:
        status = path.stat(follow_symlinks=False)
        regular = stat.S_ISREG(status.st_mode)
        skipped = _reason(path, root, siblings, status.st_size) if regular else "not a regular file"
    except OSError as error:
        return ScanEntry(path, skipped=f"cannot be read: {error.strerror}", is_known=False)
    return ScanEntry(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, skipped)


def _reason(path: Path, root: Path, siblings: set[str] | None, size: int) -> str | None:
    """Return why a file is skipped, or None.

    Raises:
        OSError: its content is needed, but it cannot be opened.
    """
    if is_named_as_credentials(inner_path(path)):
        return _CREDENTIALS
    if siblings is not None and is_generated(path.name, siblings):
        return GENERATED
    by_content = is_known_by_content(path)
    if not by_content and format_for(path) is None:
        return _format_problem(path)
    if size == 0:
        return "empty"
    if by_content:
        head = _head(path, root)
        if is_private_key(head) or holds_credentials(head):
            return _CREDENTIALS
        return None if format_of_content(head) else _format_problem(path)
    if siblings is not None and may_be_minified(path.name) and is_minified(_head(path, root)):
        return GENERATED
    return None


def _format_problem(path: Path) -> str:
    return f"unsupported type. {advise_on_format(path.suffix)}"


def _head(path: Path, root: Path) -> bytes:
    """Return the first bytes of a file below the root, decompressed."""
    with open_regular(path, roots=(root,)) as file:
        head = file.read(PROBE)
    packed = head.startswith(GZIP) and inner_path(path) != path
    return unpack_head(head, limit=PROBE) if packed else head
