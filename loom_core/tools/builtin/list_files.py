"""`list_files`: list the content of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.plugin_registry import register
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.walk import Walk, display_path, name_matcher
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.tools.builtin.walk import WalkedFile
    from loom_core.tools.interface import Tool

__all__ = ["folder_in", "list_files_tool"]

_SECONDS = 10.0
_MOST = 1000
_MARKS = {"folder": "/", "link": " (link)", "other": " (no file)"}


@register("tool", "list_files")
def list_files_tool(root: FileRoot | Path) -> Tool:
    """Create the tool for one folder."""
    root = FileRoot.of(root)

    def list_files(
        context: CallContext,
        path: str = ".",
        pattern: str = "",
        depth: Annotated[int | None, Field(ge=1, le=50)] = None,
        hidden: bool = False,
        limit: Annotated[int, Field(ge=1, le=_MOST)] = 200,
    ) -> str:
        """List the files and folders in a folder, or find files by their names. Sizes are in bytes.

        Args:
            context: Of the call.
            path: The folder.
            pattern: Only files that match, such as `*.md` or `src/**/test_*.py`, in all folders below.
            depth: How many folders deep; by default 1 without a pattern, and any with one.
            hidden: Show names that begin with a dot, `node_modules` and `__pycache__` as well.
            limit: How many at most.
        """
        start = folder_in(root, path)
        matches = name_matcher(pattern) if pattern else None
        walk = Walk(
            root.folder,
            start,
            depth=depth or (None if matches else 1),
            hidden=hidden,
            seconds=min(_SECONDS, context.seconds or _SECONDS),
        )
        below = len(start.relative_to(root.folder).as_posix()) + 1 if start != root.folder else 0
        shown: list[str] = []
        more = False
        for entry in walk:
            if matches and (entry.kind == "folder" or not matches(display_path(entry.path[below:]))):
                continue
            if more := len(shown) == limit:
                break
            shown.append(_line(entry))
        if more:
            shown.append(f"[the first {limit} are shown: narrow it by `path` or `pattern`, or raise `limit`]")
        if walk.ended:
            shown.append("[not everything was listed, time ran out: narrow it by `path` or `depth`]")
        return "\n".join(shown) or ("[no file matches]" if matches else "[the folder is empty]")

    return tool(list_files, read_only=True, open_world=False)


def folder_in(root: FileRoot, path: str) -> Path:
    """Resolve a folder that a model names.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: it is outside, or a file.
    """
    real = root.locate(path)
    if real.is_dir():
        return real
    if real.exists():
        raise InvalidInputError(f"{path} is not a folder.", advice="Read it, or give its folder.")
    raise NotFoundError(f"There is no folder {path!r}.", advice="List `.` to see what there is.")


def _line(entry: WalkedFile) -> str:
    name = display_path(entry.path)
    return f"{name} ({entry.size:,})" if entry.kind == "file" else f"{name}{_MARKS[entry.kind]}"
