"""`read_file`: read a text file, whole or in part, or an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.errors import InvalidInputError
from loom_core.llm.messages import ImagePart
from loom_core.plugin_registry import register
from loom_core.tokens import estimate_tokens
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.text_file import MAX_IMAGE_BYTES, TextFile, binary_kind, image_type
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import ToolOutput

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.tools.interface import Tool

__all__ = ["read_file_tool", "read_part"]

_MOST_BYTES = 32 << 20
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
        return read_part(root, path, start_line, lines)

    return tool(read_file, read_only=True, open_world=False)


def read_part(
    root: FileRoot, path: str, start_line: int = 1, lines: int = _MOST_LINES, *, tokens: int | None = None
) -> ToolOutput:
    """Read a part of a text file, or an image; see the tool. Blocks.

    Args:
        root: the folder of the file.
        path: the file.
        start_line: the first line, counted from 1, or from the end if negative.
        lines: maximum number of lines.
        tokens: approximate maximum of tokens; None for the maximum of characters of the tool.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is outside, too large, or neither text nor an image, or has no such line.
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
    room = _MOST_CHARACTERS
    if tokens is not None and read.text:
        room = min(room, tokens * len(read.text) // estimate_tokens(read.text))
    return ToolOutput(_format_lines(read, start_line, lines, room))


def _image(path: str, data: bytes, media_type: str) -> ToolOutput:
    if len(data) > MAX_IMAGE_BYTES:
        raise InvalidInputError(
            f"{path} is too large to be shown: {len(data):,} bytes, of at most {MAX_IMAGE_BYTES:,}.",
            advice="Use a smaller version of it.",
        )
    return ToolOutput(f"{path}: {media_type}, {len(data):,} bytes.", parts=(ImagePart(data, media_type),))


def _format_lines(read: TextFile, start: int, most: int, room: int) -> str:
    every = read.text.split("\n")
    if every[-1] == "":
        every.pop()
    first = max(start - 1, 0) if start >= 0 else max(len(every) + start, 0)
    if first >= len(every) > 0:
        raise InvalidInputError(
            f"There is no line {start}: the file has {len(every):,}.", advice="Read from an earlier line on."
        )
    shown: list[str] = []
    left = room
    for line in every[first : first + most]:
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line.removesuffix("\r"))
    notes: list[str] = []
    if not every:
        notes.append("the file is empty")
    elif not shown:
        shown = [every[first][:room]]
        notes.append(f"the first {room:,} of {len(every[first]):,} characters of this line")
    last = first + len(shown)
    if len(shown) < len(every):
        more = f"; read on with start_line={last + 1}" if last < len(every) else ""
        notes.append(f"lines {first + 1}–{last} of {len(every):,}{more}")
    if read.encoding != "utf-8":
        notes.append(f"the file is in {read.encoding}")
    return "\n".join([*shown, *([f"[{'; '.join(notes)}]"] if notes else [])])
