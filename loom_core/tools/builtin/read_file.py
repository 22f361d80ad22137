"""`read_file`: read a text file, whole or in part, or an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.errors import InvalidInputError
from loom_core.llm.messages import ImagePart
from loom_core.plugin_registry import register
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.text_file import TextFile, binary_kind, image_type
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import ToolOutput

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.tools.interface import Tool

__all__ = ["read_file_tool"]

_MOST_BYTES = 32 << 20
_MOST_IMAGE_BYTES = 5 << 20  # the vendors' limit
_MOST_CHARACTERS = 60_000
_MOST_LINES = 5000


@register("tool", "read_file")
def read_file_tool(root: FileRoot | Path) -> Tool:
    """Create the tool for the files of one folder."""
    root = FileRoot.of(root)

    def read_file(
        path: str,
        start_line: int = 1,
        lines: Annotated[int, Field(ge=1, le=_MOST_LINES)] = 1000,
    ) -> ToolOutput:
        """Read a text file, in whatever encoding it is, or look at an image (PNG, JPEG, GIF, WebP).

        A note in brackets at the end says if there is more, and how to read on.

        Args:
            path: The file, such as `docs/plan.md`.
            start_line: The first line, counted from 1; -20 for the last 20 lines.
            lines: How many lines at most.
        """
        data, _ = root.read(path, most=_MOST_BYTES)
        if media_type := image_type(data):
            return _image(path, data, media_type)
        read = TextFile.of(data)
        if read is None:
            what = binary_kind(data) or "binary"
            raise InvalidInputError(
                f"{path} is not text: it is {what}, {len(data):,} bytes.",
                advice="A knowledge base reads PDF and Office documents.",
            )
        return ToolOutput(_format_lines(read, start_line, lines))

    return tool(read_file, read_only=True, open_world=False)


def _image(path: str, data: bytes, media_type: str) -> ToolOutput:
    if len(data) > _MOST_IMAGE_BYTES:
        raise InvalidInputError(
            f"{path} is too large to be shown: {len(data):,} bytes, of at most {_MOST_IMAGE_BYTES:,}.",
            advice="Use a smaller version of it.",
        )
    return ToolOutput(f"{path}: {media_type}, {len(data):,} bytes.", parts=(ImagePart(data, media_type),))


def _format_lines(read: TextFile, start: int, most: int) -> str:
    every = read.text.split("\n")
    if every[-1] == "":
        every.pop()
    first = max(start - 1, 0) if start >= 0 else max(len(every) + start, 0)
    if first >= len(every) > 0:
        raise InvalidInputError(
            f"There is no line {start}: the file has {len(every):,}.", advice="Read from an earlier line on."
        )
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in every[first : first + most]:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line.removesuffix("\r"))
    notes: list[str] = []
    if not every:
        notes.append("the file is empty")
    elif not shown:
        shown = [every[first][:_MOST_CHARACTERS]]
        notes.append(f"the first {_MOST_CHARACTERS:,} of {len(every[first]):,} characters of this line")
    last = first + len(shown)
    if len(shown) < len(every):
        more = f"; read on with start_line={last + 1}" if last < len(every) else ""
        notes.append(f"lines {first + 1}–{last} of {len(every):,}{more}")
    if read.encoding != "utf-8":
        notes.append(f"the file is in {read.encoding}")
    return "\n".join([*shown, *([f"[{'; '.join(notes)}]"] if notes else [])])
